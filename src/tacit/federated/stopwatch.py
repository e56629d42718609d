"""Where the seconds of a round went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Stage = Literal["train", "protect", "travel", "aggregate", "recover", "evaluate"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Stopwatch:
    """Adds up seconds by stage; one for each round.

    >>> watch = Stopwatch()
    >>> with watch.measure("train"):
    ...     pass
    >>> sorted(watch.seconds)
    ['aggregate', 'evaluate', 'protect', 'recover', 'train', 'travel']
    """

    def __init__(self) -> None:
        self.seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)

    def restart(self) -> None:
        """Begin a new round."""
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def add(self, stage: Stage, seconds: float) -> None:
        """Charge ``seconds`` to ``stage``."""
        self.seconds[stage] += seconds

    @contextmanager
    def measure(self, stage: Stage) -> Iterator[None]:
        """Charge the time of the block to ``stage``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)
