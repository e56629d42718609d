"""What may end a run before its last round: patience with the test loss, or a callback that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.errors import ConfigError
from tacit.runs.result import RoundRecord

Stop = Callable[[Sequence[RoundRecord]], str | None]  # the rounds so far -> why to stop, or None
Callback = Callable[[RoundRecord], Any]


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Stops after so many tests in a row without a lower loss.

    The test data count as public: what is decided by them tells nothing of the clients' that the models do not.
    """

    tests: int

    def __call__(self, rounds: Sequence[RoundRecord]) -> str | None:
        """Return why to stop after these rounds, or None."""
        losses = [record.test_loss for record in rounds if record.test_loss is not None]
        if len(losses) <= self.tests or rounds[-1].test_loss is None:
            return None
        if min(losses[-self.tests :]) < min(losses[: -self.tests]):
            return None
        return f"the test loss has not fallen for {self.tests} tests (evaluate.patience)"


def calling(callbacks: Any) -> list[Stop]:
    """Return callbacks as what may stop a run: each is told of every round, and stops the run by returning True."""
    listed = [] if isinstance(callbacks, str) or not isinstance(callbacks, Iterable) else list(callbacks)
    if not all(map(callable, listed)) or (not listed and callbacks not in ((), [])):
        raise ConfigError(f"Expected callbacks as a list of functions of a round, got {callbacks!r:.80}.")

    def stop(callback: Callback) -> Stop:
        name = getattr(callback, "__name__", type(callback).__name__)
        return lambda rounds: f"the callback {name} said so" if callback(rounds[-1]) is True else None

    return [stop(callback) for callback in listed]
