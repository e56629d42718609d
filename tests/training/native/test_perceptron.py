"""Perceptrons by native kernels: as a form of training beside the loop, and whom they suit."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization import QConfig

from tacit.training import native
from tacit.training.batches import Holdings
from tacit.training.forms import cohort_trainer
from tacit.training.native import available
from tacit.training.native.perceptron import Cost, Dense, _Plan
from tacit.training.parameters import Parameters
from tacit.training.settings import cross_entropy
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


def perceptron(*widths: int, function: Callable[[], nn.Module] = nn.Tanh, bias: bool = True) -> nn.Module:
    """Return layers of such widths; a smooth function behind each, so that rounding takes no other way."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b, bias=bias), function())]
        return nn.Sequential(*layers[:-1])


# Below, at and above what a register, a tile of registers and a block of inputs hold.
WIDTHS = [(1, 2), (5, 3), (15, 16, 17, 3), (64, 4), (65, 63, 31, 6), (97, 33, 7), (1025, 5, 3), (2049, 18, 70)]


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("batch", [1, 4, 7, 64])
def test_clients_train_as_in_a_loop(widths: tuple[int, ...], batch: int) -> None:
    sizes = [9, 2, 1, 12] if batch < 64 else [130, 64]
    draw = torch.Generator().manual_seed(5)
    holdings = make_holdings(widths[:1], sizes, scale=0.3)
    holdings.labels.copy_(torch.randint(0, widths[-1], holdings.labels.shape, generator=draw))
    own = Run(perceptron(*widths), holdings, settings(batch_size=batch, epochs=2), form="perceptron")
    own.equals(Run(perceptron(*widths), holdings, settings(batch_size=batch, epochs=2), form="loop"))
    for client in range(len(sizes)):  # nothing of one client is left for the next
        alone = Run(
            perceptron(*widths), holdings, settings(batch_size=batch, epochs=2), form="perceptron", clients=[client]
        )
        assert alone.updates[client].tobytes() == own.updates[client].tobytes()
        assert alone.losses[client] == own.losses[client]


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_momentum_and_decay(momentum: float, decay: float, bias: bool) -> None:
    holdings, module = make_holdings((21,), [10, 3, 8]), perceptron(21, 19, CLASSES, bias=bias)
    chosen = settings(momentum=momentum, weight_decay=decay, epochs=3)
    Run(module, holdings, chosen, form="perceptron").equals(Run(module, holdings, chosen, form="loop"))


class _InWords(nn.Module):
    """The same functions as they may be written, and what changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(12, 9), nn.Linear(9, 8), nn.Linear(8, 7), nn.Linear(7, CLASSES)
        self.same, self.step = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.same(self.step(self.a(torch.flatten(x, 1))))
        x = torch.sigmoid(self.b(x))
        x = F.tanh(self.c(x))
        return self.d(x)  # type: ignore[no-any-return]  # torch gives it no types


@pytest.mark.usefixtures("level")
def test_functions_in_other_words() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        module = _InWords()
    holdings = make_holdings((3, 4), [9, 4])
    own = Run(module, holdings, settings())
    assert (own.form, own.reason) == ("perceptron", "")
    own.equals(Run(module, holdings, settings(), form="loop"))


@pytest.mark.parametrize("function", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity])
def test_more_threads_change_no_number(function: Callable[[], nn.Module]) -> None:
    module, holdings = perceptron(600, 500, 470, CLASSES, function=function), make_holdings((600,), [40, 9], scale=0.1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(Run(module, holdings, settings(batch_size=20), form="perceptron"))
    finally:
        torch.set_num_threads(before)
    found[1].equals(found[0], exactly=True)
    found[2].equals(found[0], exactly=True)


@pytest.mark.parametrize("clients", [3, 8])
def test_it_does_not_matter_who_trains_beside_whom(clients: int) -> None:
    module, holdings = perceptron(30, 20, CLASSES), make_holdings((30,), [7, 12, 1, 30, 8, 8, 2, 9][:clients])
    found = [Run(module, holdings, settings(), form="perceptron", workers=workers) for workers in (1, 2, 5)]
    found[1].equals(found[0], exactly=True)
    found[2].equals(found[0], exactly=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_client(bad: float) -> None:
    module, holdings = perceptron(6, 5, CLASSES, function=nn.ReLU), make_holdings((6,), [4, 4])
    holdings.features[holdings.rows[0][0]] = bad
    own = Run(module, holdings, settings(), form="perceptron")
    assert not np.isfinite(own.updates[0]).any()
    assert not np.isfinite(own.losses[0])
    assert np.isfinite(own.updates[1]).all()


def _tied() -> nn.Module:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(6, CLASSES))


def _partly_frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    module[0].requires_grad_(False)
    return module


def _with_bias(*shape: int, at: int = 0) -> nn.Module:
    """Return layers of which one has a bias that PyTorch spreads over all outputs."""
    layers = [nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, CLASSES)]
    layers[at].bias = nn.Parameter(torch.randn(shape))
    return nn.Sequential(*layers)


def _with_a_row() -> nn.Module:
    """Return a layer whose weights have no axis of outputs."""
    first = nn.Linear(6, 1, bias=False)
    first.weight = nn.Parameter(torch.randn(6))
    return Custom(lambda m, x: m.b(m.a(x).reshape(x.shape[0], 1)), a=first, b=nn.Linear(1, CLASSES))


def _with_a_forward_of_its_own(part: int) -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES))
    usual = type(module[part]).forward
    module[part].forward = types.MethodType(lambda self, x: 2.0 * usual(self, x) + 1.0, module[part])
    return module


class _Doubled(nn.Module):
    def __init__(self, **unused: object) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * x


def _quantised() -> nn.Module:
    """Return a layer of torch's that puts something of its own in the place of its weights."""
    chosen = QConfig(activation=nn.Identity, weight=_Doubled)  # type: ignore[no-untyped-call]  # torch gives it no types
    first: Any = torch.ao.nn.qat.Linear(6, 5, qconfig=chosen)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(5, CLASSES))


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "another function": lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, CLASSES)),
    "two functions": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.ReLU(), nn.Linear(5, CLASSES)),
    "a function at the end": lambda: nn.Sequential(nn.Linear(6, CLASSES), nn.Tanh()),
    "a function at the beginning": lambda: nn.Sequential(nn.Tanh(), nn.Linear(6, CLASSES)),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, CLASSES)),
    "a norm": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, CLASSES)),
    "shared weights": _tied,
    "a frozen layer": _partly_frozen,
    "a shortcut": lambda: Custom(lambda m, x: m.b(x + m.a(x)), a=nn.Linear(6, 6), b=nn.Linear(6, CLASSES)),
    "a layer that nobody uses": lambda: Custom(lambda m, x: m.a(x), a=nn.Linear(6, CLASSES), b=nn.Linear(6, 2)),
    "one layer twice": lambda: Custom(lambda m, x: m.b(m.a(m.a(x))), a=nn.Linear(6, 6), b=nn.Linear(6, CLASSES)),
    "one bias for all outputs": lambda: _with_bias(1),
    "one bias for all outputs of the last layer": lambda: _with_bias(1, at=2),
    "a bias that is a number": _with_bias,
    "a bias that is a matrix": lambda: _with_bias(1, 50),
    "weights that are a row": _with_a_row,
    "a layer of another kind": _quantised,
    "the same bits as numbers": lambda: Custom(
        lambda m, x: m.b(m.a(x).view(torch.float32)), a=nn.Linear(6, 5), b=nn.Linear(5, CLASSES)
    ),
    "a layer with a forward pass of its own": lambda: _with_a_forward_of_its_own(0),
    "a function with a forward pass of its own": lambda: _with_a_forward_of_its_own(1),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=list(OTHERS))
def test_what_is_no_perceptron_trains_in_another_form(make: Callable[[], nn.Module]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        module = make()
    holdings = make_holdings((6,), [8, 8])
    run = Run(module, holdings, settings())
    assert run.form != "perceptron"
    run.equals(Run(module, holdings, settings(), form="loop"))


@pytest.mark.parametrize(
    "changes", [{"mu": 0.1}, {"grad_clip": 1.0}, {"name": "adam"}], ids=["proximal", "clipped", "adam"]
)
def test_steps_of_another_kind_are_not_its(changes: dict[str, Any]) -> None:
    assert Run(perceptron(6, 5, CLASSES), make_holdings((6,), [8, 8]), settings(**changes)).form != "perceptron"


def test_a_loss_of_ones_own_and_labels_to_leave_out_are_torchs() -> None:
    module, holdings = perceptron(6, 5, CLASSES), make_holdings((6,), [8, 8])
    own = Run(module, holdings, settings(), loss=lambda outputs, labels: 2.0 * cross_entropy(outputs, labels))
    assert own.form != "perceptron"
    holdings.labels[0] = -100  # which F.cross_entropy leaves out
    assert Run(module, holdings, settings()).form != "perceptron"


def test_labels_that_become_wrong_are_refused_before_anything_is_read() -> None:
    module, holdings = perceptron(6, 5, CLASSES), make_holdings((6,), [8, 8])
    trainer = cohort_trainer(module=module, holdings=holdings, settings=settings(), loss=cross_entropy)
    with closing(trainer):
        holdings.labels[3] = CLASSES
        model = trainer.layout.read(module).numpy()
        with pytest.raises(IndexError, match=f"Target {CLASSES} is out of bounds"):
            trainer.train(model, [0, 1], np.arange(2), 1, lambda *_: None)


@pytest.mark.parametrize("row", [-1, 16, -17])
def test_rows_that_are_nobodys_are_refused_before_anything_is_read(row: int) -> None:
    holdings = make_holdings((6,), [8, 8])
    wrong = Holdings(features=holdings.features, labels=holdings.labels, rows=[np.array([0, row]), np.array([1, 2])])
    with pytest.raises(IndexError, match=f"Row {row} is out of bounds"):
        Run(perceptron(6, 5, CLASSES), wrong, settings(), form="perceptron")


def test_labels_without_features_are_refused_before_anything_is_read() -> None:
    holdings = make_holdings((6,), [8, 8])
    wrong = Holdings(features=holdings.features[:9].clone(), labels=holdings.labels, rows=holdings.rows)
    with pytest.raises(IndexError, match="is out of bounds"):
        Run(perceptron(6, 5, CLASSES), wrong, settings(), form="perceptron")


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layers_of_no_width_train_what_is_behind_them() -> None:
    module, holdings = perceptron(6, 0, CLASSES), make_holdings((6,), [8, 8])
    Run(module, holdings, settings(), form="perceptron").equals(Run(module, holdings, settings(), form="loop"))


@pytest.mark.parametrize("widths", [(1, 1), (2, 2), (784, 200, 10), (3000, 2000)], ids=str)
def test_calls_end_after_a_moment(widths: tuple[int, ...]) -> None:
    layers = [Dense(weight=0, bias=None, inputs=a, outputs=b, function=0) for a, b in pairwise(widths)]
    layout = Parameters.of(nn.Linear(1, 1))
    for count in (1, 32):
        most = _Plan(layers, layout, count).steps
        assert most == 1 or most * Cost(layers=layers, count=count).seconds < 0.1


def test_features_that_lie_apart_or_are_no_floats_are_torchs() -> None:
    holdings = make_holdings((6,), [8, 8])
    spread = torch.empty(len(holdings.features), 12)[:, ::2].copy_(holdings.features)
    apart = Holdings(features=spread, labels=holdings.labels, rows=holdings.rows)
    run = Run(perceptron(6, 5, CLASSES), apart, settings())
    assert run.form != "perceptron"
    run.equals(Run(perceptron(6, 5, CLASSES), holdings, settings(), form="perceptron"))


def test_large_batches_of_wide_layers_are_torchs() -> None:
    def pays(count: int, inputs: int, outputs: int) -> bool:
        layer = Dense(weight=0, bias=1, inputs=inputs, outputs=outputs, function=0)
        return Cost(layers=[layer], count=count).pays

    assert pays(32, 5000, 5000)
    assert pays(512, 100, 100)
    assert not pays(512, 1000, 1000)


def test_clients_of_a_moment_train_in_the_callers_thread() -> None:
    small = Cost(layers=[Dense(weight=0, bias=1, inputs=20, outputs=2, function=0)], count=10)
    large = Cost(layers=[Dense(weight=0, bias=1, inputs=3000, outputs=2000, function=0)], count=10)
    assert small.shared(2) == 1.0
    assert 1.0 < large.shared(2) < large.shared(8) < 8.0
    trained: list[str] = []
    for widths in ((6, 5, CLASSES), (2000, 1500, CLASSES)):
        trainer = cohort_trainer(
            module=perceptron(*widths),
            holdings=make_holdings(widths[:1], [40] * 4),
            settings=settings(),
            loss=cross_entropy,
            workers=2,
        )
        with closing(trainer):
            chunks = list(trainer._chunks(range(4)))
            trained.append(f"{len(chunks)} chunks, {trainer._on_all(range(4), chunks)} here")
    assert trained == ["2 chunks, 2 here", "4 chunks, 0 here"]


def test_crowds_of_clients_with_a_step_or_two_share_calls() -> None:
    module, chosen = nn.Linear(6, CLASSES), settings(batch_size=4)
    few, crowd = (make_holdings((6,), [4] * count) for count in (8, 64))
    assert Run(module, few, chosen, workers=2).form == "perceptron"
    own = Run(module, crowd, chosen, workers=2)
    assert own.form in ("lanes", "grouped")
    own.equals(Run(module, crowd, chosen, form="perceptron", workers=2))
