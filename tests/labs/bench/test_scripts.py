"""The scripts in benchmarks/: thin, and called as the docs say."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_a_script_parses_and_calls(path: Path) -> None:
    tree = ast.parse(path.read_text())
    named = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert named == ["main"]
    assert f"python {_name(path)}" in (ast.get_docstring(tree) or "")


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_a_script_says_what_it_takes(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # one of them adds to it
    if "ArgumentParser" not in path.read_text():
        runpy.run_path(str(path), run_name="imported")  # it takes nothing and would measure
        return
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_the_scripts_of_a_page_exist(path: Path) -> None:
    named = set(re.findall(r"benchmarks/[a-z_/]+\.py", path.read_text()))
    assert named <= {_name(script) for script in SCRIPTS}
