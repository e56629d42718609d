from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest
import typer

from tacit.errors import ConfigError, RunError
from tacit_labs.commands.reproduce import reproduce
from tacit_labs.harness import catalogue
from tacit_labs.harness.experiment import Experiment
from tests.labs.common import toy


class Command:
    """Runs the command in this process and returns its exit status and what it wrote on both streams."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self._app = typer.Typer()
        self._app.command()(reproduce)

    def __call__(self, *arguments: str | Path) -> tuple[int | None, str, str]:
        status = self._app(list(map(str, arguments)), standalone_mode=False)
        out, err = self._capture.readouterr()
        return status, out, err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "100")
    return Command(capfd)


def _with(monkeypatch: pytest.MonkeyPatch, **errors: Exception) -> None:
    """Put toys in the place of all experiments; some fail."""

    def load(name: str) -> Experiment:
        return toy(name, error=errors.get(name.replace("-", "_")))

    monkeypatch.setattr(catalogue, "load", load)


def test_an_experiment_prints_and_writes_what_it_found(
    run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _with(monkeypatch)
    status, out, err = run("report-000", "--quick", "--out", tmp_path / "r", "--seed", "5")
    assert (status, err) == (None, "")
    for words in (
        "The counting lab",
        "Quick run, with smaller settings. Two operations instead of ten.",
        "original 240 s",
        "ours     3 s",
        "why      the original used <one> core",
        "[multiply]",
        "FAIL",
        f"written to {tmp_path / 'r' / 'report-000.html'}",
    ):
        assert words in out
    files = sorted(path.name for path in (tmp_path / "r").iterdir())
    assert files == [
        "overview.html",
        "report-000-checks.csv",
        "report-000-times.csv",
        "report-000.html",
        "report-000.json",
        "unfinished",
    ]
    assert list((tmp_path / "r" / "unfinished").iterdir()) == []  # what a finished experiment kept is gone
    assert json.loads((tmp_path / "r" / "report-000.json").read_text())["record"]["seed"] == 5


def test_all_goes_on_after_a_failure_and_says_what_failed(
    run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _with(monkeypatch, report_000=RunError("there is no data"), signds_001=ZeroDivisionError("by nought"))
    status, out, err = run("all", "--out", tmp_path)
    assert status == 1
    assert "failed: report-000: there is no data" in err
    assert "failed: signds-001: ZeroDivisionError: by nought" in err
    assert "2 of 5 experiments failed; the others are written." in err
    assert err.count("Traceback") == 1  # of our mistake, not of a user's
    assert out.count("The counting lab") == 3
    assert (tmp_path / "nbafl-femnist.html").exists()
    assert not (tmp_path / "report-000.html").exists()
    kept = sorted(path.name for path in (tmp_path / "unfinished").iterdir())  # the next run goes on with them
    assert kept == [
        "report-000-full-seed-1-cpu",
        "signds-001-full-seed-1-cpu",
    ]


def test_one_that_fails_alone_is_an_error(run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _with(monkeypatch, report_000=RunError("there is no data"))
    with pytest.raises(RunError, match="there is no data"):
        run("report-000", "--out", tmp_path)


def test_a_list_says_where_each_is_from_what_is_in_it_and_how_long_it_takes(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(monkeypatch)
    status, out, err = run("--list")
    assert (status, err) == (None, "")
    for words in (*catalogue.MODULES, "009_toy.txt", "counting; resting", "1 s", "2 s"):
        assert words in out
    _, out, _ = run("--list", "--json")
    first = json.loads(out)["experiments"][0]
    assert (first["document"], first["parts"]) == ("009_toy.txt", ["counting", "resting"])


def test_nothing_named_is_answered_with_where_to_look(run: Command) -> None:
    with pytest.raises(ConfigError, match="tacit reproduce --list"):
        run()


def test_an_unknown_name_is_refused_before_anything_runs(
    run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _with(monkeypatch)
    with pytest.raises(ConfigError, match="Did you mean 'lab-004'"):
        run("report-000", "lab-04", "--out", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_json_is_one_object_with_failures_inside(run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _with(monkeypatch, lab_004=RunError("no"))
    status, out, _ = run("report-000", "lab-004", "--json", "--out", tmp_path)
    printed: dict[str, Any] = json.loads(out)
    assert status == 1
    assert printed["failed"] == {"lab-004": "no"}
    assert printed["done"][0]["name"] == "report-000"
    assert printed["done"][0]["files"][0] == str(tmp_path / "report-000.html")


def test_quiet_prints_nothing_and_open_opens_the_page(
    run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _with(monkeypatch)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert run("report-000", "--quiet", "--open", "--out", tmp_path) == (None, "", "")
    assert opened == [(tmp_path / "report-000.html").as_uri()]
