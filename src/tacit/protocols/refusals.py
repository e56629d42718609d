"""Replies that do not count: one bad client or key holder ends no round while enough others remain."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.errors import ClientError, DropoutError
from tacit.flow import ClientId

_TOLD = 5  # reasons that an error gives in full


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """Whose replies of a round were refused, and why; every protocol treats them alike.

    A reply that is damaged, stale, a failure, or not what the protocol asked for is left out of the sum. Its sender is
    named in a note of the round. With fewer left than the minimum the round fails closed, and gives the reasons.
    """

    round_number: int
    reasons: dict[ClientId, str] = field(default_factory=dict)

    def add(self, client: ClientId, error: ClientError) -> None:
        """Refuse a reply; where a client sent several, the first reason is kept."""
        self.reasons.setdefault(client, str(error))

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of the round, in the order of the clients' numbers."""
        return tuple(f"{self.reasons[client]} The sum is without it." for client in sorted(self.reasons))

    def check(self, counted: int, *, asked: int, minimum: int) -> None:
        """Raise DropoutError where fewer than ``minimum`` replies count."""
        if counted >= minimum:
            return
        told = [self.reasons[client] for client in sorted(self.reasons)[:_TOLD]]
        others = sorted(self.reasons)[_TOLD:]
        if others:
            told.append(f"So were replies of {len(others)} more clients: {', '.join(map(str, others))}.")
        raise DropoutError(
            " ".join(
                [
                    f"{counted} of {asked} clients sent a reply that counts in round {self.round_number}, {minimum} "
                    "needed: a smaller sum could expose one client. Raise federate.per_round, or lower "
                    "federate.minimum_clients.",
                    *(["Refused were:"] if told else []),
                    *told,
                ]
            )
        )
