"""What the ElGamal lab measures. Seconds are of one thread's processor time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tacit_labs.harness import checks, quoted
from tacit_labs.harness.checks import Checks
from tacit_labs.harness.measuring import Here

Stage = Literal["prime", "pair", "encrypt", "decrypt"]
STAGES: Mapping[Stage, str] = {
    "prime": "safe prime",
    "pair": "key pair",
    "encrypt": "encryption",
    "decrypt": "decryption",
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    key_bits: tuple[int, ...] = (256, 512, 1024, 2048, 3072)
    searches: tuple[tuple[int, int], ...] = ((256, 40), (512, 40), (1024, 15), (2048, 3))  # for safe primes, by bits
    candidates: int = 2000  # of the textbook's search, scaled
    count: int = 50
    count_textbook: int = 4
    repeats: int = 5
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    batch_bits: int = 2048
    random: int = 20  # random pairs per check
    check_bits: tuple[int, ...] = (1024, 2048)
    message: int = 42
    ciphertexts: int = 2000
    guesses: int = 200


@dataclass(frozen=True, kw_only=True)
class Prime:
    """A safe prime, scaled to the mean number of candidates; Tacit searches with gmpy2 on every backend."""

    by: str
    bits: int
    seconds: float
    expected_candidates: float
    sample: int | None = None  # candidates that were timed, where a search was not made
    searches: int | None = None
    as_it_went: float | None = None  # seconds per search, with the luck it had
    candidates: float | None = None  # per search


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Seconds of a pair in a group that is given, of one encryption, one decryption and one product."""

    by: str
    bits: int
    count: int
    repeats: int
    pair: float
    encrypt: float
    decrypt: float
    multiply: float
    exponent_bits: int
    exponents: str | None = None  # None is the textbook: they are as long as p


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """A product by whoever has the key and no homomorphism: two decryptions, a product and an encryption."""

    by: str
    bits: int
    count: int
    repeats: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Seconds per number of a whole batch, encrypted, decrypted and multiplied at once."""

    by: str
    bits: int
    size: int
    repeats: int
    encrypt: float
    decrypt: float
    multiply: float


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
class Change:
    """One stage before and after: the textbook, Tacit with its defaults, Tacit with full exponents."""

    bits: int
    stage: Stage
    lab: float | None  # what the lab's report says
    before: float
    after: float
    full: float | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything."""

    here: Here
    sizes: Sizes
    checks: Checks
    randomness: Looks
    guesses: Guesses
    absent: Mapping[str, str]  # backends that do not run here, and why
    primes: Sequence[Prime]
    stages: Sequence[Stages]
    by_hand: Sequence[ByHand]
    batch: Sequence[Batch]

    def seconds(self, bits: int, stage: Stage, by: str, exponents: str = "short") -> float | None:
        """Return what a stage took, or None where it was not measured."""
        if stage == "prime":
            who = "textbook" if by == "textbook" else "Tacit"
            return next((one.seconds for one in self.primes if (one.bits, one.by) == (bits, who)), None)
        for one in self.stages:
            if (one.bits, one.by) == (bits, by) and one.exponents in (None, exponents):
                return {"pair": one.pair, "encrypt": one.encrypt, "decrypt": one.decrypt}[stage]
        return None

    def changes(self) -> Iterator[Change]:
        """Yield every stage of every key size before and after."""
        for bits in self.sizes.key_bits:
            for stage in STAGES:
                before = self.seconds(bits, stage, "textbook")
                after = self.seconds(bits, stage, self.here.backend)
                full = None if stage == "prime" else self.seconds(bits, stage, self.here.backend, "full")
                if before is not None and after is not None:
                    lab = quoted.SAFE_PRIME.get(bits) if stage == "prime" else None
                    yield Change(bits=bits, stage=stage, lab=lab, before=before, after=after, full=full)

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for JSON."""
        right = {"textbook": self.guesses.textbook, "tacit": self.guesses.tacit}
        return {
            "machine": self.here.to_dict(),
            "sizes": asdict(self.sizes),
            "checks": checks.to_dicts(self.checks),
            "randomness": asdict(self.randomness),
            "symbols": {"count": self.guesses.count, "right": right},
            "absent": dict(self.absent),
            "primes": [_known(row) for row in self.primes],
            "stages": [_known(row) for row in self.stages],
            "by_hand": [asdict(row) for row in self.by_hand],
            "batch": [asdict(row) for row in self.batch],
        }


def _known(row: Prime | Stages) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if value is not None}
