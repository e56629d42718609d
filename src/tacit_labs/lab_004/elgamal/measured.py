"""What was measured of report 004's ElGamal, by its own algorithms and by Tacit: the processor's seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from tacit_labs.harness import checks
from tacit_labs.harness.checks import Checks
from tacit_labs.harness.measuring import Here
from tacit_labs.lab_004.elgamal import quoted


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured; the defaults are the report's, where it says."""

    repeats: Mapping[int, int]  # of the three stages, by the bits of the key
    factoring: Mapping[int, tuple[int, float]]  # keys by factoring p - 1, and seconds after which one is given up
    without_curves: Mapping[int, tuple[int, float]]  # the same with SymPy's elliptic curves off
    batches: tuple[int, ...]  # bits of the key
    batch: int  # messages
    product_repeats: int
    powers: Mapping[int, int]  # repeats by bits
    random: int = 20  # random pairs per check
    check_bits: tuple[int, ...] = (128, 1024)
    ciphertexts: int = 2000
    guesses: int = 200


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The three stages at one size: every key, encryption and decryption."""

    key: Sequence[float]
    encrypt: Sequence[float]
    decrypt: Sequence[float]

    def mean(self, stage: str) -> float:
        """Return the mean seconds of a stage."""
        return fmean(getattr(self, stage))


@dataclass(frozen=True, kw_only=True)
class Factoring:
    """Key generation with p - 1 factored."""

    seconds: Sequence[float]  # of those that ended
    given_up: int
    limit: float

    @property
    def tried(self) -> int:
        """How many keys were wanted."""
        return len(self.seconds) + self.given_up

    @property
    def mean(self) -> float:
        """The mean seconds, where one that was given up counts as the limit: the least it can be."""
        return (sum(self.seconds) + self.given_up * self.limit) / self.tried


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Seconds per message, keys included."""

    each: float  # a key for every message
    one: float
    vector: float | None = None  # one key, and all messages in one call


@dataclass(frozen=True, kw_only=True)
class Products:
    """Seconds of both ways to the product of two encrypted numbers."""

    two: float  # two decryptions
    one: float  # one, of the product of the ciphertexts
    result: int


@dataclass(frozen=True, kw_only=True)
class View:
    """Statistics of numbers below p that should be uniform."""

    buckets: Sequence[int]  # how many numbers fall into equal shares of [0, p)
    bucket_p: float
    ones: float  # their share among the lower bits
    ones_z: float
    byte_p: float
    lower_bits: int
    flips_mean: float  # bits that differ from one number to the next
    flips_z: float
    flips: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Looks:
    """What ciphertexts of one number look like."""

    count: int
    message: int
    bits: int
    different: int
    halves: Mapping[str, View]


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How often an outsider guessed right whether an encrypted number is a square."""

    count: int
    textbook: int
    tacit: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything; mappings are by the bits of the key."""

    here: Here
    sympy: str
    sizes: Sizes
    checks: Checks
    looks: Looks
    guesses: Guesses
    ciphertexts: Sequence[Sequence[str]]  # of the report's number, by its own scheme
    report: Mapping[int, Stages]
    tacit: Mapping[int, Stages]
    factoring: Mapping[int, Factoring]
    without_curves: Mapping[int, Factoring]
    report_batch: Mapping[int, Batch]
    tacit_batch: Mapping[int, Batch]
    report_product: Products
    tacit_product: Products
    powers: Mapping[int, Mapping[str, float]]

    @property
    def key_bits(self) -> list[int]:
        """The lengths of keys, in order."""
        return sorted(self.report)

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for JSON."""
        return {
            "quoted": {
                "stages_ms": {str(bits): asdict(row) for bits, row in quoted.STAGES.items()},
                "key_before_ms": {str(bits): value for bits, value in quoted.KEY_BEFORE.items()},
                "per_message_ms": {str(bits): list(pair) for bits, pair in quoted.PER_MESSAGE.items()},
                "product_ms": [quoted.TWO_DECRYPTIONS, quoted.ONE_DECRYPTION],
            },
            "machine": self.here.to_dict() | {"sympy": self.sympy},
            "sizes": {name: _plain(value) for name, value in asdict(self.sizes).items()},
            "checks": checks.to_dicts(self.checks),
            "randomness": asdict(self.looks),
            "symbols": asdict(self.guesses),
            "ciphertexts": [list(pair) for pair in self.ciphertexts],
            "stages": {
                by: {str(bits): asdict(row) for bits, row in rows.items()}
                for by, rows in (("report", self.report), ("tacit", self.tacit))
            },
            "factoring": {str(bits): asdict(row) | {"mean": row.mean} for bits, row in self.factoring.items()},
            "factoring_without_elliptic_curves": {
                str(bits): asdict(row) | {"mean": row.mean} for bits, row in self.without_curves.items()
            },
            "batch": {
                by: {str(bits): asdict(row) for bits, row in rows.items()}
                for by, rows in (("report", self.report_batch), ("tacit", self.tacit_batch))
            },
            "product": {"report": asdict(self.report_product), "tacit": asdict(self.tacit_product)},
            "powers": {str(bits): dict(row) for bits, row in self.powers.items()},
        }


def _plain(value: Any) -> Any:
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else value
