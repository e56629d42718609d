"""``holder.yaml``: what a key holder's operator allows. Read when the process starts, and never from the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.errors import ConfigError, WireError
from tacit.protocols.paillier.differences import RULES, Rule

FILE, MEMORY = "holder.yaml", "memory.db"

_MOST = 1 << 31
_TEMPLATE = """\
# What this key holder allows. It is read when `tacit holder serve` starts; no message can change it.
# A key that is not known here is refused, so that a misspelt limit is not one that is missing.

# The private key, or the share of one, that this holder has: a file that is sealed with a passphrase.
key: {key}

# The true clients: one public key per line (`tacit keys identity` makes them). Nobody else is ever in a sum.
clients: {clients}

# The fewest clients of a sum.
minimum_clients: {minimum_clients}

# The most rounds that a run may be announced with.
rounds: {rounds}

# The most sums that are opened in the life of this key, over all runs. Then make a new key.
openings: {openings}

# What two sums may tell by their difference. pairs: the sets of clients of any two sums are the same, or differ by at
# least minimum_clients. chains: clients that were in the same sums are at least minimum_clients, however many sums
# there were; of shares, only where all holders are needed. none: sets are not compared; only where clients add noise
# before they encrypt (paillier --dp).
differences: {differences}

# Holders of a share prove that their part is right, so that a wrong one is named.
prove: {prove}

# Who may speak to the socket besides this user: a group of the system, such as that of the SuperNode. null: nobody.
group: {group}

# For experiments: a key file without a passphrase, and keys of less than 2048 bits.
unsealed: {unsealed}
insecure_key_size: {insecure_key_size}
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator allows.

    Attributes:
        key: the file of the key, or of a share of it.
        clients: the file that lists the true clients' identities.
        minimum_clients: the fewest clients of a sum.
        rounds: the most that a run may be announced with.
        openings: the most sums that are opened in the life of the key.
        differences: what two sums may tell by their difference, see :mod:`tacit.protocols.paillier.differences`.
        prove: whether a share's parts come with a proof.
        group: who may speak to the socket besides its owner.
        unsealed: allow a key file without a passphrase.
        insecure_key_size: allow keys of less than 2048 bits.
    """

    key: Path
    clients: Path
    minimum_clients: int = 5
    rounds: int = 500
    openings: int = 2000
    differences: Rule = "pairs"
    prove: bool = True
    group: str | None = None
    unsealed: bool = False
    insecure_key_size: bool = False

    def to_text(self) -> str:
        """Return the file, with a comment for every key."""
        return _TEMPLATE.format(**{field.name: _written(getattr(self, field.name)) for field in fields(self)})

    def check(self, path: Path) -> None:
        """Refuse values that the file could not have."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        _checked({key: str(value) if isinstance(value, Path) else value for key, value in plain.items()}, path, Path())

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read and check ``holder.yaml`` of a folder; paths in it start there."""
        path = folder / FILE
        try:
            given = foreign.yaml_value(foreign.read_plain(path, largest=foreign.LARGEST // 8))
        except FileNotFoundError:
            raise ConfigError(f"There is no {path}. Make one: tacit holder init --out {folder}.") from None
        except (OSError, WireError) as error:
            raise ConfigError(f"{path} can't be read: {error}") from error
        if not isinstance(given, dict):
            raise ConfigError(f"{path}: expected named values, got {given!r:.40}.")
        return cls(**_checked(given, path, folder))


def _written(value: Any) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value)  # which YAML reads


def _number(value: Any) -> bool:
    return type(value) is int and 1 <= value < _MOST


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "key": (_text, "a key file"),
    "clients": (_text, "a file with the clients' public keys, one per line"),
    "minimum_clients": (lambda value: _number(value) and value >= 2, "a whole number of at least 2: one is no sum"),
    "rounds": (_number, f"a whole number from 1 to {_MOST - 1}"),
    "openings": (_number, f"a whole number from 1 to {_MOST - 1}"),
    "differences": (lambda value: value in RULES, f"one of {', '.join(RULES)}"),
    "prove": (lambda value: isinstance(value, bool), "true or false"),
    "group": (lambda value: value is None or _text(value), "the name of a group, or null"),
    "unsealed": (lambda value: isinstance(value, bool), "true or false"),
    "insecure_key_size": (lambda value: isinstance(value, bool), "true or false"),
}


def _checked(given: Mapping[Any, Any], path: Path, folder: Path) -> dict[str, Any]:
    """Return the values of all keys, or say which is unknown, missing or wrong."""
    unknown = [key for key in given if key not in _EXPECTED]
    if unknown:
        raise ConfigError(f"{path}: there is no setting {unknown[0]!r:.60}. Expected: {', '.join(_EXPECTED)}.")
    for key in ("key", "clients"):
        if key not in given:
            raise ConfigError(f"{path}: {key} is missing, expected {_EXPECTED[key][1]}.")
    for key, value in given.items():
        right, expected = _EXPECTED[key]
        if not right(value):
            raise ConfigError(f"{path}: {key} is {value!r:.60}, expected {expected}.")
    return {key: folder / value if key in ("key", "clients") else value for key, value in given.items()}
