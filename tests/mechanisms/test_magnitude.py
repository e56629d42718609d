from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, WireError
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.randomness import Randomness

RESPONSE = RandomizedResponse(epsilon=5.0)
FIRST = MagnitudeEstimate(response=RESPONSE)


def test_the_documented_defaults() -> None:
    assert FIRST.estimate == math.exp(-5.0)
    assert (FIRST.growth_bound, FIRST.contraction_bound, FIRST.step_factor, FIRST.shrink) == (2.0, 1.0, 2.0, 2.0)
    assert FIRST.bound == 2.0 * FIRST.estimate
    assert FIRST.step(100) == 2.0 * FIRST.estimate * 100
    assert not FIRST.contracting


def test_growth_goes_on_until_most_are_within_the_bound() -> None:
    grown = FIRST.after(ones=10, reports=100)
    assert (grown.estimate, grown.settled, grown.contracting) == (FIRST.estimate * 5.0, 0, False)
    kept = grown.after(ones=90, reports=100)
    assert (kept.estimate, kept.settled, kept.contracting) == (grown.estimate, 1, False)
    again = kept.after(ones=10, reports=100)
    assert (again.estimate, again.settled) == (grown.estimate * 5.0, 1)


def test_the_eleventh_majority_within_the_bound_ends_the_growth() -> None:
    estimate = FIRST
    for number in range(1, 12):
        assert not estimate.contracting
        estimate = estimate.after(ones=100, reports=100)
        assert (estimate.settled, estimate.estimate) == (number, FIRST.estimate)
    assert estimate.contracting
    assert estimate.bound == estimate.estimate


def test_contraction_halves_and_never_grows() -> None:
    contracting = replace(FIRST, contracting=True)
    assert contracting.after(ones=100, reports=100).estimate == FIRST.estimate / 2.0
    assert contracting.after(ones=0, reports=100) == contracting


@pytest.mark.parametrize(("ones", "within"), [(50, False), (51, True), (49, False)])
def test_the_majority_is_strict_and_debiased(ones: int, within: bool) -> None:
    """N_T = (N_C - N + N P)/(2P - 1) > N/2; at a half the debiased count is a half whatever P is."""
    after = FIRST.after(ones=ones, reports=100)
    assert (after.settled == 1) is within
    assert (after.estimate == FIRST.estimate) is within


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_majority_is_that_of_the_debiased_count(epsilon: float) -> None:
    response = RandomizedResponse(epsilon=epsilon)
    first = MagnitudeEstimate(response=response)
    for reports in range(1, 40):
        for ones in range(reports + 1):
            within = first.after(ones=ones, reports=reports).settled == 1
            debiased = response.count(ones, reports=reports)
            assert within is (debiased > reports / 2.0 + 1e-9)
    p = response.keep
    for reports, ones in ((100, 30), (7, 7)):
        assert response.count(ones, reports=reports) == pytest.approx((ones - reports + reports * p) / (2 * p - 1))


def test_the_count_is_debiased_by_the_formula() -> None:
    p = math.exp(5.0) / (1 + math.exp(5.0))
    assert p == pytest.approx(0.9933071490757153, rel=1e-15)
    assert RESPONSE.keep == pytest.approx(p, rel=1e-15)
    assert RESPONSE.count(70, reports=100) == pytest.approx((70 - 100 + 100 * p) / (2 * p - 1), rel=1e-12)


def test_perturbed_answers_give_back_the_count() -> None:
    response, root = RandomizedResponse(epsilon=1.0), Randomness.of(seed=5)
    bits = np.arange(4_000) < 1_000
    seen = sum(bool(bit) ^ root.chance(response.flip, number) for number, bit in enumerate(bits))
    assert abs(response.count(seen, reports=4_000) - 1_000) < 4 * math.sqrt(4_000 * 0.25) / math.tanh(0.5)
    assert abs(seen - 1_000) > 400  # without the correction it would be far off


def test_the_estimate_stays_within_the_floats() -> None:
    huge = replace(FIRST, estimate=1e308)
    assert huge.after(ones=0, reports=3).estimate == 1e308
    tiny = replace(FIRST, estimate=5e-324, contracting=True)
    assert tiny.after(ones=3, reports=3).estimate == 5e-324


def test_mindspores_own_constants_can_be_set() -> None:
    theirs = MagnitudeEstimate(
        response=RESPONSE, estimate=1e-5, growth=5.0, shrink=1.5, contraction_bound=0.5, step_factor=3.0
    )
    contracting = replace(theirs, contracting=True)
    assert contracting.bound == 0.5e-5
    assert contracting.after(ones=9, reports=9).estimate == pytest.approx(1e-5 / 1.5)
    assert theirs.step(10) == pytest.approx(3e-4)


def test_the_state_travels() -> None:
    moved = replace(FIRST, estimate=0.25, contracting=True, settled=7)
    assert FIRST.with_state(moved.state()) == moved
    with pytest.raises(WireError, match="Expected 13 bytes"):
        FIRST.with_state(b"")
    for bad in (0.0, -1.0, math.nan, math.inf):
        state = np.array(bad, ">f8").tobytes() + moved.state()[8:]
        with pytest.raises(WireError, match="finite magnitude above 0"):
            FIRST.with_state(state)


@pytest.mark.parametrize(
    "change",
    [
        {"estimate": 0.0},
        {"estimate": math.inf},
        {"growth": 1.0},
        {"shrink": 0.5},
        {"growth_bound": 0.0},
        {"contraction_bound": -1.0},
        {"step_factor": 0.0},
        {"patience": 0},
    ],
)
def test_domains(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Expected"):
        MagnitudeEstimate(**{"response": RESPONSE} | change)
