r"""Scattering features: what a fixed, untrained network of wavelets sees in an image (Bruna & Mallat 2013).

Under noise a model with few parameters on good features learns more than a deep one on pixels, and these features cost
no privacy: nothing in them is learnt from data. With x the image, :math:`\psi_{j,\theta}` Morlet wavelets at scales
:math:`2^j` and angles :math:`\theta`, and :math:`\phi` a Gaussian of scale :math:`2^J`, the channels are

.. math:: x * \phi, \qquad |x * \psi_{j,\theta}| * \phi, \qquad
    ||x * \psi_{j,\theta}| * \psi_{j',\theta'}| * \phi \quad (j < j'),

each taken at every :math:`2^J`-th pixel: 81 channels of 7 x 7 for 28 x 28 pixels at J = 2 with 8 angles. Filters,
padding and subsampling are kymatio's (Andreux et al. 2020), so that the numbers are the same. Tramèr & Boneh (2021)
normalise groups of channels within each example and train a linear model or a small CNN on that; so does
:meth:`Scattering.normalised`. A group's mean and variance are the example's own, so that no example tells of another.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError

_BLOCK = 16  # images at a time: their spectra stay in the processor's cache
_GPU_BLOCK = 4_000
_PER_GROUP = 3  # channels that are normalised together: 27 groups of the 81


@dataclass(frozen=True, kw_only=True)
class Scattering:
    """The transform for images of one size.

    >>> scattering = Scattering(height=28, width=28)
    >>> scattering.channels, scattering.size
    (81, (7, 7))
    """

    height: int
    width: int
    scales: int = 2  # J
    angles: int = 8  # L

    def __post_init__(self) -> None:
        if not 1 <= self.scales <= 6 or not 1 <= self.angles <= 32:
            raise ConfigError(
                f"Expected 1 to 6 scales and 1 to 32 angles, got scales={self.scales} and angles={self.angles}."
            )
        if min(self.height, self.width) < 2**self.scales:
            raise ConfigError(
                f"Images of {self.height} x {self.width} pixels are too small for {self.scales} scales: expected at "
                f"least {2**self.scales} each way. Use fewer scales."
            )

    @property
    def channels(self) -> int:
        """How many channels come of one: 1 + JL + L^2 J(J-1)/2."""
        pairs = self.scales * (self.scales - 1) // 2
        return 1 + self.scales * self.angles + self.angles**2 * pairs

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the channels."""
        return self.height >> self.scales, self.width >> self.scales

    def __call__(self, images: Tensor) -> Tensor:
        """Return the channels of ``images`` (n, c, height, width) as (n, c * channels, height / 2^J, width / 2^J)."""
        if images.ndim != 4 or images.shape[2:] != (self.height, self.width):
            raise ConfigError(
                f"Expected images of shape (n, c, {self.height}, {self.width}), got {tuple(images.shape)}."
            )
        shape = (len(images), images.shape[1] * self.channels, *self.size)
        made = torch.empty(shape, dtype=torch.float32, device=images.device)
        block = _GPU_BLOCK if images.is_cuda else _BLOCK

        def fill(start: int) -> None:
            part = images[start : start + block]
            made[start : start + block] = self._transformed(part.flatten(0, 1).float()).reshape(len(part), *shape[1:])

        starts = range(0, len(images), block)
        workers = 1 if images.is_cuda else min(torch.get_num_threads(), len(starts))
        if workers < 2:
            for start in starts:
                fill(start)
            return made
        # Blocks side by side, each on one thread: threads inside a small operation only wait for each other.
        with ThreadPoolExecutor(workers, "tacit-features", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for _ in pool.map(fill, starts):
                pass
        return made

    def normalised(self, images: Tensor) -> Tensor:
        """Return the channels with each group of three brought to mean 0 and variance 1 within each example."""
        features = self(images)
        return F.group_norm(features, features.shape[1] // math.gcd(features.shape[1], _PER_GROUP))

    def _transformed(self, images: Tensor) -> Tensor:
        bank = _bank(self.height, self.width, self.scales, self.angles, images.device)
        top, left = bank.margin
        padded = F.pad(
            images[:, None],
            (left, bank.width - self.width - left, top, bank.height - self.height - top),
            mode="reflect",
        )[:, 0]
        spectrum = torch.fft.fft2(padded)[:, None]
        first = [bank.smoothed(padded, 0)[:, None]]
        second = []
        for scale in range(self.scales):
            waves = _magnitudes(spectrum, bank.wavelets[scale][0], 2**scale)
            first.append(bank.smoothed(waves, scale))
            if scale + 1 < self.scales:
                again = torch.fft.fft2(waves)[:, :, None]
                by_scale = [
                    bank.smoothed(_magnitudes(again, bank.wavelets[other][scale], 2 ** (other - scale)), other)
                    for other in range(scale + 1, self.scales)
                ]
                second.append(torch.stack(by_scale, 2).flatten(1, 3))
        return torch.cat(first + second, 1)


def _magnitudes(spectra: Tensor, filters: Tensor, step: int) -> Tensor:
    """Return the magnitudes of every ``step``-th number each way of what was filtered.

    To take every second number of an image is to fold its spectrum: filtered quarters are added up as they are made.
    Filters are real and have each number twice, beside the real and the imaginary part of what they filter, so that
    rows are multiplied as they lie in memory.
    """
    rows, columns = (length // step for length in filters.shape[-2:])
    parts = torch.view_as_real(spectra).flatten(-2)
    folded: Tensor | None = None
    for i, j in itertools.product(range(step), range(step)):
        part = (..., slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
        folded = parts[part] * filters[part] if folded is None else folded.addcmul_(parts[part], filters[part])
    assert folded is not None
    waves = torch.fft.ifft2(torch.view_as_complex(folded.reshape(*folded.shape[:-1], -1, 2).contiguous()))
    squares = torch.view_as_real(waves).square_()
    return (squares[..., 0] + squares[..., 1]).sqrt_()


@dataclass(frozen=True, kw_only=True)
class _Bank:
    """Filters for padded images of one size on one device.

    Attributes:
        wavelets: by scale and by the scale at which the image to be filtered was sampled, the spectra of all angles,
            each number twice, over the numbers that are folded into one.
        smoothing: by that scale, two matrices that smooth, take every 2^J-th row (column) and cut the padding off.
    """

    height: int
    width: int
    margin: tuple[int, int]
    wavelets: tuple[tuple[Tensor, ...], ...]
    smoothing: tuple[tuple[Tensor, Tensor], ...]

    def smoothed(self, waves: Tensor, scale: int) -> Tensor:
        """Return waves that are sampled at ``scale``, smoothed: a Gaussian is a product of one by rows and columns."""
        rows, columns = self.smoothing[scale]
        return rows @ waves @ columns.T


@functools.lru_cache(maxsize=8)
def _bank(height: int, width: int, scales: int, angles: int, device: torch.device) -> _Bank:
    sides = [((length + 2**scales) // 2**scales + 1) * 2**scales for length in (height, width)]

    def sent(values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(device)

    wavelets = []
    for scale in range(scales):
        spectra = [
            np.fft.fft2(
                _morlet(
                    sides,
                    deviation=0.8 * 2**scale,
                    angle=(int(angles - angles / 2 - 1) - angle) * math.pi / angles,
                    frequency=0.75 * math.pi / 2**scale,
                    slant=4.0 / angles,
                )
            ).real
            for angle in range(angles)
        ]
        wavelets.append(
            tuple(
                sent(np.stack([_folded(spectrum, taken) for spectrum in spectra]).repeat(2, -1) / 4 ** (scale - taken))
                for taken in range(max(scale, 1))
            )
        )
    smoothing = tuple(
        tuple(
            sent(_smoothing(length, side, deviation=0.8 * 2 ** (scales - 1), scale=scale, scales=scales))
            for length, side in zip((height, width), sides, strict=True)
        )
        for scale in range(scales)
    )
    return _Bank(
        height=sides[0],
        width=sides[1],
        margin=((sides[0] - height) // 2, (sides[1] - width) // 2),
        wavelets=tuple(wavelets),
        smoothing=tuple((rows, columns) for rows, columns in smoothing),
    )


def _gabor(
    sides: Sequence[int], *, deviation: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """Return a Gaussian of a slanted ellipse times a wave, on a torus: five periods each way are added up."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    curve = turn @ np.diag([1.0, slant**2]) @ turn.T / (2.0 * deviation**2)
    rows, columns = (np.arange(-2 * side, 3 * side, dtype=np.float64) for side in sides)
    x, y = rows[:, None], columns[None, :]
    wave = np.exp(
        -(curve[0, 0] * x * x + 2.0 * curve[0, 1] * x * y + curve[1, 1] * y * y)
        + 1j * frequency * (x * math.cos(angle) + y * math.sin(angle))
    )
    folded = wave.reshape(5, sides[0], 5, sides[1]).sum(axis=(0, 2))
    gabor: NDArray[np.complex128] = folded / (2.0 * math.pi * deviation**2 / slant)
    return gabor


def _morlet(
    sides: Sequence[int], *, deviation: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """Return a Gabor wavelet less as much of its envelope as brings its mean to zero."""
    wave = _gabor(sides, deviation=deviation, angle=angle, frequency=frequency, slant=slant)
    envelope = _gabor(sides, deviation=deviation, angle=angle, frequency=0.0, slant=slant)
    morlet: NDArray[np.complex128] = wave - wave.sum() / envelope.sum() * envelope
    return morlet


def _folded(spectrum: NDArray[np.float64], scale: int) -> NDArray[np.float64]:
    """Return the spectrum of a filter for images sampled at ``scale``: its low frequencies alone, folded."""
    for axis in range(spectrum.ndim):
        side = spectrum.shape[axis]
        start = side >> (scale + 1)
        low = np.ones(side)
        low[start : start + side - (side >> scale)] = 0.0
        along = np.moveaxis(spectrum, axis, -1) * low
        spectrum = np.moveaxis(along.reshape(*along.shape[:-1], 2**scale, -1).sum(axis=-2), -1, axis)
    return spectrum


def _smoothing(length: int, side: int, *, deviation: float, scale: int, scales: int) -> NDArray[np.float64]:
    """Return the matrix that smooths rows of ``side`` / 2^scale numbers and takes the ``length`` / 2^J inner ones."""
    place = np.arange(-2 * side, 3 * side, dtype=np.float64)
    gaussian = np.exp(-(place**2) / (2.0 * deviation**2)).reshape(5, side).sum(axis=0)
    spectrum = np.fft.fft(gaussian / (math.sqrt(2.0 * math.pi) * deviation)).real
    kernel = np.fft.ifft(_folded(spectrum, scale)).real
    outputs = np.arange(side >> scales)[1:-1] * 2 ** (scales - scale)
    inputs = np.arange(side >> scale)
    matrix: NDArray[np.float64] = kernel[(outputs[:, None] - inputs[None, :]) % len(inputs)]
    return matrix[: length >> scales]
