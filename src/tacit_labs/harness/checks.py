"""Whether an operation gave the right integers: tried, counted and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
