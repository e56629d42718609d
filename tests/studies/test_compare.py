from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import RunError
from tacit.runs.folder import RESULT
from tacit.runs.result import Result
from tacit.studies.compare import compare
from tacit.studies.folder import RECORD, held
from tacit.studies.plan import Axis, Order, of_grid, of_modes
from tacit.studies.results import Comparison, Repeat
from tacit.studies.sweep import sweep

BASE: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "federate": {"rounds": 2, "clients": 4},
    "evaluate": {"train": False},
}


def small(out: Path, *modes: str, seeds: int = 1, more: dict[str, Any] | None = None, **options: Any) -> Comparison:
    order = Order(modes=modes or ("plain", "dp"), seeds=seeds, shared=BASE | (more or {}))
    return compare(of_modes(order), out=out, **{"workers": 1} | options)


def written(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob(f"runs/*/{RESULT}")}


def test_every_run_is_an_ordinary_one_on_the_same_split(tmp_path: Path) -> None:
    told: list[tuple[int, Repeat]] = []
    moved: list[tuple[int, int]] = []
    comparison = small(
        tmp_path / "c",
        seeds=2,
        on_done=lambda index, run: told.append((index, run)),
        on_round=lambda index, rounds: moved.append((index, rounds)),
    )
    assert [entry.name for entry in comparison.entries] == ["plain", "dp"]
    assert [run.name for entry in comparison.entries for run in entry.runs] == [
        *("plain-seed-1", "plain-seed-2", "dp-seed-1", "dp-seed-2")
    ]
    for entry in comparison.entries:
        for run in entry.runs:
            assert run.result == Result.read(Path(run.folder) / RESULT)
            assert Path(run.folder) == tmp_path / "c" / "runs" / run.name
    assert [index for index, _ in told] == [0, 1, 2, 3]
    assert moved[:4] == [(0, 0), (0, 0), (0, 1), (0, 2)]  # begun, ready, and its rounds
    assert comparison.warnings == ()
    assert comparison.differing["server.lr"] == {"plain": "1.5", "dp": "1"}  # each mode's own choice
    assert comparison.shared == {
        "data": "digits",
        "split": "iid",
        "clients": "4",
        "clients per round": "4",
        "model": "logistic (650 parameters)",
        "rounds": "2",
        "seeds": "1, 2",
    }
    starts = [
        json.loads((tmp_path / "c" / "runs" / name / "journal.jsonl").read_text().splitlines()[0])
        for name in ("plain-seed-1", "dp-seed-1", "plain-seed-2")
    ]
    assert starts[0]["key"] == starts[1]["key"] != starts[2]["key"]  # the split and the first weights come of this key


def test_what_is_done_is_kept_and_what_is_broken_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "c"
    before = small(out, seeds=2)
    times = written(out)
    (out / "runs" / "dp-seed-1" / RESULT).unlink()
    again = small(out, seeds=2)
    after = written(out)
    assert {name for name in after if after[name] != times[name]} == {"dp-seed-1"}
    for old, new in zip(before.entries, again.entries, strict=True):
        assert old.accuracy == new.accuracy
    journal = (out / "runs" / "dp-seed-1" / "journal.jsonl").read_text()
    assert journal.count('"type": "start"') == 1  # it was resumed, not run anew


def test_modes_and_seeds_can_be_added(tmp_path: Path) -> None:
    out = tmp_path / "c"
    small(out, "plain")
    times = written(out)
    comparison = small(out, "plain", "local-dp", seeds=2)
    assert written(out).keys() == {"plain-seed-1", "plain-seed-2", "local-dp-seed-1", "local-dp-seed-2"}
    assert times.items() <= written(out).items()
    assert [len(entry.results) for entry in comparison.entries] == [2, 2]
    small(out, "dp")
    told = held(out)
    assert told is not None
    names = {run.name for run in told.study.runs}
    assert names == written(out).keys()  # what is not asked for this time is not forgotten
    with pytest.raises(RunError, match=r"in plain-seed-2, optimizer\.lr was not given and is now 1\.0"):
        small(out, "plain", more={"seed": 7, "optimizer": {"lr": 1.0}})


def test_another_comparisons_folder_is_refused_by_the_key_that_differs(tmp_path: Path) -> None:
    out = tmp_path / "c"
    small(out)
    times = written(out)
    with pytest.raises(RunError, match=r"in plain-seed-1, federate\.rounds was 2 and is now 3\."):
        small(out, more={"federate": {"rounds": 3, "clients": 4}})
    with pytest.raises(RunError, match=r"in dp-seed-1, dp\.epsilon was 8\.0 and is now 2\.0\.") as caught:
        small(out, more={"dp": {"epsilon": 2.0}})
    assert "--force" in str(caught.value)
    with pytest.raises(RunError, match=r"optimizer\.lr was not given and is now 1\.0"):
        small(out, more={"optimizer": {"lr": 1.0}})
    assert written(out) == times
    small(out, more={"optimizer": {"lr": 1.0}}, force=True)
    assert not times.items() & written(out).items()


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "c"
    small(out, "plain")
    with pytest.raises(RunError, match="is the folder of a run, not of a comparison"):
        small(out / "runs" / "plain-seed-1", "plain")
    sweep(of_grid(BASE, [Axis(key="optimizer.lr", values=(0.1,))]), out=tmp_path / "s", workers=1)
    for force in (False, True):
        with pytest.raises(RunError, match="is the folder of a sweep, not of a comparison"):
            small(tmp_path / "s", "plain", force=force)
    (out / RECORD).write_text("{")
    with pytest.raises(RunError, match="damaged"):
        small(out, "plain")
    (out / RECORD).unlink()
    with pytest.raises(RunError, match="does not tell of it"):
        small(out, "plain")
    (out / "notes.txt").write_text("mine")
    small(out, "plain", force=True)
    assert (out / "notes.txt").read_text() == "mine"


def test_a_run_that_fails_is_reported_and_loses_no_other(tmp_path: Path) -> None:
    out = tmp_path / "c"
    order = Order(
        modes=("plain", "dp"), shared=BASE, own={"dp": {"dp": {"noise": 0.01, "max_epsilon": 1.0}}}
    )  # not one round fits
    comparison = compare(of_modes(order), out=out, workers=1)
    assert [len(entry.results) for entry in comparison.entries] == [1, 0]
    (failed,) = comparison.failed
    assert failed.name == "dp-seed-1"
    assert "Not one round fits" in str(failed.error)


def test_runs_that_went_on_at_a_time_are_not_timed_alone(tmp_path: Path) -> None:
    out = tmp_path / "c"
    assert not any("at a time" in note for note in small(out, "plain").notes)
    assert not any("at a time" in note for note in small(out, "plain", workers=2).notes)  # there was nothing left to do
    record = json.loads((out / RECORD).read_text())
    (out / RECORD).write_text(json.dumps(record | {"together": 2}))
    assert any(note.startswith("Up to 2 runs went on at a time") for note in small(out, "plain", "dp").notes)
    assert not any("at a time" in note for note in small(out, "plain", force=True).notes)
