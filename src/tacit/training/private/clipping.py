r"""How the gradient of one example is bounded.

=============  =======================================================================  =========================
rule           the example's gradient :math:`g_i = (g_{i1}, \dots, g_{iL})` becomes      source
=============  =======================================================================  =========================
flat           :math:`g_i \min(1, C / \lVert g_i \rVert)`                               Abadi et al. 2016
per-layer      :math:`g_{il} \min(1, C_l / \lVert g_{il} \rVert)`, :math:`C_l = C / \sqrt L`  McMahan et al. 2018
automatic      :math:`g_i C / (\lVert g_i \rVert + \gamma)`                             Bu et al. 2023 (AUTO-S)
=============  =======================================================================  =========================

Each has norm at most C, so adding or removing an example moves the sum over a batch by at most C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from tacit.errors import ConfigError

Rule = Literal["flat", "per-layer", "automatic"]
RULES: tuple[Rule, ...] = get_args(Rule)


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
        if self.rule not in RULES:
            raise ConfigError(f"Unknown clipping {self.rule!r}. Choose one of {', '.join(RULES)}.")
        if not 0.0 < self.stability < math.inf:
            raise ConfigError(f"Expected stability={self.stability} > 0.")

    def factors(self, squares: Tensor) -> Tensor:
        """Return what each example's gradient is multiplied with, layer by layer.

        Args:
            squares: squared norms, ``(layers, examples)``.

        Returns:
            ``(layers, examples)``; one row is repeated where all layers share a factor.
        """
        if self.rule == "per-layer":
            bound = self.bound / math.sqrt(len(squares))
            return (bound / squares.sqrt()).clamp(max=1.0)  # a gradient of zero has the factor min(1, infinity)
        norms = squares.sum(0).sqrt()
        if self.rule == "automatic":
            return (self.bound / (norms + self.stability)).expand_as(squares)
        return (self.bound / norms).clamp(max=1.0).expand_as(squares)
