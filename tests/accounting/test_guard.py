"""Accounting cannot silently err low: what is reported lies between bounds that are computed in other ways."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tacit.accounting import accountant, composition, google, guard, profile, renyi
from tacit.accounting.calibration import calibrate
from tacit.accounting.events import ShuffledEvent, SkellamEvent
from tacit.accounting.ledger import Ledger, Neighbours, Tally
from tacit.accounting.pld import pessimistic
from tacit.errors import AccountingError, LocalError
from tests.accounting.common import gaussian, ledger, pure, sampled

RELATIONS: tuple[Neighbours, ...] = ("add-remove", "replace-one")


# What was once reported, and was too low


@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "relation", "reported", "truth"),
    [
        (0.01, 0.002, 6, "add-remove", 0.012, 10_124.138),
        (0.02, 0.3, 60, "add-remove", 26_871.0, 42_473.991),
        (0.03, 0.1, 20, "add-remove", 5_115.0, 5_137.7898),
        (1.0, 0.001, 10**6, "add-remove", 5.9638, 6.026),
        (1.0, 0.001, 10**6, "replace-one", 4.3209, 11.026),
    ],
)
def test_values_that_were_too_low(
    noise: float,
    rate: float,
    rounds: int,
    relation: Neighbours,
    reported: float,
    truth: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = ledger(sampled(noise, rate, rounds), neighbours=relation)
    assert truth <= accountant.epsilon(made, 1e-5).epsilon < truth * 1.001
    monkeypatch.setattr(pessimistic, "epsilon", lambda *_, **__: reported)
    with pytest.raises(AccountingError, match=f"pld found epsilon {reported:.6g} at delta 1e-05") as raised:
        accountant.epsilon(made, 1e-5)
    assert isinstance(raised.value, LocalError)
    named = float(str(raised.value).split("certainly costs ")[1].split()[0])
    assert reported < named <= truth
    assert named > 0.99 * truth


_LEDGERS: dict[str, tuple[Ledger, Any, str, float]] = {
    "poisson": (ledger(sampled(1.0, 0.01, 1_000)), pessimistic, "epsilon", 0.998),
    "replace": (ledger(sampled(1.0, 0.01, 1_000), neighbours="replace-one"), pessimistic, "epsilon", 0.998),
    "one": (ledger(sampled(1.0, 0.1)), pessimistic, "epsilon", 1.0 - 1e-6),
    "rare": (ledger(sampled(0.5, 1e-3, 50)), renyi, "sampled_epsilon", 0.3),
    "mixture": (ledger(sampled(1.2, 0.1, 5), gaussian(4.0), pure(0.1, 5)), pessimistic, "epsilon", 0.99),
    "everyone": (ledger(gaussian(2.0, 7)), profile, "epsilon_at", 1.0 - 1e-6),
    "zero-out": (ledger(gaussian(2.0, 7), neighbours="zero-out"), profile, "epsilon_at", 1.0 - 1e-6),
    "pure": (ledger(pure(3.0, 7)), composition, "basic", 0.99),
    "large": (ledger(pure(50.0, 7)), composition, "basic", 0.99),
    "many": (ledger(pure(0.1, 100)), pessimistic, "epsilon", 0.97),
    "reports": (
        ledger(ShuffledEvent(epsilon=2.0, reports=300), neighbours="replace-one"),
        pessimistic,
        "epsilon",
        0.98,
    ),
    "skellam": (ledger(SkellamEvent(noise_multiplier=2.0, sensitivity=2.0**14)), renyi, "skellam_epsilon", 0.85),
    "fixed": (ledger(sampled(1.0, 0.01, 50, "fixed"), neighbours="replace-one"), google, "rdp", 0.05),
}


@pytest.mark.parametrize("name", list(_LEDGERS))
def test_too_little_is_an_error_whatever_the_ledger_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, module, function, share = _LEDGERS[name]
    truth = accountant.epsilon(made, 1e-5).epsilon
    assert guard.lower(Tally.of(made), 1e-5) <= truth
    monkeypatch.setattr(module, function, lambda *_, **__: truth * share)
    with pytest.raises(AccountingError, match=r"certainly costs [0-9.e+-]+ or more"):
        accountant.epsilon(made, 1e-5)


def test_too_little_for_one_client_is_an_error_though_another_spent_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ledger().charged(sampled(1.0, 0.1, 90), round_number=1, clients=(0,))
    made = made.charged(gaussian(1.0), round_number=2, clients=(1,))
    assert accountant.epsilon(made, 1e-5).accountant == "pld"
    monkeypatch.setattr(pessimistic, "epsilon", lambda *_, **__: 0.5)  # now the other client's is the largest
    with pytest.raises(AccountingError, match=r"exact-gaussian found epsilon 4\.37718"):
        accountant.epsilon(made, 1e-5)


def test_too_much_by_the_exact_accountant_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "epsilon_at", lambda **_: 100.0)
    with pytest.raises(AccountingError, match=r"found epsilon 100 at delta 1e-05, and its Rényi bound is 5\.29853"):
        accountant.epsilon(ledger(gaussian(1.0)), 1e-5)


def test_the_smaller_of_two_bounds_is_reported_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ledger(sampled(1.0, 0.01, 1_000))
    monkeypatch.setattr(pessimistic, "epsilon", lambda *_, **__: 3.0)
    answer = accountant.epsilon(made, 1e-5)
    assert (answer.accountant, answer.epsilon) == ("renyi", renyi.sampled_epsilon(Tally.of(made), 1e-5))
    assert accountant.epsilon(made, 1e-5, accountant="pld").epsilon == 3.0  # asked for by name, and a bound as well


# The property


def _log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log10(low), math.log10(high)).map(lambda power: min(max(10.0**power, low), high))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    noise=_log_uniform(0.005, 50.0),
    rate=st.one_of(_log_uniform(1e-4, 1.0), st.just(1.0)),
    rounds=_log_uniform(1, 1e6).map(round),
    delta=_log_uniform(1e-12, 0.1),
    relation=st.sampled_from(RELATIONS),
)
@example(noise=0.1265, rate=0.0801, rounds=2215, delta=1e-7, relation="add-remove")  # a window of 6e8 points
@example(noise=0.0525, rate=0.03166, rounds=100_143, delta=8.2e-5, relation="add-remove")
@example(noise=0.005, rate=1e-4, rounds=1, delta=0.1, relation="add-remove")
@example(noise=0.005, rate=0.999, rounds=10**6, delta=1e-12, relation="replace-one")
@example(noise=50.0, rate=1e-4, rounds=1, delta=1e-12, relation="add-remove")
@example(noise=50.0, rate=1e-4, rounds=10**6, delta=1e-12, relation="replace-one")
@example(noise=1.0, rate=0.001, rounds=10**6, delta=1e-5, relation="replace-one")
@example(noise=1.0, rate=0.01, rounds=1, delta=0.01, relation="add-remove")  # delta covers it: epsilon is zero
def test_what_is_reported_lies_between_its_bounds(
    noise: float, rate: float, rounds: int, delta: float, relation: Neighbours
) -> None:
    made = ledger(sampled(noise, rate, rounds), neighbours=relation)
    tally = Tally.of(made)
    found = accountant.epsilon(made, delta).epsilon  # guarded
    assert found >= guard.lower(tally, delta) * (1.0 - 1e-9) - 1e-12
    if found == 0.0:
        return
    assert found <= renyi.sampled_epsilon(tally, delta) * (1.0 + 1e-9)
    if relation == "add-remove":
        assert found <= google.rdp(tally, delta) * (1.0 + 1e-9)
    reach = 2.0 if relation == "replace-one" else 1.0
    unamplified = profile.epsilon_at(delta=delta, mu=reach * math.sqrt(rounds) / noise)
    assert found <= unamplified * (1.0 + 1e-9)
    if rate == 1.0:
        assert found == pytest.approx(unamplified, rel=1e-9)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    noise=_log_uniform(0.005, 50.0),
    rate=_log_uniform(1e-4, 0.999),
    delta=_log_uniform(1e-9, 0.1),
    relation=st.sampled_from(RELATIONS),
)
def test_one_release_costs_what_sixty_digits_say(noise: float, rate: float, delta: float, relation: Neighbours) -> None:
    found = accountant.epsilon(ledger(sampled(noise, rate), neighbours=relation), delta).epsilon
    assert _exact(noise, rate, found * (1.0 + 1e-9), relation) <= delta
    if found > 0.0:
        assert _exact(noise, rate, found * 0.97 - 1e-5, relation) >= delta  # and hardly more


@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "delta"),
    [
        (0.4, 0.02, 3, 1e-3),
        (0.8, 0.2, 10, 1e-8),
        (1.0, 0.01, 1_000, 1e-5),
        (3.0, 0.5, 40, 0.05),
        (20.0, 0.3, 200, 1e-6),
    ],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_google_s_two_values_lie_around_it(
    noise: float, rate: float, rounds: int, delta: float, relation: Neighbours
) -> None:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as distributions

    named = {"add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE, "replace-one": NeighboringRelation.REPLACE_ONE}
    optimistic, pessimistic = (
        distributions.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            neighboring_relation=named[relation],
            pessimistic_estimate=above,
            use_connect_dots=above,
            value_discretization_interval=1e-3,
        )
        .self_compose(rounds)
        .get_epsilon_for_delta(delta)
        for above in (False, True)
    )
    tally = Tally.of(ledger(sampled(noise, rate, rounds), neighbours=relation))
    found = accountant.epsilon(ledger(sampled(noise, rate, rounds), neighbours=relation), delta).epsilon
    assert optimistic <= found * (1.0 + 1e-9) <= pessimistic + 1e-3 * pessimistic + 1e-6
    lower = guard.lower(tally, delta)
    assert lower <= pessimistic
    assert lower >= found * 0.995  # so that an error of a half per cent would have been seen


# The lower bounds themselves


def _exact(noise: float, rate: float, epsilon: float, relation: Neighbours) -> float:
    """Return delta(eps) of one release in sixty digits: the larger direction."""
    if epsilon < 0.0:
        return math.inf
    with mpmath.workdps(60):
        z, q, e = mpmath.mpf(noise), mpmath.mpf(rate), mpmath.exp(mpmath.mpf(epsilon))

        def tail(x: Any) -> Any:
            return mpmath.erfc(x / z / mpmath.sqrt(2)) / 2

        if relation == "replace-one":
            half = (1 - q) / q * mpmath.exp(1 / (2 * z * z)) * mpmath.sinh(mpmath.mpf(epsilon) / 2)
            x = z * z * (mpmath.mpf(epsilon) / 2 + mpmath.log(half + mpmath.sqrt(half * half + 1)))
            return float(q * tail(x - 1) + (1 - q) * (1 - e) * tail(x) - e * q * tail(x + 1))
        x = z * z * mpmath.log((e - 1 + q) / q) + mpmath.mpf(1) / 2
        removed = q * tail(x - 1) - (e - 1 + q) * tail(x)
        rest = 1 - e * (1 - q)
        if rest <= 0:
            return float(removed)
        x = z * z * mpmath.log(e * q / rest) - mpmath.mpf(1) / 2
        return float(max(removed, rest * tail(x) - e * q * tail(x + 1)))


@settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(noise=_log_uniform(0.005, 50.0), rate=_log_uniform(1e-4, 1.0), share=_log_uniform(1e-3, 1.0))
def test_the_closed_forms_are_exact_and_never_more(noise: float, rate: float, share: float) -> None:
    epsilon = share * (1.0 / noise**2 + 8.0 / noise + 3.0)
    for relation, forms in (
        ("add-remove", (guard.sampled_removed, guard.sampled_added)),
        ("replace-one", (guard.sampled_replaced,)),
    ):
        truth = _exact(noise, rate, epsilon, relation)  # type: ignore[arg-type]
        found = max(form(noise, rate, epsilon) for form in forms)
        if truth > 1e-300:
            assert found <= math.log(truth)
            if truth > 1e-14:
                assert found >= math.log(truth) - 1e-3


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(("sensitivity", "count"), [(60.0, 1), (200.0, 3)])
def test_the_skellam_bound_is_below_the_law_of_one_coordinate(noise: float, sensitivity: float, count: int) -> None:
    import numpy as np
    from scipy.special import ive

    variance, shift = count * (noise * sensitivity) ** 2, round(count * sensitivity)
    numbers = np.arange(-round(10 * math.sqrt(variance)) - 1, round(10 * math.sqrt(variance)) + shift + 1)
    still, moved = (ive(np.abs(numbers - by), variance) for by in (0, shift))
    above = 0
    for epsilon in np.linspace(0.0, 3.0 * math.sqrt(count) / noise, 13):
        truth = float(np.maximum(moved - math.exp(epsilon) * still, 0.0).sum())
        found = guard.skellam(noise, sensitivity, count, 1.0, float(epsilon))
        assert found <= math.log(truth) + 1e-9
        above += found > -math.inf
    assert above > 3


# Calibration


@pytest.mark.parametrize(("epsilon", "delta"), [(1e4, 1e-5), (8.0, 1e-9), (0.5, 1e-6)])
@pytest.mark.parametrize(("rate", "rounds"), [(0.002, 6), (0.1, 20)])
@pytest.mark.parametrize("relation", RELATIONS)
def test_calibrated_noise_keeps_its_budget(
    epsilon: float, delta: float, rate: float, rounds: int, relation: Neighbours
) -> None:
    found = calibrate(epsilon=epsilon, delta=delta, rate=rate, rounds=rounds, neighbours=relation)
    made = ledger(sampled(found.noise_multiplier, rate, rounds), neighbours=relation)
    assert accountant.epsilon(made, delta).epsilon <= epsilon
    assert guard.lower(Tally.of(made), delta) <= epsilon
    less = ledger(sampled(found.noise_multiplier * 0.99, rate, rounds), neighbours=relation)
    assert accountant.epsilon(less, delta).epsilon > epsilon


def test_calibration_of_sets_of_fixed_size_and_where_no_noise_is_needed() -> None:
    found = calibrate(epsilon=3.0, delta=1e-5, rate=0.01, rounds=9, sampling="fixed", neighbours="replace-one")
    fixed = ledger(sampled(found.noise_multiplier, 0.01, 9, "fixed"), neighbours="replace-one")
    assert accountant.epsilon(fixed, 1e-5).epsilon <= 3.0
    assert guard.lower(Tally.of(fixed), 1e-5) <= 3.0
    rare = calibrate(epsilon=1.0, delta=1e-2, rate=1e-4, rounds=5)  # delta alone covers it
    assert rare.noise_multiplier < 0.01
    assert rare.cost.epsilon <= 1.0


# Beyond what anybody asks for


@pytest.mark.parametrize(
    ("made", "delta"),
    [
        (ledger(sampled(1.0, 0.01, 5)), 5e-324),
        (ledger(pure(0.02, 4_800), neighbours="zero-out"), 5e-324),
        (ledger(sampled(0.03, 1.0 - 1e-12, 2), pure(0.002), neighbours="zero-out"), 0.999),
        (ledger(sampled(0.025, 2e-5, 45_887_922)), 1e-12),
        (ledger(sampled(47.0, 5e-4, 2_000_000), gaussian(1.5e-6, 192), neighbours="replace-one"), 1e-270),
        (ledger(sampled(1e-4, 0.5, 10**6)), 1e-5),
        (ledger(ShuffledEvent(epsilon=100.0, reports=1_000), pure(0.1, 3), neighbours="replace-one"), 1e-5),
    ],
)
def test_extremes_have_an_answer(made: Ledger, delta: float) -> None:
    answer = accountant.epsilon(made, delta)
    assert guard.lower(Tally.of(made), delta) <= answer.epsilon * (1.0 + 1e-9)
