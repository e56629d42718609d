"""Steps narrowed to the place that a model looks at: the same numbers, and nothing left out that anybody looks at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.training import forms, narrow
from tacit.training.batchable import batchable
from tacit.training.cost import Cost
from tacit.training.forms import cohort_trainer
from tacit.training.narrow import narrowed
from tacit.training.native import available, linear
from tacit.training.native.attention import Natively
from tacit.training.settings import cross_entropy
from tacit.training.straight import StraightStep, compiled
from tests.training.common import CLASSES, Run, make_holdings, settings

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LENGTH, WORDS, WIDTH = 7, 11, 32
Bend = Callable[[Tensor], Tensor]


class Layer(nn.Module):
    """Attention and a perceptron, each after a norm."""

    def __init__(self, *, causal: bool = True, masked: bool = False, bend: Bend = F.gelu) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.projection, self.back = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.causal, self.masked, self.bend = causal, masked, bend

    def forward(self, x: Tensor) -> Tensor:
        parts = self.projection(self.norm1(x)).view(*x.shape[:2], 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        mask = 0.1 * torch.arange(x.shape[1] ** 2).view(x.shape[1], -1).float().sin() if self.masked else None
        query, key, value = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=self.causal)
        x = x + self.back(mixed.transpose(1, 2).reshape(x.shape))
        output: Tensor = x + self.down(self.bend(self.up(self.norm2(x))))
        return output


class Reader(nn.Module):
    """Two layers, and then what ``take`` takes of a norm's outputs."""

    def __init__(self, take: Callable[[Tensor], Tensor], *, norm: nn.Module | None = None, **how: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.layers = nn.Sequential(Layer(**how), Layer(**how))
        self.norm, self.out, self.take = norm or nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES), take

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.take(self.norm(self.layers(self.embed(x) + self.places))))
        return output


class Classifier(nn.Module):
    """Torch's encoder, in which the first place stands for the class."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.layers(self.embed(x))[:, 0])
        return output


class Dropping(nn.Module):
    """Drops numbers by a mask of its own for every place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        keep = (torch.arange(LENGTH * 2 * WIDTH).view(LENGTH, -1) % 3 > 0).float() * 1.5
        output: Tensor = self.norm(x + self.down(torch.tanh(self.up(x)) * keep))
        return output


class Across(nn.Module):
    """Mixes places in one way or another."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.mix, self.norm = how, nn.Linear(LENGTH, LENGTH), nn.LayerNorm((LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "sum":
            return x.cumsum(1)
        if self.how == "softmax":
            return x.softmax(1)
        if self.how == "product":
            return torch.tanh(self.mix(x.transpose(1, 2)).transpose(1, 2))
        if self.how == "norm":
            return torch.tanh(self.norm(x))
        if self.how == "turn":
            return torch.tanh(x.flip(1))
        return torch.tanh(x.reshape(len(x), WIDTH, LENGTH).transpose(1, 2))  # "view": other numbers at each place


def make(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build()


def batch(seed: int, count: int = 5) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(0, WORDS, (count, LENGTH), generator=draw)
    return words, torch.randint(0, CLASSES, (count,), generator=draw)


def follow(model: nn.Module, count: int = 5) -> tuple[torch.fx.GraphModule, list[Tensor]]:
    """Return a step's graph and what it is given."""
    model = batchable(model)
    names = [name for name, _ in model.named_parameters()]
    values = [value.detach().clone() for value in model.parameters()]

    def step(*given: Tensor) -> list[Tensor]:
        own = [value.requires_grad_() for value in given[:-2]]
        with Natively():
            out = torch.func.functional_call(model, dict(zip(names, own, strict=True)), (given[-2],))
        loss = F.cross_entropy(out, given[-1])
        return [loss, *torch.autograd.grad(loss, own, allow_unused=True, materialize_grads=True)]

    given = [*values, *batch(1, count)]
    return make_fx(step)(*given), given


def compare(model: nn.Module, *, saves: bool, count: int = 5) -> None:
    """A step that is narrowed, of another batch than it was narrowed with too, is the step."""
    graph, given = follow(model, count)
    own = narrowed(graph, given)
    assert (own is not None) == saves
    if own is None:
        return
    program = compiled(own, descends=False)
    for seed in (1, 2):
        now = [*(value + 0.05 * seed * torch.randn_like(value) for value in given[:-2]), *batch(seed, count)]
        for ours, right in zip(program.run(now), graph(*now), strict=True):
            right = right.detach()  # noqa: PLW2901 - only its numbers
            torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5 * max(1.0, float(right.abs().max())))


@pytest.mark.parametrize("count", [1, 5, LENGTH])
@pytest.mark.parametrize("place", [-1, 0, 2])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("layers", ["torch", "native"])
def test_a_model_that_looks_at_one_place(
    place: int, causal: bool, count: int, layers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if layers == "native":
        monkeypatch.setattr(linear, "_WORTH", 1)
    compare(make(lambda: Reader(lambda x: x[:, place], causal=causal)), saves=True, count=count)


@pytest.mark.parametrize("bend", [F.relu, F.gelu, torch.tanh, F.silu, torch.sigmoid], ids=lambda own: own.__name__)
def test_other_functions_of_each_number(bend: Bend) -> None:
    compare(make(lambda: Reader(lambda x: x[:, -1], bend=bend)), saves=True)


def test_masks_layers_of_torchs_and_what_drops_numbers() -> None:
    compare(make(lambda: Reader(lambda x: x[:, 1], causal=False, masked=True)), saves=True)
    compare(make(Classifier), saves=True)
    compare(make(lambda: Reader(lambda x: x[:, -1], norm=Dropping())), saves=True)
    compare(make(lambda: Reader(lambda x: x[:, -1] * x[:, -1].exp().detach())), saves=True)


def test_places_that_are_looked_at_together_are_all_computed() -> None:
    compare(make(lambda: Reader(lambda x: x[:, -1] + x[:, 0] * x[:, -1])), saves=False)
    compare(make(lambda: Reader(lambda x: x.mean(1) + x[:, -1])), saves=False)
    compare(make(lambda: Reader(lambda x: x[:, -1] + x.softmax(1)[:, 2])), saves=False)


@pytest.mark.parametrize("how", ["sum", "softmax", "product", "norm", "turn", "view"])
def test_what_mixes_places_is_computed_whole(how: str) -> None:
    saves = how == "product"  # of its own gradient: products with zeros are left out there too
    compare(make(lambda: Reader(lambda x: x[:, -1], norm=Across(how))), saves=saves)


def test_a_step_that_writes_over_its_numbers_stays_as_it_is() -> None:
    compare(make(lambda: Reader(lambda x: x[:, -1], bend=torch.relu_)), saves=False)


@pytest.mark.parametrize("worth", [1, 1 << 30])
def test_all_products_behind_the_last_keys_are_narrowed(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_WORTH", worth)
    graph, given = follow(make(lambda: Reader(lambda x: x[:, -1])))
    own = narrowed(graph, given)
    assert own is not None
    for each in (graph, own):
        narrow._Recorder(each).run(*given)
    before, after = narrow._products(graph.graph), narrow._products(own.graph)
    layer, rows = (3 + 1 + 2 + 2) * WIDTH**2, 5 * LENGTH  # of them all but keys, values and queries at one place only
    expected = 3 * rows * (layer + 3 * WIDTH**2) + 3 * 5 * (5 * WIDTH**2 + CLASSES * WIDTH)
    assert after == expected < before


class Watched(StraightStep):
    """Remembers what was made."""

    made: list[StraightStep] = []  # noqa: RUF012 - of all of them

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[StraightStep]:
    monkeypatch.setattr(Watched, "made", [])
    monkeypatch.setattr(forms, "StraightStep", Watched)
    monkeypatch.setattr(Cost, "light", False)
    return Watched.made


def programs(own: StraightStep) -> int:
    return sum(shape.program is not None for shape in own._shapes.values())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"momentum": 0.9, "weight_decay": 1e-3, "grad_clip": 1.0, "mu": 0.1}], ids=str)
def test_clients_train_as_in_a_loop(workers: int, changes: dict[str, float], watched: list[StraightStep]) -> None:
    model = make(lambda: Reader(lambda x: x[:, -1]))
    holdings, how = make_holdings((LENGTH,), [16, 9, 8], words=WORDS), settings(batch_size=8, epochs=2, **changes)
    ours = Run(model, holdings, how, workers=workers)
    assert programs(watched[0]) == 1  # of full batches; the others are computed plainly
    ours.equals(Run(model, holdings, how, form="loop"))


def test_a_run_that_is_resumed_goes_on_to_the_same_bits(watched: list[StraightStep]) -> None:
    model = make(lambda: Reader(lambda x: x[:, -1]))
    holdings, how = make_holdings((LENGTH,), [16, 9, 8], words=WORDS), settings(batch_size=8)
    found: dict[int, list[NDArray[np.float32]]] = {}
    for number, rounds in enumerate(([1, 2, 3], [3])):
        trainer = cohort_trainer(module=model, holdings=holdings, settings=how, loss=cross_entropy, workers=2)
        with closing(trainer):
            start = trainer.layout.read(model).numpy()
            own: dict[int, NDArray[np.float32]] = {}

            def finish(client: int, update: NDArray[np.float32], _: float, to: dict[int, Any] = own) -> None:
                to[client] = update

            for each in rounds:
                trainer.train(start, [0, 1, 2], np.arange(3) + each, each, finish)
            found[number] = [own[client].copy() for client in range(3)]
    assert [programs(own) for own in watched] == [1, 1]
    assert all(np.array_equal(one, other) for one, other in zip(found[0], found[1], strict=True))


def test_a_narrowed_step_that_is_not_the_same_is_not_used(
    watched: list[StraightStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(lambda: Reader(lambda x: x[:, -1]))
    holdings, how = make_holdings((LENGTH,), [8, 8], words=WORDS), settings(batch_size=8)
    monkeypatch.setattr(narrow, "_SUMS", set())
    monkeypatch.setattr(narrow, "_SCALES", narrow._SCALES | narrow._SUMS | {torch.ops.aten.add.Tensor})  # a wrong rule
    run = Run(model, holdings, how)
    assert [programs(own) for own in watched] == [0]
    run.equals(Run(model, holdings, how, form="loop"))
