from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import typer

from tacit.cli.sweep import sweep
from tacit.errors import ConfigError, RunError, TacitError
from tacit.studies import sweep as grids

SMALL = ["--data", "digits", "--model", "logistic", "--rounds", "1", "--clients", "4", "--seed", "1", "--workers", "1"]
GRID = ["--mode", "dp", "dp.clip=0.1,0.5", "dp.noise=0.2,0.4"]


class Sweep:
    """Runs the command in this process and returns what it wrote on both streams."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self._app = typer.Typer()
        self._app.command()(sweep)

    def __call__(self, *arguments: str | Path, status: int | None = None) -> tuple[str, str]:
        assert self._app(list(map(str, arguments)), standalone_mode=False) == status
        out, err = self._capture.readouterr()
        return out, err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.setenv("COLUMNS", "200")
    return Sweep(capfd)


def test_a_grid_gives_a_table_a_csv_a_page_and_figures(run: Sweep, tmp_path: Path) -> None:
    out, err = run(*SMALL, *GRID, "--out", tmp_path / "s")
    assert err == ""
    assert "run 4/4  dp.clip=0.5_dp.noise=0.4_seed=1  accuracy " in out
    assert "* best: dp.clip=0.5" in out
    assert "Each epsilon is that of one point alone." in out
    figures = {path.name for path in (tmp_path / "s").glob("*.png")}
    assert (tmp_path / "s" / "sweep.html").read_bytes().startswith(b"<!doctype html>")
    assert figures == {"accuracy-heat.png", "accuracy-surface.png", "epsilon-heat.png", "epsilon-surface.png"}
    with (tmp_path / "s" / "sweep.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


def test_json_is_one_object_and_nothing_else(run: Sweep, tmp_path: Path) -> None:
    out, err = run(*SMALL, *GRID, "--out", tmp_path / "s", "--json")
    assert err == ""
    told: dict[str, Any] = json.loads(out)
    assert len(told["rows"]) == 4
    assert told["best"]["values"]["dp.clip"] == 0.5
    assert told["csv"] == str(tmp_path / "s" / "sweep.csv")
    assert len(told["figures"]) == 4
    assert all(Path(path).is_file() for path in told["figures"])


def test_quiet_without_figures(run: Sweep, tmp_path: Path) -> None:
    assert run(*SMALL, "optimizer.lr=0.01,0.1", "--out", tmp_path / "s", "--quiet", "--no-figures") == ("", "")
    assert (tmp_path / "s" / "sweep.csv").exists()
    assert not list((tmp_path / "s").glob("*.png"))


def test_a_job_file_and_its_folder(run: Sweep, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"out: {tmp_path / 'named'}\noptimizer:\n  lr: 0.1\n")
    run(*SMALL, tmp_path / "job.yaml", "optimizer.momentum=0,0.5", "--quiet", "--no-figures")
    record = json.loads((tmp_path / "named" / "study.json").read_text())
    assert [run["settings"]["optimizer"] for run in record["runs"]] == [
        {"lr": 0.1, "momentum": 0},
        {"lr": 0.1, "momentum": 0.5},
    ]


def test_without_out_the_folder_has_the_time(run: Sweep, tmp_path: Path) -> None:
    run(*SMALL, "optimizer.lr=0.01,0.1", "--quiet", "--no-figures")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("sweep-20")


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ([], ConfigError, "needs an axis"),
        (["dp.clip=0.1:0.9:0"], ConfigError, r"dp\.clip=0\.1:0\.9:0 is no range"),
        (["dp.clp=0.1,0.9"], ConfigError, "Did you mean 'dp.clip'"),
        (["optimizer.lr=0.1:0.9:200", "optimizer.momentum=0.1:0.9:200"], ConfigError, "40,000 points"),
        (["federate.per_round=88,99"], RunError, "All 2 runs failed, the first because: .*88 is more"),
    ],
)
def test_mistakes_are_tacits_errors(
    run: Sweep, tmp_path: Path, words: list[str], kind: type[TacitError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(*SMALL, *words, "--out", tmp_path / "s")


def test_ctrl_c_says_how_to_go_on(run: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grids, "sweep", interrupted)
    out, err = run(*SMALL, *GRID, "--out", tmp_path / "s", status=130)
    assert out == ""
    assert f"the same command goes on with it, with --out {tmp_path / 's'}" in err
