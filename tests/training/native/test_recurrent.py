"""Native recurrent layers against PyTorch's in float64, one by one, mapped over clients and as a form of training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.training import habits, native, recurrence
from tacit.training.native import available
from tacit.training.native.recurrent import recur, recur_heard
from tacit.training.recurrence import Recurrence
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []
KINDS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
LAYERS: dict[str, dict[str, Any]] = {
    "one layer": {"batch_first": True},
    "two layers of two directions": {"num_layers": 2, "bidirectional": True},
    "no biases": {"bias": False, "batch_first": True},
}


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many examples there were in each native call that may train."""
    calls: list[int] = []

    def watched(kind: Any, x: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled():
            calls.append(x.shape[1])
        return recur(kind, x, *given)

    monkeypatch.setattr(recurrence, "recur", watched)
    return calls


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(kind: str, inputs: int, size: int, **options: Any) -> nn.RNNBase:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return KINDS[kind](inputs, size, **options)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("scale", [1.0, 30.0])  # where gates are half open, and where they are shut or wide open
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer(kind: str, options: dict[str, Any], scale: float, counted: list[int]) -> None:
    layer = made(kind, 5, 16, **options)
    right = made(kind, 5, 16, **options).double()
    right.load_state_dict(layer.state_dict())
    x = (scale * normal(7, 9, 5, seed=1)).requires_grad_()
    ways = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = 7 if layer.batch_first else 9
    first = [normal(ways, batch, 16, seed=seed).requires_grad_() for seed in ((2, 3) if kind == "lstm" else (2,))]
    gradients, outputs = [], []
    for own in (Recurrence(layer), right):
        is_double = own is right
        given = [part.double() if is_double else part for part in (x, *first)]
        out, last = own(given[0], (given[1], given[2]) if kind == "lstm" else given[1])
        lasts = list(last) if kind == "lstm" else [last]
        total = sum((part * normal(*part.shape, seed=4).to(part)).sum() for part in (out, *lasts))
        leaves = [x, *first, *(right if is_double else layer).parameters()]
        assert isinstance(total, Tensor)
        gradients.append(torch.autograd.grad(total, leaves))
        outputs.append([part.detach() for part in (out, *lasts)])
    assert len(counted) == ways
    for a, b in zip((*outputs[0], *gradients[0]), (*outputs[1], *gradients[1]), strict=True):
        assert (a.double() - b.double()).norm() <= 5e-6 * b.double().norm()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("inputs", "batch"), [(3, 11), (37, 35)])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_clients_whose_rows_come_in_parts(kind: str, inputs: int, batch: int) -> None:
    """Of 3 clients with 48 units, and so many steps or examples that weights' gradients come in parts, of odd sizes."""
    layers = [made(kind, inputs, 48, batch_first=True) for _ in range(3)]
    for number, layer in enumerate(layers):
        for own in layer.parameters():
            own.data *= 1.0 + number
    x, first = normal(3, batch, 29, inputs, seed=1), normal(2, 3, batch, 48, seed=2)
    factors, of_cell = normal(3, batch, 29, 48, seed=3), normal(3, batch, 48, seed=4)
    names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
    stacked = [torch.stack([getattr(layer, name).detach() for layer in layers]) for name in names]
    leaves = [own.clone().requires_grad_() for own in (x, *stacked, *first)]
    name: Any = kind
    out, last = recur(name, *leaves)
    total = (out * factors).sum() + (last * of_cell).sum() * (kind == "lstm")
    found = torch.autograd.grad(total, leaves[: 7 if kind == "lstm" else 6])
    for number, layer in enumerate(layers):
        right = layer.double()
        given = [own[number].double().requires_grad_() for own in (x, *first)]
        start = [own[None] for own in given[1:]]
        exact, after = right(given[0], (start[0], start[1]) if kind == "lstm" else start[0])
        whole = (exact * factors[number]).sum()
        whole = whole + (after[1][0] * of_cell[number]).sum() if kind == "lstm" else whole
        wanted = [given[0], *(getattr(right, own) for own in names), *given[1 : 3 if kind == "lstm" else 2]]
        gradients = torch.autograd.grad(whole, wanted)
        for a, b in zip((out, *found), (exact, *gradients), strict=True):
            assert (a[number].double() - b).norm() <= 5e-6 * b.norm()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("kind", KINDS)
def test_gates_over_their_whole_range(kind: str) -> None:
    """A GRU whose gate z is shut is the tangent of its input, an LSTM that is open is the sigmoid times tanh 1."""
    x, count = torch.cat([torch.linspace(-100, 100, 3200), torch.logspace(-30, 0, 320)]).view(1, -1, 1, 16), 4
    weight, bias = torch.zeros(1, 64, 16), torch.zeros(1, 64)
    if kind == "gru":
        count, weight[0, 32:48], bias[0, 16:32] = 3, torch.eye(16), -90.0
        right = x.double().tanh()
    else:
        weight[0, 48:], bias[0, :16], bias[0, 16:32], bias[0, 32:48] = torch.eye(16), 90.0, -90.0, 90.0
        right = x.double().sigmoid() * torch.ones(1).double().tanh()
    weight, bias, start = weight[:, : 16 * count], bias[:, : 16 * count], torch.zeros(1, x.shape[1], 16)
    name: Any = kind
    found, _ = recur(name, x, weight, bias, torch.zeros_like(weight), torch.zeros_like(bias), start, start)
    usual = right.abs() > 1e-37  # what is smaller is nothing
    assert ((found.double() - right).abs() <= 4e-7 * right.abs())[usual].all()
    assert found[~usual].abs().max() < 1e-36 if (~usual).any() else True


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_not_moved_by_others_nor_an_example_by_nan(kind: str) -> None:
    gates = 16 * (4 if kind == "lstm" else 3)
    shapes = ((3, 4, 6, 5), (3, gates, 5), (3, gates), (3, gates, 16), (3, gates), (3, 4, 16), (3, 4, 16))
    given = [0.5 * normal(*shape, seed=place) for place, shape in enumerate(shapes)]
    name: Any = kind
    together, _ = recur(name, *given)
    alone, _ = recur(name, *(part[1:2] for part in given))
    assert (together[1] == alone[0]).all()
    given[0][1, 2, 3, 0] = float("nan")
    spoilt, _ = recur(name, *given)
    assert spoilt[1, 2, 3:].isnan().all()
    spoilt[1, 2, 3:] = together[1, 2, 3:]
    assert (spoilt == together).all()


def heard(kind: Any, x: Tensor, given: list[Tensor]) -> list[Tensor]:
    """Outputs, and gradients of inputs, first states, and of what input and state add to the gates."""
    taps = tuple(torch.zeros(*x.shape[:2], len(given[0]), requires_grad=True) for _ in range(2))
    leaves = [x.clone().requires_grad_(), *(own.clone().requires_grad_() for own in given[4:])]
    out, last = recur_heard(kind, leaves[0], (taps[0], taps[1]), [*given[:4], *leaves[1:]])
    total = (out * normal(*out.shape[1:], seed=8)).sum() + (last * normal(*last.shape[1:], seed=9)).sum()
    return [out.detach(), last.detach(), *torch.autograd.grad(total, [*leaves, *taps])]


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gates_are_heard_position_by_position(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On three threads, of 50 examples: they make the weights' gradients, and an example has those it has alone."""
    gates = 16 * (4 if kind == "lstm" else 3)
    shapes = ((gates, 5), (gates,), (gates, 16), (gates,), (50, 16), (50, 16))
    given, x = [0.5 * normal(*shape, seed=place) for place, shape in enumerate(shapes)], normal(50, 9, 5, seed=7)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    found = heard(kind, x, given)
    leaves = [own[None].requires_grad_() for own in (x, *given)]
    name: Any = kind
    out, last = recur(name, *leaves)
    total = (out * normal(*out.shape[2:], seed=8)).sum() + (last * normal(*last.shape[2:], seed=9)).sum()
    right = [own[0] for own in torch.autograd.grad(total, leaves)]
    before = torch.cat([given[4][:, None], found[0][:, :-1]], 1)
    of_input, of_state = found[5:]
    made = [torch.einsum("btg,bti->gi", of_input, x), of_input.sum((0, 1))]
    made += [torch.einsum("btg,bth->gh", of_state, before), of_state.sum((0, 1))]
    right = [out[0].detach(), last[0].detach(), right[0], *right[5:], *right[1:5]]
    for a, b in zip([*found[:5], *made], right, strict=True):
        assert (a - b).norm() <= 2e-6 * b.norm()
    for place in (0, 17, 49):
        alone = heard(kind, x[place : place + 1], [*given[:4], *(own[place : place + 1] for own in given[4:])])
        assert all((a[0] == b[place]).all() for a, b in zip(alone, found, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_number(kind: str) -> None:
    name: Any = kind
    gates = 16 * (4 if kind == "lstm" else 3)
    shapes = ((2, 50, 40, 8), (2, gates, 8), (2, gates), (2, gates, 16), (2, gates), (2, 50, 16), (2, 50, 16))
    given, before, found = (
        [normal(*shape, seed=place) for place, shape in enumerate(shapes)],
        torch.get_num_threads(),
        [],
    )
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            leaves = [own.clone().requires_grad_() for own in given]
            out, last = recur(name, *leaves)
            found.append([out, last, *torch.autograd.grad(out.square().sum() + last.square().sum(), leaves)])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(others, found[0], strict=True))


def test_what_does_not_fit_is_refused() -> None:
    given = [torch.zeros(1, 2, 3, 5), torch.zeros(1, 48, 5), torch.zeros(1, 48), torch.zeros(1, 48, 16)]
    given += [torch.zeros(1, 48), torch.zeros(1, 2, 16), torch.zeros(1, 2, 16)]
    for place in range(1, 7):
        changed = [own[..., :-1] if number == place else own for number, own in enumerate(given)]
        with pytest.raises(ValueError, match="don't fit"):
            recur("gru", *changed)
        with pytest.raises(ValueError, match="don't fit"):
            recur_heard("gru", given[0][0], (torch.zeros(2, 3, 48),) * 2, [own[0] for own in changed[1:]])
    with pytest.raises(ValueError, match=r"two taps of shape \(2, 3, 48\), got \[\(2, 3, 48\), \(2, 3, 47\)\]"):
        recur_heard("gru", given[0][0], (torch.zeros(2, 3, 48), torch.zeros(2, 3, 47)), [own[0] for own in given[1:]])
    with pytest.raises(ValueError, match="float32"):
        recur("gru", *(own.double() for own in given))


@pytest.mark.parametrize(("kind", "size", "count"), [("lstm", 16, 1), ("gru", 16, 1), ("gru", 12, 0)])
def test_layers_that_suit_are_native(kind: str, size: int, count: int, counted: list[int]) -> None:
    own = Recurrence(made(kind, 4, size))
    assert own.native == bool(count)
    own(normal(3, 2, 4, seed=1))
    assert len(counted) == count
    hidden: Any = own.hh[0]
    hidden.listens = True  # somebody needs what the parts compute
    own(normal(3, 2, 4, seed=1))
    assert len(counted) == count


@pytest.mark.parametrize("kind", KINDS)
def test_clients_train_as_in_a_loop(kind: str, counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that is asked for is PyTorch's own, the others take native layers."""
    monkeypatch.setattr(habits, "_mixes", lambda *_: "")  # a trial, with batches of this size too
    module = Custom(
        lambda m, x: m.out(m.rnn(m.embed(x))[0][:, -1]),
        embed=nn.Embedding(9, 6),
        rnn=made(kind, 6, 16, batch_first=True),
        out=nn.Linear(16, CLASSES),
    )
    holdings, chosen = make_holdings((12,), [10, 3, 8, 8], words=9), settings(momentum=0.5)
    loop = Run(module, holdings, chosen, form="loop")
    assert 4 not in counted
    for form in ("vmap", "auto"):
        counted.clear()
        Run(module, holdings, chosen, form=form).equals(loop)
        assert 4 in counted


def test_a_large_client_trains_by_a_native_layer_too(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    module = Custom(
        lambda m, x: m.out(m.rnn(x)[0][:, -1]),
        rnn=made("lstm", 64, 256, batch_first=True),
        out=nn.Linear(256, CLASSES),
    )
    holdings, chosen = make_holdings((10, 64), [32, 32]), settings(batch_size=32, momentum=0.5)
    run = Run(module, holdings, chosen)
    assert (run.form, "busy" in run.reason) == ("loop", True)  # native lists know no momentum
    assert 32 in counted
    monkeypatch.setattr(native, "kernels", None)
    counted.clear()
    run.equals(Run(module, holdings, chosen))
    assert not counted
