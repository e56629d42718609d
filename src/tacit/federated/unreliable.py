"""Drop-outs, simulated: some clients of a round never answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit import wire
from tacit.flow import Frames, only
from tacit.randomness import Randomness


@dataclass(frozen=True, kw_only=True)
class Unreliable:
    """Loses each client with probability ``rate`` for a whole round, before it does any work."""

    answer: Callable[[Frames], Frames]
    rate: float
    randomness: Randomness

    def __call__(self, requests: Frames) -> Frames:
        """Answer for the clients that are there."""
        present = [client for client, request in requests.items() if self._is_there(client, request)]
        return self.answer(only(requests, present)) if present else {}

    def _is_there(self, client: int, request: bytes) -> bool:
        frame = wire.unpack(request)
        if frame.kind is not wire.Kind.TASK:  # who answered its task is there to open the sum, too
            return True
        turn = frame.turn
        drawn = self.randomness.number("drop", turn.round_number, turn.attempt, client)
        return drawn >= self.rate * 2**63
