from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.mechanisms import skellam
from tacit.mechanisms.skellam import ConditionalRounding
from tacit.randomness import Randomness
from tacit.vectors import Vector

SEEDED, SYSTEM = Randomness.of(seed=1), Randomness.of(seed=None)


def halves(size: int) -> Vector:
    """Return the numbers whose rounding adds most: all lie halfway between two integers."""
    return np.full(size, 1.5, np.float32)


@pytest.mark.parametrize(("parameters", "scale"), [(1, 1.0), (3, 4.0), (1000, 1.0), (1000, 1000.0), (20_000, 2.0)])
def test_no_draw_exceeds_the_bound(parameters: int, scale: float) -> None:
    update = halves(parameters)
    way = ConditionalRounding(clip_bound=float(np.linalg.norm(update)) * 1.001, parameters=parameters, scale=scale)
    limit = way.norm**2 + parameters / 4 + way.norm + math.sqrt(parameters) / 2
    assert way.squared_sensitivity == pytest.approx(min(limit, (way.norm + math.sqrt(parameters)) ** 2))
    for turn in range(200):
        integers = way.rounded(update, SEEDED.within(turn))
        assert int(integers @ integers) <= way.squared_sensitivity
        assert np.abs(integers).max() <= way.largest
        assert np.abs(integers - update.astype(np.float64) * scale).max() < 1.0


def test_a_draw_that_exceeds_the_bound_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    way = ConditionalRounding(clip_bound=1.0, parameters=2, scale=1.0)  # D^2 = 3.2
    update = np.full(2, math.sqrt(0.49), np.float32)
    monkeypatch.setattr(ConditionalRounding, "squared_sensitivity", 1.0)
    drawn = Counter(tuple(way.rounded(update, SEEDED.within(turn)).tolist()) for turn in range(200))
    assert drawn.keys() == {(0, 0), (0, 1), (1, 0)}
    assert drawn[0, 0] < 60  # 9 in 51 of what is within the bound


def test_after_too_many_draws_numbers_go_towards_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skellam, "_TRIES", 0)
    way = ConditionalRounding(clip_bound=10.0, parameters=3, scale=1.0)
    assert way.rounded(np.array([1.7, -1.7, 0.4], np.float32), SYSTEM).tolist() == [1, -1, 0]


def test_the_mean_is_kept() -> None:
    way = ConditionalRounding(clip_bound=1.0, parameters=6, scale=8.0)
    update = np.array([0.01, -0.01, 0.3, -0.3, 0.05, 0.0], np.float32)
    rounded = np.array([way.rounded(update, SEEDED.within(turn)) for turn in range(5_000)])
    scaled = update.astype(np.float64) * 8.0
    part = scaled - np.floor(scaled)
    errors = (rounded.mean(axis=0) - scaled) / np.sqrt(np.maximum(part * (1 - part), 1e-12) / 5_000)
    assert np.abs(errors).max() < 4.5
    assert set(rounded[:, -1].tolist()) == {0}


def test_the_update_is_clipped_first() -> None:
    way = ConditionalRounding(clip_bound=0.5, parameters=4)
    integers = way.rounded(np.full(4, 100.0, np.float32), SEEDED)
    assert np.abs(integers - 0.25 * way.factor).max() <= 1.0


@pytest.mark.parametrize("clip_bound", [0.01, 0.3, 0.5, 1.0, 7.0])
@pytest.mark.parametrize("parameters", [1, 21_840, 1_000_000, 10_000_000])
def test_the_default_scale_costs_nothing(clip_bound: float, parameters: int) -> None:
    way = ConditionalRounding(clip_bound=clip_bound, parameters=parameters)
    assert math.frexp(way.factor)[0] == 0.5  # a power of two
    assert math.sqrt(way.squared_sensitivity) / way.norm - 1.0 < 1 / 15_000
    half = ConditionalRounding(clip_bound=clip_bound, parameters=parameters, scale=way.factor / 2)
    assert half.norm < max(2.0**14, 64 * math.sqrt(parameters)) <= way.norm  # and no larger than it has to be


def test_the_largest_number_is_what_one_coordinate_can_be() -> None:
    assert ConditionalRounding(clip_bound=1.0, parameters=10_000, scale=1.5).largest == 2
    assert ConditionalRounding(clip_bound=1.0, parameters=1, scale=7.5).largest == 8
    assert ConditionalRounding(clip_bound=1.0, parameters=1, scale=100.2).largest == 100  # more would exceed D


def test_the_default_scale_at_the_usual_size() -> None:
    way = ConditionalRounding(clip_bound=1.0, parameters=21_840)
    assert way.factor == 2.0**14
    assert math.sqrt(way.squared_sensitivity) / way.norm - 1.0 == pytest.approx(4.08e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip_bound": 0.0}, "clip_bound=0.0 > 0"),
        ({"clip_bound": math.nan}, "clip_bound=nan > 0"),
        ({"clip_bound": math.inf}, "clip_bound=inf > 0"),
        ({"parameters": -1}, "parameters=-1 >= 0"),
        ({"scale": 0.0}, r"scale=0 with clip_bound=1.0. Leave the scale out"),
        ({"scale": 0.9}, r"1 <= s \* clip_bound"),
        ({"scale": 2.0**31}, r"<= 2\^30"),
        ({"scale": math.nan}, r"scale=nan"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, float], words: str) -> None:
    settings = {"clip_bound": 1.0, "parameters": 3, "scale": 4.0}
    with pytest.raises(ConfigError, match=words):
        ConditionalRounding(**settings | changes)  # type: ignore[arg-type]
