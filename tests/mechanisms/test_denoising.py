from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.mechanisms.denoising import DENOISERS, james_stein, soft_threshold
from tacit.randomness import Randomness
from tacit.vectors import norm

Y = np.array([3.0, -1.0, 0.5, 2.0, -4.0], np.float32)


def test_known_estimates() -> None:
    assert james_stein(Y, 1.0) == pytest.approx(Y * (1 - 3 / 30.25), rel=1e-6)
    assert soft_threshold(Y, 1.0) == pytest.approx([1.2058774, 0.0, 0.0, 0.2058774, -2.2058774], rel=1e-5)


def test_vectors(vectors: dict[str, Any]) -> None:
    known = vectors["denoise"]
    y = np.array(known["y"], np.float32)
    assert james_stein(y, known["sigma"]) == pytest.approx(known["js_plus"], rel=1e-6)
    assert soft_threshold(y, known["sigma"]) == pytest.approx(known["soft"], rel=1e-6)


def test_a_dense_update_is_estimated_with_half_the_error() -> None:
    generator = Randomness.of(seed=1).stream("denoising")
    truth = generator.normal(size=21_840)
    truth /= np.linalg.norm(truth)
    released = (truth + generator.normal(scale=0.01, size=truth.size)).astype(np.float32)
    true = truth.astype(np.float32)
    assert norm(released - true) == pytest.approx(1.475, rel=0.02)
    assert norm(james_stein(released, 0.01) - true) == pytest.approx(0.827, rel=0.02)


def test_a_sparse_update_is_estimated_best_by_the_threshold() -> None:
    generator = Randomness.of(seed=2).stream("denoising")
    true = np.zeros(10_000, np.float32)
    true[:10] = 1.0
    released = true + generator.normal(scale=0.05, size=true.size).astype(np.float32)
    errors = [norm(estimate - true) for estimate in (soft_threshold(released, 0.05), james_stein(released, 0.05))]
    assert errors[0] < 0.5 * errors[1] < norm(released - true)


def test_noise_alone_vanishes_and_no_sign_turns() -> None:
    noise = Randomness.of(seed=3).stream("denoising").normal(size=5_000).astype(np.float32)
    assert norm(james_stein(noise, 1.0)) < 0.2 * norm(noise)
    assert not james_stein(noise, 2.0).any()
    for denoise in DENOISERS.values():
        assert (denoise(noise, 0.5) * noise >= 0).all()


@pytest.mark.parametrize("name", ["james-stein", "soft-threshold"])
def test_without_noise_nothing_changes_and_the_input_is_left_alone(name: str) -> None:
    before = Y.copy()
    assert DENOISERS[name](Y, 0.0).tobytes() == before.tobytes()
    estimate = DENOISERS[name](Y, 1.0)
    assert estimate.dtype == np.float32
    assert Y.tobytes() == before.tobytes()


def test_extremes() -> None:
    assert not james_stein(np.zeros(5, np.float32), 1.0).any()
    assert not james_stein(np.full(5, 1e-40, np.float32), 1e300).any()
    assert soft_threshold(np.array([2.0], np.float32), 1.0).tolist() == [2.0]


@pytest.mark.parametrize("name", ["james-stein", "soft-threshold"])
@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf])
def test_a_bad_std_is_refused(name: str, std: float) -> None:
    with pytest.raises(ConfigError, match="std >= 0"):
        DENOISERS[name](Y, std)


@pytest.mark.parametrize("name", ["james-stein", "soft-threshold"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_refused(name: str, bad: float) -> None:
    with pytest.raises(ConfigError, match="coordinate 1 "):
        DENOISERS[name](np.array([1.0, bad, 2.0], np.float32), 1.0)


def test_too_few_coordinates_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 3"):
        james_stein(Y[:2], 1.0)
    with pytest.raises(ConfigError, match="at least 1"):
        soft_threshold(Y[:0], 1.0)
    with pytest.raises(ConfigError, match="flat vector"):
        james_stein(Y[None], 1.0)
