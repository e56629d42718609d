"""A new key holder: a folder with its rules and the key's memory, still empty."""

from __future__ import annotations

from pathlib import Path

from tacit.holder import process
from tacit.holder.memory import Memory
from tacit.holder.settings import FILE, MEMORY, Settings
from tacit.storage import make_folder, write_atomically

_ADVICE = "Choose another --out."


def init(folder: Path, settings: Settings) -> None:
    """Make a holder's folder, for its owner alone; what could not work is refused before anything is written.

    Args:
        folder: new, or without a memory: one that is there is never replaced.
        settings: what the operator allows; paths in it are whole.
    """
    settings.check(Path(FILE))
    file = process.key_file(settings)
    process.known_clients(settings)
    make_folder(folder, mode=0o700, advice=_ADVICE)
    Memory.make(folder / MEMORY, process.memory_identity(file))
    write_atomically(folder / FILE, settings.to_text().encode(), mode=0o600, replace=False, advice=_ADVICE)
