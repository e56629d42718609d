"""A run begins in one place: its configuration is resolved once, its plan made once, its noise calibrated once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit.cli.main import app
from tacit.runs.federation import Federation
from tacit.runs.run import resume, run
from tacit.tasks import catalogue
from tests.runs.common import digits
from tests.runs.counted import ONCE, counted

DP: dict[str, Any] = {"mode": "dp", "dp": {"epsilon": 8.0}}


def test_tacit_run_plans_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    words = "run --data digits --model logistic --mode dp --epsilon 8 --rounds 1 --seed 1 --quiet train.workers=1 --out"
    app([*words.split(), str(tmp_path / "run")], standalone_mode=False)
    assert counts == ONCE


@pytest.mark.parametrize("mode", ["nbafl", "signds", "plain"])
def test_what_the_data_say_changes_the_plan_and_makes_no_other(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    run(digits(mode=mode))
    assert counts == {"resolved": 1, "planned": 1}


def test_a_natural_split_is_planned_when_its_owners_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = catalogue.load("digits")
    owners = np.arange(len(loaded.train.labels)) % 7
    data = replace(loaded, groups=owners, group_names=tuple("abcdefg"))
    monkeypatch.setattr(catalogue, "load", lambda *_, **__: data)
    counts = counted(monkeypatch)
    assert run(digits(data={"split": "natural"}, federate={"clients": None, "rounds": 1}, **DP)).clients == 7
    assert counts == ONCE


def test_going_on_plans_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.runs.runner import Runner

    monkeypatch.setattr(Runner, "_evaluate", _stop)
    with pytest.raises(KeyboardInterrupt):
        run(digits(out=tmp_path / "run", **DP))
    monkeypatch.undo()
    counts = counted(monkeypatch)
    assert len(resume(tmp_path / "run").rounds) < 3
    assert counts == ONCE


def _stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_fit_plans_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    data = (np.eye(2, dtype=np.float32), np.array([0, 1]))
    Federation(model=nn.Linear(2, 2), clients=[data, data], seed=1, **DP).fit(rounds=1)
    assert counts == ONCE
