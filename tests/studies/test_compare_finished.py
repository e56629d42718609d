from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tacit.errors import ConfigError, RunError
from tacit.runs import run as start
from tacit.studies.compare import compare, compare_finished
from tacit.studies.plan import Axis, Order, of_grid, of_modes
from tacit.studies.sweep import sweep
from tests.runs.common import digits


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs a, b (two seeds of plain), c (a third round) and d (dp)."""
    folder = tmp_path_factory.mktemp("runs")
    start.run(digits(out=folder / "a", seed=1))
    start.run(digits(out=folder / "b", seed=2))
    start.run(digits(out=folder / "c", federate={"rounds": 3}))
    start.run(digits(out=folder / "d", mode="dp", dp={"noise": 1.0}))
    return folder


def test_runs_that_differ_by_their_seed_are_one_entry(runs: Path) -> None:
    comparison = compare_finished([runs / "a", runs / "d", runs / "b"])
    assert [(entry.name, len(entry.runs)) for entry in comparison.entries] == [("plain", 2), ("dp", 1)]
    (warning,) = comparison.warnings
    assert "seeds differ: 1, 2 in plain; 1 in dp" in warning


def test_other_settings_are_another_entry_under_its_own_name(runs: Path) -> None:
    comparison = compare_finished([runs / "a", runs / "c"])
    assert [entry.name for entry in comparison.entries] == ["a", "c"]
    assert "rounds differ: 2 in a; 3 in c" in comparison.warnings[0]


def test_runs_that_share_a_name_are_told_apart(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "c", tmp_path / "other" / "a")
    comparison = compare_finished([runs / "a", tmp_path / "other" / "a"])
    assert [entry.name for entry in comparison.entries] == [f"{runs.name}/a", "other/a"]


def test_a_comparisons_folder_stands_for_its_runs(runs: Path, tmp_path: Path) -> None:
    shared = digits().model_dump(mode="json", exclude_defaults=True)
    order = Order(modes=("plain", "dp"), seeds=2, shared=shared, own={"plain": {"optimizer": {"lr": 0.2}}})
    made = compare(of_modes(order), out=tmp_path / "c", workers=1)
    assert compare_finished([tmp_path / "c"]) == made
    assert compare_finished([tmp_path / "c", runs / "c"]).entries[1].runs == made.entries[1].runs
    (tmp_path / "c" / "runs" / "dp-seed-2" / "result.json").unlink()
    (unfinished,) = compare_finished([tmp_path / "c"]).failed
    assert (unfinished.name, unfinished.error) == (
        "dp-seed-2",
        "It is not finished. Give the comparison's command again to go on.",
    )
    for path in (tmp_path / "c").glob("runs/*/result.json"):
        path.unlink()
    with pytest.raises(RunError, match="none of whose runs is finished"):
        compare_finished([tmp_path / "c"])


def test_a_sweeps_folder_stands_for_its_points(runs: Path, tmp_path: Path) -> None:
    shared = digits().model_dump(mode="json", exclude_defaults=True)
    sweep(of_grid(shared, [Axis(key="optimizer.lr", values=(0.1, 0.2))], seeds=2), out=tmp_path / "s", workers=1)
    comparison = compare_finished([tmp_path / "s"])
    assert [(entry.name, len(entry.results)) for entry in comparison.entries] == [
        ("optimizer.lr=0.1", 2),
        ("optimizer.lr=0.2", 2),
    ]
    assert comparison.entries[1].settings == {"optimizer.lr": 0.2}
    assert comparison.warnings == ()
    assert len(compare_finished([tmp_path / "s", runs / "d"]).entries) == 3


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["a", "a"], "was given more than once"),
        (["a", "../{}/a"], "was given more than once"),
        (["a", "nowhere"], "There is no folder .*nowhere"),
        (["a", "."], "is not the folder of a run: it has no config.yaml and no journal.jsonl"),
    ],
)
def test_what_is_no_finished_run_is_refused(runs: Path, folders: list[str], message: str) -> None:
    with pytest.raises((ConfigError, RunError), match=message):
        compare_finished([runs / name.format(runs.name) for name in folders])


def test_an_unfinished_run_is_refused_with_the_way_to_finish_it(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "a", tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    with pytest.raises(RunError, match=r"is not finished: 2 rounds are done\. Finish it first: tacit resume .*a"):
        compare_finished([tmp_path / "a", runs / "d"])
    (tmp_path / "a" / "result.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        compare_finished([tmp_path / "a", runs / "d"])
