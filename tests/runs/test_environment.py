from __future__ import annotations

import json
import socket
from dataclasses import asdict

import numpy as np
import torch

import tacit
from tacit.runs import environment
from tacit.runs.journal import Environment, Split
from tacit.training.batches import Holdings


def _holdings(labels: torch.Tensor, *rows: list[int]) -> Holdings:
    return Holdings(features=torch.zeros(len(labels), 1), labels=labels, rows=[np.array(row, np.int64) for row in rows])


def test_a_split_counts_classes_by_client() -> None:
    split = environment.split_of(_holdings(torch.tensor([0, 2, 2, 1]), [0, 1, 2], [3]))
    assert split == Split(sizes=(3, 1), counts=((1, 0, 2), (0, 1, 0)))


def test_labels_that_are_no_classes_are_not_counted() -> None:
    for labels in (torch.tensor([0.5, 1.5]), torch.tensor([[0], [1]]), torch.tensor([-1, 1]), torch.tensor([0, 5_000])):
        assert environment.split_of(_holdings(labels, [0], [1])) == Split(sizes=(1, 1))


def test_a_large_table_is_left_out() -> None:
    labels = torch.arange(100)
    split = environment.split_of(_holdings(labels, *([0] for _ in range(501))))
    assert split.counts is None
    assert len(split.sizes) == 501


def test_the_environment_is_plain_and_names_nobody() -> None:
    told = environment.here()
    assert Environment(**json.loads(json.dumps(asdict(told)))) == told
    assert told.tacit == tacit.__version__
    assert told.torch == str(torch.__version__)
    assert int(told.cores) >= 1
    assert socket.gethostname() not in json.dumps(asdict(told))
