"""Why a node does not answer: a code for the server, and words for the log of the node's operator.

What goes wrong on a node may tell of its data, its files and its other settings, so nothing but a
:class:`tacit.wire.Failure` leaves it. The server makes words of the code, and names the node and the party.
"""

from __future__ import annotations

import logging

from tacit import wire
from tacit.errors import ConfigError, DataError, DeviceError, KeysError, RunError, StorageError, WireError

LOG = logging.getLogger("flwr.tacit")  # a child of Flower's, which prints it where Flower is
_CODES: tuple[tuple[type[Exception], wire.Failure], ...] = (
    (KeysError, wire.Failure.KEY),
    (DataError, wire.Failure.DATA),
    (StorageError, wire.Failure.STORAGE),
    (OSError, wire.Failure.STORAGE),
    (DeviceError, wire.Failure.DEVICE),
    (ConfigError, wire.Failure.SETTINGS),
    (WireError, wire.Failure.REQUEST),
    (RunError, wire.Failure.REFUSED),
)


class RefusalError(RunError):
    """A node refuses what it was asked for.

    Attributes:
        code: what the server is told.
    """

    def __init__(self, code: wire.Failure, message: str) -> None:
        super().__init__(message)
        self.code = code


def failure(turn: wire.Turn, error: Exception) -> bytes:
    """Leave in the node's log what went wrong, and return the frame that tells the server no more than its kind."""
    if isinstance(error, RefusalError):
        code = error.code
    else:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), wire.Failure.INTERNAL)
    LOG.error(
        "tacit: %s: %s", code.name, str(error) or repr(error), exc_info=error if code is wire.Failure.INTERNAL else None
    )
    return wire.pack_failure(turn, code)


def without_details(frame: bytes) -> bytes:
    """Return a client's reply; of a failure, the code alone, and the rest goes to the node's log."""
    found = wire.unpack_brief(frame)
    if found.kind is not wire.Kind.FAILURE:
        return frame
    code, words = wire.unpack_failure(found)
    LOG.error("tacit: %s: %s", code.name, words)
    return wire.pack_failure(found.turn, code)
