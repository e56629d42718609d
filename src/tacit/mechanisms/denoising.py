r"""Denoising: a better estimate of what was released, at no cost in privacy.

A released vector is :math:`y = x + N(0, s^2 I)` with a known :math:`s`, and whatever is computed from it is
post-processing. :math:`s` belongs to the vector given here: after dividing a sum by m, that is the noise's std over m.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tacit.errors import ConfigError
from tacit.vectors import Vector, first_not_finite, norm


def james_stein(vector: Vector, std: float) -> Vector:
    r"""Return :math:`y \max(0, 1 - (d-2)s^2/\lVert y\rVert^2)`, the positive-part James-Stein estimate.

    Its expected squared error is below that of :math:`y` for every :math:`x` and every dimension :math:`d \ge 3` (James
    & Stein 1961; Baranchik 1964; for private releases, Balle & Wang 2018, section 4).

    >>> james_stein(np.array([3.0, 0.0, 4.0], np.float32), 2.0).round(2).tolist()
    [2.5199999809265137, 0.0, 3.359999895095825]
    """
    _check(vector, std, least=3)
    length = norm(vector)
    if length == 0.0:
        return vector.copy()
    ratio = std / length  # divided before it is squared, because the square of a tiny norm is zero
    factor = max(0.0, 1.0 - (vector.size - 2) * ratio * ratio)
    return (vector * factor).astype(vector.dtype, copy=False)


def soft_threshold(vector: Vector, std: float) -> Vector:
    r"""Return :math:`\mathrm{sign}(y) \max(0, |y| - s\sqrt{2 \ln d})`, which suits sparse updates only.

    The threshold is about the largest of d draws of the noise, so that a coordinate without signal becomes zero
    (Donoho & Johnstone, "Ideal spatial adaptation by wavelet shrinkage", 1994). Dense small signals vanish with it.

    >>> soft_threshold(np.array([3.0, 0.0], np.float32), 1.0).round(3).tolist()
    [1.8229999542236328, 0.0]
    """
    _check(vector, std, least=1)
    threshold = std * math.sqrt(2.0 * math.log(vector.size))
    shrunk = np.copysign(np.maximum(np.abs(vector) - threshold, 0.0), vector)
    return shrunk.astype(vector.dtype, copy=False)


DENOISERS: dict[str, Callable[[Vector, float], Vector]] = {
    "james-stein": james_stein,
    "soft-threshold": soft_threshold,
}


def _check(vector: Vector, std: float, *, least: int) -> None:
    if not 0.0 <= std < math.inf:
        raise ConfigError(f"Expected a finite std >= 0, got {std}. Give the noise's std on the vector itself.")
    if vector.ndim != 1 or vector.size < least:
        raise ConfigError(f"Expected a flat vector of at least {least} coordinates to denoise, got {vector.shape}.")
    where = first_not_finite(vector)
    if where is not None:
        raise ConfigError(
            f"Expected finite numbers to denoise, and coordinate {where} is {vector[where]}. "
            "Refuse such vectors where they arrive."
        )
