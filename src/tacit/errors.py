"""Every error Tacit raises on purpose.

::

    TacitError
    ├── LocalError               this side's fault: a setting, a file, the machine
    │   ├── ConfigError          a value that was given is not one that works
    │   ├── DataError            a data set is missing, damaged or of the wrong shape
    │   ├── DeviceError          the device that was asked for is not here
    │   ├── StorageError         a file could not be written or read
    │   ├── KeysError            a key file is damaged or of the wrong kind, or a passphrase is wrong
    │   ├── BudgetError          the next release would cost more than the budget allows
    │   ├── AccountingError      two bounds on the same epsilon contradict each other: no number is given
    │   └── RunError             the run's folder or state does not allow the request
    └── RemoteError              a peer's fault, or the network's
        ├── WireError            bytes that are no valid frame
        ├── CipherError          a ciphertext, share or proof that is not valid, or of another key or layout
        ├── LinkError            the way to the clients is lost
        ├── DropoutError         too few clients replied to go on safely
        ├── SpoiledError         a sum that honest clients can't have given: somebody lied, and nobody can be named
        └── ClientError          one client failed; names it and the round

Messages state the value, what was expected, and what to do. The command line prints them without a traceback.
"""

from __future__ import annotations


class TacitError(Exception):
    """The root of the hierarchy."""


class LocalError(TacitError):
    """Something on this side is wrong and can be mended here."""


class ConfigError(LocalError):
    """A setting is unknown, of the wrong type, or outside its domain."""


class DataError(LocalError):
    """A data set can't be had, is damaged, or does not fit the job."""


class DeviceError(LocalError):
    """The device that was asked for is not available."""


class StorageError(LocalError):
    """A file or folder can't be read or written."""


class KeysError(LocalError):
    """A key or its file is not one that can be used."""


class BudgetError(LocalError):
    """The privacy budget does not allow the next release."""


class AccountingError(LocalError):
    """Two bounds on the same epsilon contradict each other, so that neither is reported."""


class RunError(LocalError):
    """The run's folder or state does not allow what was asked."""


class RemoteError(TacitError):
    """A peer, or the way to it, failed."""


class WireError(RemoteError):
    """Bytes from a peer are not a valid frame."""


class CipherError(RemoteError):
    """A ciphertext, a share of a decryption or a proof is not what it claims to be."""


class LinkError(RemoteError):
    """The server that connects the parties can't be reached."""


class DropoutError(RemoteError):
    """Too few clients replied."""


class SpoiledError(RemoteError):
    """A sum is one that honest clients can't have given."""


class ClientError(RemoteError):
    """One client failed in a round.

    Attributes:
        client: the client's identifier.
        round_number: the round it failed in.
        failure: the code with which the client itself said so (:class:`tacit.wire.Failure`), where it did.
    """

    def __init__(self, message: str, *, client: int, round_number: int, failure: int | None = None) -> None:
        super().__init__(message)
        self.client = client
        self.round_number = round_number
        self.failure = failure
