"""How the lines begin that a server prints, so that they are found in Flower's log."""

LINE, NOTE, ERROR = "tacit: ", "tacit note: ", "tacit error: "
