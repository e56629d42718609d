from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from tacit.accounting.profile import delta_at
from tacit.errors import ConfigError
from tacit.mechanisms.calibration import (
    MECHANISMS,
    analytic,
    calibrate,
    classical,
    extended,
    rule,
    table,
    zhao_1,
    zhao_2,
)

NAMES = ["classical", "analytic", "dp-opt", "zhao-1", "zhao-2", "extended"]
EPSILONS = [1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e3]
DELTAS = [1e-100, 1e-30, 1e-10, 1e-5, 1e-3, 0.1, 0.3, 0.49, 0.6, 0.75, 0.9]

# epsilon, classical, zhao-2, extended, zhao-1, dp-opt, all for delta 1e-5 and sensitivity 1
KNOWN = [
    (0.5, 9.689610525, 9.110506068, 9.606572596, 8.645449375, 7.031826676),
    (1.0, 4.844805263, 4.608858083, 4.854241307, 4.379070281, 3.730631635),
    (2.0, 2.422402631, 2.356284895, 2.476565548, 2.243860522, 1.993812446),
    (10.0, 0.4844805263, 0.5422461754, 0.5638067315, 0.5222319726, 0.4998886197),
]


@pytest.mark.parametrize(("epsilon", "plain", "second", "phan", "first", "optimal"), KNOWN)
def test_known_sigmas(epsilon: float, plain: float, second: float, phan: float, first: float, optimal: float) -> None:
    answers = {answer.name: answer for answer in table(epsilon, 1e-5)}
    expected = [plain, optimal, optimal, first, second, phan]
    assert [answers[name].sigma for name in NAMES] == pytest.approx(expected, rel=1e-9)
    assert [name for name in NAMES if not answers[name].valid] == (["classical"] if epsilon == 10.0 else [])


def test_sigma_vectors(vectors: dict[str, Any]) -> None:
    columns = {
        "classical": "classical",
        "analytic": "dp_opt",
        "dp-opt": "dp_opt",
        "zhao-1": "mech1",
        "zhao-2": "mech2",
        "extended": "phan_extended",
    }
    for row in vectors["sigma"]:
        for answer in table(row["eps"], row["delta"], row["sens"]):
            assert answer.sigma == pytest.approx(row[columns[answer.name]], rel=1e-11), (row, answer)


def test_closed_forms_agree_with_50_digits() -> None:
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 150  # 1 - 2 delta and sqrt(16 delta + 1) - 1 lose a hundred of them
    for epsilon in map(mp.mpf, EPSILONS):
        for delta in map(mp.mpf, DELTAS):
            arguments: list[tuple[Callable[[float, float], float], Any]] = [(zhao_1, mp.erfinv(1 - 2 * delta))]
            if delta < 0.5:
                arguments.append((zhao_2, mp.sqrt(mp.log(2 / (mp.sqrt(16 * delta + 1) - 1)))))
            if delta < mp.sqrt(2 / mp.pi):
                arguments.append((extended, mp.sqrt(mp.log(mp.sqrt(2 / mp.pi) / delta))))
            for formula, x in arguments:
                exact = (x + mp.sqrt(x * x + epsilon)) / (epsilon * mp.sqrt(2))
                assert abs(formula(float(epsilon), float(delta)) / exact - 1) < 1e-12


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2, 0.2, 0.7])
def test_the_analytic_mechanism_is_the_answer_of_the_published_algorithm(epsilon: float, delta: float) -> None:
    def second(v: float) -> float:
        return math.exp(epsilon + float(log_ndtr(-math.sqrt(epsilon * (v + 2)))))

    if delta >= 0.5 - second(0.0):
        v = brentq(lambda v: float(ndtr(math.sqrt(epsilon * v))) - second(v) - delta, 0.0, 1e6, xtol=1e-13)
        alpha = math.sqrt(1 + v / 2) - math.sqrt(v / 2)
    else:
        v = brentq(lambda v: float(ndtr(-math.sqrt(epsilon * v))) - second(v) - delta, 0.0, 1e6, xtol=1e-13)
        alpha = math.sqrt(1 + v / 2) + math.sqrt(v / 2)
    assert analytic(epsilon, delta) == pytest.approx(alpha / math.sqrt(2 * epsilon), rel=1e-8)


@settings(deadline=None)
@given(
    epsilon=st.floats(-6.0, 3.0).map(lambda exponent: 10.0**exponent),
    delta=st.floats(-100.0, -0.302).map(lambda exponent: 10.0**exponent),
    sensitivity=st.floats(0.01, 100.0),
)
def test_the_order_of_the_mechanisms(epsilon: float, delta: float, sensitivity: float) -> None:
    sigmas = [rule(name).std(epsilon, delta, sensitivity) for name in ("dp-opt", "zhao-1", "zhao-2", "extended")]
    assert sigmas == sorted(set(sigmas))
    assert rule("analytic").std(epsilon, delta, sensitivity) == sigmas[0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_what_is_proved_is_valid_by_the_exact_profile(epsilon: float, delta: float) -> None:
    for answer in table(epsilon, delta):
        if answer.sigma is None:
            assert answer.name in ("zhao-2", "extended")
            assert "analytic" in answer.reason
        elif answer.name != "classical" or epsilon <= 1.0:
            assert answer.valid
        if answer.sigma is not None:
            assert answer.true_delta == delta_at(epsilon, 1 / answer.sigma)
            assert answer.valid == (answer.true_delta <= delta)


@pytest.mark.parametrize(("delta", "last"), [(1e-2, 6.7718), (1e-3, 7.4635), (1e-5, 8.4198), (1e-7, 9.0964)])
def test_the_classical_mechanism_fails_beyond_a_known_epsilon(delta: float, last: float) -> None:
    before, after = (table(last + step, delta)[0] for step in (-1e-3, 1e-3))
    assert (before.name, before.valid, after.valid) == ("classical", True, False)
    assert before.reason == after.reason == "proved for epsilon <= 1 only"
    assert after.true_delta is not None
    assert after.true_delta > delta


def test_where_the_classical_mechanism_fails_to_ten_digits(vectors: dict[str, Any]) -> None:
    for text, expected in vectors["classical_first_fails_at"].items():
        delta = float(text)

        def excess(epsilon: float, delta: float = delta) -> float:
            sigma = classical(epsilon, delta, allow_unproved=True)
            return math.log(delta_at(epsilon, 1 / sigma) / delta)

        assert brentq(excess, 2.0, 20.0, xtol=1e-12) == pytest.approx(expected, rel=1e-9)


def test_the_classical_mechanism_refuses_large_epsilon_unless_asked() -> None:
    for call in (
        lambda: classical(1.5, 1e-5),
        lambda: calibrate("classical", epsilon=1.5, delta=1e-5),
        lambda: rule("classical").std(1.5, 1e-5, 1.0),
    ):
        with pytest.raises(ConfigError, match=r"1\.5.*analytic mechanism"):
            call()
    assert classical(1.0, 1e-5) == pytest.approx(4.844805262605389, rel=1e-14)
    asked = calibrate("classical", epsilon=10.0, delta=1e-5, allow_unproved=True)
    assert asked.true_delta == pytest.approx(delta_at(10.0, 1 / 0.4844805262605389), rel=1e-9)
    assert not asked.valid


def test_outside_their_domain_mechanisms_give_a_reason_and_no_number() -> None:
    answers = {answer.name: answer for answer in table(1.0, 0.6)}
    assert (answers["zhao-2"].sigma, answers["zhao-2"].valid, answers["zhao-2"].true_delta) == (None, False, None)
    assert "0 < delta < 1/2" in answers["zhao-2"].reason
    assert [name for name, answer in answers.items() if answer.sigma is None] == ["zhao-2"]
    at_zero = [answer.name for answer in table(0.0, 1e-5) if answer.valid]
    assert at_zero == ["analytic", "dp-opt"]
    with pytest.raises(ConfigError, match="zhao-2 holds for"):
        zhao_2(1.0, 0.5)
    with pytest.raises(ConfigError, match="extended holds for"):
        extended(1.0, math.sqrt(2 / math.pi))


def test_the_names_are_those_of_the_command_line() -> None:
    assert list(MECHANISMS) == [answer.name for answer in table(1.0, 1e-5)] == NAMES
    with pytest.raises(ConfigError, match=r"'gauss'.*classical, analytic"):
        rule("gauss")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [
        (-1.0, 1e-5, 1.0),
        (math.nan, 1e-5, 1.0),
        (math.inf, 1e-5, 1.0),
        (1.0, 0.0, 1.0),
        (1.0, 1.0, 1.0),
        (1.0, -1e-5, 1.0),
        (1.0, math.nan, 1.0),
        (1.0, 1e-5, 0.0),
        (1.0, 1e-5, -1.0),
        (1.0, 1e-5, math.nan),
        (1.0, 1e-5, math.inf),
    ],
)
def test_bad_input_is_refused_by_every_mechanism(name: str, epsilon: float, delta: float, sensitivity: float) -> None:
    with pytest.raises(ConfigError, match="Expected"):
        rule(name).std(epsilon, delta, sensitivity)
    with pytest.raises(ConfigError, match="Expected"):
        table(epsilon, delta, sensitivity)
