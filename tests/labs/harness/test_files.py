from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.errors import RunError, StorageError
from tacit_labs.harness import files
from tacit_labs.harness.experiment import Finding, Reproduction, Settings
from tacit_labs.harness.page import page
from tacit_labs.harness.record import perform
from tests.labs.common import toy


def test_a_page_its_data_and_its_tables_are_written(tmp_path: Path) -> None:
    outcome = perform(toy(), Settings(quick=True, out=tmp_path, seed=7))
    paths = files.write(outcome, tmp_path)
    assert [path.name for path in paths] == [
        "report-000.html",
        "report-000.json",
        "report-000-checks.csv",
        "report-000-times.csv",
    ]
    written = json.loads(paths[1].read_text())
    assert written["name"] == "report-000"
    assert written["data"] == {"answer": 42}
    assert written["findings"] == [
        {"what": "speed", "original": "240 s", "ours": "3 s", "why": "the original used <one> core", "headline": True}
    ]
    assert (written["record"]["quick"], written["record"]["seed"], written["record"]["device"]) == (True, 7, "CPU")
    assert paths[2].read_text() == "operation,ok\nadd,True\nmultiply,False\n"  # the sheet goes before the table
    assert paths[3].read_text() == f"size,seconds\n10,{1 / 3}\n"  # and a table is not rounded


def test_the_page_says_what_the_original_had_what_we_got_and_why(tmp_path: Path) -> None:
    text = page(perform(toy(), Settings(out=tmp_path))).html()
    assert "<strong>The original</strong> (<code>009_toy.txt</code>)<strong>.</strong> It counted to two." in text
    assert "<strong>Ours.</strong> Two operations, <code>add</code> and <strong>multiply</strong>." in text
    for cell in ("240 s", "3 s", "the original used &lt;one&gt; core"):
        assert f">{cell}</td>" in text
    assert "Correctness" in text
    assert "tacit reproduce report-000 --seed 1" in text
    assert "Quick run" not in text


def test_a_quick_page_says_which_settings_are_smaller(tmp_path: Path) -> None:
    text = page(perform(toy(), Settings(out=tmp_path, quick=True))).html()
    assert "<strong>Quick run, with smaller settings.</strong> Two operations instead of ten." in text
    assert "The full run: <code>tacit reproduce report-000</code>." in text
    assert "tacit reproduce report-000 --quick --seed 1" in text


def test_data_that_json_cannot_hold_leave_no_file(tmp_path: Path) -> None:
    outcome = perform(toy(data={"x": float("inf")}), Settings(out=tmp_path / "work"))
    with pytest.raises(RunError, match="The data of report-000 hold a number that is not finite"):
        files.write(outcome, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = perform(toy(), Settings(out=tmp_path))
    with pytest.raises(StorageError, match=r"choose another folder with --out"):
        files.write(outcome, tmp_path / "file")


@pytest.mark.parametrize("empty", ["what", "original", "ours", "why"])
def test_a_finding_leaves_nothing_out(empty: str) -> None:
    with pytest.raises(ValueError, match=f"; {empty} is empty"):
        Finding(**{"what": "a", "original": "b", "ours": "c", "why": "d", empty: " "})  # type: ignore[arg-type]


def test_a_reproduction_compares_something() -> None:
    with pytest.raises(ValueError, match="at least one finding"):
        Reproduction(settings="x", findings=(), sections=())


def test_what_changes_the_results_changes_the_folder_of_unfinished_work(tmp_path: Path) -> None:
    one = Settings(out=tmp_path)
    others = [replace(one, quick=True), replace(one, seed=2), replace(one, gpu=0), one]
    folders = {settings.work("report-000") for settings in others} | {one.work("lab-004")}
    assert len(folders) == 5
