"""What the Paillier lab measures. Seconds are of one thread's processor time where nothing else is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit_labs.harness import checks, quoted
from tacit_labs.harness.checks import Checks
from tacit_labs.harness.measuring import Here
from tacit_labs.lab_paillier.learning import WAYS, EncryptedEpoch, Epoch, Way

PARAMETERS = 21_840  # of the lab's CNN


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    key_bits: int = quoted.PAILLIER_KEY_BITS
    safe_bits: int = 2048
    random: int = 20  # random pairs per check
    grid: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000)
    grid_count: int = 50
    grid_textbook: int = 4
    repeats: int = 5
    exercises: int = quoted.PAILLIER_REPEATS
    exercises_textbook: int = 50  # scaled
    integers: tuple[int, ...] = tuple(quoted.PAILLIER_EXERCISE)
    sample: int = 100  # numbers in a ciphertext each
    sample_textbook: int = 10
    length: int = PARAMETERS
    ways: tuple[Way, ...] = WAYS  # the first is in the clear
    rounds: int = 3
    passes: int = 3  # runs of each way, in turn; the fastest counts
    clients: int = 10
    data: Mapping[str, Any] = field(default_factory=lambda: {"name": "mnist"})


@dataclass(frozen=True, kw_only=True)
class Operations:
    """The operations on integers of one length."""

    by: str
    key_bits: int
    bits: int
    count: int
    repeats: int
    seconds: Mapping[str, float]  # of one operation, by its name; the textbook has no key holder's way


@dataclass(frozen=True, kw_only=True)
class Exercises:
    """The lab's exercise, several times: two encryptions, their sum and its decryption."""

    by: str
    key_bits: int
    bits: int
    count: int
    repeats: int
    seconds: float
    wrong: int  # sums

    @property
    def thousand(self) -> float:
        """The seconds of as many exercises as the lab did."""
        return self.seconds / self.count * quoted.PAILLIER_REPEATS


@dataclass(frozen=True, kw_only=True)
class OneByOne:
    """One number of an update in a ciphertext of its own, as the lab did it."""

    by: str
    key_bits: int
    count: int
    repeats: int
    encrypt: float
    decrypt: float
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A whole update, many numbers per ciphertext."""

    by: str
    key_bits: int
    length: int
    repeats: int
    holder: bool  # whether the key holder encrypts
    encrypt: float
    decrypt: float | None  # None for the key holder: there is one way to decrypt
    ciphertexts: int
    bytes: float  # per number


@dataclass(frozen=True, kw_only=True)
class Step:
    """One way to encrypt a whole update, on one thread."""

    way: str
    by: str
    encrypt: float
    decrypt: float | None
    bytes: float  # per number
    sample: int | None  # how many numbers were measured, where the rest is extrapolated


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything."""

    here: Here
    sizes: Sizes
    checks: Checks
    absent: Mapping[str, str]  # backends that do not run here, and why
    grid: Sequence[Operations]
    exercises: Sequence[Exercises]
    one_by_one: Sequence[OneByOne]
    packed: Sequence[Packed]
    plain: Epoch
    encrypted: Sequence[EncryptedEpoch]

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epoch in the clear, then the encrypted ones."""
        return (self.plain, *self.encrypted)

    def steps(self, key_bits: int) -> Iterator[Step]:
        """Yield the ways to encrypt a whole update, from the lab's to Tacit's fastest on one thread."""
        for one in self.one_by_one:
            if one.key_bits == key_bits:
                yield Step(
                    way="one per number",
                    by=one.by,
                    encrypt=one.encrypt * self.sizes.length,
                    decrypt=one.decrypt * self.sizes.length,
                    bytes=one.bytes,
                    sample=one.count,
                )
        for holder, way in ((False, "packed"), (True, "packed, by the key holder")):
            for row in self.packed:
                if row.key_bits == key_bits and row.holder == holder:
                    yield Step(
                        way=way, by=row.by, encrypt=row.encrypt, decrypt=row.decrypt, bytes=row.bytes, sample=None
                    )

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for JSON."""
        sizes = {name: value for name, value in asdict(self.sizes).items() if name not in ("ways", "data")}
        return {
            "machine": self.here.to_dict(),
            "sizes": sizes,
            "checks": checks.to_dicts(self.checks),
            "absent": dict(self.absent),
            "grid": [_flat(row) for row in self.grid],
            "exercises": [asdict(row) for row in self.exercises],
            "one_by_one": [asdict(row) for row in self.one_by_one],
            "packed": [asdict(row) for row in self.packed],
            "learning": [asdict(epoch) for epoch in self.epochs],
        }


def _flat(row: Operations) -> dict[str, Any]:
    """Return a row with its operations beside the rest."""
    values = asdict(row)
    seconds: dict[str, float] = values.pop("seconds")
    return values | seconds
