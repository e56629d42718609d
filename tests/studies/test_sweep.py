from __future__ import annotations

import csv
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError, RunError
from tacit.runs.result import Result
from tacit.studies.axes import MOST, Axis, parse_axes
from tacit.studies.sweep import Row, best, cells, count, sweep

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
    return sweep(options.pop("base", BASE), axes or [CLIP, NOISE], out=out, **{"workers": 1} | options)


def results(out: Path) -> dict[str, int]:
    """Return when each point's result was written."""
    return {path.parent.name[:4]: path.stat().st_mtime_ns for path in out.glob("points/*/result.json")}


def table(out: Path) -> list[dict[str, str]]:
    with (out / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def axis(word: str) -> tuple[Any, ...]:
    (found,), rest = parse_axes([word])
    assert rest == []
    return found.values


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("dp.clip=0.1:0.9:5", (0.1, 0.3, 0.5, 0.7, 0.9)),
        ("dp.clip=0.9:0.1:3", (0.9, 0.5, 0.1)),
        ("dp.clip=0.3:0.7:1", (0.3,)),
        ("federate.clients=10:50:5", (10, 20, 30, 40, 50)),
        ("dp.noise=log:0.01:1:3", (0.01, 0.1, 1.0)),
        ("dp.delta=1e-6,1e-5", (1e-6, 1e-5)),
        ("dp.clip=adaptive, 0.5,1", ("adaptive", 0.5, 1)),
        ("data.split=iid,dirichlet:0.3", ("iid", "dirichlet:0.3")),
        ("federate.per_round=null,2", (None, 2)),
    ],
)
def test_the_forms_of_an_axis(word: str, values: tuple[Any, ...]) -> None:
    assert axis(word) == values
    assert [type(value) for value in axis(word)] == [type(value) for value in values]


def test_a_key_and_its_values_may_be_two_words() -> None:
    axes, rest = parse_axes(["federate.rounds", "3", "dp.clip", "0.1,0.2", "job.yaml"])
    assert axes == [Axis(key="dp.clip", values=(0.1, 0.2))]
    assert rest == ["federate.rounds", "3", "job.yaml"]


@pytest.mark.parametrize(
    "word",
    ["data.split=dirichlet:0.3", "dp.clip=0.5", "model.name=package.module:Class", "a.yaml", "data.folder='a,b'"],
)
def test_other_words_are_left_alone(word: str) -> None:
    assert parse_axes([word]) == ([], [word])


@pytest.mark.parametrize(
    "values",
    [
        *("0.1:0.9:0", "0.1:0.9:-2", "0.1:0.9:1.5", "0.1:0.9:x", "0.1:0.9", "0.1:0.9:3:4", "x:y:3", "nan:1:3"),
        *("0:inf:3", "log:0:1:3", "log:-1:1:3", "log:0.1:1", "log:1:2:3:4", "0.1,,0.3", "0.1,nan", "1:2:99999999999"),
        *("0.5:0.5:3", "0.1,0.1", "0.1,{a: b}", ",", "1:1"),
    ],
)
def test_a_bad_axis_is_refused_by_name(values: str) -> None:
    with pytest.raises(ConfigError, match=r"dp\.clip"):
        parse_axes([f"dp.clip={values}"])


@given(
    st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
    st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
    st.integers(2, 50),
)
def test_a_range_goes_evenly_from_end_to_end(first: float, last: float, number: int) -> None:
    if abs(first - last) < 0.1:
        return
    values = axis(f"dp.clip={first}:{last}:{number}")
    assert (len(values), values[0], values[-1]) == (number, first, last)
    step = (last - first) / (number - 1)
    assert all(math.isclose(b - a, step, rel_tol=1e-3) for a, b in pairwise(values))


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e6), st.integers(2, 50))
def test_a_logarithmic_range_goes_by_equal_factors(first: float, factor: float, number: int) -> None:
    values = axis(f"dp.noise=log:{first!r}:{first * factor!r}:{number}")
    assert len(values) == number
    assert math.isclose(values[0], first, rel_tol=1e-9)
    assert math.isclose(values[-1], first * factor, rel_tol=1e-9)
    step = factor ** (1 / (number - 1))
    assert all(math.isclose(b / a, step, rel_tol=1e-9) for a, b in pairwise(values))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=8, unique=True))
def test_a_list_is_read_back_as_it_was_written(values: list[float]) -> None:
    assert axis("dp.clip=" + ",".join(map(repr, values))) == tuple(values)


def test_every_point_is_a_run_and_a_row(tmp_path: Path) -> None:
    told: list[Row] = []
    rows = small(tmp_path / "s", on_done=told.append)
    assert [tuple(row.values.values()) for row in rows] == [(0.1, 0.2), (0.1, 0.4), (0.5, 0.2), (0.5, 0.4)]
    assert told == rows
    for row, line in zip(rows, table(tmp_path / "s"), strict=True):
        result = Result.read(Path(row.folder) / "result.json")
        assert (Path(row.folder) / "journal.jsonl").exists()
        assert (row.test_accuracy, row.epsilon) == (result.test_accuracy, result.privacy.epsilon)
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
    assert {name for name in after if after[name] != before[name]} == {"0000", "0001", "0002"}
    assert [row.test_accuracy for row in again] == [row.test_accuracy for row in rows]
    assert [row.epsilon for row in again] == [row.epsilon for row in rows]
    assert "rubbish" not in (folders[2] / "journal.jsonl").read_text()
    assert len(table(out)) == 4
    small(out)
    assert results(out) == after


def test_an_interrupted_sweep_keeps_what_is_done(tmp_path: Path) -> None:
    def stop(row: Row) -> None:
        if row.values["dp.clip"] == 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "s", on_done=stop)
    before = results(tmp_path / "s")
    assert sorted(before) == ["0000", "0001", "0002"]
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
    with pytest.raises(RunError, match=r"another sweep: its axes differ.*--force"):
        small(out, [NOISE])
    with pytest.raises(RunError, match="its settings differ"):
        small(out, [CLIP], base=BASE | {"seed": 2})
    with pytest.raises(RunError, match="its seeds differ"):
        small(out, [CLIP], seeds=2)
    small(out, [NOISE], force=True)
    assert {path.name for path in (out / "points").iterdir()} == {
        "0000_dp.noise=0.2_seed=1",
        "0001_dp.noise=0.4_seed=1",
    }
    (out / "sweep.json").write_text("{")
    with pytest.raises(RunError, match="another sweep"):
        small(out, [NOISE])
    (out / "sweep.json").unlink()
    with pytest.raises(RunError, match="another sweep"):
        small(out, [NOISE])


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


def test_a_sweep_needs_an_axis(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs an axis"):
        sweep(BASE, [], out=tmp_path / "s")


def test_an_axis_refuses_nonsense() -> None:
    for values in ((), (math.nan,), (1, 1)):
        with pytest.raises(ConfigError, match=r"axis dp\.clip"):
            Axis(key="dp.clip", values=values)


def test_the_count_of_points() -> None:
    assert count([CLIP, NOISE], seeds=3) == 12
    assert MOST == 10_000
