"""The command line: a command parses, calls one function, prints."""
