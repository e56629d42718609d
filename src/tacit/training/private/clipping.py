r"""How the gradient of one example is bounded.

=============  =======================================================================  =========================
rule           the example's gradient :math:`g_i = (g_{i1}, \dots, g_{iL})` becomes      source
=============  =======================================================================  =========================
flat           :math:`g_i \min(1, C / \lVert g_i \rVert)`                               Abadi et al. 2016
per-layer      :math:`g_{il} \min(1, C_l / \lVert g_{il} \rVert)`, :math:`C_l = C / \sqrt L`  McMahan et al. 2018
automatic      :math:`g_i C / (\lVert g_i \rVert + \gamma)`                             Bu et al. 2023 (AUTO-S)
=============  =======================================================================  =========================

Each has norm at most C, so adding or removing an example moves the sum over a batch by at most C. What is computed
keeps a little more distance (:func:`tacit.grid.within`), which covers all rounding on the way to the release.

An example whose gradient is not finite, because its features, its activations or its loss overflow, has the factor 0
and takes no part. That is the same bound: it moves the sum by nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.grid import within

Rule = Literal["flat", "per-layer", "automatic"]
RULES: tuple[Rule, ...] = get_args(Rule)
_LEAST = 1e-200  # over the norm of any gradient of float32 numbers, 1e90 at most, still a double with all its digits


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """A bound and the rule that keeps it.

    >>> Clipping(bound=1.0).bound
    1.0
    """

    bound: float  # C
    rule: Rule = "flat"
    stability: float = 0.01  # gamma of the automatic rule

    def __post_init__(self) -> None:
        if not 0.0 < self.bound < math.inf:
            raise ConfigError(f"Expected a clip bound above 0, got {self.bound}. 1.0 is a common start.")
        if self.bound < _LEAST:
            raise ConfigError(f"Expected a clip bound of {_LEAST} or more, got {self.bound}. 1.0 is a common start.")
        if self.rule not in RULES:
            raise ConfigError(f"Unknown clipping {self.rule!r}. Choose one of {', '.join(RULES)}.")
        if not 0.0 < self.stability < math.inf:
            raise ConfigError(f"Expected stability={self.stability} > 0.")

    def factors(self, squares: Tensor, real: Tensor | None = None) -> Tensor:
        """Return what each example's gradient is multiplied with, layer by layer.

        Args:
            squares: squared norms, ``(layers, examples)``, in double precision.
            real: which examples take part; all if None.

        Returns:
            ``(layers, examples)``; one row is repeated where all layers share a factor. An example that takes no part,
            or of which any square is not finite, has zeros.
        """
        bound = within(self.bound)
        if self.rule == "per-layer":
            fine = squares.isfinite().all(0)
            fine = fine if real is None else fine & real
            # A gradient of zero has the factor min(1, infinity).
            factors = (bound / math.sqrt(len(squares)) / squares.sqrt()).clamp(max=1.0)
            return torch.where(fine, factors, 0.0)
        # Squares are never negative: a sum is infinite where one is, which makes a factor of 0, or NaN.
        norms = squares.sum(0).sqrt()
        automatic = self.rule == "automatic"
        shared = bound / (norms + self.stability) if automatic else (bound / norms).clamp(max=1.0)
        shared = shared.nan_to_num(nan=0.0)
        return (shared if real is None else torch.where(real, shared, 0.0)).expand_as(squares)
