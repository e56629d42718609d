"""Native attention and GELU against PyTorch's in float64, where they are not taken, and as a form of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training import forms, native
from tacit.training.batchable import Explicit, batchable
from tacit.training.cost import Cost
from tacit.training.native import attention, available
from tacit.training.native.attention import Natively, attend, gelu
from tacit.training.settings import cross_entropy
from tacit.training.straight import StraightStep
from tests.training.common import CLASSES, Run, make_holdings, settings

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []
SHAPES = [  # texts, heads, queries, keys, width
    (2, 2, 40, 40, 16),
    (1, 1, 1, 1, 1),
    (3, 2, 7, 19, 5),
    (2, 2, 21, 7, 33),
    (1, 3, 50, 50, 48),
]
LENGTH, WORDS, WIDTH = 24, 11, 64
KEYS = np.array([5, 6])


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def given(texts: int, heads: int, queries: int, keys: int, width: int) -> list[Tensor]:
    """Queries, keys and values as a projection's result is cut up: nothing lies side by side."""
    return [
        normal(texts, places, 3, heads, width, seed=seed)[:, :, 1].transpose(1, 2).requires_grad_()
        for seed, places in enumerate((queries, keys, keys))
    ]


def compare(values: list[Tensor], **how: Any) -> None:
    """Outputs and all gradients are those of float64."""
    results = []
    for exact in (False, True):
        own = [value.detach().double().requires_grad_() if exact else value for value in values]
        mask = how.get("attn_mask")
        mask = mask.double() if exact and mask is not None and mask.dtype != torch.bool else mask
        with Natively() as mode:
            out = F.scaled_dot_product_attention(own[0], own[1], own[2], **how | {"attn_mask": mask})
        assert mode.met == (not exact)
        grads = torch.autograd.grad((out * normal(*out.shape).to(out)).sum(), own)
        results.append([out.detach(), *grads])
    for ours, right in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["plain", "causal", "added", "chosen", "scaled"])
def test_attention(shape: tuple[int, int, int, int, int], how: str) -> None:
    texts, heads, queries, keys, _ = shape
    options: Any = {
        "plain": {},
        "causal": {"is_causal": True},
        "added": {"attn_mask": normal(heads, queries, keys)},
        "chosen": {"attn_mask": normal(texts, 1, 1, keys) > -1.0},
        "scaled": {"scale": 0.5},
    }[how]
    if how == "chosen":
        options["attn_mask"][..., 0] = True  # of nothing there is no right answer
    compare(given(*shape), **options)


def test_other_orders_of_memory() -> None:
    values = [normal(2, 3, 16, 9, seed=seed).mT.requires_grad_() for seed in range(3)]
    compare(values)
    compare([*values[:2], normal(1, 3, 9, 16).expand(2, 3, 9, 16).requires_grad_()])
    shared = normal(2, 3, 9, 16).requires_grad_()
    with Natively():
        out = F.scaled_dot_product_attention(shared, shared, shared)
    grad = torch.ones(()).expand(out.shape)  # one number for all
    ours = torch.autograd.grad(out, shared, grad)[0]
    right = torch.autograd.grad(F.scaled_dot_product_attention(shared, shared, shared), shared, grad)[0]
    torch.testing.assert_close(ours, right, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("level")
def test_a_query_that_may_look_at_nothing_finds_zeros() -> None:
    query, key, value = given(2, 1, 18, 5, 4)
    mask = torch.ones(18, 5, dtype=torch.bool)
    mask[3] = False
    with Natively():
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    grads = torch.autograd.grad(out.sum(), (query, key, value))
    assert torch.equal(out[:, :, 3], torch.zeros_like(out[:, :, 3]))
    assert torch.equal(grads[0][:, :, 3], torch.zeros_like(out[:, :, 3]))
    assert all(bool(own.isfinite().all()) for own in grads)
    assert bool(out[:, :, 2].any())


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_a_text_that_is_no_text_spoils_no_other(bad: float) -> None:
    values = given(3, 2, 9, 9, 16)
    with torch.no_grad():
        values[0][1, 0, 2, 5] = values[1][1, 0, 4, 5] = bad
    with Natively():
        out = F.scaled_dot_product_attention(values[0], values[1], values[2])
    grads = torch.autograd.grad(out.sum(), values)
    plain = (0.25 * values[0] @ values[1].mT).softmax(-1) @ values[2]
    assert torch.equal(out.isnan().any(-1), plain.isnan().any(-1))
    others = torch.tensor([0, 2])
    assert all(bool(own[others].isfinite().all()) for own in (out, *grads))


def test_large_scores_are_weighed_as_well() -> None:
    query, key, value = given(1, 1, 6, 20, 16)
    compare([(50.0 * query).detach().requires_grad_(), key, value])


@pytest.mark.parametrize(
    "case",
    [
        "dropout",
        "float64",
        "bfloat16",
        "groups",
        "three axes",
        "long",
        "empty",
        "mask learns",
        "autocast",
        "wide",
        "much",
    ],
)
def test_what_the_kernels_cannot_do_is_left_to_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (own.detach() for own in given(2, 4, 6, 6, 8))
    how: dict[str, Any] = {}
    if case == "dropout":
        how["dropout_p"] = 0.5
    elif case in ("float64", "bfloat16"):
        query, key, value = (own.to(getattr(torch, case)) for own in (query, key, value))
    elif case == "groups":
        key, value, how["enable_gqa"] = key[:, :2], value[:, :2], True
    elif case == "three axes":
        query, key, value = query[0], key[0], value[0]
    elif case == "long":
        key, value = key.repeat(1, 1, 50, 1), value.repeat(1, 1, 50, 1)
    elif case == "empty":
        query, key, value = query[:0], key[:0], value[:0]
    elif case == "mask learns":
        how["attn_mask"] = torch.zeros(6, 6, requires_grad=True)
    elif case == "much":
        monkeypatch.setattr(attention, "_MOST", query[..., 0].numel() * 6 - 1)
    elif case == "wide":
        value = value.repeat(1, 1, 1, 2)
    with torch.autocast("cpu", enabled=case == "autocast"), Natively() as mode:
        torch.manual_seed(1)
        ours = F.scaled_dot_product_attention(query, key, value, **how)
    assert mode.met == 0
    with torch.autocast("cpu", enabled=case == "autocast"):
        torch.manual_seed(1)
        theirs = F.scaled_dot_product_attention(query, key, value, **how)
    assert torch.equal(ours, theirs)


def test_tensors_that_do_not_fit_are_refused_before_they_are_read() -> None:
    query, key, value = (own.detach() for own in given(2, 2, 5, 5, 4))
    for wrong in ((query, key[:1], value), (query, key, value[:, :, :4]), (query, key[..., :3], value)):
        with pytest.raises(ValueError, match="don't fit"):
            attend(*wrong, None, causal=False, scale=1.0)
    with pytest.raises(ValueError, match="float32"):
        attend(query.double(), key, value, None, causal=False, scale=1.0)
    with pytest.raises(ValueError, match="float32"):
        attend(query, key, value, torch.zeros(5, 5, dtype=torch.float64), causal=False, scale=1.0)
    with pytest.raises(RuntimeError, match="expand"):
        attend(query, key, value, torch.zeros(5, 4), causal=False, scale=1.0)
    with pytest.raises(ValueError, match="float32"):
        gelu(query.double())
    with pytest.raises(TypeError, match="expected 28 integers and a scale"):
        native.kernels.attend(1, 2, 3)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("count", [1, 15, 1001])
def test_gelu(approximate: str, count: int) -> None:
    x = torch.linspace(-15.0, 15.0, count)
    x[0] = -3e38
    x.requires_grad_()
    exact = x.detach().double().requires_grad_()
    with Natively():
        ours = F.gelu(x, approximate=approximate)
    right = F.gelu(exact, approximate=approximate)
    torch.testing.assert_close(ours.double(), right, rtol=1e-6, atol=2e-6)
    grads = [torch.autograd.grad(own.sum(), given)[0].double() for own, given in ((ours, x), (right, exact))]
    if approximate == "tanh":  # of a cube that is no number, torch has no slope
        grads = [own[1:] for own in grads]
    torch.testing.assert_close(*grads, rtol=1e-6, atol=2e-6)


def test_gelu_of_what_is_no_number_is_none_and_other_types_are_torchs() -> None:
    with Natively():
        assert F.gelu(torch.tensor([math.nan, 1.0])).isnan().tolist() == [True, False]
        for turned in (normal(5, 7).t(), normal(5, 9)[:, 1:8].t()):
            bent = F.gelu(turned)
            torch.testing.assert_close(bent, F.gelu(turned.contiguous()))
            assert bent.stride() == turned.relu().stride()  # as torch's functions of each element alone lay it out
        mapped = torch.func.vmap(torch.func.grad(lambda x: F.gelu(x).sum()))(turned)
        assert F.gelu(torch.ones(3, dtype=torch.bfloat16)).dtype == torch.bfloat16
        assert F.gelu(torch.ones(0)).shape == (0,)
    torch.testing.assert_close(mapped, torch.func.vmap(torch.func.grad(lambda x: F.gelu(x).sum()))(turned))


@pytest.mark.parametrize("padded", [False, True])
def test_layers_of_torchs_have_it_too(padded: bool) -> None:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(32, 2, 40, 0.0, activation="gelu", batch_first=True)
    x = normal(3, 9, 32)
    padding = torch.arange(9)[None] >= torch.tensor([9, 4, 7])[:, None] if padded else None
    mask = torch.ones(9, 9, dtype=torch.bool).triu(1)
    grads = []
    for mode in (Natively(), None):
        if mode is None:
            out = layer(x, mask, padding)
        else:
            with mode:
                out = batchable(layer)(x, mask, padding)
            assert mode.met == 1
        grads.append([out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("average", [True, False])
def test_multi_head_attention_gives_its_weights_too(average: bool) -> None:
    torch.manual_seed(3)
    layer = nn.MultiheadAttention(32, 2)
    x = normal(9, 3, 32)
    found = []
    for own in (layer, batchable(layer)):
        mode = Natively()
        with mode if own is not layer else nullcontext():
            out, weights = own(x, x, x, average_attn_weights=average)
        assert mode.met == (own is not layer)
        total = out.square().sum() + (weights * normal(*weights.shape)).sum()
        found.append([out, weights, *torch.autograd.grad(total, list(layer.parameters()))])
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("need_weights", [False, True])
def test_who_may_look_at_nothing_finds_what_torchs_layer_finds(need_weights: bool) -> None:
    torch.manual_seed(3)
    layer, x = nn.MultiheadAttention(32, 2, batch_first=True), normal(2, 5, 32)
    padding = torch.tensor([[False] * 5, [True] * 5])
    right = layer(x, x, x, padding, need_weights)[0]
    assert right.isnan().any().item() == need_weights
    for mode in (Natively(), Explicit(), nullcontext()):
        with mode:
            ours = batchable(layer)(x, x, x, padding, need_weights)[0]
        torch.testing.assert_close(ours, right, equal_nan=True)
        grads = [torch.autograd.grad(own.sum(), layer.in_proj_weight, retain_graph=True)[0] for own in (ours, right)]
        torch.testing.assert_close(*grads, equal_nan=True)


class Reader(nn.Module):
    """Causal attention and GELU by hand, as GPT's code has them."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.projection, self.up = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.out, self.drop = nn.Linear(4 * WIDTH, CLASSES), drop

    def forward(self, x: Tensor) -> Tensor:
        values = self.embed(x)
        parts = self.projection(self.norm(values)).view(*x.shape, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        mixed = self.mixed(parts[0], parts[1], parts[2])
        values = values + mixed.transpose(1, 2).reshape(*x.shape, WIDTH)
        return self.out(F.gelu(self.up(values)).mean(1))  # type: ignore[no-any-return]  # torch gives it no types

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        drop = self.drop if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, dropout_p=drop, is_causal=True)


class Mapper(Reader):
    """Maps on its own."""

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.func.vmap(F.gelu)(super().mixed(query, key, value))


class Learner(Reader):
    """Learns what it adds to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4, LENGTH, LENGTH))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.bias.tanh())


class Viewer(Reader):
    """Takes for granted how torch lays the result out that it computes without a kernel of its own."""

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=torch.zeros(4, LENGTH, LENGTH))
        return mixed.view(-1, LENGTH, WIDTH // 4).view(mixed.shape)


@pytest.fixture(scope="module")
def reader() -> Reader:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return Reader()


def test_clients_train_one_after_another_by_it(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = make_holdings((LENGTH,), [16, 9, 8], words=WORDS)
    how = settings(batch_size=8, epochs=2, momentum=0.9, weight_decay=1e-3, grad_clip=1.0, mu=0.1)
    monkeypatch.setattr(forms, "_USES", 10**9)
    ours = Run(reader, holdings, how, workers=2)
    assert (ours.form, "native attention" in ours.reason) == ("vmap", True)
    theirs = Run(reader, holdings, how, form="loop")
    ours.equals(theirs)
    together = Run(reader, holdings, how, form="vmap")
    assert "native" not in together.reason
    together.equals(theirs)


def test_its_steps_become_programs_of_the_same_numbers(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings, how = make_holdings((LENGTH,), [16, 8], words=WORDS), settings(batch_size=8)
    made: list[StraightStep] = []

    class Watched(StraightStep):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

        def begin(self, *given: Any) -> bool:
            """Begin plainly."""
            return False

    monkeypatch.setattr(forms, "StraightStep", Watched)
    found: list[Any] = []
    for uses in (1, 10**9):
        monkeypatch.setattr(forms, "_USES", uses)
        trainer = forms.cohort_trainer(module=reader, holdings=holdings, settings=how, loss=cross_entropy, workers=1)
        start = trainer.layout.read(reader).numpy()
        with closing(trainer):
            for number in (1, 2):
                trainer.train(start, [0, 1], KEYS, number, lambda _, update, __: found.append(update.copy()))
    assert [sum(shape.program is not None for shape in own._shapes.values()) for own in made] == [1, 0]
    assert len(found) == 8
    assert all(np.array_equal(one, other) for one, other in zip(found[:4], found[4:], strict=True))


def test_a_model_with_dropout_in_its_attention_trains_as_before() -> None:
    run = Run(Reader(drop=0.5), make_holdings((LENGTH,), [9, 8], words=WORDS), settings(batch_size=8))
    assert "native attention" not in run.reason


@pytest.mark.parametrize(("make", "natively"), [(Mapper, True), (Learner, False), (Viewer, False)])
def test_models_that_ask_for_more_train_as_in_a_loop(
    make: Callable[[], nn.Module], natively: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cost, "light", False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = make()
    holdings, how = make_holdings((LENGTH,), [8, 5], words=WORDS), settings(batch_size=8)
    run = Run(model, holdings, how)
    assert ("native attention" in run.reason) == natively
    run.equals(Run(model, holdings, how, form="loop"))


def test_many_clients_of_a_light_model_train_at_once(reader: Reader) -> None:
    run = Run(reader, make_holdings((2,), [1, 1], words=WORDS), settings(batch_size=1))
    assert (run.form, "native attention" in run.reason) == ("vmap", False)


def test_another_default_type_changes_nothing() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        query = normal(1, 1, 3, 4).double()
        with Natively() as mode:
            out = F.scaled_dot_product_attention(query, query, query, attn_mask=torch.ones(3, 3, dtype=torch.bool))
        assert mode.met == 0
        single = query.float()
        with Natively() as mode:
            ours = F.scaled_dot_product_attention(single, single, single, attn_mask=torch.ones(3, 3, dtype=torch.bool))
        assert mode.met == 1
        torch.testing.assert_close(ours.double(), out, rtol=1e-5, atol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)
