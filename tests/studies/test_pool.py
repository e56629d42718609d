from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.errors import ConfigError
from tacit.runs.folder import CONFIG
from tacit.studies.plan import with_values
from tacit.studies.pool import TRACEBACK, PoolResult, finished, run_all, workers_for

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "federate": {"rounds": 2, "clients": 4},
    "evaluate": {"train": False},
}


def planned(folder: Path, *models: str) -> list[dict[str, Any]]:
    return [
        with_values(SETTINGS, {"model.name": model, "out": str(folder / str(index))})
        for index, model in enumerate(models)
    ]


def outcomes(runs: list[dict[str, Any]], **options: Any) -> dict[int, PoolResult]:
    return {outcome.index: outcome for outcome in run_all(runs, **options)}


def test_a_process_that_dies_takes_no_other_run_with_it(tmp_path: Path) -> None:
    moved: list[tuple[int, int]] = []
    dies, raises = "tests.runs.faulty:Dies", "tests.runs.faulty:Raises"
    runs = planned(tmp_path, dies, dies, "logistic", raises)  # both workers die, and two others take their place
    found = outcomes(runs, workers=2, on_round=lambda index, rounds: moved.append((index, rounds)))
    assert sorted(found) == [0, 1, 2, 3]
    for index in (0, 1):
        assert "was killed by signal 9" in str(found[index].error)
    assert found[2].result == finished(tmp_path / "2")
    assert found[2].result is not None
    assert [count for place, count in moved if place == 2] == [0, 0, 1, 2]  # begun, ready, and its rounds
    assert "workers: 1" in (tmp_path / "2" / CONFIG).read_text()
    assert "ZeroDivisionError: by design" in str(found[3].error)
    assert "raise ZeroDivisionError" in (tmp_path / "3" / TRACEBACK).read_text()


def test_one_worker_needs_no_process_and_keeps_its_threads(tmp_path: Path) -> None:
    runs = planned(tmp_path, "tests.runs.faulty:Raises", "no-such-model", "logistic")
    found = outcomes(runs, workers=1)
    assert "ZeroDivisionError" in str(found[0].error)
    assert "no-such-model" in str(found[1].error)
    assert not (tmp_path / "1" / TRACEBACK).exists()  # a user's mistake is a sentence, no traceback
    assert found[2].result is not None
    assert "workers: null" in (tmp_path / "2" / CONFIG).read_text()


def test_a_run_that_has_begun_goes_on(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, "logistic")
    first = outcomes([run], workers=1)[0].result
    assert first is not None
    (tmp_path / "0" / "result.json").unlink()
    counts: list[int] = []
    again = outcomes([run], workers=1, on_round=lambda _, rounds: counts.append(rounds))[0].result
    assert again is not None
    assert counts == [0, 2]  # it begins; both rounds were done before
    assert again.test_accuracy == first.test_accuracy


def test_how_many_workers() -> None:
    assert workers_for(3, SETTINGS, 10) == 3
    assert workers_for(8, SETTINGS, 2) == 2
    assert workers_for(None, SETTINGS | {"gpu": 0}, 9) == 1
    assert workers_for(None, SETTINGS, 1) == 1
    with pytest.raises(ConfigError, match="one worker or more, got 0"):
        workers_for(0, SETTINGS, 1)


def test_values_are_laid_over_a_copy() -> None:
    assert with_values(SETTINGS, {"federate.rounds": 5})["federate"] == {"rounds": 5, "clients": 4}
    assert SETTINGS["federate"]["rounds"] == 2
