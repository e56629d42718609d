"""The pages of the documentation: their code runs, and the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.modes import catalogue as modes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EVERY = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in EVERY if PYTHON.search(page.read_text())]
COMMAND = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = PYTHON.findall(page.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(modes, "MODES", dict(modes.MODES))  # a page may register its own
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, _name(page), "exec", dont_inherit=True), names)
    assert bool(capsys.readouterr().out) == any("print(" in block for block in blocks)


def test_every_tutorial_and_how_to_has_code_that_runs() -> None:
    assert {*(DOCS / "tutorials").glob("*.md"), *(DOCS / "how-to").glob("*.md"), ROOT / "README.md"} <= set(PAGES)


def test_every_mode_has_a_tutorial() -> None:
    assert {page.stem for page in (DOCS / "tutorials").glob("*.md")} == set(modes.MODES)


@pytest.mark.parametrize("page", EVERY, ids=_name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    from click import Context
    from typer.main import get_group

    from tacit.cli.main import app

    group = get_group(app)
    known = set(group.list_commands(Context(group)))
    for block in COMMAND.findall(page.read_text()):
        named = re.findall(r"^(?:\S+/)?tacit ([a-z]+)", block, re.MULTILINE)
        assert set(named) <= known


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Choosing a protection" in (tmp_path / "site" / "choosing" / "index.html").read_text()
    assert "noise_multiplier" in (tmp_path / "site" / "reference" / "mechanisms" / "index.html").read_text()
    pages = {path.parent.name: path.read_text() for path in (tmp_path / "site").rglob("index.html")}
    assert "<math" in pages["mathematics"]
    assert "--per-round" in pages["command-line"]
    for name, page in pages.items():
        assert "arithmatex" not in page, name  # a formula that readers would see as it is typed
        assert not re.search(r"<p>\s*&gt;&gt;&gt;|<blockquote>\s*<blockquote>", page), name  # no code
        assert not re.search(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', page), name  # nothing from elsewhere
