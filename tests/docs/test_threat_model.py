"""docs/threat-model.md: every cell is filled, every test it names is there, and every mode has a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tacit.modes.catalogue import MODES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ADVERSARIES = 8
VERDICTS = ("holds", "does not hold", "as the mode", "–")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| guarantee")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named() -> dict[int, list[str]]:
    section = PAGE.partition("## The tests")[2]
    found: dict[int, list[str]] = {}
    for number, text in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section, re.MULTILINE | re.DOTALL):
        assert int(number) not in found, f"{number} stands before two lists of tests"
        found[int(number)] = re.findall(r"`(tests/[^`]+)`", text)
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_every_cell_has_a_verdict_and_what_holds_a_test(row: list[str]) -> None:
    guarantee, *cells = row
    assert len(cells) == ADVERSARIES, guarantee
    for cell in cells:
        assert cell.startswith(VERDICTS), f"{guarantee}: {cell}"
        if cell.startswith("holds") and "only the larger epsilon" not in cell:
            assert re.search(r"\[\d+\]", cell), f"{guarantee}: {cell} names no test"
        assert all(int(number) in named() for number in re.findall(r"\[(\d+)\]", cell))


@pytest.mark.parametrize("name", sorted({name for names in named().values() for name in names}))
def test_every_test_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), name


def test_numbers_are_in_order_and_all_are_used() -> None:
    used = {int(number) for row in rows() for cell in row for number in re.findall(r"\[(\d+)\]", cell)}
    assert used == set(named()) == set(range(1, len(named()) + 1))


def test_every_mode_has_a_row() -> None:
    text = " ".join(row[0] for row in rows())
    assert not [mode for mode in MODES if f"`{mode}" not in text]
