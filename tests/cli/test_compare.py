from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import typer

from tacit.cli.compare import compare
from tacit.errors import ConfigError, RunError, TacitError
from tacit.studies import compare as comparing

SMALL = ["--data", "digits", "--model", "logistic", "--rounds", "1", "--clients", "4", "--workers", "1"]


class Compare:
    """Runs the command in this process and returns what it wrote on both streams."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self._app = typer.Typer()
        self._app.command()(compare)

    def __call__(self, *arguments: str | Path, status: int | None = None) -> tuple[str, str]:
        assert self._app(list(map(str, arguments)), standalone_mode=False) == status
        out, err = self._capture.readouterr()
        return out, err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Compare:
    monkeypatch.setenv("COLUMNS", "200")
    return Compare(capfd)


def test_modes_give_a_table_a_page_a_csv_and_json(run: Compare, tmp_path: Path) -> None:
    out, err = run(*SMALL, "--modes", "plain, dp", "--seeds", "2", "--out", tmp_path / "c")
    assert err == ""
    assert "run 4/4  dp-seed-2  accuracy " in out
    assert "dp: dp.epsilon=8, because neither a budget" in out
    assert f"written to {tmp_path / 'c' / 'compare.html'}" in out
    with (tmp_path / "c" / "compare.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["plain", "dp"]
    assert "Accuracy against epsilon" in (tmp_path / "c" / "compare.html").read_text()


def test_json_is_one_object_and_nothing_else(run: Compare, tmp_path: Path) -> None:
    out, err = run(*SMALL, "--modes", "plain,dp", "--epsilon", "3", "--out", tmp_path / "c", "--json")
    assert err == ""
    told: dict[str, Any] = json.loads(out)
    assert [entry["name"] for entry in told["entries"]] == ["plain", "dp"]
    assert told["entries"][1]["privacy"][0]["epsilon"] == pytest.approx(3, rel=1e-3)
    assert (told["failed"], told["folder"]) == (0, str(tmp_path / "c"))
    assert all(Path(path).is_file() for path in told["files"])


def test_a_job_file_with_modes_and_a_setting_of_one_mode(run: Compare, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"out: {tmp_path / 'c'}\nmodes:\n  plain:\n  dp:\n    dp.noise: 2.0\nseeds: 2\n")
    out, _ = run(*SMALL, job, "optimizer.lr=0.1", "plain:optimizer.lr=0.2", "--json")
    plain, dp = json.loads(out)["entries"]
    assert plain["settings"] == {"optimizer.lr": 0.2}
    assert dp["settings"] == {"dp.noise": 2.0}
    assert [len(entry["runs"]) for entry in (plain, dp)] == [2, 2]
    record = json.loads((tmp_path / "c" / "study.json").read_text())
    asked = {run["name"]: run["settings"] for run in record["runs"]}
    assert asked["plain-seed-1"]["optimizer"] == {"lr": 0.2}
    assert asked["dp-seed-1"]["optimizer"] == {"lr": 0.1}


def test_every_run_can_be_logged(run: Compare, tmp_path: Path) -> None:
    run(*SMALL, "--modes", "plain", "--log", "tensorboard", "--out", tmp_path / "c", "--quiet")
    assert list((tmp_path / "c" / "runs" / "plain-seed-1" / "tensorboard").glob("events.*"))
    with pytest.raises(ConfigError, match="'tensorboard' or 'mlflow'"):
        run(*SMALL, "--modes", "plain", "--log", "wandb", "--out", tmp_path / "d")


def test_finished_runs_side_by_side(run: Compare, tmp_path: Path) -> None:
    run(*SMALL, "--modes", "plain,dp", "--out", tmp_path / "c", "--quiet")
    run(*SMALL, "--modes", "plain", "--out", tmp_path / "d", "--quiet", "--clients", "5")
    out, _ = run(
        tmp_path / "c" / "runs" / "dp-seed-1", tmp_path / "d" / "runs" / "plain-seed-1", "--out", tmp_path / "e"
    )
    assert "Not like for like: clients differ: 4 in dp; 5 in plain." in out
    assert (tmp_path / "e" / "compare.html").exists()
    (tmp_path / "c" / "compare.html").unlink()
    run(tmp_path / "c", "--quiet")
    assert (tmp_path / "c" / "compare.html").exists()  # the page of a comparison is made anew where it is
    assert run(tmp_path / "c" / "runs" / "dp-seed-1", "--quiet") == ("", "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("compare-20")
    with pytest.raises(RunError, match="is the folder of a run"):
        run(tmp_path / "c", "--out", tmp_path / "c" / "runs" / "dp-seed-1")
    with pytest.raises(ConfigError, match="--rounds has no effect on finished runs"):
        run(tmp_path / "c", "--rounds", "3")
    with pytest.raises(ConfigError, match="--force has no effect on finished runs"):
        run(tmp_path / "c", "--force")
    with pytest.raises(ConfigError, match="is a folder"):
        run(tmp_path / "c", "--modes", "plain")


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ([], ConfigError, "Expected modes to compare, such as --modes plain,dp"),
        (["--modes", "plain,plian"], ConfigError, "Unknown mode 'plian'. Did you mean 'plain'"),
        (["--modes", "plain,plain"], ConfigError, "more than once"),
        (["--modes", "plain", "--seeds", "0"], ConfigError, "seeds from 1 to 1,000, got 0"),
        (["--modes", "plain", "plian:optimizer.lr=1"], ConfigError, "Unknown mode 'plian'"),
        (["--modes", "plain", "dp.clp=1"], ConfigError, "Did you mean 'dp.clip'"),
        (["--modes", "plain", "plain:optimizer.lr"], ConfigError, "optimizer.lr has no value"),
        (["nowhere"], RunError, "There is no folder nowhere"),
        (["--modes", "dp", "--sigma", "0.01", "--max-epsilon", "0.5"], RunError, "All 1 runs failed.*Not one round"),
    ],
)
def test_mistakes_are_tacits_errors(
    run: Compare, tmp_path: Path, words: list[str], kind: type[TacitError], message: str
) -> None:
    settings = [] if words == ["nowhere"] else [*SMALL, "--out", str(tmp_path / "c")]
    with pytest.raises(kind, match=message):
        run(*settings, *words)


def test_ctrl_c_says_how_to_go_on(run: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparing, "compare", interrupted)
    out, err = run(*SMALL, "--modes", "plain", "--out", tmp_path / "c", status=130)
    assert out == ""
    assert f"the same command goes on with it, with --out {tmp_path / 'c'}" in err
