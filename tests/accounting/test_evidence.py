"""Lower bounds from counts: they hold as often as they say, and mean what they say for a claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import accountant, profile
from tacit.accounting.events import GaussianEvent, PureEvent, RepeatedEvent, SampledEvent, SkellamEvent
from tacit.accounting.evidence import Claimed, Rates, ends, rates, scaled
from tacit.accounting.ledger import Ledger, Neighbours
from tacit.errors import ConfigError

SAMPLED = SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=0.5)


def _claimed(*events: object, neighbours: Neighbours = "add-remove", delta: float = 1e-5) -> Claimed:
    ledger = Ledger(neighbours=neighbours)
    for event in events:
        ledger = ledger.charged(event, round_number=1)  # type: ignore[arg-type]  # events of several kinds
    return Claimed(ledger=ledger, delta=delta)


def test_the_ends_are_those_of_the_exact_test() -> None:
    found = rates(37, 5, 200, confidence=0.95)
    assert stats.binom.sf(36, 200, found.likely) == pytest.approx(0.025)
    assert stats.binom.cdf(5, 200, found.unlikely) == pytest.approx(0.025)
    nothing = rates(0, 200, 200)
    assert (nothing.likely, nothing.unlikely) == (0.0, 1.0)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_a_bound_exceeds_the_truth_as_rarely_as_it_says(mu: float) -> None:
    """Of many audits of ideal Gaussian noise, each with a fixed event, at most one in twenty says too much."""
    generator = np.random.default_rng(1)
    place = mu / 2.0
    p, q = stats.norm.sf(place - mu), stats.norm.sf(place)
    hits, misses = generator.binomial(300, p, 2000), generator.binomial(300, q, 2000)
    low, high = ends(hits, misses, 300)
    bound = stats.norm.ppf(low) - stats.norm.ppf(high)
    assert 0.0 < np.mean(bound > mu) < 0.05
    assert np.mean(low > p) < 0.025 + 0.01
    assert np.mean(high < q) < 0.025 + 0.01


def test_gaussian_noise_is_bounded_by_its_trade_off() -> None:
    claimed = _claimed(GaussianEvent(noise_multiplier=1.0))
    seen = Rates(likely=0.8, unlikely=0.3, confidence=0.95, trials=1)
    mu = stats.norm.ppf(0.8) - stats.norm.ppf(0.3)
    assert claimed.least_epsilon(seen) == pytest.approx(profile.epsilon_at(1e-5, mu), rel=1e-5)
    assert claimed.refuted_by(seen)
    assert not _claimed(GaussianEvent(noise_multiplier=0.99 / mu)).refuted_by(seen)
    assert _claimed(GaussianEvent(noise_multiplier=1.01 / mu)).refuted_by(seen)


@pytest.mark.parametrize(
    ("claimed", "seen"),
    [
        (_claimed(PureEvent(epsilon=1.0)), (0.73, 0.27)),
        (_claimed(SkellamEvent(noise_multiplier=1.0, sensitivity=1e4), neighbours="zero-out"), (0.7, 0.32)),
        (_claimed(SAMPLED), (0.5, 0.35)),
    ],
    ids=["pure", "skellam", "sampled"],
)
def test_what_a_claim_allows_is_not_refuted_and_more_is(claimed: Claimed, seen: tuple[float, float]) -> None:
    likely, unlikely = seen
    allowed = Rates(likely=likely, unlikely=unlikely, confidence=0.95, trials=1)
    assert not claimed.refuted_by(allowed)
    more = Rates(likely=min(1.0, likely + 0.4), unlikely=0.02, confidence=0.95, trials=1)
    assert claimed.refuted_by(more)
    if claimed.ledger.charges[0].event != SAMPLED:  # whose profile takes a moment
        assert 0.0 < claimed.least_epsilon(allowed) <= claimed.epsilon <= claimed.least_epsilon(more)


def test_a_pair_alone_is_bounded_without_a_shape() -> None:
    claimed = Claimed(ledger=Ledger(), delta=0.01, pair=1.0)
    seen = Rates(likely=0.61, unlikely=0.1, confidence=0.95, trials=1)
    assert claimed.least_epsilon(seen) == pytest.approx(math.log(6.0))
    assert claimed.refuted_by(seen)
    assert not claimed.refuted_by(Rates(likely=0.25, unlikely=0.1, confidence=0.95, trials=1))


def test_the_complement_counts_as_well() -> None:
    """That an event nearly always happens in one world tells by those trials in which it does not."""
    claimed = Claimed(ledger=Ledger(), delta=0.0, pair=1.0)
    seen = Rates(likely=0.99, unlikely=0.5, confidence=0.95, trials=1)
    assert claimed.least_of_any_shape(seen) == pytest.approx(math.log(0.5 / 0.01))
    assert claimed.refuted_by(seen)


def test_a_release_without_noise_claims_nothing_that_could_be_refuted() -> None:
    claimed = _claimed(GaussianEvent(noise_multiplier=0.0))
    seen = rates(500, 0, 500)
    assert claimed.epsilon == math.inf
    assert not claimed.refuted_by(seen)
    assert claimed.least_epsilon(seen) == pytest.approx(4.9, abs=0.01)


def test_noise_is_scaled_everywhere() -> None:
    event = RepeatedEvent(event=SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=0.5), count=3)
    wanted = RepeatedEvent(event=SampledEvent(event=GaussianEvent(noise_multiplier=2.0), rate=0.5), count=3)
    assert scaled(event, 2.0) == wanted
    ledger = Ledger().charged(scaled(PureEvent(epsilon=1.0), 2.0), round_number=1)
    assert accountant.epsilon(ledger, 1e-5).epsilon == pytest.approx(0.5, abs=1e-4)


def test_counts_that_can_not_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="trials=5"):
        rates(6, 0, 5)
    with pytest.raises(ConfigError, match="confidence"):
        rates(1, 0, 5, confidence=1.0)
