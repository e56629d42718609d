"""Which statements of Tacit the tests reach: ``pytest -p tests.reached``, as ``make test`` does.

Python 3.11 has no cheap way to watch lines: coverage.py makes tests take half as long again there. This costs a few
percent. When a module of Tacit is imported, marks are written into its code, ``__reached__[n] = 1``: at the start of
every block, and behind every statement that has blocks in it. The statements up to the next mark count as reached with
it. So what an exception leaves out within a block is not seen, nor what other processes run; ``make coverage`` sees
the former, and takes its time.
"""

from __future__ import annotations

import ast
import importlib.abc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

_FOLDER = "TACIT_REACHED"  # the variable that tells workers where to leave what they reached
_WORST = 10  # files that are named

_reached: dict[str, bytearray] = {}  # by file: which marks
_counts: dict[str, list[int]] = {}  # by file: how many statements each mark stands for


class Marks:
    """Writes marks into a module's code.

    >>> marks = Marks()
    >>> print(ast.unparse(marks.module("def f(x):\\n    if x:\\n        return 1\\n    return 2")))
    __reached__[0] = 1
    <BLANKLINE>
    def f(x):
        __reached__[1] = 1
        if x:
            __reached__[2] = 1
            return 1
        __reached__[3] = 1
        return 2
    >>> marks.counts
    [1, 1, 1, 1]
    """

    def __init__(self) -> None:
        self.counts: list[int] = []

    def module(self, source: str | bytes) -> ast.Module:
        """Return the tree of a module's source with marks."""
        tree = ast.parse(source)
        head = [node for node in tree.body if _is_text(node) or _is_future(node)]
        tree.body = [*head, *self._block([node for node in tree.body if node not in head])]
        return tree

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        marked: list[ast.stmt] = []
        place: int | None = None
        for statement in statements:
            if _is_text(statement) or _is_for_types(statement):
                marked.append(statement)
                continue
            if place is None:
                place = len(self.counts)
                self.counts.append(0)
                marked.append(_mark(place, statement))
            self.counts[place] += 1
            marked.append(statement)
            if self._inside(statement, place):
                place = None  # what follows is not always reached
        return marked

    def _inside(self, statement: ast.stmt, place: int) -> bool:
        """Mark the blocks of a statement, and return whether what follows may be left out by one of them."""
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            statement.body = self._block(statement.body)
            return False
        if isinstance(statement, ast.ClassDef):
            for part in statement.body:
                self.counts[place] += not _is_text(part)
                self._inside(part, place)
            return False
        found = False
        parts = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
        for part in parts:
            for name in ("body", "orelse", "finalbody"):
                if isinstance(block := getattr(part, name, None), list) and block:
                    setattr(part, name, self._block(block))
                    found = True
        return found


def _mark(place: int, beside: ast.stmt) -> ast.stmt:
    """Return ``__reached__[place] = 1`` where another statement stands; made by hand, as parsing takes seconds."""
    where: dict[str, Any] = {name: getattr(beside, name) for name in ast.stmt._attributes}
    name = ast.Name(id="__reached__", ctx=ast.Load(), **where)
    target = ast.Subscript(value=name, slice=ast.Constant(value=place, **where), ctx=ast.Store(), **where)
    return ast.Assign(targets=[target], value=ast.Constant(value=1, **where), **where)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        marks = Marks()
        code: CodeType = compile(marks.module(self.get_data(self.path)), self.path, "exec", dont_inherit=True)
        _counts[self.path] = marks.counts
        _reached.setdefault(self.path, bytearray(len(marks.counts)))
        return code

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        module.__dict__["__reached__"] = _reached[self.path]
        exec(code, module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "tacit":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Mark what is imported from now on."""
    if "tacit" in sys.modules:
        raise pytest.UsageError("Tacit is imported already, and can't be marked any more: use pytest -p tests.reached.")
    sys.meta_path.insert(0, _Finder())


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder in which workers leave what they reached."""
    if not hasattr(config, "workerinput"):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="tacit-reached-")


def pytest_sessionfinish() -> None:
    """Leave what this process reached."""
    found = {path: [marks.hex(), _counts[path]] for path, marks in _reached.items()}
    Path(os.environ[_FOLDER], f"{os.getpid()}.json").write_text(json.dumps(found))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how much was reached, and where most is missing."""
    if hasattr(config, "workerinput"):
        return
    folder = Path(os.environ[_FOLDER])
    total: dict[str, tuple[int, int]] = dict(_together(folder))
    shutil.rmtree(folder)
    every, reached = sum(n for n, _ in total.values()), sum(r for _, r in total.values())
    if not every:
        return
    terminalreporter.section("statements reached")
    for path, (count, found) in sorted(total.items(), key=lambda item: item[1][1] - item[1][0])[:_WORST]:
        if found < count:
            name = path[path.rindex("/tacit/") + 1 :]
            terminalreporter.line(f"{found / count:6.1%} of {count:4} in {name}")
    terminalreporter.line(f"{reached / every:6.1%} of {every:,} statements in {len(total)} files of tacit")


def _together(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield every file with its statements and those that any process reached."""
    files: dict[str, tuple[int, list[int]]] = {}
    for written in folder.glob("*.json"):
        for path, (marks, counts) in json.loads(written.read_text()).items():
            reached = int.from_bytes(bytes.fromhex(marks), "big")
            files[path] = (files[path][0] | reached if path in files else reached, counts)
    for path, (reached, counts) in files.items():
        marks = reached.to_bytes(len(counts), "big")
        yield path, (sum(counts), sum(count for mark, count in zip(marks, counts, strict=True) if mark))
