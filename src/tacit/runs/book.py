"""What was released about the same data before, so that it counts on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tacit.runs.journal import Attempt


@dataclass(kw_only=True)
class Book:
    """The charged tries of all fits of a federation; a fit adds its own as it makes them, also if it fails.

    Attributes:
        attempts: what was charged to clients and to their examples, try by try.
        fits: how many fits that released something came before.
    """

    attempts: list[Attempt] = field(default_factory=list)
    fits: int = 0

    def add(self, attempt: Attempt) -> None:
        """Keep what a try was charged."""
        if attempt.charge is not None or attempt.example_charges is not None:
            self.attempts.append(attempt)

    @property
    def releases(self) -> int:
        """How many releases were charged."""
        return len(self.attempts)

    def earlier(self) -> list[Attempt]:
        """Return the charges of earlier fits as records of a new journal, as if they were attempts of a round 0."""
        if not self.fits:
            return []
        return [
            Attempt(
                round=0,
                attempt=0,
                charge=None
                if attempt.charge is None
                else replace(attempt.charge, round_number=0, note="an earlier fit"),
                example_charges=attempt.example_charges,
            )
            for attempt in self.attempts
        ]

    def notes(self) -> tuple[str, ...]:
        """Return what a result has to say of earlier fits."""
        if not self.fits:
            return ()
        return (f"Epsilon is that of all {self.fits + 1} fits together: {self.releases} releases came before.",)
