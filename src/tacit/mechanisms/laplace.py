"""The Laplace mechanism: pure differential privacy for queries of small L1 sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.profile import check_positive


@dataclass(frozen=True, kw_only=True)
class Laplace:
    r"""Noise of density :math:`e^{-|z|/b}/2b`; with :math:`b = D_1/\varepsilon` it is :math:`\varepsilon`-private.

    :math:`D_1` is the L1 sensitivity, at most :math:`\sqrt d` times the L2 one (Dwork, McSherry, Nissim & Smith,
    "Calibrating noise to sensitivity in private data analysis", 2006).

    >>> Laplace(epsilon=0.5, sensitivity=2.0).scale
    4.0
    """

    epsilon: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_positive("sensitivity", self.sensitivity)

    @property
    def scale(self) -> float:
        """The scale b of the noise."""
        return self.sensitivity / self.epsilon

    @property
    def std(self) -> float:
        """The noise's standard deviation, b times the root of 2."""
        return math.sqrt(2.0) * self.scale

    def perturb(self, values: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
        """Return the values with independent noise on each."""
        return values + generator.laplace(scale=self.scale, size=values.shape)
