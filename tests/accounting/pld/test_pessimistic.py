from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.accounting import google
from tacit.accounting import profile as exact
from tacit.accounting.ledger import Neighbours, Tally
from tacit.accounting.pld import pessimistic
from tacit.accounting.pld.loss import ADD, REMOVE, REPLACE, Losses, Pair
from tests.accounting.common import gaussian, ledger, pure, sampled


@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "delta", "neighbours"),
    [
        (0.7, 0.05, 20, 1e-5, "add-remove"),
        (5.0, 0.999, 50, 1e-5, "add-remove"),
        (30.0, 0.5, 1_000, 1e-8, "add-remove"),
        (0.8, 0.05, 20, 1e-5, "replace-one"),
        (3.0, 0.9, 20, 1e-9, "replace-one"),
    ],
)
def test_it_never_undercuts_the_reference(
    noise: float, rate: float, rounds: int, delta: float, neighbours: Neighbours
) -> None:
    tally = Tally.of(ledger(sampled(noise, rate, rounds), neighbours=neighbours))
    reference = google.pld(tally, delta)
    assert reference - 1e-6 <= pessimistic.epsilon(tally, delta) <= reference + 1e-3


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-30, 1e-100])
def test_it_is_an_upper_bound_at_every_delta(delta: float) -> None:
    tally = Tally.of(ledger(gaussian(3.0, 20)))
    truth = exact.epsilon_at(delta=delta, mu=tally.mu)
    assert truth <= pessimistic.epsilon(tally, delta) <= truth * (1 + 1e-6) + 1e-9


def test_a_coarse_grid_stays_above_a_fine_one() -> None:
    tally = Tally.of(ledger(sampled(1.0, 0.02, 300)))
    costs = [pessimistic.epsilon(tally, 1e-5, coarser=coarser) for coarser in (1.0, 2.0, 8.0)]
    assert costs == sorted(costs)
    assert costs[-1] - costs[0] < 1e-2


def test_small_losses_get_a_finer_grid_than_the_reference() -> None:
    tally = Tally.of(ledger(sampled(100.0, 0.01, 10)))
    # 1e-4 is a tenth of this epsilon; on that grid the answer would be 9% too large.
    assert pessimistic.epsilon(tally, 1e-8) < 0.0012 < google.pld(tally, 1e-8)


def test_next_to_no_noise_is_charged_like_no_sampling() -> None:
    assert pessimistic.epsilon(Tally.of(ledger(sampled(1e-9, 0.1))), 1e-5) > 1e17
    assert pessimistic.epsilon(Tally.of(ledger(sampled(1e6, 0.1))), 1e-5) == 0.0
    assert pessimistic.epsilon(Tally.of(ledger(pure(1e6))), 1e-5) == 1e6


def test_sampling_rarer_than_delta_costs_nothing() -> None:
    assert pessimistic.epsilon(Tally.of(ledger(sampled(0.5, 1e-5, 5))), 1e-3) == 0.0


@pytest.mark.parametrize("means", [REMOVE, ADD, REPLACE])
@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0])
def test_losses_keep_both_distributions(means: tuple[float, float], rate: float) -> None:
    losses = Pair(means=means, rate=rate, deviation=0.9).losses(step=1e-3, tail=1e-15)
    assert losses.masses.min() >= 0.0
    assert math.fsum(losses.masses) + losses.infinite == pytest.approx(1.0, abs=1e-12)
    # Q has its mass too: the mean of e^-loss under P is one.
    assert float((losses.masses * np.exp(-losses.points)).sum()) == pytest.approx(1.0, abs=1e-9)


def test_losses_of_one_release_give_its_exact_profile_on_the_grid() -> None:
    losses = Pair(means=REMOVE, rate=1.0, deviation=1.0).losses(step=0.01, tail=1e-15)
    for epsilon in (0.0, 0.5, 2.0):
        above = np.maximum(-np.expm1(epsilon - losses.points), 0.0)
        delta = losses.infinite + float((losses.masses * above).sum())
        assert delta == pytest.approx(exact.delta_at(epsilon=epsilon, mu=1.0), rel=1e-9)


def test_pure_losses_are_randomized_response_rounded_up() -> None:
    losses = Losses.pure(0.995, step=0.01)
    assert losses.points[0] == pytest.approx(-1.0)
    assert losses.masses[-1] / losses.masses[0] == pytest.approx(math.e)
    assert math.fsum(losses.masses) == pytest.approx(1.0)
