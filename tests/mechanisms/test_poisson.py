from __future__ import annotations

from typing import ClassVar

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit.errors import ConfigError
from tacit.mechanisms import skellam
from tacit.mechanisms.skellam import poisson
from tacit.randomness import Randomness
from tests.mechanisms.laws import FALSE_ALARM, p_value

SEEDED, SYSTEM = Randomness.of(seed=1), Randomness.of(seed=None)
RATES = [0.3, 5.0, 9.99, 10.0, 12.0, 40.0, 1e3, 1e8, 2.0**40]


@pytest.mark.parametrize("rate", RATES)
def test_the_numbers_have_their_law_and_no_other(rate: float) -> None:
    sample = poisson(rate, 150_000, SEEDED, "law")
    assert sample.dtype == np.int64
    assert p_value(sample, stats.poisson(rate).cdf) > 1e-3
    off = 0.03 * np.sqrt(rate)
    assert p_value(sample, stats.poisson(rate + off).cdf) < 1e-6
    assert p_value(sample, stats.poisson(rate - off).cdf) < 1e-6
    assert float(sample.var()) == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("rate", [5.0, 12.0, 1e8])
def test_the_system_s_numbers_have_the_same_law(rate: float) -> None:
    assert p_value(poisson(rate, 50_000, SYSTEM), stats.poisson(rate).cdf) > FALSE_ALARM


@pytest.mark.parametrize("rate", [10.0, 30.0, 1e3, 2.0**40, 2.0**50])
def test_the_law_keeps_its_digits(rate: float) -> None:
    deviations = np.array([-30.0, -8.0, -3.0, -0.5, 0.0, 0.5, 3.0, 8.0, 30.0])
    numbers = np.unique(np.maximum(np.floor(rate + deviations * np.sqrt(rate)), 0.0))
    with mpmath.workdps(60):
        exact = [float(k * mpmath.log(rate) - rate - mpmath.loggamma(k + 1)) for k in map(mpmath.mpf, numbers)]
    np.testing.assert_allclose(skellam._log_law(numbers, rate), exact, rtol=1e-12, atol=1e-13)


def test_the_tails_are_not_cut() -> None:
    # About one in 3,000 numbers lies beyond 3.4 deviations on each side.
    sample = poisson(1e6, 400_000, SEEDED, "tails")
    for side, chance in ((-1, stats.poisson(1e6).cdf(1e6 - 3400)), (1, stats.poisson(1e6).sf(1e6 + 3400))):
        beyond = int(np.count_nonzero(side * (sample - 10**6) > 3400 - (side < 0)))
        assert stats.binomtest(beyond, len(sample), chance).pvalue > 1e-3


def test_numbers_repeat_in_a_simulation_only_and_differ_by_purpose() -> None:
    assert poisson(12.0, 9, SEEDED, "a").tolist() == poisson(12.0, 9, SEEDED, "a").tolist()
    assert poisson(12.0, 9, SEEDED, "a").tolist() != poisson(12.0, 9, SEEDED, "b").tolist()
    assert poisson(12.0, 9, SYSTEM, "a").tolist() != poisson(12.0, 9, SYSTEM, "a").tolist()


@pytest.mark.parametrize("rate", [5.0, 1e4])
def test_no_two_numbers_share_their_chance(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skellam, "_CHUNK", 1000)
    sample = poisson(rate, 20_000, SEEDED, "chunks")
    assert p_value(sample, stats.poisson(rate).cdf) > 1e-3
    for lag in (1, 1000, 2000):
        assert abs(float(np.corrcoef(sample[lag:], sample[:-lag])[0, 1])) < 5.0 / np.sqrt(20_000)


class Unlucky(Randomness):
    """Everything that is proposed at first is refused; and every draw is remembered by its name."""

    drawn: ClassVar[list[tuple[str | int, ...]]] = []

    def uniform(self, count: int, *purpose: str | int) -> NDArray[np.float64]:
        self.drawn.append(purpose)
        return super().uniform(count, *purpose) if len(self.drawn) > 2 else np.full(count, 1.0 - 2.0**-53)


def test_every_try_is_a_new_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skellam, "_CHUNK", 5)
    assert len(poisson(7.0, 12, Unlucky(key=bytes(16), simulation=True), "own")) == 12
    assert len(Unlucky.drawn) == 8  # three chunks with their coins, and two more tries
    assert len(set(Unlucky.drawn)) == 8


def test_the_edges_of_the_domain() -> None:
    assert poisson(0.0, 3, SYSTEM).tolist() == [0, 0, 0]
    assert poisson(5.0, 0, SYSTEM).tolist() == []
    assert set(poisson(1e-9, 1000, SYSTEM).tolist()) == {0}
    for bad in (-1.0, 2.0**51, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"rate from 0 to 2\^50, got .*smaller scale"):
            poisson(bad, 1, SYSTEM)
