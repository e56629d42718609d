from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tacit.accounting import profile
from tacit.cli.main import app
from tacit.errors import DataError
from tacit_labs.harness import files
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.record import Outcome, recorded
from tacit_labs.nbafl_femnist import jobs as nbafl_jobs
from tacit_labs.nbafl_femnist import run as nbafl_femnist
from tacit_labs.nbafl_femnist.measured import Measured, Row
from tacit_labs.nbafl_femnist.page import _trend
from tests.labs.common_learning import stand_in

SIZES = nbafl_femnist.Sizes(writers=4, rounds=2, model="logistic", whole=True)
EXAMPLE = Path(__file__).parents[3] / "examples" / "nbafl-femnist" / "table.yaml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    with pytest.MonkeyPatch.context() as monkeypatch:
        stand_in(monkeypatch)
        return nbafl_femnist.reproduce(SIZES, Settings(quick=True, out=tmp_path_factory.mktemp("nbafl")), silent)


def test_the_recipe_of_the_examples_is_the_one_that_is_run() -> None:
    assert yaml.safe_load(EXAMPLE.read_text()) == nbafl_jobs.BASE


def test_the_table_has_the_originals_nine_cells() -> None:
    cells = list(nbafl_jobs.cells())
    assert [(cell.epsilon, cell.constant) for cell in cells] == list(nbafl_jobs.ORIGINAL)
    assert cells[1].settings()["nbafl"] == nbafl_jobs.BASE["nbafl"] | {"epsilon": 10.0, "constant": 2.0}
    assert nbafl_jobs.BASE["nbafl"]["constant"] == 1.0  # a cell's settings are its own
    jobs = nbafl_jobs.jobs(whole=True)
    assert {cell.name for cell in cells} | {cell.halved().name for cell in cells} < jobs.keys()
    assert len({job["nbafl"]["constant"] / job["nbafl"]["epsilon"] for job in jobs.values() if "nbafl" in job}) == 13
    assert jobs[nbafl_jobs.WIDER]["federate"]["share"] == 0.4
    assert jobs["plain"]["optimizer"] == nbafl_jobs.BASE["optimizer"] | {
        "momentum": 0.0,
        "schedule": "constant",
        "mu": 0.01,
    }


def test_every_cell_is_run_and_stands_beside_the_original(made: Reproduction) -> None:
    rows = {row["name"]: row for row in made.data["rows"]}
    assert len(rows) == 15
    assert rows["plain"]["clients"] == 4
    assert rows["plain"]["epsilon"] is None
    assert {row["epsilon"] for name, row in rows.items() if name != "plain"} == {"infinite"}
    (table,) = made.tables.values()
    assert len(table.rows) == 9
    assert table.rows[0][:4] == ("10", "0.01", "0.3", "11.73%")
    assert table.rows[0][-3:] == ("infinite", table.rows[0][-2], "0.0575")
    assert table.rows[5][4:] == table.rows[7][4:]  # the same noise
    assert "4 writers of 6 to 40 images" in made.settings
    words = " ".join(finding.ours + finding.why for finding in made.findings)
    assert "points off the original in the mean with the factor" in words
    assert "infinite, for all of them" in words


def test_what_a_message_would_cost_if_it_were_clipped() -> None:
    """Written again: sensitivity 2 C sqrt(d), noise 2 C T c / (n eps) of the largest writer."""
    plain = Row(
        name="plain",
        accuracy=[0.5],
        best=[0.5],
        rounds=300,
        clients=105,
        per_round=21,
        parameters=10_000,
        bytes_up=1.0,
        epsilon=None,
        delta=None,
        curve=[],
        seconds=1.0,
        device="cpu",
    )
    measured = Measured(rows={"plain": plain}, model="lenet", seeds=[1], sizes=[4, 160])
    cell = nbafl_jobs.Level(epsilon=10.0, constant=3.0)
    noise = 2 * 0.1 * 300 * 3.0 / (160 * 10.0)
    assert measured.up(cell) == pytest.approx(noise)
    assert measured.if_clipped(cell) == pytest.approx(profile.epsilon_at(1e-5, 2 * 0.1 * 100 / noise))


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
    kept = [yaml.safe_load(path.read_text()) for path in tmp_path.glob("unfinished/*/*/config.yaml")]
    noise = {one["nbafl"]["constant"] * 2 / one["nbafl"]["epsilon"] for one in kept if one["mode"] == "nbafl"}
    assert max(noise) == pytest.approx(300 * 3.0 / 10.0)  # T c / epsilon: that of 300 rounds in two
    monkeypatch.setattr("tacit.runs.federation.Federation.fit", lambda *_args, **_options: pytest.fail("run again"))
    told: list[float | None] = []

    def progress(what: str, *, done: float | None = None, total: float | None = None) -> None:
        told.append(done)
        assert total in (None, 30)

    assert nbafl_femnist.reproduce(SIZES, settings, progress).data == first.data
    assert told[-1] == 30


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
