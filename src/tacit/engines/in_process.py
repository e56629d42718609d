"""The reference engine: all clients live in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.flow import Frames


@dataclass(frozen=True, kw_only=True)
class InProcessEngine:
    """Hands a whole batch of requests to one callable.

    The callable answers for all clients, so that the training room may train the cohort at once while the engine
    stays blind.
    """

    answer: Callable[[Frames], Frames]
    name: str = "in-process"

    def exchange(self, requests: Frames) -> Frames:
        """Return what the clients answered."""
        return self.answer(requests) if requests else {}
