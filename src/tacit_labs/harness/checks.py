"""Whether an operation gave the right integers: tried, counted and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.report.page import Note, Table, Tone


@dataclass(frozen=True, kw_only=True)
class Check:
    """One operation on one kind of integers: how often it was tried and how often it was wrong."""

    operation: str
    integers: str
    tried: int
    wrong: int
    example: str  # the first that was wrong, else the last that was right

    @property
    def passed(self) -> bool:
        """Whether all were right; nothing tried is nothing shown."""
        return self.tried > 0 and self.wrong == 0

    @property
    def verdict(self) -> str:
        """The result in a word."""
        return "PASS" if self.passed else "FAIL"


Case = tuple[str, int, int]  # what was done, the result, the result that is right
Checks = Mapping[int, Sequence[Check]]  # by the bits of the key


def judge(operation: str, integers: str, cases: Sequence[Case]) -> Check:
    """Count what is wrong."""
    wrong = [case for case in cases if case[1] != case[2]]
    shown = (wrong or list(cases))[0 if wrong else -1] if cases else ("nothing was tried", 0, 0)
    text = f"{shown[0]} = {short(shown[1])}" + (f", expected {short(shown[2])}" if wrong else "")
    return Check(operation=operation, integers=integers, tried=len(cases), wrong=len(wrong), example=text)


def short(number: int, *, brackets: bool = False) -> str:
    """Return an integer for a table, a long one by its first and last digits.

    >>> short(-42), short(10**40 + 7)
    ('-42', '10000…00007 (41 digits)')
    """
    digits = str(abs(number))
    text = digits if len(digits) <= 12 else f"{digits[:5]}…{digits[-5:]} ({len(digits)} digits)"
    text = f"-{text}" if number < 0 else text
    return f"({text})" if brackets and number < 0 else text


def failed(checks: Checks) -> list[Check]:
    """Return those that were not passed."""
    return [one for made in checks.values() for one in made if not one.passed]


def kinds_passed(checks: Checks) -> str:
    """Return in words how many kinds of cases there were, or how many of them failed."""
    total = sum(map(len, checks.values()))
    wrong = len(failed(checks))
    return f"**FAIL** in {wrong} of {total} kinds of cases" if wrong else f"{total} kinds of cases, all PASS"


def verdict(checks: Checks, by: str = "") -> Note:
    """Return what stands above the table; ``by`` says who computed."""
    tried = sum(one.tried for made in checks.values() for one in made)
    if failed(checks):
        wrong = sum(one.wrong for one in failed(checks))
        return Note(text=f"**FAIL.** {wrong} of {tried:,} results were wrong: see the red rows.", tone="bad")
    return Note(text=f"**PASS.** All {tried:,} results were right{f' ({by})' if by else ''}.", tone="good")


def table(checks: Checks, *, caption: str) -> Table:
    """Return PASS or FAIL for every operation."""
    rows = tuple(
        (one.operation, one.integers, str(bits), one.tried, one.verdict, one.example)
        for bits, made in checks.items()
        for one in made
    )
    tones: dict[tuple[int, int], Tone] = {
        (row, 4): "good" if cells[4] == "PASS" else "bad" for row, cells in enumerate(rows)
    }
    return Table(
        columns=("Operation", "Integers", "Key bits", "Tried", "Result", "For example"),
        rows=rows,
        align="llrrll",
        tones=tones,
        caption=caption,
    )


def to_dicts(checks: Checks) -> list[dict[str, Any]]:
    """Return plain values for JSON."""
    return [asdict(one) | {"key_bits": bits, "verdict": one.verdict} for bits, made in checks.items() for one in made]
