"""Features back to pixels: what an image of a data set looks like, for whoever wants to look at one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.tasks import images, tabular

Pixels = NDArray[np.float64]  # (images, height, width), from 0 to 1


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How pixels from 0 to 1 became features: less a centre, over a deviation.

    >>> scale = Scale(height=1, width=2, centre=np.array([0.5, 0.0]), deviation=np.array([0.5, 1.0]))
    >>> scale.pixels(np.array([[1.0, 0.25]])).tolist()
    [[[1.0, 0.25]]]
    """

    height: int
    width: int
    centre: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def pixels(self, features: NDArray[np.floating]) -> Pixels:
        """Return images as they were before they became features."""
        flat = features.reshape(len(features), -1) * self.deviation + self.centre
        return np.clip(flat, 0.0, 1.0).reshape(-1, self.height, self.width)


def scale_of(name: str) -> Scale:
    """Return the scale of a data set of small grey images."""
    if name not in _SCALES:
        raise ConfigError(f"Expected a data set of grey images ({', '.join(_SCALES)}), got {name!r}.")
    return _SCALES[name]()


def _whole(side: int, mean: float, deviation: float) -> Scale:
    return Scale(height=side, width=side, centre=np.full(side**2, mean), deviation=np.full(side**2, deviation))


def _digits() -> Scale:
    centre, deviation = tabular.digits_scale()
    return Scale(height=8, width=8, centre=centre / 16.0, deviation=deviation / 16.0)


_SCALES: dict[str, Callable[[], Scale]] = {
    "mnist": lambda: _whole(28, images.MNIST_MEAN, images.MNIST_DEVIATION),
    "fashion-mnist": lambda: _whole(28, images.FASHION_MEAN, images.FASHION_DEVIATION),
    "digits": _digits,
}
