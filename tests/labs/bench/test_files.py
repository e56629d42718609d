from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import StorageError
from tacit_labs.bench.files import Results, write
from tests.labs.bench import common_crypto, common_simulation

MEASURED: list[Results] = [common_simulation.results(), common_crypto.results()]


def test_one_benchmark_has_numbers_a_figure_and_a_page(tmp_path: Path) -> None:
    paths = write([common_crypto.results()], tmp_path / "new")
    assert [path.name for path in paths] == ["crypto.json", "crypto.png", "crypto.html"]
    assert json.loads(paths[0].read_text()) == common_crypto.results().to_dict()
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    page = paths[2].read_text()
    assert "Tacit (gmpy2), public key" in page
    assert "missed" in page


def test_all_benchmarks_have_one_page(tmp_path: Path) -> None:
    paths = write(MEASURED, tmp_path)
    assert [path.name for path in paths] == [
        "simulation.json",
        "simulation.png",
        "crypto.json",
        "crypto.png",
        "bench.html",
    ]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    page = paths[-1].read_text()
    assert "cross-silo" in page
    assert "times phe" in page
    assert "Left out: pfl-research" in page
    assert "&lt;elsewhere&gt;" in page
    assert page.count("Quick run") == 2


def test_the_page_can_be_left_out(tmp_path: Path) -> None:
    assert [path.name for path in write([common_simulation.results()], tmp_path, page=False)] == [
        "simulation.json",
        "simulation.png",
    ]


def test_without_matplotlib_an_older_figure_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "crypto.png").write_bytes(b"of another day")
    importing = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    paths = write([common_crypto.results()], tmp_path)
    assert [path.name for path in paths] == ["crypto.json", "crypto.html"]
    assert not (tmp_path / "crypto.png").exists()


def test_a_folder_that_can_not_be_made_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="choose another folder with --out"):
        write([common_crypto.results()], tmp_path / "file" / "below")
