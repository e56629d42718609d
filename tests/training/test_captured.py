"""What a chunk of clients falls back to where no graph can be captured."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from tacit.training.batches import Holdings
from tacit.training.captured import CapturedTrainer
from tacit.training.cohort import Chunk
from tacit.training.grouped import GroupedNetwork
from tacit.training.parameters import Parameters
from tacit.training.program import graph_of, trace
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.training.stacked import StackedTrainer

SETTINGS = LocalTraining(epochs=2, batch_size=4, lr=0.1)


def _trainer(module: nn.Module, features: torch.Tensor) -> tuple[StackedTrainer, Parameters]:
    module = copy.deepcopy(module)
    layout = Parameters.of(module)
    network = GroupedNetwork(trace(graph_of(module), layout, features[0]), by_client=False)
    return StackedTrainer(network=network, layout=layout, settings=SETTINGS, loss=cross_entropy), layout


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("error", [RuntimeError, KeyError, torch.cuda.OutOfMemoryError, KeyboardInterrupt])
def test_without_a_graph_steps_are_taken_one_by_one(
    apart: bool, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error("no room, or no graph")

    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    settled: list[torch.device] = []
    monkeypatch.setattr("tacit.training.captured.settle", settled.append)
    monkeypatch.setattr(CapturedTrainer, "_capture", fails)
    torch.manual_seed(0)
    module, features, labels = nn.Sequential(nn.Linear(3, 5)), torch.randn(15, 3), torch.arange(15) % 5
    holdings = Holdings(features=features, labels=labels, rows=np.split(np.arange(15), [8, 12]))
    trainer, layout = _trainer(module, features)
    captured, model = CapturedTrainer(trainer, SETTINGS, apart=apart), layout.read(module)
    chunk = Chunk(clients=[0, 1, 2], keys=np.arange(3), rate=0.1, round_number=1)
    if error is KeyboardInterrupt or (error is torch.cuda.OutOfMemoryError and not apart):
        with pytest.raises(error):
            captured.train(model, holdings, chunk)
        assert settled
        assert not captured._fails
        return
    expected = _trainer(module, features)[0].train(model, holdings, chunk)
    for _ in range(2):
        found = captured.train(model, holdings, chunk)
        np.testing.assert_allclose(found.updates, expected.updates, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    assert len(settled) == 1
    assert captured._fails
    assert not captured._captures
