"""Key files for parties of one machine: those that the settings name, or new ones."""

from __future__ import annotations

from pathlib import Path

from tacit.flow import ClientId
from tacit.runs.sections import Paillier


def write_keys(settings: Paillier, folder: Path) -> dict[ClientId, str]:
    """Make the keys that the settings ask for, or take those they name, and return each holder's file."""
    from tacit.crypto import keyfile, paillier, threshold
    from tacit.runs.keys import holder_numbers

    numbers, needed = holder_numbers(settings)
    if settings.keys == "threshold":
        if settings.key is not None:
            return {number: str(Path(settings.key) / f"share-{-number}.key") for number in numbers}
        _, shares = threshold.generate(
            shares=len(numbers), threshold=needed, bits=settings.bits, insecure_key_size=settings.insecure_key_size
        )
        for share in shares:
            keyfile.save(folder / f"share-{share.index}.key", share)
        return {-share.index: str(folder / f"share-{share.index}.key") for share in shares}
    path = Path(settings.key) if settings.key is not None else folder / "private.key"
    if settings.key is None:
        _, private = paillier.generate(
            bits=settings.bits,
            kind=settings.kind,
            exponents=settings.exponents,
            insecure_key_size=settings.insecure_key_size,
        )
        keyfile.save(path, private)
    return {number: str(path) for number in numbers or (0,)}
