"""What decides between many clients at once and one after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from tacit.training.batches import Holdings
from tacit.training.cohort import Chunk, Trained
from tacit.training.cost import Cost, cost_of
from tacit.training.forms import cohort_trainer
from tacit.training.lanes.network import vectorised
from tacit.training.loop import LoopTrainer
from tacit.training.settings import cross_entropy
from tests.training.common import Custom, Run, make_holdings, settings


def own_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss of one's own, against which no native call takes a perceptron's steps."""
    return cross_entropy(outputs, labels)


def test_products_convolutions_and_recurrent_layers_are_counted() -> None:
    assert cost_of(nn.Linear(6, 5), torch.zeros(4, 6)).flops == 2 * 4 * 6 * 5
    narrow = cost_of(nn.Conv2d(3, 20, 3), torch.zeros(2, 3, 5, 5))
    assert narrow.flops == narrow.narrow == 2 * 2 * 9 * 20 * 27
    wide = cost_of(nn.Conv2d(16, 16, 3), torch.zeros(2, 16, 5, 5))
    assert wide.flops > wide.narrow == 0
    recurrent = cost_of(nn.LSTM(3, 4, batch_first=True), torch.zeros(2, 5, 3))
    assert recurrent.flops == 2 * 2 * 5 * 16 * (3 + 4)


def test_a_sparse_tensor_is_no_weight() -> None:
    module: Any = nn.Linear(4, 2)
    module.register_buffer("graph", torch.eye(4).to_sparse(), persistent=False)
    module.register_forward_pre_hook(lambda own, given: (own.graph @ given[0].T).T)
    assert cost_of(module, torch.zeros(3, 4)).weights == 10


def test_many_small_operations_pay_and_few_large_ones_do_not() -> None:
    assert Cost(flops=1e5, narrow=0.0, operations=20).mapping_pays(20, 8)
    assert not Cost(flops=1e9, narrow=0.0, operations=20).mapping_pays(20, 8)
    assert Cost(flops=1e9, narrow=9e8, operations=20).mapping_pays(20, 8)  # PyTorch is slow at narrow convolutions
    assert not Cost(flops=1e5, narrow=0.0, operations=2).mapping_pays(300, 16)  # one call was torn to pieces
    assert not Cost(flops=1e5, narrow=0.0, operations=20).mapping_pays(50, 1)  # nobody to share a call with


def test_a_large_model_trains_in_a_loop_on_each_core_and_says_why() -> None:
    module = nn.Sequential(nn.Linear(600, 900), nn.PReLU(), nn.Linear(900, 3))
    holdings = make_holdings((600,), [32] * 6, scale=0.1)
    run = Run(module, holdings, settings(batch_size=32), workers=2)
    assert run.form == "loop"
    assert "keep a core busy" in run.reason
    run.equals(Run(module, holdings, settings(batch_size=32), form="loop"), exactly=True)


def test_a_model_worth_all_cores_has_them_all() -> None:
    module = nn.Sequential(nn.Linear(2_000, 4_000), nn.PReLU(), nn.Linear(4_000, 3))
    trainer = cohort_trainer(
        module=module,
        holdings=make_holdings((2_000,), [64] * 2, scale=0.1),
        settings=settings(batch_size=64),
        loss=cross_entropy,
        workers=2,
    )
    trainer.close()
    assert (trainer.form, trainer.workers) == ("loop", 1)
    assert not Cost(flops=3e9, narrow=0.0, operations=20).fills_cores(16)


def test_what_an_operation_reads_is_counted() -> None:
    module = nn.Sequential(nn.Embedding(50, 6), nn.Flatten(), nn.Linear(30, 4, bias=False), nn.ReLU())
    cost = cost_of(module, torch.zeros(7, 5, dtype=torch.int64))
    assert (cost.numbers, cost.weights) == (7 * 30, 30 * 4)  # a table is read in part


def test_copies_that_fill_no_cache_do_not_pay() -> None:
    wide, deep = (
        Cost(flops=1e7, narrow=0.0, operations=5, weights=400_000),
        Cost(flops=1e7, narrow=0.0, operations=50, weights=400_000),
    )
    assert wide.spills(16) and wide.spills(2)  # noqa: PT018 - two sides of one bound
    assert not wide.spills(1) and not deep.spills(16)  # noqa: PT018 - as above
    assert Cost(flops=1e5, narrow=0.0, operations=1, numbers=1_000_000).spills(5)
    assert not Cost(flops=1e5, narrow=0.0, operations=1, numbers=1_000_000).spills(4)


@pytest.mark.parametrize("clients", [2, 8])
def test_a_wide_perceptron_trains_one_client_after_another(clients: int) -> None:
    module = nn.Sequential(nn.Linear(700, 512), nn.ReLU(), nn.Linear(512, 3))
    holdings = make_holdings((700,), [4] * clients, scale=0.1)
    run = Run(module, holdings, settings(), workers=1, loss=own_loss)
    assert (run.form, "cache" in run.reason) == ("loop", True)
    run.equals(Run(module, holdings, settings(), form="grouped"))


def test_clients_that_would_leave_a_core_idle_train_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(800, 300), nn.Linear(300, 3))
    threads: dict[int, int] = {}
    plain = LoopTrainer.train

    def seen(self: LoopTrainer, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        threads[chunk.clients[0]] = torch.get_num_threads()
        return plain(self, model, holdings, chunk)

    monkeypatch.setattr(LoopTrainer, "train", seen)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runs = []
        for sizes in ([256] * 3, [256] * 4, [1_600, 256, 256], [256], [32] * 3):
            threads.clear()
            Run(module, make_holdings((800,), sizes, scale=0.1), settings(batch_size=32), form="loop", workers=2)
            runs.append(sorted(threads.values()))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert runs[:4] == [[1, 1, 2], [1, 1, 1, 1], [1, 1, 2], [2]]
    assert runs[4] == [2, 2, 2]  # they are done before workers have taken over


def test_loops_that_would_wait_for_pythons_lock_do_not_run_side_by_side() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    given: dict[str, Any] = {"holdings": make_holdings((4,), [8] * 4), "settings": settings(), "loss": cross_entropy}
    adam = settings(name="adam", lr=1e-3)
    tiny = cohort_trainer(module=module, workers=2, **given | {"settings": adam})
    tiny.close()
    followed = cohort_trainer(module=module, workers=2, **given)  # programs need no lock
    followed.close()
    recurrent = Custom(
        lambda m, x: m.out(m.norm(m.rnn(x[..., None])[0][:, -1])),
        rnn=nn.GRU(1, 16, batch_first=True),
        norm=nn.BatchNorm1d(16),
        out=nn.Linear(16, 3),
    )
    longer = cohort_trainer(module=recurrent, workers=2, **given)
    longer.close()
    assert (tiny.form, tiny.workers, longer.form, longer.workers) == ("loop", 1, "loop", 2)
    assert (followed.form, followed.workers) == ("loop", 2)


def test_numbers_that_operations_write_make_a_step_worth_several_cores() -> None:
    products = Cost(flops=1e6, narrow=0.0, operations=10)
    assert products.shared(2) == 1.0
    assert Cost(flops=1e6, narrow=0.0, operations=10, written=10**6).shared(2) == 1.5
    assert cost_of(nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Tanh()), torch.zeros(2, 3, 4)).written == 2 * 24


def test_products_of_few_columns_are_counted() -> None:
    assert cost_of(nn.Linear(60, 2), torch.zeros(4, 60)).is_thin
    assert not cost_of(nn.Linear(60, 20), torch.zeros(4, 60)).is_thin
    assert not cost_of(nn.Conv2d(3, 4, 3), torch.zeros(2, 3, 5, 5)).is_thin


def test_products_of_several_results_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Torch's attention on a GPU is such an operation; a layer norm stands in for it.
    monkeypatch.setitem(flop_registry, torch.ops.aten.native_layer_norm, lambda *_, **__: 7)
    assert cost_of(nn.LayerNorm(3), torch.zeros(2, 3)).flops == 7


@pytest.mark.parametrize(
    ("widths", "batch", "clients", "form"),
    [
        ((784, 10), 10, 8, "grouped"),
        ((784, 10), 32, 1, "loop"),
        ((30_000, 3), 10, 20, "loop"),  # one client's products fill the time of a call
        ((64, 32, 10), 10, 1, "grouped"),
        ((784, 64, 10), 32, 1, "loop"),
        ((784, 200, 10), 10, 20, "loop"),  # ten clients of each core would leave lanes empty
        ((784, 200, 10), 10, 64, "lanes"),
        ((784, 200, 10), 32, 20, "lanes"),
    ],
    ids=str,
)
def test_a_tiny_models_form_goes_by_its_clients_and_products(
    widths: tuple[int, ...], batch: int, clients: int, form: str
) -> None:
    if form == "lanes" and not vectorised():
        form = "grouped"
    torch.manual_seed(0)
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.Tanh())]
    module = nn.Sequential(*layers[:-1]) if len(widths) > 2 else layers[0]
    holdings = make_holdings(widths[:1], [2 * batch] * clients)
    run = Run(module, holdings, settings(batch_size=batch), workers=2, loss=own_loss)
    assert run.form == form
    run.equals(Run(module, holdings, settings(batch_size=batch), form="loop"))


def test_clients_of_unequal_size_do_not_count_as_training_together() -> None:
    module = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 3))
    for sizes, form in (([300, 100, 40], "loop"), ([100] * 9, "lanes" if vectorised() else "grouped")):
        run = Run(module, make_holdings((100,), sizes), settings(batch_size=32), workers=2, loss=own_loss)
        assert run.form == form


def test_few_clients_of_a_straight_program_are_one_chunk() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for clients, chunks in ((7, [7]), (8, [8]), (20, [10, 10])):
        trainer = cohort_trainer(
            module=module,
            holdings=make_holdings((6,), [4] * clients),
            settings=settings(batch_size=2),
            loss=own_loss,
            workers=2,
        )
        trainer.close()
        assert [len(places) for places in trainer._chunks(range(clients))] == chunks


def test_wide_layers_fill_a_gpu_and_narrow_ones_do_not() -> None:
    def cost(width: int, batch: int) -> Cost:
        layers = [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
        return cost_of(nn.Sequential(*layers).to("meta"), torch.empty(batch, width, 16, 16, device="meta"))

    assert not cost(64, 10).fills_a_gpu()
    assert cost(256, 10).fills_a_gpu()
    assert cost(64, 64).fills_a_gpu()
