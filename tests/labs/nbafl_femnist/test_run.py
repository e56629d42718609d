from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.errors import DataError
from tacit_labs.harness import files
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.record import Outcome, recorded
from tacit_labs.nbafl_femnist import jobs as nbafl_jobs
from tacit_labs.nbafl_femnist import run as nbafl_femnist
from tacit_labs.nbafl_femnist.page import _trend
from tests.labs.common_learning import stand_in

SIZES = nbafl_femnist.Sizes(writers=4, rounds=2, local_epochs=1, seeds=1, compats=("federatedscope",))
EXAMPLE = Path(__file__).parents[3] / "examples" / "nbafl-femnist" / "table.yaml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    with pytest.MonkeyPatch.context() as monkeypatch:
        stand_in(monkeypatch)
        return nbafl_femnist.reproduce(SIZES, Settings(quick=True, out=tmp_path_factory.mktemp("nbafl")), silent)


def test_the_recipe_of_the_examples_is_the_one_that_is_run() -> None:
    assert yaml.safe_load(EXAMPLE.read_text()) == nbafl_jobs.BASE


def test_the_table_has_the_originals_nine_cells() -> None:
    cells = list(nbafl_jobs.points())
    assert len(cells) == 18
    assert [(cell.epsilon, cell.constant) for cell in cells[:9]] == list(nbafl_jobs.ORIGINAL)
    assert cells[1].settings()["nbafl"] == nbafl_jobs.BASE["nbafl"] | {"epsilon": 10.0, "constant": 2.0}
    assert nbafl_jobs.BASE["nbafl"]["epsilon"] == 100.0  # a cell's settings are its own
    assert nbafl_jobs.plain_settings()["federate"] == {"rounds": 20, "weighting": "uniform"}


def test_every_cell_is_run_and_stands_beside_the_original(made: Reproduction) -> None:
    rows = {row["name"]: row for row in made.data["rows"]}
    assert len(rows) == 10
    assert rows["plain"]["clients"] == 4
    assert rows["plain"]["epsilon"] is None
    noisy, quiet = rows["federatedscope-10-3"], rows["federatedscope-100-1"]
    assert noisy["nominal_delta"] == pytest.approx(0.01389, abs=1e-5)
    assert noisy["true_delta_of_one_exposure"] == pytest.approx(0.0575, abs=1e-4)
    assert quiet["epsilon"] > 100 * noisy["epsilon"] > 10_000
    (table,) = made.tables.values()
    assert len(table.rows) == 9
    assert table.rows[0][:4] == ("10", "0.01", "3", "11.73%")
    assert "4 writers of 6 to 40 images" in made.settings
    assert "4 writers instead of all" in made.smaller


def test_the_page_is_written(made: Reproduction, tmp_path: Path) -> None:
    outcome = Outcome(
        experiment=nbafl_femnist.EXPERIMENT,
        reproduction=made,
        record=recorded(Settings(quick=True, out=tmp_path), 1.0),
    )
    files.write(outcome, tmp_path / "page")
    html = (tmp_path / "page" / "nbafl-femnist.html").read_text()
    assert "The table of nine" in html
    assert "80.58%" in html
    assert (tmp_path / "page" / "nbafl-femnist-nine.csv").read_text().count("\n") == 10


def test_finished_cells_are_not_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch)
    settings = Settings(quick=True, out=tmp_path)
    first = nbafl_femnist.reproduce(SIZES, settings, silent)
    monkeypatch.setattr("tacit.runs.federation.Federation.fit", lambda *_args, **_options: pytest.fail("run again"))
    told: list[float | None] = []

    def progress(what: str, *, done: float | None = None, total: float | None = None) -> None:
        told.append(done)
        assert total in (None, 20)

    assert nbafl_femnist.reproduce(SIZES, settings, progress).data == first.data
    assert told[-1] == 20


def test_without_femnist_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)FEMNIST was not found.*preprocess\.sh.*TACIT_DATA"):
        nbafl_femnist.run(Settings(quick=True, out=tmp_path), silent)


def test_the_command_looks_into_the_folder_that_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", "nbafl-femnist", "--quick", "--data-dir", str(tmp_path / "mine")])
    assert isinstance(done.exception, DataError)
    assert str(tmp_path / "mine") in str(done.exception)


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], "accuracy rises with both"),
        ([0.3, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], "accuracy rises along 5 of the table's 6 rows and columns"),
    ],
)
def test_the_trend_is_measured_not_assumed(accuracies: list[float], words: str) -> None:
    assert _trend(accuracies) == words
