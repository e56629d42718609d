r"""How much noise: the standard deviation by every Gaussian mechanism, side by side.

All but the classical one belong to a single family. For L2 sensitivity :math:`D`,

.. math:: s(x) = \frac{x + \sqrt{x^2 + \varepsilon}}{\varepsilon \sqrt2}\, D

========== ================================================================ ==============================
name       x                                                                source
========== ================================================================ ==============================
analytic   the root of :func:`tacit.accounting.profile.delta_at`            Balle & Wang 2018, algorithm 1
dp-opt     the same root, derived independently                             Zhao et al. 2019, theorem 2
zhao-1     :math:`\mathrm{erfc}^{-1}(2\delta)`                              Zhao et al. 2019, mechanism 1
zhao-2     :math:`\sqrt{\ln(2/(\sqrt{16\delta+1}-1))}`                      Zhao et al. 2019, mechanism 2
extended   :math:`\sqrt{\ln(\sqrt{2/\pi}/\delta)}`                          Phan et al. 2019
classical  none: :math:`s = D\sqrt{2\ln(1.25/\delta)}/\varepsilon`          Dwork & Roth 2014, appendix A
========== ================================================================ ==============================

The order is dp-opt < zhao-1 < zhao-2 < extended wherever they are defined. The classical formula is proved for
:math:`\varepsilon \le 1` and false from about 7 to 9 on, so it is refused beyond 1 unless it is asked for.

Zhao et al., "Reviewing and improving the Gaussian mechanism for differential privacy"; Phan et al., "Heterogeneous
Gaussian mechanism: preserving differential privacy in deep learning with provable robustness", IJCAI 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit.accounting import profile
from tacit.errors import ConfigError

_UNPROVED = "proved for epsilon <= 1 only"
_EXTENDED_BELOW = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One mechanism's formula, and where it holds."""

    std: Callable[[float, float, float], float]
    domain: str


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What one mechanism answers to a wanted (epsilon, delta).

    Attributes:
        name: the mechanism.
        sigma: the standard deviation, or None outside the mechanism's domain.
        valid: whether that noise really is (epsilon, delta)-private, by the exact profile.
        true_delta: the delta it really has at this epsilon.
        reason: on what the answer rests, or why there is none.
    """

    name: str
    sigma: float | None
    valid: bool
    true_delta: float | None
    reason: str


def classical(epsilon: float, delta: float, sensitivity: float = 1.0, *, allow_unproved: bool = False) -> float:
    r"""Return :math:`D \sqrt{2 \ln(1.25/\delta)}/\varepsilon`, for :math:`\varepsilon \le 1` unless asked otherwise."""
    _check(epsilon, delta, sensitivity)
    if epsilon > 1.0 and not allow_unproved:
        raise ConfigError(
            f"The classical Gaussian mechanism is {_UNPROVED}, and epsilon is {epsilon:g}. Use the analytic mechanism: "
            "it is exact for every epsilon and needs less noise."
        )
    _check_closed_form("classical", epsilon, delta, 1.0)
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def analytic(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the smallest private standard deviation; no Gaussian mechanism can do with less."""
    return profile.std(epsilon, delta, sensitivity)


def zhao_1(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    r"""Return :math:`s(\mathrm{erfc}^{-1}(2\delta))`: the exact condition without its second term."""
    _check(epsilon, delta, sensitivity)
    _check_closed_form("zhao-1", epsilon, delta, 1.0)
    return _family(profile.inverse_erfc(2.0 * delta), epsilon, sensitivity)


def zhao_2(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    r"""Return :math:`s(\sqrt{\ln(2/(\sqrt{16\delta+1}-1))})`: mechanism 1 in elementary functions."""
    _check(epsilon, delta, sensitivity)
    _check_closed_form("zhao-2", epsilon, delta, 0.5)
    # (sqrt(16 delta + 1) - 1) / 2, written so that a small delta does not cancel
    return _family(math.sqrt(-math.log(8.0 * delta / (math.sqrt(16.0 * delta + 1.0) + 1.0))), epsilon, sensitivity)


def extended(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    r"""Return :math:`s(\sqrt{\ln(\sqrt{2/\pi}/\delta)})`, the classical mechanism extended to every epsilon."""
    _check(epsilon, delta, sensitivity)
    _check_closed_form("extended", epsilon, delta, _EXTENDED_BELOW)
    return _family(math.sqrt(math.log(_EXTENDED_BELOW / delta)), epsilon, sensitivity)


MECHANISMS: dict[str, Rule] = {
    "classical": Rule(std=classical, domain="0 < epsilon <= 1, 0 < delta < 1"),
    "analytic": Rule(std=analytic, domain="epsilon >= 0, 0 < delta < 1"),
    "dp-opt": Rule(std=analytic, domain="epsilon >= 0, 0 < delta < 1"),
    "zhao-1": Rule(std=zhao_1, domain="epsilon > 0, 0 < delta < 1"),
    "zhao-2": Rule(std=zhao_2, domain="epsilon > 0, 0 < delta < 1/2"),
    "extended": Rule(std=extended, domain="epsilon > 0, 0 < delta < sqrt(2/pi)"),
}


def rule(name: str) -> Rule:
    """Return the mechanism of this name."""
    if name not in MECHANISMS:
        raise ConfigError(f"Unknown Gaussian mechanism {name!r}. Choose one of {', '.join(MECHANISMS)}.")
    return MECHANISMS[name]


def calibrate(
    name: str, *, epsilon: float, delta: float, sensitivity: float = 1.0, allow_unproved: bool = False
) -> Calibration:
    """Return the named mechanism's noise and what it is worth; outside its domain, an error.

    >>> answer = calibrate("classical", epsilon=10.0, delta=1e-5, allow_unproved=True)
    >>> answer.valid, answer.reason, f"{answer.true_delta:.2g}"
    (False, 'proved for epsilon <= 1 only', '2.3e-05')
    """
    chosen = rule(name)
    unproved = name == "classical" and epsilon > 1.0
    if unproved and allow_unproved:
        sigma = classical(epsilon, delta, sensitivity, allow_unproved=True)
    else:
        sigma = chosen.std(epsilon, delta, sensitivity)
    true_delta = profile.delta_at(epsilon, sensitivity / sigma)
    reason = _UNPROVED if unproved else f"proved for {chosen.domain}"
    return Calibration(name=name, sigma=sigma, valid=true_delta <= delta, true_delta=true_delta, reason=reason)


def table(epsilon: float, delta: float, sensitivity: float = 1.0) -> list[Calibration]:
    """Return every mechanism's answer, in the order of :data:`MECHANISMS`, also of those that don't apply.

    >>> [f"{answer.name} {answer.sigma:.4f}" for answer in table(1.0, 1e-5)][:3]
    ['classical 4.8448', 'analytic 3.7306', 'dp-opt 3.7306']
    """
    _check(epsilon, delta, sensitivity)
    return [_answer(name, epsilon, delta, sensitivity) for name in MECHANISMS]


def _answer(name: str, epsilon: float, delta: float, sensitivity: float) -> Calibration:
    try:
        return calibrate(name, epsilon=epsilon, delta=delta, sensitivity=sensitivity, allow_unproved=True)
    except ConfigError as error:
        return Calibration(name=name, sigma=None, valid=False, true_delta=None, reason=str(error))


def _family(x: float, epsilon: float, sensitivity: float) -> float:
    root = math.hypot(x, math.sqrt(epsilon))
    if x < 0.0:  # the same number, without the cancellation of x and the root
        return sensitivity / (math.sqrt(2.0) * (root - x))
    return sensitivity * (x + root) / (epsilon * math.sqrt(2.0))


def _check(epsilon: float, delta: float, sensitivity: float) -> None:
    profile.check_epsilon(epsilon)
    profile.check_delta(delta)
    profile.check_positive("sensitivity", sensitivity)


def _check_closed_form(name: str, epsilon: float, delta: float, delta_below: float) -> None:
    if epsilon == 0.0 or delta >= delta_below:
        raise ConfigError(
            f"The mechanism {name} holds for {MECHANISMS[name].domain}; epsilon is {epsilon:g} and delta {delta:g}. "
            "Use the analytic mechanism."
        )
