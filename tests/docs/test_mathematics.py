"""Every step of the derivations in docs/mathematics.md about what is in the sources, checked numerically."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from tacit.accounting import profile
from tacit.mechanisms import calibration
from tacit.mechanisms.denoising import james_stein
from tacit.mechanisms.heterogeneous import Redistribution, variance_minimal
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.randomness import Randomness
from tacit_labs.baselines import dp_sgd, elgamal
from tacit_labs.baselines.paillier import TextbookPaillier
from tacit_labs.harness.epsilons import coded, composed, formula
from tacit_labs.report_003 import quoted

PAGE = Path(__file__).parents[2] / "docs" / "mathematics.md"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 40.0)
DELTAS = (0.3, 1e-1, 1e-2, 1e-3, 1e-5)
POINTS = np.linspace(-4.0, 6.0, 81)


def r(u: float, epsilon: float) -> float:
    """As in the page; e^epsilon erfc(t) by the scaled function, since e^epsilon alone would overflow."""
    t = math.hypot(u, math.sqrt(epsilon))
    return math.erfc(u) - math.exp(-u * u) * profile.erfcx(t)


def root(epsilon: float, delta: float) -> float:
    """The a with r(a) = 2 delta, by bisection: what the page proves to be the only one."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if r(middle, epsilon) > 2 * delta else (low, middle)
    return low


def family(x: float, epsilon: float) -> float:
    return (x + math.hypot(x, math.sqrt(epsilon))) / (epsilon * math.sqrt(2))


def f(delta: float) -> float:
    return math.sqrt(2 * math.log(1.25 / delta))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("steps", [10, 1000, 10000])
def test_the_true_share_of_a_step_lies_between_the_two_substitutions(epsilon: float, steps: int) -> None:
    each = dp_sgd.share(epsilon=epsilon, delta=1e-3, steps=steps)
    too_large = epsilon / math.sqrt(2 * steps * math.log(1 / each.delta))
    assert dp_sgd.total(each, steps) < epsilon < dp_sgd.total(replace(each, epsilon=too_large), steps)
    assert each.epsilon == pytest.approx(epsilon / (epsilon / too_large + steps * math.expm1(too_large)))


def test_the_textbooks_paillier_decrypts_as_the_page_says() -> None:
    key = TextbookPaillier.generate(64)
    n, g, order = int(key.n), int(key.g), int(key.order)

    def lowered(x: int) -> int:
        return (x - 1) // n

    for message in (0, 1, 12345, n - 1):
        once = lowered(pow(key.enc(message), order, n * n))
        assert once == message * lowered(pow(g, order, n * n)) % n
        assert once * pow(lowered(pow(g, order, n * n)), -1, n) % n == message
        assert pow(n + 1, message, n * n) == (1 + message * n) % (n * n)


def test_the_symbols_of_report_004s_ciphertext_tell_whether_its_number_is_a_square() -> None:
    modulus = elgamal.by_safe_prime(24)
    key, half = elgamal.TextbookElGamal.generate(modulus), (modulus.p - 1) // 2

    def square(number: int) -> bool:
        return pow(number, half, modulus.p) == 1

    assert not square(modulus.g)
    for message in range(1, 40):
        first, second = key.encrypt(message)
        hidden = square(first) or square(key.y)  # whether y^k is a square: k is even, or x is
        assert (square(second) == hidden) == square(message)
        assert square(message) != square(modulus.p - message)
        assert key.decrypt(key.multiply((first, second), key.encrypt(5))) == 5 * message


def test_random_answers_are_counted_without_bias() -> None:
    for epsilon, true, total in ((0.5, 3, 10), (5.0, 70, 100)):
        kept = math.exp(epsilon) / (1 + math.exp(epsilon))
        arrived = true * kept + (total - true) * (1 - kept)
        assert RandomizedResponse(epsilon=epsilon).count(arrived, reports=total) == pytest.approx(true)
        assert (arrived - total + total * kept) / (2 * kept - 1) == pytest.approx(true)


def test_the_page_names_this_file() -> None:
    assert "`tests/docs/test_mathematics.py`" in PAGE.read_text()


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5, 6.0])
def test_the_profile_is_r_and_sigma_comes_back_from_u(epsilon: float, mu: float) -> None:
    u, t = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
    assert t * t - u * u == pytest.approx(epsilon)
    assert r(u, epsilon) / 2 == pytest.approx(profile.delta_at(epsilon, mu), rel=1e-9, abs=1e-14)
    assert family(u, epsilon) == pytest.approx(1 / mu, rel=1e-8)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_r_falls_strictly_with_the_derivative_of_the_page(epsilon: float) -> None:
    values = [r(u, epsilon) for u in POINTS]
    assert all(after < before for before, after in itertools.pairwise(values))
    for u in (-2.0, -0.3, 0.0, 0.7, 2.0):
        step = 1e-5
        slope = (r(u + step, epsilon) - r(u - step, epsilon)) / (2 * step)
        said = -2 / math.sqrt(math.pi) * math.exp(-u * u) * (1 - u / math.hypot(u, math.sqrt(epsilon)))
        assert slope == pytest.approx(said, rel=1e-5, abs=1e-9)
    assert r(-8.0, epsilon) == pytest.approx(2.0, abs=1e-9)
    assert r(8.0, epsilon) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_root_is_the_analytic_mechanism(epsilon: float, delta: float) -> None:
    assert family(root(epsilon, delta), epsilon) == pytest.approx(calibration.analytic(epsilon, delta), rel=1e-6)


@pytest.mark.parametrize("delta", DELTAS)
def test_at_epsilon_zero_the_noise_is_that_of_the_page(delta: float) -> None:
    assert calibration.analytic(0.0, delta) == pytest.approx(1 / (2 * NormalDist().inv_cdf((1 + delta) / 2)), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("delta", [0.74, 0.3, 1e-1, 1e-3, 1e-6])
def test_the_classical_mechanism_is_private_up_to_epsilon_one(epsilon: float, delta: float) -> None:
    x = f(delta) - epsilon / (2 * f(delta))
    assert x >= 0.535
    assert x * x >= f(delta) ** 2 - epsilon
    bound = delta / 1.25 * math.exp(epsilon / 2) / (x * math.sqrt(2 * math.pi))
    steps = [profile.delta_at(epsilon, epsilon / f(delta)), NormalDist().cdf(-x), bound, delta]
    assert steps == sorted(steps)
    rule = calibration.rule("classical").std(epsilon, delta, 1.0)
    assert rule == pytest.approx(f(delta) / epsilon)


def test_the_classical_proof_ends_where_the_page_says() -> None:
    x = f(0.76) - 1 / (2 * f(0.76))
    assert math.exp(0.5) / (1.25 * x * math.sqrt(2 * math.pi)) > 1


@pytest.mark.parametrize("epsilon", [*EPSILONS, 1e3, 1e5])
def test_private_noise_is_at_least_the_lower_bound_below_delta_0(epsilon: float) -> None:
    bound = 1 / math.sqrt(2 * epsilon)
    largest = 0.5 - 0.5 * profile.erfcx(math.sqrt(epsilon))
    assert r(0.0, epsilon) / 2 == pytest.approx(largest, abs=1e-12)
    assert profile.delta_at(epsilon, 1 / bound) == pytest.approx(largest, rel=1e-6)
    assert largest >= 0.5 - 1 / (2 * math.sqrt(math.pi * epsilon))
    for delta in (1e-9, 1e-3, 0.5 * largest, 0.999 * largest):
        assert calibration.analytic(epsilon, delta) >= bound
    beyond = min(0.99, 1.05 * largest)
    assert calibration.analytic(epsilon, beyond) < bound  # so delta_0 can't be raised


def test_delta_0_tends_to_one_half() -> None:
    found = [0.5 - 0.5 * profile.erfcx(math.sqrt(epsilon)) for epsilon in (1.0, 1e2, 1e4, 1e6)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6])
def test_the_optimal_noise_is_of_order_one_over_root_epsilon(delta: float) -> None:
    b, before = profile.inverse_erfc(2 * delta), math.inf
    for epsilon in (1e2, 1e3, 1e4, 1e6):
        ratio = calibration.analytic(epsilon, delta) * math.sqrt(2 * epsilon)
        assert 1 <= ratio <= (b + math.sqrt(b * b + epsilon)) / math.sqrt(epsilon) + 1e-12
        assert ratio < before
        before = ratio
    assert before == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_mechanisms_stand_in_the_order_of_the_page_and_are_private(epsilon: float, delta: float) -> None:
    a, b = root(epsilon, delta), profile.inverse_erfc(2 * delta)
    y = (math.sqrt(16 * delta + 1) - 1) / 2
    c, s = math.sqrt(-math.log(y)), math.sqrt(math.log(math.sqrt(2 / math.pi) / delta))
    assert y / 2 + y * y / 2 == pytest.approx(2 * delta)
    assert y >= delta * math.sqrt(math.pi / 2)
    assert a < b <= c <= s
    names = {"zhao-1": b, "zhao-2": c, "extended": s}
    for name, x in names.items():
        rule = calibration.rule(name).std(epsilon, delta, 1.0)
        assert rule == pytest.approx(family(x, epsilon), rel=1e-9)
        assert profile.delta_at(epsilon, 1 / rule) <= delta


def test_the_bounds_on_erfc_hold() -> None:
    for x in np.linspace(1e-3, 5.0, 200):
        assert math.erfc(x) <= 0.5 * math.exp(-x * x) + 0.5 * math.exp(-2 * x * x)
        assert math.erfc(x) <= math.exp(-x * x)
        assert profile.erfcx(x) <= 1 / (x * math.sqrt(math.pi))


@pytest.mark.parametrize("delta", [1e-2, 1e-3, 1e-5])
def test_equations_22_to_24(delta: float) -> None:
    factor = f(delta)
    for epsilon in (4 * factor**2, 100 * factor**2, 1000 * factor**2):
        h = factor / math.sqrt(2) - epsilon / (2 * math.sqrt(2) * factor)
        assert (h + math.hypot(h, math.sqrt(epsilon))) / math.sqrt(2) == pytest.approx(factor, rel=1e-9)  # (23)
        assert h <= -epsilon / (4 * math.sqrt(2) * factor) + 1e-9
        far = epsilon / (4 * math.sqrt(2) * factor)
        logs = [  # of the terms of (24), from left to right
            math.log(profile.erfcx(math.hypot(h, math.sqrt(epsilon)))) - h * h,
            epsilon + math.log(profile.erfcx(abs(h))) - h * h,
            epsilon + math.log(profile.erfcx(far)) - far * far,
            epsilon - far * far,
        ]
        assert all(left <= right + 1e-9 for left, right in itertools.pairwise(logs))
        assert logs[-1] == pytest.approx(epsilon - epsilon**2 / (32 * factor**2))
    assert logs[-1] < -100  # and it tends to minus infinity
    assert r(h, epsilon) == pytest.approx(2.0)


@pytest.mark.parametrize(("delta", "crossing"), [(1e-2, 6.7718), (1e-3, 7.4635), (1e-5, 8.4198)])
def test_the_classical_formula_fails_from_where_the_page_says(delta: float, crossing: float) -> None:
    for epsilon, holds in ((crossing - 1e-3, True), (crossing + 1e-3, False), (10 * crossing, False)):
        assert (f(delta) / epsilon >= calibration.analytic(epsilon, delta)) == holds  # (22) the other way
    assert f"{crossing}" in PAGE.read_text()


def test_heterogeneous_noise_is_even_noise_on_the_whitened_sensitivity() -> None:
    clips = (0.6, 0.8)
    split = Redistribution(dimensions=(1, 1), shares=(0.3, 0.7))
    whitened = math.sqrt(sum(clip**2 / (2 * share) for clip, share in zip(clips, split.shares, strict=True)))
    assert split.whitened_sensitivity(clips) == pytest.approx(whitened)
    sigma = 1.7
    stds = split.stds(sigma)
    mu = math.sqrt(sum((clip / std) ** 2 for clip, std in zip(clips, stds, strict=True)))
    assert mu == pytest.approx(whitened / sigma)


def test_the_variance_is_least_where_shares_go_with_sensitivities() -> None:
    sensitivities = np.array([0.1, 0.5, 2.0])
    best = variance_minimal((1, 1, 1), sensitivities.tolist())
    assert np.allclose(best.shares, sensitivities / sensitivities.sum())

    def total(shares: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float(shares.sum() * (sensitivities**2 / shares).sum())

    least = total(np.array(best.shares))
    assert least == pytest.approx(float(sensitivities.sum()) ** 2)
    randomness = Randomness.of(seed=1)
    for trial in range(50):
        shares = randomness.uniform(3, "shares", trial) + 1e-3
        assert total(shares / shares.sum()) >= least - 1e-9


def test_shrinking_by_stein_gives_the_risk_of_the_page() -> None:
    randomness, size, std, trials = Randomness.of(seed=1), 50, 0.3, 4000
    truth = np.full(size, 0.2)
    noisy = truth + std * randomness.normal(size * trials, "noise").reshape(trials, size)
    squares = (noisy**2).sum(axis=1)
    shrunk = (1 - (size - 2) * std**2 / squares)[:, None] * noisy
    risk = float(((shrunk - truth) ** 2).sum(axis=1).mean())
    said = size * std**2 - (size - 2) ** 2 * std**4 * float((1 / squares).mean())
    assert risk == pytest.approx(said, rel=0.02)
    assert risk < size * std**2
    positive = [james_stein(row.astype(np.float32), std) for row in noisy[:500]]
    assert float(np.mean([((row - truth) ** 2).sum() for row in positive])) < size * std**2


def test_the_reports_epsilons_are_what_the_page_says() -> None:
    for line in quoted.TABLE:
        assert line.clip * f(1e-3) / line.sigma == pytest.approx(line.epsilon, rel=3e-3)
        assert formula(line.sigma, line.clip) == pytest.approx(line.clip * f(1e-3) / line.sigma)
    assert composed(0.1, 6) == pytest.approx(profile.epsilon_at(1e-3, math.sqrt(6) / 0.1))
    clip, sigma, tensors = 0.5, 0.05, 8
    mu = math.sqrt(tensors) * clip / (sigma * clip) ** 2
    assert coded(sigma, clip, tensors=tensors) == pytest.approx(profile.epsilon_at(1e-3, mu))
