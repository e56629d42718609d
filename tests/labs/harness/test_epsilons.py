from __future__ import annotations

import pytest

from tacit_labs.harness.epsilons import coded, composed, formula
from tacit_labs.report_003 import quoted
from tacit_labs.report_003.private import costs
from tests.accounting.common import vectors


def test_the_epsilons_of_the_table_are_those_of_the_vectors() -> None:
    for line, row in zip(quoted.TABLE, vectors("seed_table"), strict=True):
        cost = costs(line)
        assert (line.sigma, line.clip, line.epsilon) == (row["sigma"], row["C"], row["quoted"])
        assert cost.formula == pytest.approx(row["formula"], rel=1e-9)
        assert formula(line.sigma, 1.0) == pytest.approx(row["classical_sigmaC"], rel=1e-9)
        assert cost.one == pytest.approx(row["exact_sigmaC"], rel=1e-9)
        assert cost.composed == pytest.approx(row["six_rounds_sigmaC"], rel=1e-9)
        assert cost.absolute == pytest.approx(row["exact_std_sigma_abs"], rel=1e-9)
        assert cost.absolute_composed == pytest.approx(row["six_rounds_std_sigma_abs"], rel=1e-9)
        assert coded(line.sigma, line.clip) == pytest.approx(row["exact_std_is_var"], rel=1e-9)


def test_quoted_values_come_out_of_the_formula_and_none_of_them_holds_for_six_rounds_of_sigma_c() -> None:
    for line in quoted.TABLE:
        cost = costs(line)
        assert line.epsilon == pytest.approx(cost.formula, rel=3e-3)
        assert cost.composed > cost.one > line.epsilon


def test_the_code_of_000_costs_millions_a_round() -> None:
    assert coded(0.05, 0.5, tensors=8) == pytest.approx(2.57e6, rel=2e-3)
    assert composed(0.05, 6) == pytest.approx(1350.4, rel=1e-4)
