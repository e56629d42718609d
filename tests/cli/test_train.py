from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.runs.result import Result
from tests.cli.test_run import Tacit

SMALL = ["--data", "breast-cancer", "--model", "logistic", "--iterations", "20", "--lr", "0.1", "--seed", "1"]


@pytest.fixture
def tacit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    monkeypatch.setenv("COLUMNS", "200")
    return Tacit(monkeypatch, capfd)


def test_train_keeps_a_run_that_the_ledger_and_resume_understand(tacit: Tacit, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    status, out, _ = tacit("train", *SMALL, "--epsilon", "1", "--delta", "1e-3", "--out", folder)
    assert status == 0
    assert "step 20" in out
    assert "epsilon for one example  1  delta 0.001" in out
    assert "unit: example" in out
    assert "one data holder" in out
    assert "up, " not in out  # no bytes were moved
    result = Result.read(folder / "result.json")
    assert result.rounds[-1].steps == 20
    status, out, _ = tacit("ledger", folder)
    assert "unit: example" in out
    assert len([line for line in out.splitlines() if "Gaussian noise" in line]) == 10
    status, out, _ = tacit("resume", folder, "--json")
    assert json.loads(out)["privacy"]["unit"] == "example"


def test_json_is_one_object(tacit: Tacit, tmp_path: Path) -> None:
    status, out, _ = tacit("train", *SMALL, "--sigma", "2", "--out", tmp_path / "run", "--json")
    assert status == 0
    told = json.loads(out)
    assert (told["engine"], told["mode"], told["privacy"]["unit"]) == ("in-process", "dp-sgd", "example")


def test_the_labs_budget_by_its_flag(tacit: Tacit, tmp_path: Path) -> None:
    flags: list[str | Path] = [
        "--epsilon",
        "1",
        "--delta",
        "1e-3",
        "--budget-by",
        "advanced-composition",
        "--out",
        tmp_path / "run",
    ]
    status, out, _ = tacit("train", *SMALL, *flags)
    assert status == 0
    assert "94.6455 in two steps" in " ".join(out.split())
    assert "tight accounting needs 11.5142" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "1", "--delta", "1"], "dp.delta=1.0 does not work"),
        (["--epsilon", "1", "--batch-size", "457"], "A batch size of 457 is larger than the data"),
        (["--epsilon", "1", "--sigma", "1"], "both was given"),
        (["--sigma", "-1"], "dp.noise=-1.0"),
        (["--epsilon", "1", "--clipping", "hard"], "dpsgd.clipping='hard'"),
        (["--epsilon", "1", "--budget-by", "luck"], "dpsgd.budget_by='luck'"),
        (["--epsilon", "1", "--iterations", "0"], "dpsgd.steps=0"),
    ],
)
def test_mistakes_are_sentences(tacit: Tacit, tmp_path: Path, flags: list[str], words: str) -> None:
    assert words in tacit.refused("train", *SMALL, *flags, "--out", tmp_path / "run")


def test_run_in_mode_dp_sgd_takes_its_batch_by_the_flag(tacit: Tacit, tmp_path: Path) -> None:
    base = ["run", "--mode", "dp-sgd", "--data", "digits", "--model", "logistic", "--clients", "3", "--rounds", "1"]
    status, out, _ = tacit(*base, "--epsilon", "3", "--batch-size", "40", "--seed", "1", "--out", tmp_path / "run")
    assert status == 0
    assert "worst of 3 clients" in " ".join(out.split())
    status, out, _ = tacit("ledger", tmp_path / "run")
    assert "poisson sample of 0.083" in " ".join(out.split())


def test_lab_writes_its_table_and_figures(tacit: Tacit, tmp_path: Path) -> None:
    flags: list[str | Path] = ["--seeds", "2", "--iterations", "10", "--sweeps", "epsilon", "--out", tmp_path / "lab"]
    status, out, _ = tacit("lab", *flags)
    assert status == 0
    assert "21 settings of 2 seeds" in out
    assert (tmp_path / "lab" / "lab.csv").is_file()
    assert (tmp_path / "lab" / "lab-epsilon.png").is_file()
    status, out, _ = tacit("lab", *flags, "--json", "--no-figures", "--normalise", "own")
    told = json.loads(out)
    assert len(told["points"]) == 21
    assert any("no epsilon here covers" in note for note in told["notes"])
    assert "Unknown sweep 'rounds'" in tacit.refused("lab", "--sweeps", "rounds", "--out", tmp_path / "lab")
