from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import RunError
from tacit.studies.folder import RECORD, claim, held, place_of
from tacit.studies.plan import Axis, Order, Study, of_grid, of_modes

BASE: dict[str, Any] = {"data": {"name": "digits"}, "federate": {"rounds": 2, "clients": 4}}
GRID = of_grid(BASE | {"mode": "dp"}, [Axis(key="dp.noise", values=(0.5, 1.0))], seeds=2)
MODES = of_modes(Order(modes=("plain", "dp"), seeds=2, shared=BASE, own={"plain": {"optimizer": {"lr": 0.2}}}))


@pytest.mark.parametrize("study", [GRID, MODES], ids=["sweep", "comparison"])
def test_a_folder_tells_the_study_that_was_asked_of_it(tmp_path: Path, study: Study) -> None:
    assert held(tmp_path) is None
    claim(tmp_path, study, force=False)
    told = held(tmp_path)
    assert told is not None
    assert told.study == study
    before = (tmp_path / RECORD).stat().st_mtime_ns
    claim(tmp_path, study, force=False)
    assert (tmp_path / RECORD).stat().st_mtime_ns == before
    assert {place_of(tmp_path, run).parent for run in study.runs} == {tmp_path / "runs"}


def test_runs_are_added_and_none_is_forgotten(tmp_path: Path) -> None:
    fewer = replace(MODES, runs=MODES.runs[:1])
    claim(tmp_path, fewer, force=False)
    claim(tmp_path, MODES, force=False)
    claim(tmp_path, fewer, force=False)
    told = held(tmp_path)
    assert told is not None
    assert told.study.runs == MODES.runs


@pytest.mark.parametrize(("name", "kind"), [("sweep.json", "sweep"), ("asked.json", "comparison")])
def test_a_folder_of_an_earlier_version_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_text("{}")
    for study in (GRID, MODES):
        for force in (False, True):
            with pytest.raises(RunError, match=f"holds a {kind} that an earlier version wrote"):
                claim(tmp_path, study, force=force)
    with pytest.raises(RunError, match="each by its own folder"):
        held(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "sermon"},
        {"runs": {}, "by": 3},
        {"runs": [{"name": "../elsewhere", "values": {}, "seed": 1, "settings": {}, "rounds": 1}]},
        {"runs": [{"name": "a"}]},
        {"together": None},
    ],
)
def test_a_record_that_makes_no_sense_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    claim(tmp_path, GRID, force=False)
    record = json.loads((tmp_path / RECORD).read_text())
    (tmp_path / RECORD).write_text(json.dumps(record | change))
    with pytest.raises(RunError, match=r"study\.json is damaged, so nothing tells which runs"):
        held(tmp_path)
    claim(tmp_path, GRID, force=True)
    told = held(tmp_path)
    assert told is not None
    assert told.study == GRID
