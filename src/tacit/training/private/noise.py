"""Gaussian noise for a model's parameters on a grid, drawn a step ahead where a GPU would wait for it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from tacit.grid import Grid
from tacit.randomness import Randomness

_ahead = ThreadPoolExecutor(1, "tacit-noise")


class Noise:
    """Normal vectors of one standard deviation, one for each step, in double precision and on the grid.

    They come from :meth:`tacit.randomness.Randomness.normal`.
    """

    def __init__(self, *, size: int, std: float, grid: Grid, randomness: Randomness, device: torch.device) -> None:
        self._size = size
        self._std = std
        self._grid = grid
        self._randomness = randomness
        self._device = device
        self._next: tuple[int, Future[Tensor]] | None = None

    def of_step(self, step: int) -> Tensor:
        """Return the noise of a step; in a simulation it depends on the step alone."""
        if self._device.type != "cuda":
            return self._draw(step)
        ready = self._next[1] if self._next is not None and self._next[0] == step else _ahead.submit(self._draw, step)
        self._next = (step + 1, _ahead.submit(self._draw, step + 1))
        return ready.result().to(self._device, non_blocking=True)

    def _draw(self, step: int) -> Tensor:
        standard = self._randomness.normal(self._size, "noise", step)
        drawn = torch.from_numpy(self._grid.noise(standard, self._std))
        return drawn.pin_memory() if self._device.type == "cuda" else drawn
