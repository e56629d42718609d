from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.federated.examples import noise_for
from tacit.training.private import logistic
from tacit_labs.baselines.dp_sgd import Loss, Training, fit, noise_multiplier, share, total

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(1)
    features = rng.standard_normal((60, 4)) * [1.0, 3.0, 0.5, 1.0]
    return features, (features[:, 0] + features[:, 1] > 0.3).astype(np.float64)


def trained(data: Data, training: Training, seed: int = 5) -> tuple[np.ndarray, float]:
    seen: list[tuple[np.ndarray, float]] = []
    fit(
        *data,
        training,
        np.random.default_rng(seed).standard_normal,
        lambda _, weights, bias: seen.append((weights.copy(), bias)),
    )
    assert len(seen) == training.steps
    return seen[-1]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("steps", [10, 1000])
def test_the_noise_is_that_of_tacits_own_form_of_the_method(epsilon: float, steps: int) -> None:
    ours = noise_for("advanced-composition", epsilon=epsilon, delta=1e-3, steps=steps)
    assert noise_multiplier(epsilon=epsilon, delta=1e-3, steps=steps) == pytest.approx(ours, rel=1e-12)


def test_delta_one_has_a_noise_too_though_it_promises_nothing() -> None:
    assert (
        0.0
        < noise_multiplier(epsilon=1.0, delta=1.0, steps=1000)
        < noise_multiplier(epsilon=1.0, delta=0.1, steps=1000)
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("steps", [100, 10_000])
def test_the_substitutions_never_exceed_the_budget(epsilon: float, steps: int) -> None:
    spent = total(share(epsilon=epsilon, delta=1e-3, steps=steps), steps)
    assert 0.85 * epsilon < spent <= epsilon
    if epsilon == 1.0:
        assert spent >= 0.998  # "不超过0.2%"


@pytest.mark.parametrize("noise", [0.0, 7.0])
def test_with_the_bias_protected_it_is_what_tacit_trains(data: Data, noise: float) -> None:
    training = Training(steps=30, lr=0.5, clip=1.0, noise_multiplier=noise, protected_bias=True)
    weights, bias = trained(data, training)
    setting = logistic.Setting(steps=30, lr=0.5, clip_bound=1.0, noise_multiplier=noise)
    draw = np.random.default_rng(5).standard_normal
    ours = logistic.train(data[0][None], data[1].astype(np.int64)[None], [setting], draw)
    assert weights == pytest.approx(ours[0, 0], abs=2e-4)
    assert bias == weights[-1]


def test_an_exact_bias_has_no_noise(data: Data) -> None:
    quiet, loud = (trained(data, Training(steps=1, clip=1.0, noise_multiplier=noise))[1] for noise in (0.0, 1e6))
    assert quiet == loud != 0.0
    assert trained(data, Training(steps=1, clip=1.0, noise_multiplier=1e6, protected_bias=True))[1] != quiet


def test_no_example_moves_the_weights_by_more_than_its_share_of_the_clip(data: Data) -> None:
    weights, _ = trained(data, Training(steps=1, lr=1.0, clip=0.01))
    assert np.linalg.norm(weights) <= 0.01
    free, _ = trained(data, Training(steps=1, lr=1.0))
    assert np.linalg.norm(free) > 0.05


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_gradients_are_those_of_the_loss(data: Data, loss: Loss) -> None:
    features, labels = data

    def value(weights: np.ndarray) -> float:
        p = 1.0 / (1.0 + np.exp(-features @ weights))
        if loss == "squared":
            return float(((p - labels) ** 2).mean() / 2)
        return float(-(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean())

    step, _ = trained(data, Training(steps=1, lr=1.0, loss=loss))
    for place in range(4):
        nudge = np.zeros(4)
        nudge[place] = 1e-6
        assert -step[place] == pytest.approx((value(nudge) - value(-nudge)) / 2e-6, rel=1e-4, abs=1e-8)


def test_logits_beyond_all_bounds_are_no_trouble(data: Data) -> None:
    weights, bias = trained((1e6 * data[0], data[1]), Training(steps=3, lr=10.0))
    assert np.isfinite(weights).all()
    assert math.isfinite(bias)
