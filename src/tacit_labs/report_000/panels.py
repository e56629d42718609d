"""The report's nine panels again, its stage times, and where Tacit's speed comes from: what is measured, by whom."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit_labs.baselines.paillier import GMPY2, PYTHON
from tacit_labs.harness.measuring import Job
from tacit_labs.harness.paillier_jobs import TACIT
from tacit_labs.report_000 import quoted

PARAMETERS = 21_840  # of the CNN
COLUMNS = ("encryption", "decryption", "total")
JOBS = "tacit_labs.harness.paillier_jobs"
TEXTBOOK = GMPY2.name  # the report's own algorithm


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    key_bits: int = quoted.KEY_BITS
    lengths: tuple[int, ...] = quoted.LENGTHS
    experiments: int = quoted.EXPERIMENTS
    settled: int = 60  # decryptions of a length, near the drop
    around: tuple[int, ...] = tuple(range(100, 301, 10))
    update_keys: tuple[int, ...] = (1024, 2048, 3072)  # for an update, float by float
    sample: int = 20  # numbers of it that are encrypted, where the rest is extrapolated
    length: int = PARAMETERS
    repeats: int = 3


@dataclass(frozen=True, kw_only=True)
class Panels:
    """One experiment: all lengths and operations, each measured once."""

    by: str
    key_bits: int
    lengths: Sequence[int]
    experiment: int
    seconds: Mapping[str, Mapping[str, Sequence[float]]]  # by operation, and encryption or decryption
    wrong: int

    def column(self, mode: str, column: str) -> list[float]:
        """Return a panel's seconds over the lengths; the total is the sum of the other two."""
        known = self.seconds[mode]
        if column != "total":
            return list(known[column])
        return [sum(both) for both in zip(known["encryption"], known["decryption"], strict=True)]


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Medians of many decryptions, by length."""

    by: str
    key_bits: int
    lengths: Sequence[int]
    repeats: int
    seconds: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class OneByOne:
    """One number of an update in a ciphertext of its own, as the report does it."""

    by: str
    key_bits: int
    count: int
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
    encrypt: float
    decrypt: float
    bytes: float  # per number


@dataclass(frozen=True, kw_only=True)
class Timed:
    """All timings."""

    sizes: Sizes
    panels: Sequence[Panels]
    settled: Sequence[Settled]
    one_by_one: Sequence[OneByOne]
    packed: Sequence[Packed]
    absent: Mapping[str, str]  # backends that do not run here, and why

    def makers(self) -> list[str]:
        """Return who computed panels."""
        return list(dict.fromkeys(row.by for row in self.panels))

    def growth(self, by: str, mode: str, column: str) -> float:
        """Return by what factor a time grows from the shortest tenth of the lengths to the longest, in the median."""
        values = [row.column(mode, column) for row in self.panels if row.by == by]
        tenth = max(1, len(values[0]) // 10)
        first = statistics.median(value for one in values for value in one[:tenth])
        return statistics.median(value for one in values for value in one[-tenth:]) / first

    def typical(self, by: str, mode: str, column: str) -> float:
        """Return the median time over all lengths and experiments."""
        return statistics.median(value for row in self.panels if row.by == by for value in row.column(mode, column))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            name: [asdict(row) for row in getattr(self, name)] for name in ("panels", "settled", "one_by_one", "packed")
        } | {"absent": dict(self.absent)}


def jobs(sizes: Sizes, backends: Sequence[str]) -> Iterator[Job]:
    """Yield what is asked of whom; sides take turns in an experiment, so that a busy minute hits all of them."""
    sides = {TEXTBOOK: TEXTBOOK, **dict.fromkeys(backends, TACIT), PYTHON.name: PYTHON.name}
    for experiment in range(1, sizes.experiments + 1):
        for by, side in sides.items():
            if by == PYTHON.name and experiment > 1:  # it is slow, and not the report's
                continue
            asked = {"key_bits": sizes.key_bits, "lengths": list(sizes.lengths), "by": side, "experiment": experiment}
            yield Job(makes=Panels, by=by, name="panel", arguments=asked, words=f"nine panels, experiment {experiment}")
    asked = {"key_bits": sizes.key_bits, "lengths": list(sizes.around), "by": TEXTBOOK, "repeats": sizes.settled}
    yield Job(makes=Settled, by=TEXTBOOK, name="settled", arguments=asked, words="decryption near 200 bits")
    for bits in sizes.update_keys:
        for by, side in sides.items():
            if by == PYTHON.name:
                continue
            single = {"key_bits": bits, "count": sizes.sample, "by": side}
            yield Job(makes=OneByOne, by=by, name="one by one", arguments=single, words="one number per ciphertext")
        for by in backends:
            update = {"key_bits": bits, "length": sizes.length, "repeats": sizes.repeats}
            yield Job(makes=Packed, by=by, name="packed", arguments=update, words="packed")


def timed(sizes: Sizes, rows: Sequence[object], absent: Mapping[str, str]) -> Timed:
    """Sort what was measured."""
    return Timed(
        sizes=sizes,
        panels=[row for row in rows if isinstance(row, Panels)],
        settled=[row for row in rows if isinstance(row, Settled)],
        one_by_one=[row for row in rows if isinstance(row, OneByOne)],
        packed=[row for row in rows if isinstance(row, Packed)],
        absent=absent,
    )
