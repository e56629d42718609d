"""Reports of named coordinates: what a client of SignDS sends, checked, written as bits, and counted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ClientError, WireError
from tacit.flow import ClientId
from tacit.protocols import combinations
from tacit.protocols.combinations import Indices

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

    The number of the set comes first (:mod:`tacit.protocols.combinations`), then the sign, then the bit, filled up with
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
        return (combinations.code_bits(self.dimensions, self.chosen) + _FLAGS + 7) // 8

    def encode(self, report: Report) -> bytes:
        """Return a report as bytes."""
        number = combinations.rank(report.indices, dimensions=self.dimensions, chosen=self.chosen)
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
        indices = combinations.unrank(value >> _FLAGS, dimensions=self.dimensions, chosen=self.chosen)
        return Report(indices=indices, sign=1 if value & 2 else -1, bit=value & 1)


@dataclass
class Tally:
    """Counts reports; one that is refused changes nothing, and names its client.

    >>> tally = Tally(dimensions=8, chosen=3, round_number=1)
    >>> tally.add(5, Report(indices=np.array([0, 4, 7]), sign=1, bit=0))
    >>> tally.votes().tolist()
    [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """

    dimensions: int
    chosen: int
    round_number: int
    _reports: dict[ClientId, Report] = field(default_factory=dict)

    def add(self, client: ClientId, report: Report) -> None:
        """Take a client's report; a second one is refused, and the first one counts."""
        if client in self._reports:
            raise self.refusal(client, "it reported twice: expected one report a round, and the first one counts.")
        try:
            combinations.check(report.indices, dimensions=self.dimensions, chosen=self.chosen)
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
