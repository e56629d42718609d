from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import ConfigError, RunError
from tacit.runs.result import Result
from tacit.studies.folder import RECORD
from tacit.studies.plan import Axis, of_grid
from tacit.studies.results import Repeat
from tacit.studies.sweep import Row, best, cells, sweep

BASE = {
    "mode": "dp",
    "seed": 1,
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "federate": {"rounds": 2, "clients": 4},
    "evaluate": {"train": False},
    "dp": {"noise": 0.1},
}
CLIP = Axis(key="dp.clip", values=(0.1, 0.5))
NOISE = Axis(key="dp.noise", values=(0.2, 0.4))


def small(out: Path, axes: list[Axis] | None = None, **options: Any) -> list[Row]:
    study = of_grid(options.pop("base", BASE), axes or [CLIP, NOISE], seeds=options.pop("seeds", 1))
    return sweep(study, out=out, **{"workers": 1} | options)


def results(out: Path) -> dict[str, int]:
    """Return when each point's result was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}


def table(out: Path) -> list[dict[str, str]]:
    with (out / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_point_is_a_run_and_a_row(tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []
    rows = small(tmp_path / "s", on_done=lambda place, run: told.append((place, run.folder)))
    assert [tuple(row.values.values()) for row in rows] == [(0.1, 0.2), (0.1, 0.4), (0.5, 0.2), (0.5, 0.4)]
    assert told == [(place, row.folder) for place, row in enumerate(rows)]
    for row, line in zip(rows, table(tmp_path / "s"), strict=True):
        result = Result.read(Path(row.folder) / "result.json")
        assert (Path(row.folder) / "journal.jsonl").exists()
        assert (row.test_accuracy, row.epsilon) == (result.test_accuracy, result.claimed.epsilon)
        assert float(line["test_accuracy"]) == row.test_accuracy
        assert (float(line["dp.clip"]), line["seed"], line["error"]) == (row.values["dp.clip"], "1", "")
    assert list(table(tmp_path / "s")[0]) == [
        *("dp.clip", "dp.noise", "seed", "test_accuracy", "train_accuracy"),
        *("test_loss", "epsilon", "delta", "seconds", "error"),
    ]


def test_processes_give_what_one_process_gives(tmp_path: Path) -> None:
    alone = small(tmp_path / "a")
    together = small(tmp_path / "b", workers=2)
    assert [row.values for row in together] == [row.values for row in alone]
    assert [row.epsilon for row in together] == [row.epsilon for row in alone]
    for one, other in zip(alone, together, strict=True):
        assert one.test_accuracy == pytest.approx(other.test_accuracy, abs=0.01)
    assert len(table(tmp_path / "b")) == 4


def test_only_what_is_missing_is_run_again(tmp_path: Path) -> None:
    out = tmp_path / "s"
    rows = small(out)
    before = results(out)
    folders = [Path(row.folder) for row in rows]
    (folders[0] / "result.json").unlink()  # killed before the end
    (folders[1] / "result.json").write_text('{"version": ')
    with (folders[1] / "journal.jsonl").open("a") as journal:
        journal.write('{"type": "rou')  # killed while it wrote
    (folders[2] / "result.json").unlink()
    with (folders[2] / "journal.jsonl").open("a") as journal:
        journal.write("rubbish\n")  # damaged: it can't be resumed
    (out / "sweep.csv").unlink()
    again = small(out)
    after = results(out)
    assert {name for name in after if after[name] != before[name]} == {folder.name for folder in folders[:3]}
    assert [row.test_accuracy for row in again] == [row.test_accuracy for row in rows]
    assert [row.epsilon for row in again] == [row.epsilon for row in rows]
    assert "rubbish" not in (folders[2] / "journal.jsonl").read_text()
    assert len(table(out)) == 4
    small(out)
    assert results(out) == after


def test_an_interrupted_sweep_keeps_what_is_done(tmp_path: Path) -> None:
    def stop(place: int, run: Repeat) -> None:
        if "dp.clip=0.5" in run.name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "s", on_done=stop)
    before = results(tmp_path / "s")
    assert len(before) == 3
    assert len(table(tmp_path / "s")) == 3
    assert len(small(tmp_path / "s")) == 4
    assert before.items() <= results(tmp_path / "s").items()


def test_a_point_that_fails_is_a_row_with_its_error(tmp_path: Path) -> None:
    axes = [Axis(key="federate.per_round", values=(2, 99, 4))]
    rows = small(tmp_path / "s", axes)
    assert [row.error is None for row in rows] == [True, False, True]
    assert "99 is more than the 4 clients" in str(rows[1].error)
    line = table(tmp_path / "s")[1]
    assert (line["federate.per_round"], line["test_accuracy"]) == ("99", "")
    assert "99 is more" in line["error"]
    assert [cell.failed for cell in cells(rows)] == [0, 1, 0]


def test_another_sweeps_folder_is_refused_unless_forced(tmp_path: Path) -> None:
    out = tmp_path / "s"
    small(out, [CLIP])
    with pytest.raises(RunError, match=r"another sweep: it is over dp\.clip, and this one over dp\.noise.*--force"):
        small(out, [NOISE])
    changed = BASE | {"federate": {"rounds": 3, "clients": 4}}
    for seeds in (1, 2):
        with pytest.raises(
            RunError, match=r"in dp\.clip=0\.1_seed=1, federate\.rounds was 2 and is now 3\. Give the same"
        ):
            small(out, [CLIP], base=changed, seeds=seeds)
    with pytest.raises(RunError, match=r"federate\.rounds was 2 and is now 3"):  # no point in common
        small(out, [Axis(key="dp.clip", values=(0.7,))], base=changed)
    small(out, [NOISE], force=True)
    assert {path.name for path in (out / "runs").iterdir()} == {"dp.noise=0.2_seed=1", "dp.noise=0.4_seed=1"}
    (out / RECORD).write_text("{")
    with pytest.raises(RunError, match="is damaged, so nothing tells which runs"):
        small(out, [NOISE])
    (out / RECORD).unlink()
    with pytest.raises(RunError, match="does not tell of it"):
        small(out, [NOISE])


def test_values_and_seeds_can_be_added(tmp_path: Path) -> None:
    out = tmp_path / "s"
    small(out, [CLIP])
    before = results(out)
    more = Axis(key="dp.clip", values=(0.1, 0.3, 0.5))
    assert len(small(out, [more], seeds=2)) == 6
    assert before.items() <= results(out).items()
    assert len(results(out)) == len(table(out)) == 6


def test_force_runs_everything_again(tmp_path: Path) -> None:
    small(tmp_path / "s", [CLIP])
    before = results(tmp_path / "s")
    small(tmp_path / "s", [CLIP], force=True)
    assert not before.items() & results(tmp_path / "s").items()


def test_a_runs_folder_is_no_sweeps_folder(tmp_path: Path) -> None:
    rows = small(tmp_path / "s", [CLIP])
    with pytest.raises(RunError, match="the folder of a run"):
        small(Path(rows[0].folder), [CLIP], force=True)


def test_seeds_repeat_each_point(tmp_path: Path) -> None:
    rows = small(tmp_path / "s", [CLIP], seeds=2, base={key: BASE[key] for key in BASE if key != "seed"})
    assert [(row.values["dp.clip"], row.seed) for row in rows] == [(0.1, 0), (0.1, 1), (0.5, 0), (0.5, 1)]
    points = cells(rows)
    assert [cell.runs for cell in points] == [2, 2]
    accuracies = [row.test_accuracy or 0.0 for row in rows]
    assert points[0].test_accuracy == pytest.approx((accuracies[0] + accuracies[1]) / 2)
    top = best(points)
    assert top is not None
    assert top.test_accuracy == max(cell.test_accuracy or 0.0 for cell in points)


def test_without_noise_epsilon_is_infinite_and_json_holds_it(tmp_path: Path) -> None:
    (row,) = small(tmp_path / "s", [Axis(key="dp.noise", values=(0.0,))])
    assert row.epsilon == math.inf
    assert json.loads(json.dumps(row.to_dict(), allow_nan=False))["epsilon"] == "infinite"
    assert table(tmp_path / "s")[0]["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("axes", "options", "message"),
    [
        ([Axis(key="dp.clp", values=(1, 2))], {}, "Did you mean 'dp.clip'"),
        ([Axis(key="dp.clip", values=(0.5, -1.0))], {}, r"-1\.0"),
        ([Axis(key="dp.clip", values=("x", 0.5))], {}, r"dp\.clip.*'x'"),
        ([Axis(key="dp.clip", values=(0.5, "y"))], {}, "'y'"),
        ([CLIP, CLIP], {}, "more than once"),
        ([Axis(key="out", values=("a", "b"))], {}, "out can't be an axis"),
        ([Axis(key="seed", values=(1, 2))], {"seeds": 2}, "not both"),
        ([CLIP], {"seeds": 0}, "one seed or more, got 0"),
        ([CLIP], {"workers": 0}, "one worker or more, got 0"),
        ([CLIP], {"seeds": 5001}, "10,002 points"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_runs(
    tmp_path: Path, axes: list[Axis], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        small(tmp_path / "s", axes, **options)
    assert not (tmp_path / "s").exists()


def test_a_sweep_needs_an_axis() -> None:
    with pytest.raises(ConfigError, match="needs an axis"):
        of_grid(BASE, [])
