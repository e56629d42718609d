"""Key files for parties of one machine: those that the settings name, or new ones."""

from __future__ import annotations

from pathlib import Path

from tacit.config.sections import Paillier
from tacit.flow import ClientId
from tacit.modes.keys import key_files, secret_keys


def write_keys(settings: Paillier, folder: Path) -> dict[ClientId, str]:
    """Make the keys that the settings ask for, or check those they name, and return each holder's file."""
    from tacit.crypto import keyfile

    keys = secret_keys(settings)
    if settings.key is None:
        settings = settings.model_copy(
            update={"key": folder if settings.keys == "threshold" else folder / "private.key"}
        )
        for path, key in zip(key_files(settings).values(), keys, strict=True):
            keyfile.save(path, key)
    return {number: str(path) for number, path in key_files(settings).items()}
