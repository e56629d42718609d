from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typer

from tacit.runs.folder import CONFIG, REPORT, RESULT
from tacit.runs.run import run
from tests.cli.common_crypto import Tacit
from tests.runs.common import digits


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    run(digits(out=out))
    return out


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "a"))


def test_the_report_lies_in_the_run_and_is_made_anew(tacit_command: Tacit, folder: Path) -> None:
    out = tacit_command.done("report", folder)
    assert str(folder / REPORT) in out
    assert "2.0 MB" in out
    first = (folder / REPORT).read_bytes()
    assert first.startswith(b"<!doctype html>")
    tacit_command.done("report", folder)
    assert (folder / REPORT).read_bytes() == first


def test_another_place_and_the_browser(
    tacit_command: Tacit, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(typer, "launch", opened.append)
    page = tmp_path / "new" / "page.html"
    tacit_command.done("report", folder, "--out", page, "--open")
    assert opened == [page.resolve().as_uri()]
    assert page.is_file()
    assert not (folder / REPORT).exists()


def test_each_chart_as_a_picture(tacit_command: Tacit, folder: Path, tmp_path: Path) -> None:
    out = tacit_command.done("report", folder, "--png", tmp_path / "png", "--svg", tmp_path / "svg")
    drawn = sorted(path.stem for path in (tmp_path / "png").iterdir())
    assert "test-accuracy" in drawn
    assert "loss" in drawn
    assert drawn == sorted(path.stem for path in (tmp_path / "svg").iterdir())
    assert (tmp_path / "png" / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "svg" / "loss.svg") in out
    assert (folder / REPORT).is_file()


def test_text_prints_the_report_and_writes_nothing(tacit_command: Tacit, folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    out = tacit_command.done("report", folder, "--text")
    for words in ("Summary", "test accuracy", "by round", "Who sees what", "Ledger", "claims no differential privacy"):
        assert words in out
    assert sorted(path.name for path in folder.iterdir()) == before
    assert "writes no page" in tacit_command.refused("report", folder, "--text", "--open")


def test_full_says_that_it_may_not_be_passed_on(tacit_command: Tacit, folder: Path) -> None:
    tacit_command.done("report", folder, "--full")
    assert "may not be passed on" in (folder / REPORT).read_text()


def test_a_folder_that_is_no_run(tacit_command: Tacit, tmp_path: Path) -> None:
    assert "is not the folder of a run" in tacit_command.refused("report", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_result(tacit_command: Tacit, folder: Path) -> None:
    (folder / RESULT).write_text("{")
    assert "result.json is damaged" in tacit_command.refused("report", folder)


def test_only_pages_are_written(tacit_command: Tacit, folder: Path) -> None:
    before = (folder / CONFIG).read_bytes()
    assert "expected a page named *.html" in tacit_command.refused("report", folder, "--out", folder / CONFIG)
    assert (folder / CONFIG).read_bytes() == before


def test_a_place_that_can_not_be_written(tacit_command: Tacit, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = tacit_command.refused("report", folder, "--out", tmp_path / "file" / "page.html")
    assert "Can't write" in said
    assert "Choose another file with --out" in said
    (tmp_path / "page.html").mkdir()
    assert "Can't write" in tacit_command.refused("report", folder, "--out", tmp_path / "page.html")


def test_a_run_that_replaces_another_takes_its_report_away(tacit_command: Tacit, folder: Path) -> None:
    tacit_command.done("report", folder)
    run(digits(out=folder), force=True)
    assert not (folder / REPORT).exists()


def test_rounds_as_csv_and_the_statement(tacit_command: Tacit, folder: Path, tmp_path: Path) -> None:
    out = tacit_command.done("report", folder, "--csv", tmp_path / "rounds.csv", "--statement")
    assert str(folder / "statement.html") in out
    assert "Privacy statement" in (folder / "statement.html").read_text()
    assert (tmp_path / "rounds.csv").read_text().startswith("round,attempts,")
    assert not (folder / REPORT).exists()
    assert "expected a file named *.csv" in tacit_command.refused("report", folder, "--csv", folder / RESULT)
    assert "the same for everybody" in tacit_command.refused("report", folder, "--statement", "--full")
    assert "finished run" in tacit_command.refused("report", folder, "--baseline", tmp_path)
