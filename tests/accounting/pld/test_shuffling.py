from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from tacit.accounting import accountant
from tacit.accounting.events import RepeatedEvent, ShuffledEvent, from_dict, to_dict
from tacit.accounting.ledger import Ledger
from tacit.accounting.pld.shuffling import shuffled
from tacit.errors import ConfigError


def mixed(epsilon: float, reports: int, times: int = 1) -> Ledger:
    event = RepeatedEvent(event=ShuffledEvent(epsilon=epsilon, reports=reports), count=times)
    return Ledger(neighbours="replace-one").charged(event, round_number=1)


def by_definition(epsilon: float, local: float, reports: int) -> float:
    """Return delta(eps) of the clones' pair, outcome by outcome."""
    own = math.exp(local) / (1.0 + math.exp(local))
    total = 0.0
    for clones in range(reports):
        weight = binom.pmf(clones, reports - 1, math.exp(-local))
        side = np.arange(clones + 2)
        inside, beside = binom.pmf(side - 1, clones, 0.5), binom.pmf(side, clones, 0.5)
        p, q = own * inside + (1 - own) * beside, (1 - own) * inside + own * beside
        total += weight * float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    return total


@pytest.mark.parametrize(
    ("local", "reports", "delta", "expected"),
    [
        (1.0, 1000, 1e-5, 0.15404681177733437),
        (2.0, 1000, 1e-5, 0.4673690951349272),
        (4.0, 1000, 1e-5, 3.8947927446824906),
        (1.0, 100, 1e-5, 0.5531898110602924),
    ],
)
def test_known_answers(local: float, reports: int, delta: float, expected: float) -> None:
    answer = accountant.epsilon(mixed(local, reports), delta)
    assert expected * (1 - 1e-9) <= answer.epsilon <= expected + 5e-4
    assert answer.accountant == "pld"


@pytest.mark.parametrize(("local", "reports"), [(1.0, 30), (3.0, 200), (0.5, 2)])
def test_the_losses_are_the_clones(local: float, reports: int) -> None:
    losses = shuffled(local, reports, step=1e-4, tail=1e-12)
    assert losses.masses.sum() + losses.infinite == pytest.approx(1.0, abs=1e-12)
    for epsilon in (0.0, 0.1 * local, 0.6 * local):
        above = losses.points > epsilon
        delta = float((losses.masses[above] * -np.expm1(epsilon - losses.points[above])).sum())
        truth = by_definition(epsilon, local, reports)
        assert truth * (1 - 1e-9) <= delta + losses.infinite
        assert delta == pytest.approx(truth, rel=1e-3, abs=1e-9)


def test_one_report_hides_behind_nobody() -> None:
    assert accountant.epsilon(mixed(1.0, 1), 1e-9).epsilon == pytest.approx(1.0, abs=1e-4)


def test_large_epsilons_are_not_amplified() -> None:
    assert accountant.epsilon(mixed(105.0, 100, 600), 1e-5).epsilon == 63_000.0


def test_rounds_compose_and_more_reports_hide_better() -> None:
    once, often = (accountant.epsilon(mixed(1.0, 1000, times), 1e-5).epsilon for times in (1, 20))
    assert once < often < 20 * once
    sizes = [accountant.epsilon(mixed(1.0, reports, 5), 1e-5).epsilon for reports in (10, 100, 1000, 10_000)]
    assert sizes == sorted(sizes, reverse=True)


def test_small_tails_do_not_make_it_slow() -> None:
    """scipy's inverse survival function gives up below 1e-16, and would count all 100,000 clones."""
    losses = shuffled(1.0, 100_000, step=1e-4, tail=1e-18)
    assert losses.infinite <= 1e-12


def test_the_event_travels_and_is_checked() -> None:
    event = ShuffledEvent(epsilon=2.0, reports=7)
    assert from_dict(to_dict(event)) == event
    for bad in ({"epsilon": -1.0, "reports": 2}, {"epsilon": 1.0, "reports": 0}, {"epsilon": 1.0, "reports": True}):
        with pytest.raises(ConfigError, match="Expected"):
            ShuffledEvent(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["basic", "advanced", "pld-google", "rdp"])
def test_accountants_without_shuffles_charge_the_whole_report(name: accountant.Name) -> None:
    whole = accountant.epsilon(mixed(1.0, 1000, 3), 1e-5, accountant=name).epsilon
    assert whole > accountant.epsilon(mixed(1.0, 1000, 3), 1e-5).epsilon
