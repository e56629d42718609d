r"""The epsilons of the DP lab: what it quoted, what its formula gives, and what the noise costs.

The lab quoted :math:`\varepsilon = C \sqrt{2 \ln(1.25/\delta)} / \sigma`, the classical Gaussian mechanism for one
release of sensitivity C with noise of standard deviation sigma. Its noise was meant to have standard deviation sigma C.
Then C cancels, and what counts is :math:`\mu = \sqrt{T}/\sigma` over T rounds, whose exact cost is
:func:`tacit.accounting.profile.epsilon_at` (Balle & Wang 2018).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tacit.accounting.profile import epsilon_at

DELTA = 1e-3  # the one at which the quoted values come out of the formula
ROUNDS = 6
TENSORS = 8  # of the lab's CNN
QUOTED = (  # sigma, C, epsilon, as they stood in the lab
    (1e-4, 2.0, 75529.0),
    (0.1, 0.01, 0.377),
    (0.1, 0.001, 0.0377),
    (0.05, 0.01, 0.755),
    (0.5, 0.05, 0.377),
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the lab's table, and what is to be said of it."""

    sigma: float
    clip: float
    quoted: float
    formula: float  # the lab's, from sigma and C
    classical: float  # the same formula for noise of standard deviation sigma C; proved up to 1 only
    exact: float  # one release of that noise
    composed: float  # all rounds of it
    absolute: float  # one release of noise of standard deviation sigma, as the formula takes it
    absolute_composed: float  # all rounds of that
    coded: float  # one release of noise of standard deviation (sigma C)^2, as the lab's code draws it

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def lines(*, delta: float = DELTA, rounds: int = ROUNDS) -> tuple[Line, ...]:
    """Return the lab's table with the values beside it.

    >>> [f"{line.formula:.4g}" for line in lines()]
    ['7.553e+04', '0.3776', '0.03776', '0.7553', '0.3776']
    """
    return tuple(
        Line(
            sigma=sigma,
            clip=clip,
            quoted=quoted,
            formula=formula(sigma, clip, delta),
            classical=formula(sigma, 1.0, delta),
            exact=epsilon_at(delta, 1.0 / sigma),
            composed=composed(sigma, rounds, delta),
            absolute=epsilon_at(delta, clip / sigma),
            absolute_composed=epsilon_at(delta, math.sqrt(rounds) * clip / sigma),
            coded=coded(sigma, clip, delta),
        )
        for sigma, clip, quoted in QUOTED
    )


def formula(sigma: float, clip: float, delta: float = DELTA) -> float:
    """Return the lab's epsilon: sigma is taken as the standard deviation, C as the sensitivity.

    >>> round(formula(0.05, 0.5), 2)
    37.76
    """
    return clip * math.sqrt(2.0 * math.log(1.25 / delta)) / sigma


def composed(sigma: float, rounds: int, delta: float = DELTA) -> float:
    """Return what ``rounds`` releases cost, each with noise of standard deviation sigma C on sensitivity C.

    >>> round(composed(0.05, 6), 1)
    1350.4
    """
    return epsilon_at(delta, math.sqrt(rounds) / sigma)


def coded(sigma: float, clip: float, delta: float = DELTA, *, tensors: int = 1, rounds: int = 1) -> float:
    """Return what the lab's code costs: the variance (sigma C)^2 handed over as the standard deviation.

    Clipping each of several tensors to C by itself makes the sensitivity sqrt(tensors) C. With the CNN's eight, one
    round at C 0.5 and sigma 0.05:

    >>> round(coded(0.05, 0.5, tensors=8) / 1e6, 2)
    2.57
    """
    return epsilon_at(delta, math.sqrt(rounds * tensors) * clip / (sigma * clip) ** 2)
