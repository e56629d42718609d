"""Where the parties of a trial on one machine answer: each in a folder of its own, below that of the trial."""

from __future__ import annotations

from pathlib import Path

from tacit.flow import ClientId
from tacit.service import SOCKET


def folder_of(trial: Path, party: ClientId) -> Path:
    """Return a party's folder: a client's site, or what a key holder has.

    >>> folder_of(Path("trial"), 3).name, folder_of(Path("trial"), -1).name
    ('site-3', 'holder-1')
    """
    return trial / (f"site-{party}" if party >= 0 else f"holder-{-party}")


def socket_of(trial: Path, party: ClientId) -> Path:
    """Return where a party answers."""
    return folder_of(trial, party) / SOCKET
