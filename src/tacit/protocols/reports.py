r"""Reports of named coordinates: what a client of SignDS sends, checked, written as bits, and counted.

**Sets of coordinates as single numbers**, the shortest code there is for a set of known size. A set
:math:`c_1 < \dots < c_h` of coordinates below d has the rank :math:`\sum_i \binom{c_i}{i}`, and every number below
:math:`\binom dh` is the rank of exactly one set (the combinatorial number system; Cover, "Enumerative source
encoding", 1973). So a set takes :math:`\lceil \log_2 \binom dh \rceil` bits, and nothing but a set of h different
coordinates below d can be written down: order and repetitions have no code.

To decode, the largest c with :math:`\binom ci \le r` is guessed from the logarithm of r and then corrected with exact
integers, so that one or two binomials per coordinate are computed instead of twenty.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ClientError, ConfigError, WireError
from tacit.flow import ClientId

Indices = NDArray[np.int64]

_FLAGS = 2


@dataclass(frozen=True, kw_only=True)
class Report:
    """A set of coordinates in ascending order, one sign for all of them, and a bit."""

    indices: Indices
    sign: int
    bit: int

    def __post_init__(self) -> None:
        if self.sign not in (-1, 1):
            raise WireError(f"The sign is {self.sign}: expected +1 or -1.")
        if self.bit not in (0, 1):
            raise WireError(f"The bit is {self.bit}: expected 0 or 1.")


@dataclass(frozen=True, kw_only=True)
class ReportCode:
    """Writes reports of ``chosen`` coordinates below ``dimensions``, all in the same number of bytes.

    The number of the set comes first (:func:`rank`), then the sign, then the bit, filled up with
    zeros in front: within a byte of what the set's information is.

    >>> code = ReportCode(dimensions=66_404, chosen=176)
    >>> code.size
    220
    """

    dimensions: int
    chosen: int

    @property
    def size(self) -> int:
        """How many bytes a report takes."""
        return (code_bits(self.dimensions, self.chosen) + _FLAGS + 7) // 8

    def encode(self, report: Report) -> bytes:
        """Return a report as bytes."""
        number = rank(report.indices, dimensions=self.dimensions, chosen=self.chosen)
        flags = (report.sign > 0) << 1 | report.bit
        return (number << _FLAGS | flags).to_bytes(self.size, "big")

    def decode(self, data: bytes | memoryview) -> Report:
        """Return the report in ``data``; bytes that no report has are refused."""
        if len(data) != self.size:
            raise WireError(
                f"Expected {self.size} bytes for {self.chosen} of {self.dimensions} coordinates, got {len(data)}: is "
                "the model, or the plan, another one?"
            )
        value = int.from_bytes(data, "big")
        indices = unrank(value >> _FLAGS, dimensions=self.dimensions, chosen=self.chosen)
        return Report(indices=indices, sign=1 if value & 2 else -1, bit=value & 1)


@dataclass
class ReportCount:
    """Counts reports; one that is refused changes nothing, and names its client.

    >>> count = ReportCount(dimensions=8, chosen=3, round_number=1)
    >>> count.add(5, Report(indices=np.array([0, 4, 7]), sign=1, bit=0))
    >>> count.votes().tolist()
    [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """

    dimensions: int
    chosen: int
    round_number: int
    _reports: dict[ClientId, Report] = field(default_factory=dict)

    def add(self, client: ClientId, report: Report) -> None:
        """Take a client's report; a second one is refused, and the first one counts."""
        if client in self._reports:
            raise self.refusal(client, "it reported twice: expected one report per round, and the first one counts.")
        try:
            check_indices(report.indices, dimensions=self.dimensions, chosen=self.chosen)
        except WireError as error:
            raise self.refusal(client, str(error)) from error
        self._reports[client] = report

    def refusal(self, client: ClientId, reason: str) -> ClientError:
        """Return the error that names a client and says why its report does not count."""
        return ClientError(
            f"The report of client {client} in round {self.round_number} was refused: {reason}",
            client=client,
            round_number=self.round_number,
        )

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Whose reports count, in ascending order."""
        return tuple(sorted(self._reports))

    @property
    def ones(self) -> int:
        """How many of the bits are 1."""
        return sum(report.bit for report in self._reports.values())

    def votes(self) -> NDArray[np.float64]:
        """Return for each coordinate the sum of the signs of the reports that name it."""
        reports = self._reports.values()
        if not reports:
            return np.zeros(self.dimensions)
        named = np.concatenate([report.indices for report in reports])
        signs = np.repeat([float(report.sign) for report in reports], self.chosen)
        return np.asarray(np.bincount(named, signs, self.dimensions), np.float64)


@functools.lru_cache(maxsize=64)
def sets(dimensions: int, chosen: int) -> int:
    """Return how many sets of ``chosen`` coordinates below ``dimensions`` there are."""
    if not 0 < chosen <= dimensions:
        raise ConfigError(f"Expected 1 to {dimensions} chosen coordinates of {dimensions}, got {chosen}.")
    return math.comb(dimensions, chosen)


def code_bits(dimensions: int, chosen: int) -> int:
    """Return how many bits the rank of a set takes.

    >>> code_bits(66_404, 176), code_bits(21_840, 14)
    (1756, 166)
    """
    return (sets(dimensions, chosen) - 1).bit_length()


def check_indices(indices: Indices, *, dimensions: int, chosen: int) -> None:
    """Refuse indices that are not ``chosen`` different coordinates below ``dimensions`` in ascending order."""
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise WireError(f"Expected one row of whole numbers, got shape {indices.shape} of {indices.dtype}.")
    if len(indices) != chosen:
        raise WireError(f"Expected {chosen} coordinates, got {len(indices)}.")
    if indices[0] >= 0 and indices[-1] < dimensions and (indices[1:] > indices[:-1]).all():
        return
    outside = (indices < 0) | (indices >= dimensions)
    if outside.any():
        raise WireError(f"Coordinate {indices[outside][0]} is out of range: expected 0 to {dimensions - 1}.")
    steps = np.diff(indices)
    if (steps == 0).any():
        raise WireError(f"Coordinate {indices[:-1][steps == 0][0]} is there twice: expected different ones.")
    if (steps < 0).any():
        where = int(np.argmax(steps < 0))
        raise WireError(
            f"Coordinate {indices[where]} comes before {indices[where + 1]}: expected ascending order, because an "
            "order of the sender's choice could carry something."
        )


def rank(indices: Indices, *, dimensions: int, chosen: int) -> int:
    """Return the number of a set.

    >>> rank(np.array([0, 4, 7]), dimensions=8, chosen=3)
    41
    """
    check_indices(indices, dimensions=dimensions, chosen=chosen)
    return sum(math.comb(coordinate, place) for place, coordinate in enumerate(indices.tolist(), start=1))


def unrank(number: int, *, dimensions: int, chosen: int) -> Indices:
    """Return the set with a number, its coordinates in ascending order.

    >>> unrank(41, dimensions=8, chosen=3)
    array([0, 4, 7])
    """
    count = sets(dimensions, chosen)
    if not 0 <= number < count:
        raise WireError(
            f"There are {_power(count)} sets of {chosen} coordinates out of {dimensions}, and the number is beyond "
            "the last: a coordinate would be out of range."
        )
    indices = np.empty(chosen, np.int64)
    below = dimensions
    for place in range(chosen, 0, -1):
        below, binomial = _largest(number, place, below)
        number -= binomial
        indices[place - 1] = below
    return indices


def _largest(number: int, place: int, below: int) -> tuple[int, int]:
    """Return the largest c under ``below`` with C(c, place) at most ``number``, and that binomial."""
    if number == 0:
        return place - 1, 0
    c = min(max(int(_guess(number, place)), place), below - 1)
    binomial = math.comb(c, place)
    while binomial > number:
        binomial = binomial * (c - place) // c
        c -= 1
    while c + 1 < below:
        following = binomial * (c + 1) // (c + 1 - place)
        if following > number:
            break
        c, binomial = c + 1, following
    return c, binomial


def _guess(number: int, place: int) -> float:
    """Return about the c with C(c, place) equal to ``number``: with x = c - (i-1)/2, i! C(c, i) is nearly x^i."""
    log_power = (math.log(number) + math.lgamma(place + 1.0)) / place
    x = math.exp(log_power)
    second, fourth = (place**2 - 1) / 24.0, (place**2 - 1) * (3 * place**2 - 7) / 960.0
    for _ in range(2):
        x = math.exp(log_power + min(second / x**2 + fourth / x**4, 1.0))
    return x + (place - 1) / 2.0


def _power(count: int) -> str:
    return str(count) if count < 10**9 else f"about 2^{count.bit_length() - 1}"
