"""The marks that tell which statements tests reach change nothing, and stand where they should."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.reached import Marks

SOURCE = '''
"""A module of every kind of block."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nothing_that_exists


class Both:
    """With a method."""

    kept = 1

    def value(self, x):
        """Return x, or its square."""
        if x < 0:
            return x * x
        return x


def tried(x):
    with open("/dev/null"):
        try:
            1 / x
        except ZeroDivisionError:
            return "zero"
        else:
            done = "not zero"
        finally:
            seen.append(x)
    for _ in range(x):
        if _ == 1:
            break
    else:
        done += ", small"
    while x > 100:
        x -= 1
    match x:
        case 7:
            done += ", seven"
        case _:
            pass
    return done


def never():
    def inner():
        return 1

    return inner


seen = []
'''


def _run(use: str) -> tuple[dict[str, Any], list[int], bytearray]:
    marks = Marks()
    tree = marks.module(SOURCE)
    module: dict[str, Any] = {"__reached__": (reached := bytearray(len(marks.counts)))}
    exec(compile(tree, "sample", "exec"), module)
    module["result"] = eval(use, module)
    return module, marks.counts, reached


@pytest.mark.parametrize(
    ("use", "result", "statements"),
    [
        ("0", 0, 0),
        ("Both().value(3)", 3, 2),
        ("Both().value(-3)", 9, 2),
        ("tried(0)", "zero", 5),
        ("tried(7)", "not zero, seven", 12),
        ("never()()", 1, 3),
    ],
)
def test_what_runs_is_counted_and_does_what_it_did(use: str, result: Any, statements: int) -> None:
    module, counts, reached = _run(use)
    _, _, imported = _run("0")
    assert module["result"] == result
    assert module["__doc__"] == "A module of every kind of block."
    assert module["Both"].__doc__ == "With a method."
    assert module["Both"].value.__doc__ == "Return x, or its square."
    now = {place for place, mark in enumerate(reached) if mark}
    before = {place for place, mark in enumerate(imported) if mark}
    assert sum(counts[place] for place in now - before) == statements


def test_every_statement_is_counted_once() -> None:
    marks = Marks()
    marks.module(SOURCE)
    whole = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.stmt)]
    left_out = [node for node in whole if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    assert sum(marks.counts) == len(whole) - len(left_out) - 3  # `from __future__`, and the block for types


def test_lines_of_tracebacks_stay() -> None:
    module, _, _ = _run("0")
    with pytest.raises(TypeError) as caught:
        module["tried"]("no number")
    assert caught.traceback[-1].lineno + 1 == 1 + SOURCE.splitlines().index("            1 / x")
