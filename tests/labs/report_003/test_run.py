from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tacit_labs.lab_dp import run as lab_dp
from tacit_labs.lab_dp.epsilon import coded, composed, formula, lines
from tests.accounting.common import vectors
from tests.labs.common import charts, tables

from tacit.report.page import Surface
from tacit_labs.harness import files
from tacit_labs.harness.experiment import Reproduction, Settings
from tacit_labs.harness.record import perform

TINY = lab_dp.Sizes(
    data="digits",
    model="logistic",
    tensors=2,
    rounds=2,
    clients=3,
    clips=(0.1, 0.5),
    sigmas=(0.02, 0.1, 1.0),
    workers=1,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return lab_dp.reproduce(TINY, Settings(quick=True, out=tmp_path_factory.mktemp("lab")), _silent)


def _silent(what: str, *, done: float | None = None, total: float | None = None) -> None:
    pass


def test_the_table_of_epsilons_is_that_of_the_vectors() -> None:
    known = vectors("seed_table")
    for line, row in zip(lines(), known, strict=True):
        assert (line.sigma, line.clip, line.quoted) == (row["sigma"], row["C"], row["quoted"])
        assert line.formula == pytest.approx(row["formula"], rel=1e-9)
        assert line.classical == pytest.approx(row["classical_sigmaC"], rel=1e-9)
        assert line.exact == pytest.approx(row["exact_sigmaC"], rel=1e-9)
        assert line.composed == pytest.approx(row["six_rounds_sigmaC"], rel=1e-9)
        assert line.absolute == pytest.approx(row["exact_std_sigma_abs"], rel=1e-9)
        assert line.absolute_composed == pytest.approx(row["six_rounds_std_sigma_abs"], rel=1e-9)
        assert line.coded == pytest.approx(row["exact_std_is_var"], rel=1e-9)


def test_quoted_values_come_out_of_the_formula_and_none_of_them_holds_for_six_rounds() -> None:
    for line in lines():
        assert line.quoted == pytest.approx(line.formula, rel=3e-3)
        assert line.composed > line.exact > line.quoted
    assert coded(0.05, 0.5, tensors=8) == pytest.approx(2.57e6, rel=2e-3)


def test_the_three_curves_have_the_noise_that_they_say(made: Reproduction) -> None:
    curve = made.data["learning_curve"]
    assert curve["plain"]["epsilon"] == [None, None]
    assert curve["meant"]["epsilon"] == pytest.approx([composed(0.05, 1), composed(0.05, 2)])
    both = [coded(0.05, 0.5, tensors=2, rounds=rounds) for rounds in (1, 2)]
    assert curve["coded"]["epsilon"] == pytest.approx(both)
    assert len(curve["coded"]["test_accuracy"]) == 2


def test_every_point_of_the_grid_is_on_the_surfaces_in_its_place(made: Reproduction) -> None:
    grid: list[dict[str, Any]] = made.data["grid"]
    assert [(point["dp.clip"], point["dp.noise"]) for point in grid] == [
        (clip, sigma) for clip in TINY.clips for sigma in TINY.sigmas
    ]
    surfaces = charts(made, "C and sigma")
    assert [chart.title for chart in surfaces] == [
        "Training accuracy",
        "Test accuracy",
        "Epsilon by the lab's formula",
        "Epsilon, composed",
    ]
    drawings = [chart.panels[0].drawing for chart in surfaces]
    train, test, theirs, ours = (drawing.z for drawing in drawings if isinstance(drawing, Surface))
    for point in grid:
        down, across = TINY.sigmas.index(point["dp.noise"]), TINY.clips.index(point["dp.clip"])
        assert train[down][across] == point["train_accuracy"]
        assert test[down][across] == point["test_accuracy"]
        assert ours[down][across] == pytest.approx(point["epsilon"])
        assert theirs[down][across] == pytest.approx(formula(point["dp.noise"], point["dp.clip"]))
    assert {row[0] == row[1] for row in ours} == {True}  # level in C
    assert {(row[0] or 0.0) < (row[1] or 0.0) for row in theirs} == {True}
    assert made.sheets["grid"].csv().splitlines()[1].startswith("0.1,0.02,1,")


def test_the_best_point_is_marked_and_named(made: Reproduction) -> None:
    best = max(point["test_accuracy"] for point in made.data["grid"])
    said = next(found for found in made.findings if found.what == "Best point of the grid")
    assert said.ours.startswith(f"{100 * best:.2f}% at C ")
    (grid,) = tables(made, "C and sigma")
    ((row, column),) = grid.tones
    assert grid.rows[row][column] == f"{100 * best:.2f}% (best)"


def test_a_smaller_run_says_so_and_the_full_one_does_not(made: Reproduction) -> None:
    assert "a grid of 2 x 3 points instead of 5 x 6" in made.smaller
    assert lab_dp._smaller(lab_dp.FULL) == ""


def test_a_lab_that_was_stopped_goes_on(tmp_path: Path) -> None:
    said: list[str] = []

    def stop(what: str, *, done: float | None = None, total: float | None = None) -> None:
        said.append(what)
        if done == 4 and what.startswith("grid"):
            raise KeyboardInterrupt

    settings = Settings(quick=True, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        lab_dp.reproduce(TINY, settings, stop)
    results = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert len(results) == 3 + 4
    again = lab_dp.reproduce(TINY, settings, _silent)
    assert len(again.data["grid"]) == 6
    assert {path: path.stat().st_mtime_ns for path in results} == results  # none was made again


def test_the_page_is_made(made: Reproduction, tmp_path: Path) -> None:
    experiment = replace(lab_dp.EXPERIMENT, run=lambda _settings, _progress: made)
    html, data, *sheets = files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    text = html.read_text()
    assert "its accuracies are not" in text
    assert "2.57 million for one round" in text
    assert [path.name for path in sheets] == ["lab-dp-epsilon.csv", "lab-dp-grid.csv"]
    assert len(json.loads(data.read_text())["data"]["epsilon_table"]) == 5
