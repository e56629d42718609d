"""What each neighbouring relation is charged, against attacks on the batches and cohorts it is about."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import accountant
from tacit.accounting.events import SkellamEvent
from tacit.accounting.ledger import Neighbours, Tally
from tacit.accounting.uniform_run import uniform_run
from tests.accounting.common import gaussian, ledger, sampled

DELTA = 1e-5


def cost(sampling: str, neighbours: Neighbours, *, rate: float = 0.5, rounds: int = 2, noise: float = 1.0) -> float:
    made = ledger(sampled(noise, rate, rounds, sampling), neighbours=neighbours)  # type: ignore[arg-type]
    return accountant.epsilon(made, DELTA).epsilon


def told_apart(shifts: list[tuple[float, tuple[float, ...]]], along: tuple[float, ...], noise: float = 1.0) -> float:
    """Return an epsilon that a test on a half-space proves: a mixture of shifts of Gaussian noise against no shift."""
    direction = np.array(along) / np.linalg.norm(along)
    places = np.linspace(-5.0, 15.0, 20_001)
    seen = sum(share * norm.sf(places, loc=np.dot(shift, direction) / noise) for share, shift in shifts)
    with np.errstate(divide="ignore", invalid="ignore"):
        proved = np.log((seen - DELTA) / norm.sf(places))  # P(A) - e^eps Q(A) > delta
    return float(np.nanmax(proved))


def test_one_example_more_moves_others_to_other_batches() -> None:
    """A pass over 2m examples that contribute -1 each, in two batches, and one more that contributes +1.

    In half of the orders the new one takes another's place in the first batch (+2), which goes to the second (-1).
    """
    proved = told_apart([(0.5, (2.0, -1.0)), (0.5, (0.0, 1.0))], along=(2.0, -1.0))
    assert proved == pytest.approx(10.43, abs=0.01)
    assert cost("shuffle", "add-remove") >= proved
    assert cost("shuffle", "zero-out") < proved  # a relation of its own, not a cheaper name for the same


def test_the_reach_of_a_pass_is_met_where_the_place_is_known() -> None:
    # Whoever knows the order, as the proof allows, sees exactly the shift (2, -1).
    assert cost("shuffle", "add-remove") == pytest.approx(told_apart([(1.0, (2.0, -1.0))], along=(2.0, -1.0)), abs=2e-3)
    assert cost("shuffle", "replace-one") == pytest.approx(told_apart([(1.0, (2.0, 0.0))], along=(1.0, 0.0)), abs=2e-3)
    assert cost("shuffle", "zero-out") == pytest.approx(told_apart([(1.0, (1.0, 0.0))], along=(1.0, 0.0)), abs=2e-3)


def test_an_order_drawn_with_one_more_is_the_old_one_with_one_place_exchanged() -> None:
    # The proof's coupling gives a uniform order, and changes the sums of two batches by (2, 1) at most.
    orders: dict[tuple[int, ...], float] = {}
    for old in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        for place in range(4):
            new = [*old, 3]
            new[place], new[3] = 3, new[place]
            orders[tuple(new)] = orders.get(tuple(new), 0.0) + 1.0 / 24.0
            before, after = (old[:2], old[2:]), (new[:2], new[2:])
            moved = [len(set(a) ^ set(b)) for a, b in zip(before, after, strict=True)]
            assert sum(squared**2 for squared in moved) <= 5
    assert len(orders) == 24
    assert all(share == pytest.approx(1.0 / 24.0) for share in orders.values())


@pytest.mark.parametrize("passes", [1, 3])
def test_every_pass_is_charged(passes: int) -> None:
    made = ledger(sampled(2.0, 0.25, 4 * passes, "shuffle"))
    assert Tally.of(made).mu == pytest.approx(math.sqrt(5.0 * passes) / 2.0)


def test_without_the_unit_a_poisson_sum_has_the_law_of_one_that_is_zeroed_out() -> None:
    assert cost("poisson", "zero-out", rate=0.1, rounds=7) == cost("poisson", "add-remove", rate=0.1, rounds=7)
    assert cost("poisson", "replace-one", rate=0.1, rounds=7) > cost("poisson", "zero-out", rate=0.1, rounds=7)


def test_a_set_of_fixed_size_keeps_its_members_where_one_is_zeroed_out() -> None:
    full = accountant.epsilon(ledger(gaussian(1.0, 2)), DELTA).epsilon
    assert cost("fixed", "zero-out") == full
    rare = [cost("fixed", relation, rate=0.01) for relation in ("zero-out", "replace-one")]
    assert rare[0] == rare[1] < full  # proved for replacing, of which it is a case
    assert cost("fixed", "add-remove", rate=0.01) > full


def test_a_set_of_fixed_size_beside_poisson_samples() -> None:
    made = ledger(sampled(1.0, 0.01, 2, "fixed"), sampled(1.0, 0.01, 2), neighbours="zero-out")
    assert Tally.of(made).mu == pytest.approx(math.sqrt(2.0))
    bound = accountant.epsilon(made, DELTA, accountant="rdp").epsilon
    assert accountant.epsilon(made, DELTA).epsilon <= bound


def test_skellam_noise() -> None:
    event = SkellamEvent(noise_multiplier=2.0, sensitivity=100.0)
    zeroed, replaced = (
        accountant.epsilon(ledger(event, neighbours=relation), DELTA) for relation in ("zero-out", "replace-one")
    )
    assert zeroed.epsilon < replaced.epsilon
    assert zeroed.neighbours == "zero-out"


def test_the_relation_that_each_way_of_sampling_is_about() -> None:
    found = {sampling: uniform_run(noise_multiplier=1.0, rate=0.5, sampling=sampling).neighbours for sampling in _USUAL}  # type: ignore[arg-type]
    assert found == _USUAL


_USUAL = {"poisson": "add-remove", "fixed": "replace-one", "shuffle": "zero-out"}
