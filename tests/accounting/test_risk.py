from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tacit.accounting import accountant, profile, risk
from tacit.accounting.events import GaussianEvent, PureEvent, RepeatedEvent, SampledEvent, SkellamEvent
from tacit.accounting.ledger import Ledger
from tacit.accounting.risk import Risk
from tacit.errors import ConfigError


def _ledger(event: object, count: int = 1) -> Ledger:
    return Ledger().charged(RepeatedEvent(event=event, count=count), round_number=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 8.0, 1_000.0, math.inf])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.2])
def test_the_best_guess_is_that_of_the_region_of_kairouz_and_others(epsilon: float, delta: float) -> None:
    found = Risk.of_pair(epsilon=epsilon, delta=delta)
    alphas = np.linspace(0.0, 1.0, 100_001)
    grown = np.exp(min(epsilon, 700.0)) * alphas + delta
    power = np.minimum(1.0, np.minimum(grown, 1.0 - np.exp(-min(epsilon, 700.0)) * (1.0 - delta - alphas)))
    assert found.right_guesses == pytest.approx(((1.0 + (power - alphas).max()) / 2.0), abs=2e-4)
    assert [found.power(alpha) for alpha in alphas[::5_000]] == pytest.approx(power[::5_000].tolist(), abs=1e-9)


def test_no_privacy_and_no_loss_are_the_two_ends() -> None:
    nothing = Risk.of_pair(epsilon=0.0, delta=0.0)
    assert (nothing.right_guesses, nothing.power(0.01), nothing.belief(0.3)) == (0.5, 0.01, 0.3)
    everything = Risk.of_pair(epsilon=math.inf, delta=1e-5)
    assert (everything.right_guesses, everything.power(0.01)) == (1.0, 1.0)
    assert everything.belief(0.001) == pytest.approx(1.0)


def test_gaussian_releases_have_their_exact_trade_off() -> None:
    found = risk.of_ledger(_ledger(GaussianEvent(noise_multiplier=4.0), 16), 1e-5)
    assert found.mu == pytest.approx(1.0)
    assert found.right_guesses == pytest.approx(NormalDist().cdf(0.5))
    assert found.power(0.01) == pytest.approx(NormalDist().cdf(NormalDist().inv_cdf(0.01) + 1.0))
    bound = Risk.of_pair(epsilon=found.epsilon, delta=1e-5)
    assert found.right_guesses < bound.right_guesses
    assert all(found.power(alpha) <= bound.power(alpha) + 1e-12 for alpha in np.linspace(0.001, 0.999, 200))


def test_at_epsilon_8_the_whole_profile_says_far_more_than_the_pair() -> None:
    mu = profile.largest_mu(8.0, 1e-5)
    found = risk.of_ledger(_ledger(GaussianEvent(noise_multiplier=1.0 / mu)), 1e-5)
    assert Risk.of_pair(epsilon=8.0, delta=1e-5).right_guesses > 0.999
    assert found.right_guesses == pytest.approx(0.797, abs=0.01)


def test_a_test_that_is_played_never_does_better() -> None:
    """The most powerful test of one Gaussian release, drawn a hundred thousand times."""
    generator = np.random.Generator(np.random.PCG64(1))
    found = risk.of_ledger(_ledger(GaussianEvent(noise_multiplier=1.0)), 1e-5)
    absent, present = generator.normal(0, 1, 100_000), generator.normal(1, 1, 100_000)
    right = ((absent < 0.5).mean() + (present >= 0.5).mean()) / 2
    assert right == pytest.approx(found.right_guesses, abs=0.005)
    threshold = np.quantile(absent, 0.99)
    assert (present > threshold).mean() == pytest.approx(found.power(0.01), abs=0.01)


def test_sampled_releases_are_judged_by_their_whole_profile() -> None:
    ledger = _ledger(SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=0.1), 20)
    found = risk.of_ledger(ledger, 1e-5)
    assert found.mu is None
    pair = Risk.of_pair(epsilon=accountant.epsilon(ledger, 1e-5).epsilon, delta=1e-5)
    assert 0.5 < found.right_guesses < pair.right_guesses
    assert accountant.epsilon(ledger, min(1.0 - 1e-9, 2 * found.right_guesses - 1 + 0.005)).epsilon == 0.0


def test_what_has_no_profile_has_the_bound_of_its_best_delta() -> None:
    pure = risk.of_ledger(_ledger(PureEvent(epsilon=1.0)), 1e-5)
    assert pure.right_guesses == pytest.approx(1 / (1 + math.exp(-1.0)), abs=1e-3)
    skellam = risk.of_ledger(_ledger(SkellamEvent(noise_multiplier=2.0, sensitivity=2.0**14)), 1e-5)
    assert 0.5 < skellam.right_guesses < Risk.of_pair(epsilon=skellam.epsilon, delta=1e-5).right_guesses
    assert risk.of_ledger(Ledger(), 1e-5).right_guesses == 0.5
    assert risk.of_ledger(_ledger(GaussianEvent(noise_multiplier=0.0)), 1e-5).right_guesses == 1.0


@pytest.mark.parametrize("values", [(-1.0, 0.1), (1.0, -0.1), (1.0, 2.0), (math.nan, 0.1)])
def test_what_is_no_guarantee_is_refused(values: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="Expected epsilon >= 0"):
        Risk.of_pair(epsilon=values[0], delta=values[1])
    for ask in (Risk.of_pair(epsilon=1.0, delta=0.0).power, Risk.of_pair(epsilon=1.0, delta=0.0).belief):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            ask(1.5)


RISKCAL: dict[str, Any] = json.loads((Path(__file__).parent / "riskcal.json").read_text())


@pytest.mark.parametrize("known", RISKCAL["gaussian"], ids=lambda known: f"mu {known['mu']}")
def test_gaussian_releases_have_the_risk_that_riskcal_finds(known: dict[str, Any]) -> None:
    found = risk.of_ledger(_ledger(GaussianEvent(noise_multiplier=1.0 / known["mu"])), 1e-5)
    assert [found.power(alpha) for alpha in RISKCAL["alphas"]] == pytest.approx(known["power"], abs=1e-6)
    assert 2.0 * found.right_guesses - 1.0 == pytest.approx(known["advantage"], abs=1e-6)


@pytest.mark.parametrize("known", RISKCAL["pairs"], ids=lambda known: f"epsilon {known['epsilon']}")
def test_pairs_have_the_risk_that_riskcal_finds(known: dict[str, Any]) -> None:
    found = Risk.of_pair(epsilon=known["epsilon"], delta=known["delta"])
    assert [found.power(alpha) for alpha in RISKCAL["alphas"]] == pytest.approx(known["power"], abs=1e-6)
    assert 2.0 * found.right_guesses - 1.0 == pytest.approx(known["advantage"], abs=1e-6)


@pytest.mark.parametrize("known", RISKCAL["sampled"], ids=lambda known: f"rate {known['rate']}")
def test_sampled_releases_have_no_less_risk_than_riskcal_finds(known: dict[str, Any]) -> None:
    """Ours is read off a few points of the profile: at least theirs, and for the best guess nearly theirs."""
    event = SampledEvent(event=GaussianEvent(noise_multiplier=known["noise"]), rate=known["rate"])
    found = risk.of_ledger(_ledger(event, known["steps"]), 1e-5)
    for alpha, power in zip(RISKCAL["alphas"], known["power"], strict=True):
        assert found.power(alpha) >= power - 1e-3
    assert 2.0 * found.right_guesses - 1.0 == pytest.approx(known["advantage"], abs=5e-3)
