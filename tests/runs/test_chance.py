from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tacit.runs.chance import Chance
from tacit.runs.federation import Federation
from tacit.runs.folder import RESULT
from tacit.runs.history import read
from tacit.runs.run import run
from tests.runs.common import digits


def test_chance_is_the_most_frequent_class() -> None:
    chance = Chance.of(torch.tensor([0] * 60 + [1] * 40))
    assert chance is not None
    assert (chance.share, chance.examples) == (0.6, 100)
    assert chance.error == pytest.approx(0.049, abs=1e-3)
    assert [chance.holds(accuracy) for accuracy in (0.1, 0.6, 0.74, 0.75)] == [True, True, True, False]


def test_weights_that_are_noise_are_at_chance_though_their_accuracy_strays() -> None:
    chance = Chance(share=0.1, examples=355)
    assert [chance.holds(accuracy, loss=2258.0) for accuracy in (0.05, 0.17, 0.2)] == [True, True, False]
    assert [chance.holds(0.17, loss=loss) for loss in (2.2, 23.0, 23.1, float("nan"))] == [False, False, True, True]


@pytest.mark.parametrize("labels", [torch.rand(5), torch.zeros((3, 2), dtype=torch.int64), torch.tensor([-1, 2])])
def test_labels_that_are_no_classes_have_none(labels: torch.Tensor) -> None:
    assert Chance.of(labels) is None


def test_a_result_says_whether_it_is_at_chance(tmp_path: Path) -> None:
    learned = run(digits(out=tmp_path / "a", federate={"rounds": 3, "clients": 2}))
    assert learned.at_chance is False
    lost = run(digits(out=tmp_path / "b", mode="dp", dp={"noise": 500.0}, federate={"rounds": 1, "clients": 2}))
    assert lost.at_chance is True
    told = json.loads((tmp_path / "b" / RESULT).read_text())
    assert (told["at_chance"], told["chance"], told["test_examples"]) == (True, lost.chance, lost.test_examples)
    history = read(tmp_path / "b")
    assert history.chance is not None
    assert history.chance.share == lost.chance


def test_without_test_data_nothing_is_said() -> None:
    clients = [(np.eye(2, dtype=np.float32), np.array([0, 1]))] * 2
    result = Federation(model=nn.Linear(2, 2), clients=clients, seed=1).fit(rounds=1)
    assert (result.chance, result.test_examples, result.at_chance) == (None, None, None)
