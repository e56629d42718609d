"""The report's 1,000 operations again, by textbooks and by Tacit, and what their growth says of the key's length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit_labs.baselines.paillier import GMPY2, PYTHON
from tacit_labs.harness.measuring import Job, pick
from tacit_labs.harness.paillier_jobs import TACIT
from tacit_labs.report_003 import quoted

JOBS = "tacit_labs.harness.paillier_jobs"
MODES = tuple(quoted.SECONDS)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    key_bits: tuple[int, ...] = (1024, 2048, 3072)  # the first is what the report's growth fits
    lengths: tuple[int, ...] = (10, 100, 1000)
    count: int = quoted.REPEATS  # of the textbook on gmpy2 and of Tacit, at the first key; the others are scaled
    scaled: int = 50
    slow: int = 20  # on Python's integers, scaled


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One operation, ``count`` times, each on other integers."""

    by: str
    key_bits: int
    bits: int
    mode: str
    count: int
    seconds: float
    wrong: int

    @property
    def thousand(self) -> float:
        """The seconds of as many operations as the report did."""
        return self.seconds / self.count * quoted.REPEATS


@dataclass(frozen=True, kw_only=True)
class Exercises:
    """Both operations at all lengths by one side, measured in turn."""

    by: str
    key_bits: int
    lengths: Sequence[int]
    count: int
    seconds: Mapping[str, Sequence[float]]  # by operation, a value per length
    wrong: Mapping[str, Sequence[int]]

    def each(self) -> Iterator[Exercise]:
        """Yield them one by one."""
        for mode, values in self.seconds.items():
            for bits, seconds, wrong in zip(self.lengths, values, self.wrong[mode], strict=True):
                yield Exercise(
                    by=self.by,
                    key_bits=self.key_bits,
                    bits=bits,
                    mode=mode,
                    count=self.count,
                    seconds=seconds,
                    wrong=wrong,
                )


@dataclass(frozen=True, kw_only=True)
class Timed:
    """All timings."""

    sizes: Sizes
    rows: Sequence[Exercise]
    absent: Mapping[str, str]  # backends that do not run here, and why

    def thousand(self, by: str, key_bits: int, mode: str, bits: int) -> float:
        """Return the seconds of 1,000 operations."""
        return pick(self.rows, by=by, key_bits=key_bits, mode=mode, bits=bits).thousand

    def growth(self, by: str, key_bits: int, mode: str) -> float:
        """Return the time at the longest integers over that at the shortest."""
        short, long = min(self.sizes.lengths), max(self.sizes.lengths)
        return self.thousand(by, key_bits, mode, long) / self.thousand(by, key_bits, mode, short)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"rows": [asdict(row) for row in self.rows], "absent": dict(self.absent)}


def quoted_growth(mode: str) -> float:
    """Return the report's time at 1000 bits over that at 10.

    >>> round(quoted_growth("enc_add"), 2), round(quoted_growth("enc_add_const"), 2)
    (1.83, 1.95)
    """
    return quoted.SECONDS[mode][1000] / quoted.SECONDS[mode][10]


# powers with an exponent of the key's length (noise, decryption), and with one of the message's (g^m)
_POWERS: Mapping[str, tuple[int, int]] = {"enc_add": (3, 2), "enc_add_const": (2, 2)}


def counted(key_bits: int, mode: str, bits: int) -> float:
    """Return what an operation costs the textbook in powers of the key's length: a power costs its exponent's bits.

    >>> round(counted(1024, "enc_add", 1000) / counted(1024, "enc_add", 10), 2)
    1.64
    """
    whole, short = _POWERS[mode]
    return whole + short * bits / key_bits


def counted_growth(key_bits: int, mode: str) -> float:
    """Return what the count of powers says of the time at 1000 bits over that at 10."""
    return counted(key_bits, mode, 1000) / counted(key_bits, mode, 10)


def jobs(sizes: Sizes, backends: Sequence[str]) -> Iterator[Job]:
    """Yield what is asked of whom."""
    for place, key_bits in enumerate(sizes.key_bits):
        count = sizes.count if place == 0 else sizes.scaled
        sides = {GMPY2.name: (GMPY2.name, count)} | dict.fromkeys(backends, (TACIT, count))
        if place == 0:
            sides[PYTHON.name] = (PYTHON.name, sizes.slow)
        for by, (side, many) in sides.items():
            asked = {"key_bits": key_bits, "lengths": list(sizes.lengths), "count": many, "by": side}
            yield Job(makes=Exercises, by=by, name="exercise", arguments=asked, words=f"operations, {key_bits} bits")
