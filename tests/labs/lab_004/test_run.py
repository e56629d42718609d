from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tacit_labs.harness import files, overview
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.record import perform
from tacit_labs.lab_004 import run
from tests.labs.lab_004.dpsgd.test_run import TINY as LEARNING
from tests.labs.lab_004.elgamal.test_run import TINY as ENCRYPTING


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    settings = Settings(quick=True, out=tmp_path_factory.mktemp("lab"))
    return run.reproduce(LEARNING, ENCRYPTING, settings, silent)


def test_one_page_has_both_experiments_with_their_files(made: Reproduction, tmp_path: Path) -> None:
    experiment = replace(run.EXPERIMENT, run=lambda _settings, _progress: made)
    paths = files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    names = {path.name for path in paths}
    assert {"lab-004.html", "lab-004.json", "lab-004-accuracy.csv", "lab-004-stages.csv", "lab-004-keys.csv"} <= names
    page = (tmp_path / "lab-004.html").read_text()
    for words in (
        "先上升后再大幅下降",
        "用时过长",
        "004_a69ec1a5888a3c07.txt",
        "no privacy",
        "too short for use",
        "PASS",
    ):
        assert words in page, words
    assert "independent computation" not in page
    kept = json.loads((tmp_path / "lab-004.json").read_text())
    assert set(kept["data"]) == {"dp_sgd", "elgamal"}
    header = (tmp_path / "lab-004-points.csv").read_text().splitlines()[0]
    assert header.endswith("mean,spread,seed 0,seed 1")


def test_the_headlines_stand_in_the_overview(made: Reproduction, tmp_path: Path) -> None:
    experiment = replace(run.EXPERIMENT, run=lambda _settings, _progress: made)
    files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    (source,) = overview.sources(tmp_path)
    whats = [row[0] for row in source.rows]
    assert "DP-SGD over iterations: the rise and the fall" in whats
    assert any(what.startswith("key generation at 64 bits") for what in whats)


def test_a_quick_run_says_what_is_smaller_in_both(made: Reproduction) -> None:
    assert made.smaller.startswith("DP-SGD: 2 seeds")
    assert "ElGamal: keys up to 128 bits instead of 1024" in made.smaller
