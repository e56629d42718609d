r"""The heterogeneous Gaussian mechanism: more noise where it costs less.

Coordinate k of K gets noise of variance :math:`s^2 K r_k`, with :math:`r_k > 0` and :math:`\sum r_k = 1`, and
:math:`s` is calibrated on the whitened sensitivity

.. math:: D_r = \max_{f \sim f'} \sqrt{\sum_k (f_k - f'_k)^2 / (K r_k)}

(Phan et al., "Heterogeneous Gaussian mechanism: preserving differential privacy in deep learning with provable
robustness", IJCAI 2019). Dividing coordinate k by :math:`\sqrt{K r_k}` turns it into the ordinary mechanism, so any
calibration applies; :math:`r_k = 1/K` is the ordinary one.

The redistribution must not depend on private data. Here it is a function of shapes and clipping bounds, both public.
The coordinates of a group, such as a layer, share one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tacit.accounting.profile import check_positive
from tacit.errors import ConfigError
from tacit.mechanisms.calibration import rule

_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Redistribution:
    """How the noise is shared out among groups of coordinates.

    Attributes:
        dimensions: the number of coordinates of every group.
        shares: r, the same for each coordinate of a group; summed over all coordinates they make 1.
    """

    dimensions: tuple[int, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_dimensions(self.dimensions)
        _check_aligned("shares", self.shares, self.dimensions)
        total = math.fsum(size * share for size, share in zip(self.dimensions, self.shares, strict=True))
        if abs(total - 1.0) > _SUM_TOLERANCE:
            raise ConfigError(
                f"Expected the shares of all coordinates to add up to 1, got {total}. "
                "Divide each share by this number; a group counts once for every coordinate."
            )

    @property
    def weights(self) -> tuple[float, ...]:
        """The variance of each group's noise relative to even noise, K r."""
        coordinates = sum(self.dimensions)
        return tuple(coordinates * share for share in self.shares)

    def stds(self, sigma: float) -> tuple[float, ...]:
        r"""Return the standard deviation of every group, :math:`\sigma\sqrt{K r_g}`."""
        check_positive("sigma", sigma)
        return tuple(sigma * math.sqrt(weight) for weight in self.weights)

    def whitened_sensitivity(self, clips: Sequence[float], *, total: float = math.inf) -> float:
        r"""Return the sensitivity in units of each group's noise.

        Group g is clipped to ``clips[g]``, and the whole vector to ``total`` where that is given. The worst vector
        spends its norm on the groups with the least noise first, each up to its own bound. Groups without a bound of
        their own have the clip ``math.inf``.

        >>> uniform([3, 1]).whitened_sensitivity([3.0, 4.0])
        5.0
        >>> uniform([3, 1]).whitened_sensitivity([math.inf, math.inf], total=2.0)
        2.0
        """
        if len(clips) != len(self.dimensions):
            raise ConfigError(f"Expected a clip for each of the {len(self.dimensions)} groups, got {len(clips)}.")
        for name, bound in (("total", total), *(("clip", clip) for clip in clips)):
            if not bound > 0.0:
                raise ConfigError(f"Expected {name} > 0, got {bound}. Leave a group unbounded with math.inf.")
        left = total * total
        square = 0.0
        for weight, clip in sorted(zip(self.weights, clips, strict=True)):
            spent = min(left, clip * clip)
            square += spent / weight
            if spent == left:
                break
            left -= spent
        if math.isinf(square):
            raise ConfigError("Expected every group to be bounded by its clip or by the total; one is not. Give total.")
        return math.sqrt(square)

    def calibrated(
        self,
        *,
        epsilon: float,
        delta: float,
        clips: Sequence[float],
        total: float = math.inf,
        mechanism: str = "analytic",
    ) -> tuple[float, ...]:
        """Return the standard deviation of every group for a wanted (epsilon, delta)."""
        sensitivity = self.whitened_sensitivity(clips, total=total)
        return self.stds(rule(mechanism).std(epsilon, delta, sensitivity))


def sizes(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return the number of coordinates of each layer's shape.

    >>> sizes([(8, 1, 5, 5), (8,), ()])
    (200, 8, 1)
    """
    return tuple(math.prod(shape) for shape in shapes)


def uniform(dimensions: Sequence[int]) -> Redistribution:
    """Return the same noise for every coordinate, r = 1/K."""
    _check_dimensions(dimensions)
    return Redistribution(dimensions=tuple(dimensions), shares=(1.0 / sum(dimensions),) * len(dimensions))


def variance_minimal(dimensions: Sequence[int], clips: Sequence[float]) -> Redistribution:
    r"""Return the redistribution with the least total noise when group g is clipped to :math:`C_g` by itself.

    Minimising :math:`\sum_g d_g s_g^2` while :math:`\sum_g C_g^2/s_g^2` is fixed gives
    :math:`s_g^2 \propto C_g/\sqrt{d_g}`; for single coordinates, :math:`r_k` proportional to their sensitivities.

    >>> variance_minimal([1, 1], [3.0, 1.0]).shares
    (0.75, 0.25)
    """
    _check_dimensions(dimensions)
    _check_aligned("clips", clips, dimensions)
    variances = [clip / math.sqrt(size) for size, clip in zip(dimensions, clips, strict=True)]
    total = math.fsum(size * variance for size, variance in zip(dimensions, variances, strict=True))
    return Redistribution(dimensions=tuple(dimensions), shares=tuple(variance / total for variance in variances))


def _check_dimensions(dimensions: Sequence[int]) -> None:
    if not dimensions or min(dimensions) < 1:
        raise ConfigError(f"Expected one or more groups of at least one coordinate, got sizes {list(dimensions)}.")


def _check_aligned(name: str, values: Sequence[float], dimensions: Sequence[int]) -> None:
    if len(values) != len(dimensions) or not all(0.0 < value < math.inf for value in values):
        raise ConfigError(
            f"Expected {name} of {len(dimensions)} finite numbers > 0, one for each group, got {list(values)}."
        )
