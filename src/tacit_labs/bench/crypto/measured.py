"""What the comparison of encryptions measures. Seconds are for the whole vector, on one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tacit_labs.bench.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """How many times as fast as phe."""

    encrypt: float
    decrypt: float
    sum: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to encrypt."""

    name: str
    scaled: bool  # timed on a sample of the floats
    encrypt: float
    decrypt: float
    sum: float  # of a hundred vectors
    bytes: float  # per float
    times_phe: Ratios | None = None  # None where phe is not installed

    @property
    def title(self) -> str:
        """The name, with a star where a sample was timed."""
        return f"{self.name} *" if self.scaled else self.name

    @property
    def is_ours(self) -> bool:
        """Whether this is one of Tacit's ways."""
        return self.name.startswith("Tacit")


@dataclass(frozen=True, kw_only=True)
class TwoCores:
    """How much faster two cores are than one, by the clock."""

    decrypt: float
    bulk_encrypt: float
    bulk_floats: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The most that a process used while it encrypted a large vector."""

    floats: int
    key: str
    peak_megabytes: float
    before_megabytes: float


@dataclass(frozen=True, kw_only=True)
class Own:
    """What is measured of Tacit alone, with one backend."""

    microseconds_a_ciphertext: Mapping[str, float]  # by who encrypts: public, holder, pool
    parse_and_validate: float
    parse_against_additions: float
    parse_each_validated_alone_against_additions: float
    two_cores: TwoCores
    memory: Memory
    decrypt_standard_with_plain_powers: float  # if powers could leak the exponent
    decrypt_subgroup_with_plain_powers: float


@dataclass(frozen=True, kw_only=True)
class Labs:
    """The Paillier lab's operations: two encryptions, their sum and its decryption."""

    repeats: int
    timed: int  # the rest is scaled
    key_bits: int
    seconds: Mapping[str, Mapping[str, float]]  # by side and by the bits of the integers


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything."""

    name: ClassVar[str] = "crypto"

    machine: Machine
    peers: Mapping[str, str]  # versions
    two_processes_against_one: float
    quick: bool
    key_bits: int
    floats: int
    repeats: int
    samples: Mapping[str, int]
    absent: Mapping[str, str]
    rows: Sequence[Row]
    own: Mapping[str, Own]  # by backend
    labs: Labs
    elgamal: Mapping[str, Any] | None = None  # what benchmarks/crypto.py adds

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for JSON."""
        values = asdict(self)
        for row in values["rows"]:
            if row["times_phe"] is None:
                del row["times_phe"]
        if self.elgamal is None:
            del values["elgamal"]
        peers, together = values.pop("peers"), values.pop("two_processes_against_one")
        values["machine"] |= {"peers": peers, "two_processes_against_one": together}
        return values
