"""The notebooks run from top to bottom, and are stored without results."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


def test_there_is_one_for_each_role() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["engineer", "flower_user", "student"]
    page = (ROOT / "docs" / "notebooks.md").read_text()
    assert all(f"`{path.name}`" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_results_are_not_stored(path: Path) -> None:
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in _cells(path))


@pytest.mark.xdist_group("flower")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # of Ray
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("student", "epsilon 8: 94.6%"),
        ("engineer", "DP-SGD: "),
        ("flower_user", "[0.2 0.2 0.2 0.2]\ntrain metrics: {} (withheld"),
    ],
)
def test_a_notebook_runs(
    name: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in _cells(path):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), path.name, "exec", dont_inherit=True), names)
    assert printed in capsys.readouterr().out
    names.clear()
    gc.collect()  # while the warnings are ignored
