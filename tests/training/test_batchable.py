"""Recurrent layers and attention in a form that can be mapped: the same numbers and gradients as torch's own layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training.batchable import Attention, Explicit, batchable, explicit_attention, explicit_bag, names_in
from tacit.training.forms import Form
from tacit.training.recurrence import Recurrence
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

WORDS, LENGTH, WIDTH = 7, 5, 8


TWICE = {"num_layers": 2, "bidirectional": True}


@pytest.mark.parametrize("changes", [{}, TWICE, {"bias": False, "batch_first": True}])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "tanh", "relu"])
def test_recurrent_layers(kind: str, changes: dict[str, Any]) -> None:
    torch.manual_seed(1)
    layer: Any = nn.RNN(3, 4, nonlinearity=kind, **changes) if kind.islower() else getattr(nn, kind)(3, 4, **changes)
    values, own = torch.randn(6, 5, 3, requires_grad=True), list(layer.parameters())
    ways, batch = 2 if layer.bidirectional else 1, 6 if layer.batch_first else 5
    first: Any = torch.randn(layer.num_layers * ways, batch, 4)
    first = (first, 0.5 * first) if kind == "LSTM" else first
    for state in (None, first):
        found = []
        for module in (layer, Recurrence(layer)):
            outputs, last = module(values, state)
            parts = [outputs, *(last if isinstance(last, tuple) else (last,))]
            total = torch.stack([(part * part.detach().cos()).sum() for part in parts]).sum()
            found.append([*parts, *torch.autograd.grad(total, [values, *own])])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [4, 16])  # of 16 native kernels compute them, if there are examples
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_of_no_examples(kind: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN], size: int) -> None:
    layer, values = kind(3, size, 2), torch.zeros(6, 0, 3)
    outputs = Recurrence(layer)(values)[0]
    assert outputs.shape == layer(values)[0].shape
    assert all((own == 0).all() for own in torch.autograd.grad(outputs.sum(), list(layer.parameters())))


@pytest.mark.parametrize("masked", ["", "causal", "padding", "weights", "across"])
def test_multi_head_attention(masked: str) -> None:
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=masked != "causal")
    values = torch.randn(LENGTH, LENGTH, WIDTH, requires_grad=True)
    options: dict[str, Any] = {"need_weights": masked == "weights"}
    if masked == "causal":
        options["attn_mask"] = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    if masked == "padding":
        options["key_padding_mask"] = torch.arange(LENGTH) >= torch.arange(1, LENGTH + 1)[:, None]
        options["attn_mask"] = torch.zeros(2 * LENGTH, LENGTH, LENGTH, dtype=torch.bool)
    other = values.flip(0) if masked == "across" else values
    own = [layer.in_proj_weight, layer.in_proj_bias, *layer.out_proj.parameters()]
    found = []
    for module in (layer, batchable(layer)):
        outputs, weights = module(values, other, other, **options)
        assert (weights is None) == (masked != "weights")
        gradients = torch.autograd.grad(outputs.square().sum(), [values, *own])
        found.append([outputs, *gradients, *([] if weights is None else [weights])])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"scale": 0.3}, {"scale": 0.0}, {"enable_gqa": True}, {"mask": True}]
)
def test_attention_written_out(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    heads = 2 if options.get("enable_gqa") else 4
    query, key, value = torch.randn(2, 4, 5, 3), torch.randn(2, heads, 5, 3), torch.randn(2, heads, 5, 3)
    if options.pop("mask", False):
        options["attn_mask"] = torch.rand(5, 5).fill_diagonal_(1.0) > 0.5
    expected = F.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(explicit_attention(query, key, value, **options), expected)
    with Explicit() as mode:
        torch.testing.assert_close(F.scaled_dot_product_attention(query, key, value, **options), expected)
    assert mode.met


BAGS: list[dict[str, Any]] = [
    {},
    {"mode": "sum"},
    {"mode": "max"},
    {"padding_idx": 3},
    {"padding_idx": -2, "mode": "sum"},
    {"mode": "max", "padding_idx": 1},  # is left as it is
]


@pytest.mark.parametrize("options", BAGS, ids=str)
def test_a_bag_of_embeddings_written_out(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    words, table, ahead = torch.randint(0, 5, (6, 7)), torch.randn(5, 3, requires_grad=True), torch.randn(6, 3)
    words[2] = 3  # nothing but padding, where 3 is
    found = []
    for function in (F.embedding_bag, explicit_bag):
        outputs = function(words, table, **options)
        found.append([outputs, *torch.autograd.grad((outputs * ahead).sum(), table)])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    "cell", [nn.GRUCell(3, 4), nn.LSTMCell(3, 4), nn.RNNCell(3, 4, False, "relu"), nn.RNNCell(3, 4)]
)
def test_a_cell_of_a_recurrent_layer_written_out(cell: nn.Module) -> None:
    values, first = torch.randn(5, 3), torch.randn(5, 4)
    state = (first, first + 1.0) if isinstance(cell, nn.LSTMCell) else first
    expected = cell(values, state)
    with Explicit() as mode:
        torch.testing.assert_close(cell(values, state), expected)
    assert mode.met


@pytest.mark.filterwarnings("error")  # vmap warns of what it computes one client after the other
def test_bags_and_cells_are_mapped_over_clients() -> None:
    module = Custom(
        lambda m, x: m.out(m.cell(m.bag(x), m.cell(m.bag(x)))),
        bag=nn.EmbeddingBag(7, 4),
        cell=nn.GRUCell(4, 4),
        out=nn.Linear(4, 3),
    )
    holdings = make_holdings((5,), [6, 2, 5, 6, 7, 9], words=7)
    Run(module, holdings, settings(), form="vmap").equals(Run(module, holdings, settings(), form="loop"))


def test_parameters_are_shared_and_keep_their_place() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 4, batch_first=True)
    model = nn.ModuleDict({"a": layer, "b": layer.self_attn, "rnn": nn.GRU(3, 4)})  # a layer under two names
    own = batchable(model)
    assert {id(p) for p in own.parameters()} == {id(p) for p in model.parameters()}
    assert own["b"] is own["a"].self_attn  # type: ignore[index]  # a ModuleDict, as above
    names = [name for name, _ in model.named_parameters()]
    assert [dict(own.named_parameters())[name] for name in names_in(own, model, names)] == list(model.parameters())
    plain = nn.Linear(2, 2)
    assert batchable(plain) is plain


def test_what_can_not_stand_in_stays() -> None:
    hooked = nn.GRU(3, 4)
    hooked.register_forward_hook(lambda *_: None)
    layers = [hooked, nn.LSTM(3, 4, proj_size=2), nn.MultiheadAttention(4, 2, add_bias_kv=True)]
    assert list(batchable(nn.ModuleList(layers)).children()) == layers


def test_models_may_ask_their_layers() -> None:
    layer, attention = nn.LSTM(3, 4, 2, batch_first=True, dropout=0.1), nn.MultiheadAttention(WIDTH, 2, dropout=0.1)
    own, other = Recurrence(layer), batchable(attention)
    for name in ("hidden_size", "num_layers", "input_size", "bidirectional", "batch_first", "dropout", "bias", "mode"):
        assert getattr(own, name) == getattr(layer, name)
    for name in ("embed_dim", "num_heads", "head_dim", "batch_first", "dropout"):
        assert getattr(other, name) == getattr(attention, name)
    own.flatten_parameters()


class Text(nn.Module):
    """A recurrent layer over words, then the last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(WORDS, 3), layer
        self.out = nn.LazyLinear(CLASSES)
        self(torch.zeros(1, LENGTH, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.layer(self.embed(x))
        return self.out(states[:, -1])  # type: ignore[no-any-return]


class Tied(nn.Module):
    """A causal decoder whose output table is the input table, with places of its own and dropout by function."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, WIDTH), nn.Parameter(0.1 * torch.randn(9, WIDTH))
        self.projection, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.place[: x.shape[1]]
        batch, length, width = x.shape
        q, k, v = self.projection(self.norm(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        return self.out((x + F.dropout(y, 0.2, self.training))[:, -1])  # type: ignore[no-any-return]


def _encoder(dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    parts = {"embed": nn.Embedding(WORDS, WIDTH), "layers": encoder, "out": nn.Linear(WIDTH, CLASSES)}
    return Custom(lambda m, x: m.out(m.layers(m.embed(x)).mean(1)), **parts)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: Text(nn.LSTM(3, 4, batch_first=True)),
    "gru with dropout": lambda: Text(nn.GRU(3, 4, 2, batch_first=True, dropout=0.3, bidirectional=True)),
    "encoder": lambda: _encoder(0.0),
    "encoder with dropout": lambda: _encoder(0.3),
    "decoder, tied": Tied,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_mapped_clients_equal_the_loop(make: Callable[[], nn.Module]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        module = make()
    holdings = make_holdings((LENGTH,), [6, 2, 5, 6], words=WORDS)
    forms: tuple[Form, ...] = ("loop", "vmap", "auto")
    loop, mapped, auto = (Run(module, holdings, settings(momentum=0.5, lr=0.1), form=form) for form in forms)
    assert mapped.form == "vmap"
    mapped.equals(loop)
    auto.equals(loop)


def test_the_loop_trains_torchs_own_layers_where_nothing_is_dropped() -> None:
    torch.manual_seed(2)
    module = Text(nn.LSTM(3, 4, batch_first=True))
    holdings = make_holdings((LENGTH,), [4], words=WORDS)
    run = Run(module, holdings, settings(), form="loop")
    rows = torch.from_numpy(holdings.rows[0])
    loss = F.cross_entropy(module(holdings.features[rows]), holdings.labels[rows])
    step = torch.cat([-0.05 * g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
    torch.testing.assert_close(torch.from_numpy(run.updates[0]), step, rtol=1e-4, atol=1e-7)
    assert run.losses[0] == pytest.approx(loss.item(), rel=1e-5)


def test_attention_that_drops_by_itself_is_refused_when_written_out() -> None:
    values = torch.zeros(1, 1, 2, 2)
    with pytest.raises(ValueError, match="draws random numbers"):
        explicit_attention(values, values, values, dropout_p=0.1)
    assert isinstance(batchable(nn.MultiheadAttention(4, 2, dropout=0.1)), Attention)
