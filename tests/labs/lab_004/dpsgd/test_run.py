from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit_labs.harness import files
from tacit_labs.harness.experiment import Reproduction, Settings
from tacit_labs.harness.record import perform
from tacit_labs.lab_004.dpsgd import run as lab_dpsgd
from tacit_labs.lab_004.dpsgd.page import WIDE
from tests.accounting.common import vectors
from tests.labs.common import charts, tables

TINY = lab_dpsgd.Sizes(
    seeds=2,
    iterations=100,
    sweeps={"epsilon": (0.05, 1.0), "delta": (1e-6, 1e-3), "iterations": (20, 100)},
    normalised=(0.1,),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    folder = tmp_path_factory.mktemp("lab")
    return lab_dpsgd.reproduce(TINY, Settings(quick=True, out=folder, seed=3), lambda *_, **__: None)


def _points(made: Reproduction, sweep: str, way: str) -> list[dict[str, Any]]:
    return [point for point in made.data["points"] if (point["sweep"], point["way"]) == (sweep, way)]


def test_every_setting_is_trained_three_ways(made: Reproduction) -> None:
    for sweep, values in TINY.sweeps.items():
        for way in ("normal", "lab", "tight"):
            assert [point["value"] for point in _points(made, sweep, way)] == list(values)
    assert all(len(point["each"]) == 2 for point in made.data["points"])


def test_what_the_labs_noise_costs_is_that_of_the_vectors() -> None:
    known = {row["k"]: row for row in vectors("advanced_composition") if row["eps"] == 1.0 and row["delta"] == 1e-3}
    sizes = replace(TINY, sweeps={"iterations": (10, 200)}, iterations=200, normalised=(1.0,))
    made = lab_dpsgd.reproduce(sizes, Settings(), lambda *_, **__: None)
    for point in _points(made, "iterations", "lab"):
        row = known[point["value"]]
        assert point["noise_multiplier"] == pytest.approx(row["sigma_two_step"], rel=1e-9)
        assert point["spent"] == pytest.approx(row["true_eps"], rel=1e-6)
    for point in _points(made, "iterations", "tight"):
        assert point["noise_multiplier"] == pytest.approx(known[point["value"]]["sigma_gdp"], rel=1e-6)


def test_what_two_substitutions_leave_is_that_of_the_vectors(made: Reproduction) -> None:
    waste = made.data["waste"]
    compared = 0
    for row in vectors("advanced_composition"):
        if row["delta"] == 1e-3 and row["eps"] in waste["epsilon"] and str(row["k"]) in waste:
            share = waste[str(row["k"])][waste["epsilon"].index(row["eps"])]
            assert 100 * share == pytest.approx(row["waste_pct"], rel=1e-6)
            compared += 1
    assert compared >= 5


def test_the_gap_is_tight_less_lab_and_wide_ones_are_marked(made: Reproduction) -> None:
    table = made.tables["accuracy"]
    gaps = {(gap["sweep"], gap["value"]): gap["points"] for gap in made.data["gaps"]}
    lab, tight = (_points(made, "epsilon", way)[0]["mean"] for way in ("lab", "tight"))
    assert gaps["epsilon", 0.05] == pytest.approx(100 * (tight - lab))
    wide = {(number, 5) for number, gap in enumerate(gaps.values()) if gap >= WIDE}
    assert set(table.tones) == wide
    assert table.rows[0][5] == f"{gaps['epsilon', 0.05]:+.1f}"


def test_seeds_are_those_that_were_asked_for(made: Reproduction) -> None:
    header = made.sheets["accuracy"].csv().splitlines()[0]
    assert header.endswith("mean,spread,seed 3,seed 4")
    other = lab_dpsgd.reproduce(TINY, Settings(seed=30), lambda *_, **__: None)
    assert other.data["points"] != made.data["points"]


def test_axes_are_logarithmic_and_have_the_values_that_were_tried(made: Reproduction) -> None:
    accuracy, noise = charts(made, "Delta")
    assert accuracy.panels[0].x.log
    assert [tick.text for tick in accuracy.panels[0].x.ticks] == ["1e-06", "0.001"]
    assert noise.panels[0].y.log


def test_a_smaller_run_says_so_and_the_full_one_does_not(made: Reproduction) -> None:
    assert made.smaller.startswith("2 seeds instead of 10; 2 values of epsilon instead of 7")
    assert lab_dpsgd._smaller(lab_dpsgd.FULL) == ""


def test_without_privacy_noisy_statistics_have_no_figure(made: Reproduction) -> None:
    (scaled,) = tables(made, "The lab's method")
    assert [row[2] == "–" for row in scaled.rows] == [False, True, False]


def test_the_page_is_made(made: Reproduction, tmp_path: Path) -> None:
    experiment = replace(lab_dpsgd.EXPERIMENT, run=lambda _settings, _progress: made)
    html, _, table = files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    assert "falls with more iterations" in html.read_text()
    assert table.name == "lab-dpsgd-accuracy.csv"
