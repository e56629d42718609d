from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.training.batches import Holdings
from tacit.training.made import AsMade
from tacit.training.private.clients import PrivateClients, PrivateHolder
from tacit.training.private.clipping import Clipping
from tacit.training.private.steps import PoissonBatches
from tacit.training.settings import LocalTraining, Loss, cross_entropy
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


class Sampling(nn.Module):
    """Draws from torch's own generator, out of reach of any key."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.layer(F.dropout(value, training=self.training))
        return output


class Reading(nn.Module):
    """Reads the probability of its dropout layer, as attention of Hugging Face's models does."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.layer = nn.Dropout(0.5), nn.Linear(6, 2)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.layer(self.drop(value)) * self.drop.p
        return output


class Scaled(nn.Module):
    """A parameter that no book covers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.layer = nn.Linear(6, 2)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.layer(value * self.scale)
        return output


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 2))


CLIENTS = 5


def clients(
    module: nn.Module,
    *,
    workers: int | None,
    loss: Loss = cross_entropy,
    kind: type[PrivateClients] = PrivateClients,
    noise: float = 1.0,
    steps: int = 3,
) -> PrivateClients:
    """Return five clients that hold the same twenty examples and draw all of them in every step."""
    torch.manual_seed(0)
    rows = np.arange(20)
    return kind(
        module=module,
        holdings=Holdings(features=torch.randn(20, 6), labels=torch.randint(0, 2, (20,)), rows=[rows] * CLIENTS),
        settings=LocalTraining(epochs=1, batch_size=20, lr=0.5, momentum=0.5),
        loss=loss,
        clipping=Clipping(bound=1.0),
        noise_multiplier=noise,
        batches=[PoissonBatches(examples=20, expected=20)] * CLIENTS,
        steps=[steps] * CLIENTS,
        randomness=Randomness.of(seed=1),
        micro_batch=10,
        workers=workers,
    )


def updates(trainer: PrivateClients, keys: list[int]) -> list[Vector]:
    found: dict[int, Vector] = {}
    start = np.full(trainer.layout.size, 0.1, np.float32)
    trainer.train(
        start, range(len(keys)), np.array(keys), 1, lambda client, update, _: found.__setitem__(client, update)
    )
    trainer.close()
    return [found[client] for client in range(len(keys))]


def test_how_many_train_at_once_changes_nothing() -> None:
    torch.manual_seed(3)
    module = dropping()
    keys = [7, 8, 9, 10, 11]
    one = updates(clients(module, workers=1), keys)
    for workers in (2, 5):
        for own, other in zip(one, updates(clients(module, workers=workers), keys), strict=True):
            assert np.array_equal(own, other)


def test_dropout_follows_the_key_of_the_client() -> None:
    one, same = updates(clients(dropping(), workers=2, noise=0.0), [7, 7])
    assert np.array_equal(one, same)
    one, other = updates(clients(dropping(), workers=2, noise=0.0), [7, 8])
    assert not np.array_equal(one, other)


def test_every_step_and_every_part_of_it_drops_anew() -> None:
    seen: list[Tensor] = []
    module = dropping()
    trainer = clients(module, workers=1, noise=0.0, steps=2)
    seat = trainer._seats.get()
    layer = seat.dropouts[0]
    layer.register_forward_hook(lambda _layer, _inputs, output: seen.append((output == 0).cpu()))
    made = AsMade(seat.module, trainer.layout.tensors(seat.module))  # with the hook, which is put back otherwise
    trainer._seats.put(replace(seat, made=made))
    updates(trainer, [7])
    assert len(seen) == 4  # two steps, each in two parts
    assert not any(torch.equal(seen[i], seen[j]) for i in range(4) for j in range(i))
    assert 0.3 < torch.stack(seen).float().mean() < 0.7


def test_clients_train_at_the_same_time() -> None:
    meeting: list[threading.Barrier] = []

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        if meeting:
            meeting[0].wait(timeout=120)
        return cross_entropy(outputs, labels)

    trainer = clients(dropping(), workers=2, loss=loss)
    meeting.append(threading.Barrier(2))  # from now on whoever computes a loss alone waits for another, in vain
    assert len(updates(trainer, [1, 2])) == 2


@pytest.mark.parametrize("make", [Sampling, Scaled])
def test_a_model_that_only_torchs_generator_serves_trains_one_client_at_a_time(make: type[nn.Module]) -> None:
    torch.manual_seed(3)
    module = make()
    trainer = clients(module, workers=4)
    assert trainer.workers == 1
    for one, again in zip(updates(trainer, [5, 6]), updates(clients(module, workers=4), [5, 6]), strict=True):
        assert np.array_equal(one, again)


def test_a_model_that_reads_its_dropout_trains_clients_side_by_side() -> None:
    torch.manual_seed(3)
    module = Reading()
    trainer = clients(module, workers=4)
    assert trainer.workers == 4
    for one, again in zip(updates(trainer, [5, 6]), updates(clients(module, workers=1), [5, 6]), strict=True):
        assert np.array_equal(one, again)


def test_one_data_holder_keeps_torchs_dropout_and_threads() -> None:
    trainer = clients(dropping(), workers=None, kind=PrivateHolder)
    assert trainer.workers == 1
    assert any(isinstance(part, nn.Dropout) for part in trainer._module.modules())
    trainer.close()


def test_the_default_is_one_client_a_core_and_torch_gets_its_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.training.private import clients as private

    before = torch.get_num_threads()
    for cores, expected in ((1, 1), (3, 3), (64, CLIENTS)):
        monkeypatch.setattr(private, "cores", lambda cores=cores: cores)
        trainer = clients(dropping(), workers=None)
        assert trainer.workers == expected
        updates(trainer, [1, 2])
        assert torch.get_num_threads() == before


def test_an_error_in_a_client_reaches_the_caller_and_the_seat_is_free_again() -> None:
    broken: list[bool] = []

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        if broken:
            raise ValueError("no such label")
        return cross_entropy(outputs, labels)

    trainer = clients(dropping(), workers=2, loss=loss)
    broken.append(True)
    with pytest.raises(ValueError, match="no such label"):
        trainer.train(np.zeros(trainer.layout.size, np.float32), [0, 1, 2], np.arange(3), 1, lambda *_: None)
    broken.clear()
    assert len(updates(trainer, [1, 2, 3])) == 3


def test_words_of_a_client_reach_nobody_by_a_frozen_table() -> None:
    """Rows of an embedding that renormalises them are written to wherever they are looked up, frozen or not."""
    table = nn.Embedding(40, 4, max_norm=0.5).requires_grad_(False)
    with torch.no_grad():
        table.weight[:16] *= 0.01  # words of the examples that a model is tried with
    holdings = Holdings(
        features=torch.arange(40).view(20, 2), labels=torch.arange(20) % 2, rows=[np.arange(8, 20), np.arange(8)]
    )
    trainer = PrivateClients(
        module=nn.Sequential(table, nn.Flatten(), nn.Linear(8, 2)),
        holdings=holdings,
        settings=LocalTraining(epochs=1, batch_size=8, lr=0.1),
        loss=cross_entropy,
        clipping=Clipping(bound=1.0),
        noise_multiplier=1.0,
        batches=[PoissonBatches(examples=12, expected=12), PoissonBatches(examples=8, expected=8)],
        steps=[1, 1],
        randomness=Randomness.of(seed=1),
        workers=1,
    )
    told: list[int] = []
    try:
        with pytest.raises(ConfigError, match=r"'0\.weight' is frozen, and training changed it"):
            trainer.train(
                np.zeros(trainer.layout.size, np.float32), [0, 1], np.arange(2), 1, lambda own, *_: told.append(own)
            )
    finally:
        trainer.close()
    assert not told


def test_a_counter_begins_anew_for_every_client() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(6, 2)
            self.seen = nn.Buffer(torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                self.seen.add_(1)
            return self.out(x) / (1.0 + 0.0 * self.seen)  # type: ignore[no-any-return]  # torch gives it no types

    trainer = clients(nn.Sequential(Counting()), workers=1, steps=3)
    seat = trainer._seats.get()
    trainer._seats.put(seat)
    updates(trainer, [7, 8])
    assert int(dict(seat.module.named_buffers())["0.seen"]) <= 6  # of the second client alone


def test_a_list_begins_anew_for_every_client_too() -> None:
    class Listing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out, self.held = nn.Linear(6, 2), [0]

        def forward(self, x: Tensor) -> Tensor:
            self.held[0] += 1
            return self.out(x) * (1.0 + 0.01 * self.held[0])  # type: ignore[no-any-return]  # torch gives it no types

    def third(asked: list[int]) -> Vector:
        trainer, found = clients(Listing(), workers=1), dict[int, Vector]()
        start, keys = np.full(trainer.layout.size, 0.1, np.float32), np.array(asked) + 7
        trainer.train(start, asked, keys, 1, lambda client, update, _: found.__setitem__(client, update))
        trainer.close()
        return found[2]

    assert np.array_equal(third([0, 1, 2]), third([2]))


@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_layers_that_hold_a_computed_weight_have_a_form(normed: Any) -> None:
    module = nn.Sequential(normed(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        module(torch.zeros(2, 6))
    trainer = clients(module, workers=1)
    assert trainer.form.startswith("dp-sgd")
    trainer.close()
