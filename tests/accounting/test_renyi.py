from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ive, logsumexp

from tacit.accounting import accountant, profile, renyi
from tacit.accounting.accountant import NAMES, Name
from tacit.accounting.calibration import calibrate, calibrate_skellam
from tacit.accounting.events import ComposedEvent, Event, RepeatedEvent, SampledEvent, SkellamEvent, from_dict, to_dict
from tacit.accounting.ledger import Ledger, Neighbours, Tally
from tacit.errors import ConfigError
from tests.accounting.common import gaussian, ledger, pure, running_ledger, sampled, skellam

Array = NDArray[np.float64]


def log_law(variance: float, reach: int) -> Array:
    """Return the log-probabilities of a Skellam number from -reach to reach, by ratios of Bessel functions."""
    ratios = np.zeros(reach + 400)
    for k in range(reach + 398, 0, -1):  # I_k / I_(k-1); this way round errors die out
        ratios[k] = 1.0 / (2.0 * k / variance + ratios[k + 1])
    side = math.log(ive(0, variance)) + np.cumsum(np.log(ratios[1 : reach + 1]))
    return np.concatenate([side[::-1], [math.log(ive(0, variance))], side])


def shifted(variance: float, shift: int) -> tuple[Array, Array]:
    """Return the log-probabilities of a Skellam number plus ``shift`` and of one alone, at the same places."""
    logs = log_law(variance, 200 + int(60.0 * math.sqrt(variance)))
    return logs[:-shift], logs[shift:]


def divergence(order: float, variance: float, shift: int) -> float:
    moved, still = shifted(variance, shift)
    return float(logsumexp(order * moved + (1.0 - order) * still)) / (order - 1.0)


@pytest.mark.parametrize("order", [2, 3, 8, 20])
@pytest.mark.parametrize("variance", [4.0, 30.0, 400.0])
@pytest.mark.parametrize("coordinates", [1, 9])
@pytest.mark.parametrize("reach", [1, 2])
def test_the_bound_is_above_the_true_divergence_and_close(
    order: int, variance: float, coordinates: int, reach: int
) -> None:
    # A client moves every coordinate by one unit, or from one unit below zero to one above.
    true = coordinates * divergence(order, variance, reach)
    sensitivity = math.sqrt(coordinates)
    noise = math.sqrt(variance) / sensitivity
    (bound,) = renyi.skellam(
        np.array([float(order)]), noise_multiplier=noise, sensitivity=sensitivity, reach=float(reach)
    )
    assert true <= bound < 4.0 * true
    if 3 * order < variance:  # the bound's second term then is what it is meant to be, small
        assert bound < true * (1.0 + 6.0 / variance)
    # Steps of three units: fewer of them, so that the bound on their L1 norm is loose.
    (bound,) = renyi.skellam(np.array([float(order)]), noise_multiplier=math.sqrt(variance) / 3.0, sensitivity=3.0)
    assert divergence(order, variance, 3) <= bound


def test_the_bound_is_the_published_formula() -> None:
    squared, variance, l1, order = 49.0, 12.25, 49.0, 5.0  # D = 7, z = 1/2
    published = order * squared / (2 * variance)
    published += min(((2 * order - 1) * squared + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
    assert renyi.skellam(np.array([order]), noise_multiplier=0.5, sensitivity=7.0)[0] == pytest.approx(published)
    small = renyi.skellam(np.array([2.0]), noise_multiplier=0.5, sensitivity=1.0)[0]  # the other side of the minimum
    assert small == pytest.approx(2.0 / (2 * 0.25) + 3.0 / (2 * 0.25))


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
def test_the_cost_never_grows_with_the_sensitivity(noise: float) -> None:
    orders = np.array([2.0, 3.0, 10.0, 1000.0])
    curves = [renyi.skellam(orders, noise_multiplier=noise, sensitivity=2.0**k) for k in range(0, 30, 3)]
    assert all((after <= before).all() for before, after in itertools.pairwise(curves))


@pytest.mark.parametrize("order", [1.05, 1.5, 2.5, 7.3])
def test_the_chord_between_whole_orders_is_a_bound(order: float) -> None:
    tally = Tally.of(ledger(skellam(2.0, sensitivity=1.0)))
    below, above = (renyi._scaled(tally, np.array([f(order)]))[0] for f in (math.floor, math.ceil))
    chord = below + (order - math.floor(order)) * (above - below)
    assert divergence(order, 4.0, 1) * (order - 1.0) <= chord


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("noise", [0.7, 2.0, 20.0])
def test_the_true_delta_is_at_most_the_one_asked(noise: float, neighbours: Neighbours) -> None:
    delta = 1e-5
    for shift in (1, 4):
        found = accountant.epsilon(ledger(skellam(noise, sensitivity=shift), neighbours=neighbours), delta).epsilon
        moved, still = shifted((noise * shift) ** 2, shift * (2 if neighbours == "replace-one" else 1))
        assert np.maximum(np.exp(moved) - np.exp(still + found), 0.0).sum() <= delta


@pytest.mark.parametrize(("noise", "rounds"), [(0.6, 1), (1.0, 1), (6.0, 100), (60.0, 100)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_epsilon_is_close_to_the_exact_gaussian_one_and_never_below(
    noise: float, rounds: int, neighbours: Neighbours
) -> None:
    fine = accountant.epsilon(ledger(skellam(noise, rounds), neighbours=neighbours), 1e-5)
    exact = accountant.epsilon(ledger(gaussian(noise, rounds), neighbours=neighbours), 1e-5)
    bound = accountant.epsilon(ledger(gaussian(noise, rounds), neighbours=neighbours), 1e-5, accountant="rdp-skellam")
    assert (fine.accountant, fine.sampling, fine.neighbours) == ("rdp-skellam", "full", neighbours)
    assert exact.epsilon < bound.epsilon <= fine.epsilon < 1.15 * exact.epsilon
    assert fine.epsilon == pytest.approx(bound.epsilon, rel=1e-6)  # integers cost nothing at this scale


@pytest.mark.parametrize(("noise", "rounds"), [(10.0, 100), (0.5, 1), (30.0, 100), (100.0, 3)])
def test_the_conversion_agrees_with_dp_accounting(noise: float, rounds: int) -> None:
    made = ledger(gaussian(noise, rounds))
    ours = accountant.epsilon(made, 1e-5, accountant="rdp-skellam").epsilon
    theirs = accountant.epsilon(made, 1e-5, accountant="rdp").epsilon
    # Their orders are fewer; and ours are bounded by chords, as Skellam noise needs.
    assert 0.97 * theirs < ours < 1.02 * theirs


def test_known_answer() -> None:
    # Rényi accounting at all orders gives 4.728507, the exact cost of Gaussian noise is 4.377178.
    assert accountant.epsilon(ledger(skellam(10.0, 100)), 1e-5).epsilon == pytest.approx(4.7527, abs=1e-4)


def test_what_is_composed_adds_up() -> None:
    delta = 1e-5
    one, two = skellam(3.0), skellam(4.0)

    def cost(*events: Event) -> float:
        return accountant.epsilon(ledger(*events), delta).epsilon

    together = SkellamEvent(noise_multiplier=2.4, sensitivity=2.0**14)  # 1/9 + 1/16 = 1/2.4^2
    assert cost(one, two) == pytest.approx(cost(together), rel=1e-6)
    assert cost(ComposedEvent(events=(one, two))) == pytest.approx(cost(one, two))
    assert cost(one, one) == pytest.approx(cost(RepeatedEvent(event=one, count=2)), rel=1e-12)
    assert cost(one, gaussian(4.0)) == pytest.approx(cost(one, two), rel=1e-6)
    assert cost(one) < cost(one, pure(0.1)) < cost(one) + 0.1 + 1e-9
    passed = ledger(one, sampled(4.0, 0.01, 1, "shuffle"), neighbours="zero-out")  # a pass, in full
    assert accountant.epsilon(passed, delta).epsilon == pytest.approx(cost(one, two), rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 50.0])
def test_pure_releases_cost_what_randomized_response_does(epsilon: float) -> None:
    orders = np.array([1.5, 2.0, 10.0])
    p = 1.0 / (1.0 + math.exp(-epsilon))
    q = math.exp(-epsilon) * p
    expected = [
        float(np.logaddexp(a * math.log(p) + (1 - a) * math.log(q), a * math.log(q) + (1 - a) * math.log(p))) / (a - 1)
        for a in orders
    ]
    np.testing.assert_allclose(renyi.pure(orders, epsilon), expected, rtol=1e-6)
    assert (renyi.pure(orders, epsilon) <= epsilon).all()


def test_the_ends_of_the_scale() -> None:
    def cost(*events: Event, delta: float = 1e-5) -> float:
        return accountant.epsilon(ledger(*events), delta).epsilon

    assert cost(skellam(0.0)) == math.inf
    assert cost(skellam(1e-200)) == math.inf
    assert cost(skellam(math.inf)) == 0.0
    assert Tally.of(ledger(skellam(math.inf))) == Tally.of(ledger())
    assert cost(skellam(1e9)) < 1e-3
    assert cost(skellam(5.0), delta=0.9) == 0.0
    assert 0.0 < cost(skellam(0.01, 1000)) < math.inf


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rdp-skellam"])
def test_other_accountants_refuse_skellam_noise(name: Name) -> None:
    with pytest.raises(ConfigError, match=f"accountant {name} knows no Skellam noise.*Use rdp-skellam"):
        accountant.epsilon(ledger(skellam(1.0), gaussian(1.0)), 1e-5, accountant=name)


def test_sampled_releases_are_refused() -> None:
    event = SkellamEvent(noise_multiplier=1.0, sensitivity=100.0)
    for inner in (event, RepeatedEvent(event=event, count=2), ComposedEvent(events=(event,))):
        with pytest.raises(ConfigError, match=r"not proved here for Skellam noise.*Charge it in full"):
            SampledEvent(event=inner, rate=0.5)
    with pytest.raises(ConfigError, match=r"Poisson samples.*ledgers of their own"):
        accountant.epsilon(ledger(skellam(1.0), sampled(1.0, 0.1)), 1e-5)


@pytest.mark.parametrize(
    "event",
    [
        SkellamEvent(noise_multiplier=1.5, sensitivity=2.0**14),
        SkellamEvent(noise_multiplier=0.0, sensitivity=1.0),
        SkellamEvent(noise_multiplier=math.inf, sensitivity=9830.400146484375),
        ComposedEvent(events=(skellam(2.0, 7), gaussian(1.0))),
    ],
    ids=str,
)
def test_an_event_survives_the_journal(event: Event) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(event), allow_nan=False))) == event
    made = ledger(event, skellam(1.0))
    again = Ledger.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
    assert again == made
    assert Tally.of(running_ledger(again).short()) == Tally.of(made)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"noise_multiplier": -1.0, "sensitivity": 2.0}, "noise multiplier of 0 or more, got -1"),
        ({"noise_multiplier": math.nan, "sensitivity": 2.0}, "noise multiplier of 0 or more, got nan"),
        ({"noise_multiplier": 1.0, "sensitivity": 0.5}, "sensitivity of 1 or more, got 0.5.*larger scale"),
        ({"noise_multiplier": 1.0, "sensitivity": math.inf}, "finite sensitivity"),
        ({"noise_multiplier": 1.0, "sensitivity": math.nan}, "finite sensitivity"),
        ({"noise_multiplier": 1.0}, "not a valid 'skellam'"),
    ],
)
def test_bad_events_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_dict({"kind": "skellam", **fields})


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("rounds", [1, 100])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("sensitivity", [1.0, 2.0**14])
def test_calibration_finds_the_smallest_noise(
    epsilon: float, rounds: int, neighbours: Neighbours, sensitivity: float
) -> None:
    found = calibrate_skellam(
        epsilon=epsilon, delta=1e-5, rounds=rounds, sensitivity=sensitivity, neighbours=neighbours
    )
    assert 0.99999 * epsilon < found.cost.epsilon <= epsilon
    z = found.noise_multiplier
    made = ledger(*[skellam(z, sensitivity=sensitivity)] * rounds, neighbours=neighbours)  # charged one by one
    assert accountant.epsilon(made, 1e-5).epsilon == pytest.approx(found.cost.epsilon, rel=1e-9)
    less = ledger(skellam(z * (1 - 1e-6), rounds, sensitivity), neighbours=neighbours)
    assert accountant.epsilon(less, 1e-5).epsilon > epsilon
    exact = calibrate(epsilon=epsilon, delta=1e-5, rounds=rounds, neighbours=neighbours).noise_multiplier
    assert exact < z < (1.16 if sensitivity > 1.0 else 2.5) * exact


def test_calibration_at_the_ends() -> None:
    assert calibrate_skellam(epsilon=1.0, delta=0.99, sensitivity=100.0).cost.epsilon <= 1.0
    assert calibrate_skellam(epsilon=1e5, delta=1e-5, sensitivity=100.0).cost.epsilon == pytest.approx(1e5, rel=1e-5)
    tiny = calibrate_skellam(epsilon=1e-6, delta=1e-9, sensitivity=2.0**14)
    assert tiny.noise_multiplier > 1.0 / profile.largest_mu(epsilon=1e-6, delta=1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.0}, "epsilon above 0, got 0"),
        ({"epsilon": math.inf}, "epsilon above 0, got inf"),
        ({"delta": 0.0}, "0 < delta < 1, got 0"),
        ({"delta": 1.0}, "0 < delta < 1, got 1"),
        ({"rounds": 0}, "1 round or more, got rounds=0"),
        ({"sensitivity": 0.0}, "sensitivity of 1 or more"),
        ({"neighbours": "swap"}, "Unknown neighbours 'swap'"),
    ],
)
def test_bad_budgets_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        calibrate_skellam(**{"epsilon": 1.0, "delta": 1e-5, "sensitivity": 100.0} | changes)
