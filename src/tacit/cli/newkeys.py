"""How ``tacit keys new`` makes keys and writes them: all or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from tacit.crypto.keyfile import AnyKey
    from tacit.crypto.new_keys import KeyOptions

Report = Callable[[int, float], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked for; None where an option was left out."""

    scheme: str
    bits: int | None
    kind: str | None
    exponents: str | None
    shares: tuple[int, int] | None
    group: str | None
    insecure_key_size: bool

    def __post_init__(self) -> None:
        if self.scheme not in ("paillier", "elgamal"):
            raise ConfigError(f"There is no scheme {self.scheme!r}. Expected paillier or elgamal.")
        strange: dict[str, Any] = {"--group": self.group}
        if self.scheme == "elgamal":
            strange = {"--kind": self.kind, "--shares": self.shares}
        given = [name for name, value in strange.items() if value is not None]
        if given:
            raise ConfigError(f"{given[0]} does not go with {self.scheme}. Leave it out; see `tacit keys new --help`.")
        if self.bits is not None and self.group is not None:
            raise ConfigError("Expected --group (a named group) or --bits (a prime of one's own), got both.")
        if self.scheme == "paillier":
            self.paillier()  # refuses what does not go together

    def paillier(self) -> KeyOptions:
        """Return what Paillier keys are asked for."""
        from tacit.crypto.new_keys import KeyOptions

        given = {"bits": self.bits, "kind": self.kind, "exponents": self.exponents, "shares": self.shares}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return KeyOptions(insecure_key_size=self.insecure_key_size, **options)


def free_paths(folder: Path, asked: Asked) -> list[Path]:
    """Return the files that will be written, public key first; refuse before the work where one is there."""
    names = ["private"] if asked.shares is None else [f"share-{place}" for place in range(1, asked.shares[1] + 1)]
    paths = [folder / f"{name}.key" for name in ("public", *names)]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise StorageError(
                f"{path} is there already, and keys are never overwritten. Choose another folder with --out, or move "
                "it."
            )
    parent = next((above for above in (folder, *folder.absolute().parents) if above.exists()), folder)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"Can't write into {folder}: {parent} is no folder you can write to. Choose another --out.")
    return paths


def check_passphrases(words: Sequence[str | None]) -> None:
    """Refuse a passphrase that is too short before a key is made for it."""
    from tacit.crypto.sealing import check_passphrase as check

    for one in words:
        if one is not None:
            check(one)


def make(asked: Asked, report: Report) -> list[AnyKey]:
    """Return the new keys, the public one first."""
    if asked.scheme == "paillier":
        public, secrets = asked.paillier().make(progress=report)
        return [public, *secrets]
    from tacit.crypto import elgamal, groups

    options: dict[str, Any] = {"insecure_key_size": asked.insecure_key_size}
    if asked.exponents is not None:
        options["exponents"] = asked.exponents
    group: Any = asked.group or elgamal.DEFAULT_GROUP
    if asked.bits is not None:
        group = groups.generate(asked.bits, progress=report, insecure_key_size=asked.insecure_key_size)
    return list(elgamal.generate(group, **options))


def write(paths: Sequence[Path], keys: Sequence[AnyKey], words: Sequence[str | None]) -> None:
    """Write all keys, secrets first and each under its own words, or none; the public one has none."""
    from tacit.crypto import keyfile

    written: list[Path] = []
    try:
        for path, key, passphrase in reversed(list(zip(paths, keys, (None, *words), strict=True))):
            keyfile.save(path, key, passphrase=passphrase)
            written.append(path)
    except BaseException:
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink()
        raise
