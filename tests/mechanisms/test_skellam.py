from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tacit.accounting.events import SkellamEvent
from tacit.errors import ConfigError, RunError, SpoiledError
from tacit.mechanisms import skellam
from tacit.mechanisms.mechanism import Mechanism, Work
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.randomness import Randomness
from tacit.vectors import Integers, Vector, norm
from tests.mechanisms.laws import FALSE_ALARM, Law, p_value

SEEDED, SYSTEM = Randomness.of(seed=1), Randomness.of(seed=None)
SIZE = 100_000
MECHANISM = SkellamMechanism(clip_bound=0.5, noise_multiplier=2.0, smallest_cohort=4, expected_clients=5.0)
# Few units of noise, so that the law is seen number by number: (z D)^2 = 200.
COARSE = replace(MECHANISM, scale=8.0, noise_multiplier=0.1).fitted((SIZE - 10, 10))
COARSE = replace(COARSE, noise_multiplier=math.sqrt(200.0 / COARSE.rounding.squared_sensitivity))


def work(update: Vector) -> Work:
    return Work(update=update, examples=10, loss=1.0)


def sent(mechanism: SkellamMechanism, client: int = 0, randomness: Randomness = SEEDED) -> Integers:
    return mechanism.on_client(work(np.zeros(mechanism.parameters, np.float32)), randomness.within("client", client))


def law(variance: float) -> Law:
    return stats.skellam(variance / 2, variance / 2).cdf  # type: ignore[no-any-return]


@pytest.mark.parametrize("randomness", [SEEDED, SYSTEM], ids=["seeded", "system"])
def test_a_client_s_noise_is_skellam_with_its_share(randomness: Randomness) -> None:
    noise = sent(COARSE, randomness=randomness)
    assert noise.dtype == np.int64
    accepted = [p_value(noise, law(factor * 200.0 / 4)) > FALSE_ALARM for factor in (1.0, 0.9, 1.1)]
    assert accepted == [True, False, False]


def test_the_smallest_cohort_s_noise_is_skellam_with_the_whole() -> None:
    total = sum((sent(COARSE, client) for client in range(4)), np.zeros(SIZE, np.int64))
    assert [p_value(total, law(factor * 200.0)) > 1e-4 for factor in (1.0, 0.9, 1.1)] == [True, False, False]


def test_colluding_clients_noise_is_not_counted() -> None:
    honest = replace(COARSE, colluding=1)
    total = sum((sent(honest, client) for client in range(3)), np.zeros(SIZE, np.int64))  # the fourth's is known
    assert p_value(total, law(200.0)) > 1e-4
    alone = replace(COARSE, colluding=3)
    assert p_value(sent(alone), law(200.0)) > 1e-4
    assert p_value(sent(replace(COARSE, smallest_cohort=1)), law(200.0)) > 1e-4
    assert honest.event == COARSE.event


def test_a_larger_cohort_has_more_noise() -> None:
    total = sum((sent(COARSE, client) for client in range(8)), np.zeros(SIZE, np.int64))
    assert p_value(total, law(400.0)) > 1e-4


def test_at_the_default_scale_the_released_noise_is_z_times_c() -> None:
    fitted = MECHANISM.fitted((20_000,))
    total = sum((sent(fitted, client) for client in range(4)), np.zeros(20_000, np.int64))
    released = fitted.on_server(total, SEEDED, clients=4).update * 5.0
    for factor, accepted in ((1.0, True), (0.9, False), (1.1, False)):
        assert bool(stats.kstest(released / (2.0 * 0.5 * factor), "norm").pvalue > 1e-4) is accepted


def test_the_update_is_in_what_is_sent_and_comes_back_divided_by_the_expected_cohort() -> None:
    quiet = replace(MECHANISM, noise_multiplier=0.0).fitted((3, 1))
    update = np.array([0.1, -0.2, 0.3, 0.0], np.float32)
    one = quiet.on_client(work(update), SYSTEM)
    assert np.abs(one - update.astype(np.float64) * 2.0**15).max() < 1.0
    release = quiet.on_server((2 * one).astype(np.float64), SYSTEM, clients=2)
    np.testing.assert_allclose(release.update, update * 2 / 5, atol=2 * 2.0**-15)
    assert release.update.dtype == np.float32
    assert release.train_loss is None
    assert release.mechanism is quiet
    large = quiet.on_client(work(update * 100), SYSTEM) / 2.0**15
    assert norm(large.astype(np.float32)) == pytest.approx(0.5, rel=1e-4)


def test_noise_is_fresh_for_each_client_and_repeats_in_a_simulation_only() -> None:
    fitted = MECHANISM.fitted((5,))
    assert sent(fitted).tolist() == sent(fitted).tolist()
    assert sent(fitted, 1).tolist() != sent(fitted, 2).tolist()
    assert sent(fitted, randomness=SYSTEM).tolist() != sent(fitted, randomness=SYSTEM).tolist()


@pytest.mark.parametrize("variance", [0.01, 3.0, 200.0, 1e9])
def test_the_tail_bound_holds_and_is_close(variance: float) -> None:
    for exponent in (5.0, 20.0):
        t = skellam._tail(variance, exponent)
        beyond = stats.norm.logsf if variance > 1e6 else None
        true = (
            float(beyond(t / math.sqrt(variance)))
            if beyond
            else math.log(stats.skellam.pmf(np.arange(t, t + 400), variance / 2, variance / 2).sum())
        )
        assert true <= -exponent
        assert true >= -exponent - 8.0 - (exponent if variance < 1.0 else 0.0)
    assert skellam._tail(0.0, 50.0) == 0


def test_what_is_sent_is_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = MECHANISM.fitted((21_840,))
    deviation = math.sqrt(2.0 * fitted.rate)
    assert 2.0**14 + 11.0 * deviation < fitted.bound < 2.0**14 + 12.5 * deviation
    quiet = replace(fitted, noise_multiplier=0.0)
    assert quiet.bound == quiet.rounding.largest == 2**14
    monkeypatch.setattr(skellam, "_tail", lambda variance, exponent: 100)
    clipped = sent(replace(fitted))
    assert np.abs(clipped).max() == 2**14 + 100
    assert np.count_nonzero(np.abs(clipped) == 2**14 + 100) > 100


def test_the_bound_covers_every_coordinate() -> None:
    small, large = MECHANISM.fitted((1,)), replace(MECHANISM, scale=2.0**15).fitted((50_000,))
    for fitted in (small, large):
        exponent = 80.0 * math.log(2.0) + math.log(2.0 * fitted.parameters)
        assert fitted.bound - fitted.rounding.largest == skellam._tail(2.0 * fitted.rate, exponent)


def test_the_event_is_known_before_the_model_and_only_gets_cheaper() -> None:
    assert MECHANISM.event == SkellamEvent(noise_multiplier=2.0, sensitivity=2.0**14)
    assert MECHANISM.fitted((21_840,)).event == MECHANISM.event
    assert MECHANISM.fitted((10_000_000,)).event == SkellamEvent(noise_multiplier=2.0, sensitivity=2.0**18)
    fitted = MECHANISM.fitted((21_840,))
    assert 2.0 * fitted.rate * 4 == pytest.approx(4.0 * fitted.rounding.squared_sensitivity)
    assert fitted.rounding.squared_sensitivity > 2.0**28


def test_without_the_others_a_client_has_its_own_share() -> None:
    assert MECHANISM.alone == SkellamEvent(noise_multiplier=1.0, sensitivity=2.0**14)  # a half of 2, by four clients
    assert replace(MECHANISM, colluding=3).alone == MECHANISM.event
    assert replace(MECHANISM, smallest_cohort=1).alone == MECHANISM.event


def test_it_has_no_state_and_sends_nothing_but_the_update() -> None:
    mechanism: Mechanism = MECHANISM
    assert mechanism.public_state() == b""
    assert mechanism.with_state(b"") is mechanism
    assert mechanism.length(7) == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0 >= 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan >= 0"),
        ({"expected_clients": 0.0}, "expected_clients=0.0 > 0"),
        ({"clip_bound": 0.0}, "clip_bound=0.0 > 0"),
        ({"scale": -1.0}, "Leave the scale out"),
        ({"smallest_cohort": 0}, "smallest_cohort=0"),
        ({"smallest_cohort": 2.5}, "smallest_cohort=2.5 to be a whole number"),
        ({"smallest_cohort": True}, "smallest_cohort=True to be a whole number"),
        ({"colluding": -1}, "0 <= colluding=-1"),
        ({"colluding": 4}, "colluding=4 < smallest_cohort=4.*Raise the smallest cohort"),
        ({"noise_multiplier": 1e7, "scale": 2.0**30}, r"variance of .* at most 2\^51. Lower scale"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(MECHANISM, **changes)  # type: ignore[arg-type]


def test_bad_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"parameters=0. Call fitted\(\) first"):
        MECHANISM.on_client(work(np.zeros(3, np.float32)), SYSTEM)
    with pytest.raises(ConfigError, match="Call fitted"):
        _ = MECHANISM.bound
    fitted = MECHANISM.fitted((3,))
    with pytest.raises(ConfigError, match="update of 3 numbers, got 4"):
        fitted.on_client(work(np.zeros(4, np.float32)), SYSTEM)
    with pytest.raises(RunError, match=r"whole numbers.*sums integers"):
        fitted.on_server(np.array([1.0, 0.5, 2.0]), SYSTEM, clients=4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_clipped_to_zero(bad: float) -> None:
    fitted = MECHANISM.fitted((3,))
    root = Randomness.of(seed=4)
    first, second = (fitted.on_client(work(np.array([0.0, given, 0.0], np.float32)), root) for given in (bad, 0.0))
    np.testing.assert_array_equal(first, second)


# Clients that lie


@pytest.mark.parametrize("size", [1, 3, 400, 20_000])
@pytest.mark.parametrize("multiplier", [0.0, 0.3, 4.0])
def test_honest_sums_are_never_refused_and_the_bound_is_not_far(size: int, multiplier: float) -> None:
    """All updates point the same way, as far as they may: nothing honest is longer."""
    fitted = replace(MECHANISM, noise_multiplier=multiplier).fitted((size,))
    update = np.full(size, 1.0, np.float32)
    total = sum(
        (fitted.on_client(work(update), SEEDED.within(client)) for client in range(6)), np.zeros(size, np.int64)
    )
    fitted.on_server(total, SEEDED, clients=6)
    longest, noise = fitted.largest_norm(6), math.sqrt(2.0 * fitted.rate * 6 * size)
    norms = 6 * math.sqrt(fitted.rounding.squared_sensitivity)
    assert np.linalg.norm(total) <= longest
    assert longest <= norms + noise * (1.15 if size == 20_000 else 12.0) + 1e-6


def test_a_liar_that_fills_its_slots_is_found_out() -> None:
    """Every number is one that the layout allows; without the check a coordinate of the mean moved by 14 clips."""
    fitted = MECHANISM.fitted((2_000,))
    honest = sum((sent(fitted, client) for client in range(4)), np.zeros(2_000, np.int64))
    lie = np.full(2_000, fitted.bound, np.int64)
    with pytest.raises(SpoiledError, match=r"sum of 5 clients has a norm of .* at least one of them lied. Nothing was"):
        fitted.on_server(honest + lie, SEEDED, clients=5)
    fitted.on_server(honest, SEEDED, clients=4)


def test_more_clients_may_give_longer_sums() -> None:
    fitted = MECHANISM.fitted((50,))
    assert fitted.largest_norm(4) < fitted.largest_norm(5) < fitted.largest_norm(50)
    total = np.zeros(50, np.int64)
    total[0] = math.floor(fitted.largest_norm(5))
    fitted.on_server(total, SEEDED, clients=5)
    with pytest.raises(SpoiledError):
        fitted.on_server(total, SEEDED, clients=4)
