from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from tacit_labs.signds_001 import document


@pytest.mark.parametrize("option", document.OPTIONS, ids=lambda option: option.name)
def test_tacit_has_the_documents_domains_and_reads_its_configuration(option: document.Option) -> None:
    assert all(document.accepted(option, value) for value in (*option.inside, option.default, option.yaml))
    assert not any(document.accepted(option, value) for value in option.outside)


def test_the_table_of_options_tells_another_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {row[-1] for row in document.options().rows} == {"the same"}
    wrong = (replace(document.OPTIONS[0], outside=(0.1,)), replace(document.OPTIONS[1], default=3.0))
    monkeypatch.setattr(document, "OPTIONS", wrong)
    table = document.options()
    assert [row[-1] for row in table.rows] == ["another: default 0.01", "another: default 100"]
    assert set(table.tones.values()) == {"bad"}


def test_everything_that_the_document_says_is_so() -> None:
    rows = document.claims().rows
    assert len(rows) == 13
    assert {row[2] for row in rows} == {"as it says"}


def test_the_example_of_three_clients_comes_out() -> None:
    third = Fraction(1, 3)
    assert document.aggregated() == (third, -third, Fraction(0), -third, third, third, third, third)


@pytest.mark.parametrize("epsilon", [0.1, 1.2, 5.0])
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_the_odds_of_a_set_change_by_e_to_the_epsilon(epsilon: float, threshold: int) -> None:
    ratio = document.worst_ratio(dimensions=8, largest=3, chosen=3, threshold=threshold, epsilon=epsilon)
    assert ratio == pytest.approx(math.exp(epsilon), rel=1e-12)
