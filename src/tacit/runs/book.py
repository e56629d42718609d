"""What was released about the same data before, so that it counts on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Charged = Mapping[str, Any]


@dataclass(kw_only=True)
class Book:
    """The charges of all fits of a federation; a fit adds its own as it makes them, also if it fails.

    Attributes:
        charges: for clients, one for each release.
        example_charges: for the clients' examples, the groups of each round.
        fits: how many fits that released something came before.
    """

    charges: list[Charged] = field(default_factory=list)
    example_charges: list[Sequence[Charged]] = field(default_factory=list)
    fits: int = 0

    def add(self, charge: Charged | None, example_charge: Sequence[Charged] | None) -> None:
        """Keep what a round was charged."""
        if charge is not None:
            self.charges.append(charge)
        if example_charge is not None:
            self.example_charges.append(example_charge)

    @property
    def releases(self) -> int:
        """How many releases were charged."""
        return max(len(self.charges), len(self.example_charges))

    def earlier(self) -> list[dict[str, Any]]:
        """Return the charges of earlier fits as records of a new journal, as if they were attempts of a round 0."""
        if not self.fits:
            return []
        records: list[dict[str, Any]] = []
        for place in range(self.releases):
            charge = self.charges[place] if place < len(self.charges) else None
            record: dict[str, Any] = {"type": "attempt", "round": 0, "attempt": 0}
            record["charge"] = None if charge is None else {**charge, "round": 0, "note": "an earlier fit"}
            if place < len(self.example_charges):
                record["example_charges"] = self.example_charges[place]
            records.append(record)
        return records

    def notes(self) -> tuple[str, ...]:
        """Return what a result has to say of earlier fits."""
        if not self.fits:
            return ()
        return (f"Epsilon is that of all {self.fits + 1} fits together: {self.releases} releases came before.",)
