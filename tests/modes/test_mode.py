from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit
from tacit.modes.catalogue import MODES

ROOT = Path(tacit.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0] != "modes"]
# What else is called as a mode is: a section of the configuration, a scheme of keys, a tone of a page.
OTHERS = {"scheme", "tone", "section", "kind"}


def _compared(tree: ast.AST) -> Iterator[str]:
    """Yield comparisons with a mode's name: ``==``, ``!=``, ``in`` and ``match``, and look-ups by it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            subject = ast.unparse(node.left).rpartition(".")[2]
            if any(_named(side) for side in sides) and subject not in OTHERS:
                yield ast.unparse(node)
        elif isinstance(node, ast.match_case) and any(
            isinstance(part, ast.MatchValue) and _named(part.value) for part in ast.walk(node.pattern)
        ):
            yield ast.unparse(node.pattern)
        elif isinstance(node, ast.Call | ast.Subscript) and _looks_up(node):
            yield ast.unparse(node)


def _named(node: ast.AST) -> bool:
    """Return whether an expression holds the name of a mode."""
    return any(isinstance(part, ast.Constant) and part.value in MODES for part in ast.walk(node))


def _looks_up(node: ast.Call | ast.Subscript) -> bool:
    """Return whether a dictionary that names modes is asked for a mode."""
    by = node.args[0] if isinstance(node, ast.Call) and node.args else getattr(node, "slice", None)
    where = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    return by is not None and ast.unparse(by).rpartition(".")[2] == "mode" and _named(where)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_beyond_the_modes_compares_a_modes_name(path: Path) -> None:
    assert list(_compared(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "code",
    [
        "config.mode == 'dp'",
        "plan.mode != 'paillier'",
        "mode in ('plain', 'nbafl')",
        "{'nbafl': 1}.get(config.mode, 0)",
        "{'nbafl': 1}[config.mode]",
        "'dp-sgd' == parsed.get('mode')",
    ],
)
def test_a_comparison_is_seen(code: str) -> None:
    assert list(_compared(ast.parse(code)))


def test_a_modes_line_is_one_line() -> None:
    for mode in MODES.values():
        assert mode.summary
        assert "\n" not in mode.summary
        assert mode.summary[0].islower()
        assert not mode.summary.endswith(".")
