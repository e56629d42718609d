from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import kolmogorov

from tacit.errors import ConfigError
from tacit.mechanisms.laplace import Laplace
from tacit.randomness import Randomness


def test_the_scale_is_the_sensitivity_over_epsilon() -> None:
    mechanism = Laplace(epsilon=0.25, sensitivity=3.0)
    assert mechanism.scale == 12.0
    assert mechanism.std == pytest.approx(12.0 * math.sqrt(2))


def _p_value(noise: np.ndarray, scale: float) -> float:
    """Return the Kolmogorov-Smirnov p-value of the noise against a Laplace distribution."""
    ordered = np.sort(noise) / scale
    cumulative = np.where(ordered < 0, 0.5 * np.exp(-np.abs(ordered)), 1 - 0.5 * np.exp(-np.abs(ordered)))
    ranks = np.arange(noise.size + 1) / noise.size
    distance = max(np.max(cumulative - ranks[:-1]), np.max(ranks[1:] - cumulative))
    return float(kolmogorov(math.sqrt(noise.size) * distance))


def test_the_noise_has_its_scale_and_not_a_tenth_more_or_less() -> None:
    mechanism = Laplace(epsilon=2.0, sensitivity=5.0)
    values = np.full(40_000, 7.0)
    noise = mechanism.perturb(values, Randomness.of(seed=4).secret("laplace")) - values
    assert _p_value(noise, mechanism.scale) > 0.01
    assert _p_value(noise, 0.9 * mechanism.scale) < 1e-6
    assert _p_value(noise, 1.1 * mechanism.scale) < 1e-6


def test_the_likelihood_ratio_is_at_most_e_to_the_epsilon() -> None:
    mechanism = Laplace(epsilon=0.7, sensitivity=2.0)
    outputs = np.linspace(-20, 20, 2001)
    ratio = (np.abs(outputs - mechanism.sensitivity) - np.abs(outputs)) / mechanism.scale
    assert np.abs(ratio).max() == pytest.approx(0.7)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_input_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="epsilon > 0"):
        Laplace(epsilon=bad)
    with pytest.raises(ConfigError, match="sensitivity > 0"):
        Laplace(epsilon=1.0, sensitivity=bad)
