from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import DataError
from tacit.training.batches import Holdings, Schedule, schedule
from tacit.training.parameters import Parameters
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.training.stacked import StackedTrainer
from tacit.training.vmapped import VmappedNetwork
from tests.training.common import make_holdings

SIZES = [10, 3, 8, 1, 12]
KEYS = np.array([11, 22, 33, 44, 55], np.int64)


def _plan(
    batch_size: int = 4, epochs: int = 2, clients: tuple[int, ...] = (0, 1, 2, 3, 4)
) -> tuple[Holdings, Schedule]:
    holdings = make_holdings((2,), SIZES)
    return holdings, schedule(holdings, clients, KEYS[list(clients)], epochs=epochs, batch_size=batch_size)


def _rows(plan: Schedule, line: int, epoch: int) -> list[list[int]]:
    """Return the real rows of one client in one epoch, batch by batch."""
    steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
    batches = [plan.rows[step, line, : plan.counts[step, line]].tolist() for step in steps]
    return [batch for batch in batches if batch]


@pytest.mark.parametrize("batch_size", [1, 4, 5, 12, 100])
def test_every_example_comes_exactly_once_an_epoch(batch_size: int) -> None:
    holdings, plan = _plan(batch_size)
    assert len(plan.rows) == 2 * plan.steps_per_epoch
    for line in range(5):
        for epoch in range(2):
            batches = _rows(plan, line, epoch)
            assert sorted(row for batch in batches for row in batch) == sorted(holdings.rows[line].tolist())
            width = min(batch_size, 12)
            assert [len(batch) for batch in batches[:-1]] == [width] * (len(batches) - 1)


def test_epochs_and_clients_have_orders_of_their_own() -> None:
    holdings, plan = _plan()
    assert _rows(plan, 4, 0) != _rows(plan, 4, 1)
    _, others = _plan(clients=(4,))
    assert _rows(others, 0, 0) == _rows(plan, 4, 0)
    again = schedule(holdings, (4,), np.array([56]), epochs=2, batch_size=4)
    assert _rows(again, 0, 0) != _rows(plan, 4, 0)


@pytest.mark.parametrize("client", range(5))
def test_a_clients_batches_and_keys_do_not_depend_on_the_others(client: int) -> None:
    _, together = _plan(batch_size=5)
    _, alone = _plan(batch_size=5, clients=(client,))
    for epoch in range(2):
        assert _rows(alone, 0, epoch) == _rows(together, client, epoch)
        own = alone.keys[epoch * alone.steps_per_epoch : (epoch + 1) * alone.steps_per_epoch, 0]
        theirs = together.keys[epoch * together.steps_per_epoch :, client][: len(own)]
        assert own.tolist() == theirs.tolist()


def test_every_step_of_every_client_has_a_key_of_its_own() -> None:
    _, plan = _plan()
    assert len(set(plan.keys.flatten().tolist())) == plan.keys.numel()


def test_counts_and_padding() -> None:
    _, plan = _plan(batch_size=4, epochs=1)
    assert plan.counts.T.tolist() == [[4, 4, 2], [3, 0, 0], [4, 4, 0], [1, 0, 0], [4, 4, 4]]
    assert plan.ragged
    assert not _plan(batch_size=4, epochs=1, clients=(4,))[1].ragged
    assert plan.rows.is_contiguous()


def test_holdings_of_nothing_are_refused() -> None:
    holdings = make_holdings((2,), [3, 2])
    with pytest.raises(DataError, match="Client 1 holds no example"):
        Holdings(features=holdings.features, labels=holdings.labels, rows=[np.arange(3), np.arange(0)])


def test_rows_are_padded_with_the_clients_own() -> None:
    holdings = make_holdings((2,), [3, 2])
    table = holdings.padded_rows([1, 0], 4)
    first = int(holdings.rows[1][0])
    assert table[0].tolist() == [*holdings.rows[1].tolist(), first, first]
    assert holdings.sizes.tolist() == [3, 2]


def test_who_has_run_out_of_examples_is_last_where_clients_come_by_size() -> None:
    holdings = Holdings(features=torch.zeros(24, 2), labels=torch.zeros(24), rows=np.split(np.arange(24), [12, 17, 22]))
    plan = schedule(holdings, [0, 1, 2, 3], np.arange(4), epochs=2, batch_size=4)
    assert plan.live.tolist() == [4, 3, 1, 4, 3, 1]
    other_way = schedule(holdings, [3, 2, 1, 0], np.arange(4), epochs=1, batch_size=4)
    assert other_way.live.tolist() == [4, 4, 4]


def test_the_first_of_many_models_move_in_place_and_the_others_stand_still() -> None:
    features, labels = torch.randn(12, 3), torch.arange(12) % 2
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    layout = Parameters.of(module)
    network = VmappedNetwork(module, layout)
    settings = LocalTraining(epochs=1, batch_size=4, lr=0.1, momentum=0.9)
    trainer = StackedTrainer(network=network, layout=layout, settings=settings, loss=cross_entropy)
    holdings = Holdings(features=features, labels=labels, rows=np.split(np.arange(12), 3))
    model, rows = layout.read(module), torch.arange(12).view(3, 4)
    whole, some = trainer.start(model, 3), trainer.start(model, 3)
    for _ in range(2):
        trainer.step(whole, holdings, rows, None, torch.zeros(3, dtype=torch.int64), 0.1)
        trainer.step(some.first(2), holdings, rows[:2], None, torch.zeros(2, dtype=torch.int64), 0.1)
    start = trainer.start(model, 3)
    for one, other, before in zip(some.parameters, whole.parameters, start.parameters, strict=True):
        torch.testing.assert_close(one[:2], other[:2])
        assert torch.equal(one[2], before[2])
