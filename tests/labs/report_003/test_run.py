"""Report 003 with keys that are far too short and data that are learned at once, so that it takes seconds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tacit_labs.baselines.paillier import GMPY2
from tacit_labs.harness import files
from tacit_labs.harness.encrypted import Way
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.record import perform
from tacit_labs.report_003 import page, private, quoted, timings
from tacit_labs.report_003 import run as report
from tests.labs.common import charts, tables

TINY = report.Sizes(
    private=private.Sizes(data="digits", model="logistic", rounds=2, clients=3, seeds=2),
    timings=timings.Sizes(key_bits=(256, 384), lengths=(10, 100), count=3, scaled=2, slow=2),
    check_bits=128,
    ways=(Way(name="plain"), Way(name="shared", key_bits=256, shared=True)),
    rounds=2,
    clients=2,
    data={"name": "digits"},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return report.reproduce(TINY, Settings(quick=True, out=tmp_path_factory.mktemp("lab")), silent)


def test_the_quotations_are_the_reports() -> None:
    assert [(one.sigma, one.clip, one.epsilon, one.accuracy) for one in quoted.TABLE] == [
        (0.0001, 2.0, 75529.0, 0.9357),
        (0.1, 0.01, 0.377, 0.5072),
        (0.1, 0.001, 0.0377, 0.5115),
        (0.05, 0.01, 0.755, 0.6029),
        (0.5, 0.05, 0.377, 0.5832),
    ]
    assert quoted.TEST_ACCURACY[0] == quoted.TABLE[0].accuracy
    assert quoted.SECONDS["enc_add_const"][1000] == 22.21


def test_five_settings_are_trained_under_every_reading(made: Reproduction) -> None:
    rows = made.data["private"]["table"]
    assert len(rows) == 5 * len(private.READINGS)
    assert [len(row["test_accuracy"]) for row in rows[:4]] == [2, 1, 1, 1]
    by_seed = made.data["private"]["first_round_by_seed"]
    assert [len(row["test_accuracy"]) for row in by_seed] == [2] * 5
    for line, row in zip(rows[::4], by_seed, strict=True):
        assert row["test_accuracy"][0] == line["test_accuracy"][0]  # seed 1 is that of the table
    table = tables(made, "The table of five settings")[0]
    assert table.rows[2][:3] == (0.1, 0.001, "51.15%")


def test_a_reading_has_the_noise_that_it_says() -> None:
    stds = [reading.std(0.1, 0.01) for reading in private.READINGS]
    assert stds == pytest.approx([0.001, 0.001, 0.001, 0.1])
    assert [reading.but_the_first for reading in private.READINGS] == [True, True, False, False]
    assert [reading.alike for reading in private.READINGS] == [True, False, False, False]


def test_the_epsilons_of_the_table_are_the_formulas_with_digits_cut_off() -> None:
    for line in quoted.TABLE:
        digits = len(f"{line.epsilon:g}".partition(".")[2])
        cut = math.floor(costs_formula(line) * 10**digits) / 10**digits
        assert cut == pytest.approx(line.epsilon, rel=1e-12)


def costs_formula(line: quoted.Line) -> float:
    return private.costs(line).formula


def test_the_reports_rounds_stand_beside_ours(made: Reproduction) -> None:
    (table,) = tables(made, "Rounds 0 to 5 at sigma 0.0001, C 2")
    assert table.rows[0][:2] == ("Round 0", 0.565)
    assert table.rows[1][4] == "95.95%"
    last, every = ([float(str(row[column])) for row in table.rows] for column in (2, 3))
    assert all(0 < one < other for one, other in zip(last, every, strict=True))  # a loss falls from epoch to epoch
    titles = [chart.title for chart in charts(made, "Rounds 0 to 5 at sigma 0.0001, C 2")]
    assert titles[:2] == ["Test accuracy", "Training average loss"]


def test_what_the_report_prints_comes_out_for_everyone(made: Reproduction) -> None:
    checks = made.data["checks"]
    assert {one["verdict"] for one in checks} == {"PASS"}
    assert len(checks) == 3 * 4
    assert any("= 4021" in one["example"] for one in checks)


def test_a_thousand_operations_are_scaled_and_checked(made: Reproduction) -> None:
    table = tables(made, "1,000 operations")[0]
    assert table.rows[0][:4] == ("enc_add", "the report (quoted)", "not stated", "16.72 s")
    assert "scaled from 3" in str(table.rows[1][1])
    assert {row[-1] for row in table.rows if row[-1]} == {"PASS"}


def test_growth_is_that_of_the_times() -> None:
    rows = [
        timings.Exercise(by=GMPY2.name, key_bits=256, bits=bits, mode=mode, count=2, seconds=seconds, wrong=0)
        for mode in timings.MODES
        for bits, seconds in ((10, 1.0), (100, 3.0))
    ]
    found = timings.Timed(sizes=replace(TINY.timings, key_bits=(256,)), rows=rows, absent={})
    assert found.growth(GMPY2.name, 256, "enc_add") == 3.0
    assert found.thousand(GMPY2.name, 256, "enc_add", 10) == 500.0
    rows_shown = page.growth_table(found).rows
    assert rows_shown[0][2] == "1.83x"
    assert rows_shown[2][2] == "3x"


def test_counted_in_powers_the_reports_growth_is_that_of_1024_bits() -> None:
    assert timings.counted(1024, "enc_add", 1024) == 5.0
    assert timings.counted(1024, "enc_add_const", 1024) == 4.0

    def off(key_bits: int) -> float:
        return sum(abs(math.log(timings.counted_growth(key_bits, m) / timings.quoted_growth(m))) for m in timings.MODES)

    assert min(report.FULL.timings.key_bits, key=off) == quoted.KEY_BITS == 1024


def test_a_smaller_run_says_so_and_the_full_one_does_not(made: Reproduction) -> None:
    assert "instead of 1,000 (scaled)" in made.smaller
    assert report._smaller(report.FULL) == ""


def test_page_and_files(made: Reproduction, tmp_path: Path) -> None:
    experiment = replace(report.EXPERIMENT, run=lambda _settings, _progress: made)
    html, data, *_ = files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    text = html.read_text()
    for words in (quoted.DOCUMENT, "key length not stated", "the noise is unknown", "(22) to (24)", quoted.ON_CLIP):
        assert words in text, words
    assert len(json.loads(data.read_text())["data"]["private"]["costs"]) == 5
