from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tacit.randomness import Randomness
from tacit.training.holdings import Holdings
from tacit.training.private.clients import PrivateClients
from tacit.training.private.clipping import Clipping
from tacit.training.private.sampling import PoissonBatches
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.vectors import Vector


def trained(keys: list[int], clients: list[int], *, momentum: float = 0.0) -> dict[int, tuple[Vector, float]]:
    """Train clients that hold the same examples, for two steps of which noise is nearly all."""
    torch.manual_seed(0)
    rows = np.arange(30)
    holdings = Holdings(features=torch.randn(30, 4), labels=torch.randint(0, 2, (30,)), rows=[rows, rows, rows])
    trainer = PrivateClients(
        module=nn.Linear(4, 2),
        holdings=holdings,
        settings=LocalTraining(epochs=1, batch_size=10, lr=1.0, momentum=momentum),
        loss=cross_entropy,
        clipping=Clipping(bound=1e-3),
        noise_multiplier=100.0,
        batches=[PoissonBatches(examples=30, expected=10)] * 3,
        steps=[2, 2, 2],
        randomness=Randomness.of(seed=1),
    )
    found: dict[int, tuple[Vector, float]] = {}
    trainer.train(
        np.zeros(10, np.float32),
        clients,
        np.array(keys, np.int64),
        1,
        lambda client, update, loss: found.__setitem__(client, (update, loss)),
    )
    trainer.close()
    return found


def test_every_client_has_noise_of_its_own_in_every_round() -> None:
    first = trained([11, 12, 13], [0, 1, 2])
    updates = [update for update, _ in first.values()]
    again = trained([21, 22, 23], [0, 1, 2])[0][0]
    same_key = trained([11, 11], [0, 1])
    for one, other in ((updates[0], updates[1]), (updates[0], again), (same_key[0][0], same_key[1][0])):
        assert np.abs(one - other).max() > 1e-3
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.95


def test_a_clients_result_depends_on_its_key_alone_not_on_who_trains_beside_it() -> None:
    assert np.array_equal(trained([11, 12], [0, 1])[1][0], trained([12], [1])[1][0])


def test_the_loss_is_that_of_the_examples_drawn() -> None:
    assert 0.3 < trained([11], [0])[0][1] < 1.5
