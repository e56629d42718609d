from __future__ import annotations

import math

import pytest

from tacit.errors import ConfigError
from tacit.report.page import Cell, Table
from tacit.report.page.parts import cell


def test_a_row_of_the_wrong_length_is_named() -> None:
    with pytest.raises(ConfigError, match="Row 1 of a table has 1 cells, expected 2"):
        Table(columns=("a", "b"), rows=((1, 2), (1,)))


@pytest.mark.parametrize("align", ["l", "lrr", "lc"])
def test_a_letter_for_each_column(align: str) -> None:
    with pytest.raises(ConfigError, match="expected 2 letters of l and r"):
        Table(columns=("a", "b"), rows=(), align=align)


def test_columns_of_numbers_stand_on_the_right() -> None:
    table = Table(
        columns=("name", "n", "mixed", "yes", "empty"), rows=(("a", 1, 1, True, None), ("b", None, "x", False, None))
    )
    assert table.sides == "lrlll"
    assert Table(columns=("name", "n"), rows=((1, 2),), align="ll").sides == "ll"


def test_csv_is_not_rounded_and_is_quoted() -> None:
    table = Table(columns=("a", "b"), rows=((0.1234567890123, 'x, "y"'), (None, 3)))
    assert table.csv() == 'a,b\n0.1234567890123,"x, ""y"""\n,3\n'
    assert Table(columns=(), rows=(("python", "3"),)).csv() == "python,3\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1_234_567, "1,234,567"),
        (0.000123456, "0.0001235"),
        (12345.6, "12,346"),
        (1.5e12, "1.5e+12"),
        (math.nan, "–"),
        (math.inf, "infinite"),
        (-math.inf, "minus infinite"),
        (False, "no"),
        ("1234", "1234"),
    ],
)
def test_cells_are_rounded_for_people(value: Cell, text: str) -> None:
    assert cell(value) == text
