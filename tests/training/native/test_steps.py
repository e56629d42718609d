"""Steps of models of texts and series as lists of native calls: the loop's numbers, whichever way they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training import native, straight
from tacit.training.batches import Holdings
from tacit.training.forms import cohort_trainer
from tacit.training.native import available
from tacit.training.native.steps import NativeSteps
from tacit.training.settings import cross_entropy
from tests.training.common import Custom, Run, make_holdings, settings

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []
LENGTH, WORDS, WIDTH = 21, 37, 64


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return for each client whether its steps were native calls."""
    found: list[bool] = []
    plain, compared = NativeSteps.descend, straight._descends_alike

    def seen(self: NativeSteps, *given: Any) -> bool:
        found.append(plain(self, *given))
        return found[-1]

    def unseen(*given: Any) -> bool:
        right = compared(*given)
        found.pop()
        return right

    monkeypatch.setattr(NativeSteps, "descend", seen)
    monkeypatch.setattr(straight, "_descends_alike", unseen)
    return found


def encoder(*, first: bool = False, function: Any = "relu", heads: int = 4, inner: int = 128) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        WIDTH, heads, inner, 0.0, batch_first=True, norm_first=first, activation=function
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Text(nn.Module):
    """A table of characters and one of places, layers, and what is made of the places."""

    def __init__(self, layers: nn.Module, read: Callable[[Tensor], Tensor], *, classes: int = 5, **table: Any) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH, **table), nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.layers, self.out, self.read = layers, nn.Linear(WIDTH, classes), read

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.read(self.layers(self.embed(x) + self.places[: x.shape[1]])))  # type: ignore[no-any-return]  # torch gives it no types


class Causal(nn.Module):
    """A layer in a GPT's way, of which one table reads and writes."""

    def __init__(self, width: int = WIDTH, heads: int = 4) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.norm, self.again = nn.LayerNorm(width), nn.LayerNorm(width, bias=False)
        self.project, self.back = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.last, self.heads = nn.LayerNorm(width, elementwise_affine=False), heads
        nn.init.normal_(self.embed.weight, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape
        x = self.embed(x) + self.places(torch.arange(length).expand(batch, length))
        parts = self.project(self.norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.back(mixed.transpose(1, 2).reshape(batch, length, -1))
        x = x + self.down(F.gelu(self.up(self.again(x)), approximate="tanh"))
        return self.last(x)[:, -1] @ self.embed.weight.t()  # type: ignore[no-any-return]  # as above


class Recurrent(nn.Module):
    """Recurrent layers over a table of characters, or over numbers as they are, and what is made of the states."""

    def __init__(self, layer: nn.RNNBase, read: Callable[[Tensor], Tensor], *, words: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, layer.input_size) if words else nn.Identity()
        self.layer, self.read = layer, read
        self.out = nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        states = self.layer(x if self.layer.batch_first else x.transpose(0, 1))[0]
        return self.out(self.read(states if self.layer.batch_first else states.transpose(0, 1)))  # type: ignore[no-any-return]  # as above


class Placed(nn.Module):
    """Places are looked up by a buffer of their numbers."""

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers, self.out = encoder(), nn.Linear(WIDTH, 5)
        self.numbers = nn.Buffer(numbers, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        places = self.places(self.numbers.expand(len(x), LENGTH))
        return self.out(self.layers(self.embed(x) + places).mean(1))  # type: ignore[no-any-return]  # as above


def _mean(x: Tensor) -> Tensor:
    return x.mean(1)


def _last(x: Tensor) -> Tensor:
    return x[:, -1]


def _first(x: Tensor) -> Tensor:
    return x[:, 0]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "encoder": lambda: Text(encoder(), _mean),
    "norms first, and GELU": lambda: Text(encoder(first=True, function="gelu"), _mean),
    "the last place": lambda: Text(encoder(first=True), _last),
    "the first place": lambda: Text(encoder(), _first),
    "two heads, and layers that fill no register": lambda: Text(encoder(heads=2, inner=75), _mean, classes=33),
    "layers that are worth a native call each": lambda: Text(encoder(inner=1024), _mean),
    "heads that fill no register": lambda: Text(encoder(heads=8), _mean),
    "padding": lambda: Text(encoder(), _mean, padding_idx=3),
    "one table reads and writes": Causal,
    "attention alone": lambda: Custom(
        lambda m, x: m.out(m.attend(m.embed(x), m.embed(x), m.embed(x), need_weights=False)[0].mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        attend=nn.MultiheadAttention(WIDTH, 4, batch_first=True),
        out=nn.Linear(WIDTH, 5),
    ),
    "a part of a text": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed(x[:, 2:18])).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "a table that is used twice": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed(x) + m.embed(x)).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
}


NUMBERS = 6
RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "an LSTM, the last place": lambda: Recurrent(nn.LSTM(9, 32, batch_first=True), _last),
    "a GRU, the last place": lambda: Recurrent(nn.GRU(9, 32, batch_first=True), _last),
    "the first place of an LSTM": lambda: Recurrent(nn.LSTM(9, 32, batch_first=True), _first),
    "the mean of a GRU": lambda: Recurrent(nn.GRU(16, 48, batch_first=True), _mean),
    "two places of an LSTM": lambda: Recurrent(nn.LSTM(9, 32, batch_first=True), lambda x: _last(x) + x.mean(1)),
    "the last place twice": lambda: Recurrent(nn.GRU(9, 32, batch_first=True), lambda x: _last(x) * _last(x)),
    "no biases": lambda: Recurrent(nn.LSTM(9, 32, batch_first=True, bias=False), _last),
    "time first": lambda: Recurrent(nn.GRU(9, 32), _last),
    "two layers of two directions": lambda: Recurrent(nn.LSTM(9, 16, 2, batch_first=True, bidirectional=True), _last),
    "two directions, one of them for nothing": lambda: Recurrent(
        nn.GRU(9, 16, batch_first=True, bidirectional=True), lambda x: x[:, -1]
    ),
    "a first state of one's own": lambda: Custom(
        lambda m, x: m.out(m.layer(m.embed(x), torch.zeros(1, len(x), 16))[1][0]),
        embed=nn.Embedding(WORDS, 7),
        layer=nn.GRU(7, 16, batch_first=True),
        out=nn.Linear(16, 5),
    ),
    "the last cell": lambda: Custom(
        lambda m, x: m.out(m.layer(m.embed(x))[1][1][-1]),
        embed=nn.Embedding(WORDS, 7),
        layer=nn.LSTM(7, 16, batch_first=True),
        out=nn.Linear(16, 5),
    ),
    "a state that is learnt": lambda: Custom(
        lambda m, x: m.out(_last(m.layer(m.embed(x), m.first.weight.expand(1, len(x), 16).contiguous())[0])),
        embed=nn.Embedding(WORDS, 7),
        layer=nn.GRU(7, 16, batch_first=True),
        first=nn.Linear(16, 1, bias=False),
        out=nn.Linear(16, 5),
    ),
    "numbers for an LSTM": lambda: Recurrent(nn.LSTM(NUMBERS, 32, batch_first=True), _last, words=False),
    "numbers for a GRU, a part of them": lambda: Custom(
        lambda m, x: m.out(_last(m.layer(x[:, 3:, 1:5])[0])),
        layer=nn.GRU(4, 16, batch_first=True),
        out=nn.Linear(16, 5),
    ),
    "numbers for attention": lambda: Custom(
        lambda m, x: m.out(m.layers(m.first(x)).mean(1)),
        first=nn.Linear(NUMBERS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
}


def build(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        return (MODELS | RECURRENT)[name]()


def texts(sizes: list[int], classes: int = 5) -> Holdings:
    holdings = make_holdings((LENGTH,), sizes, words=WORDS)
    holdings.labels.copy_(torch.randint(0, classes, holdings.labels.shape, generator=torch.Generator().manual_seed(9)))
    return holdings


def as_in_a_loop(module: nn.Module, holdings: Holdings, chosen: Any, taken: list[bool]) -> None:
    """Compare four clients, the third of whom has no full batch, with the loop, and the last with himself alone."""
    own = Run(module, holdings, chosen)
    assert own.form == "vmap"
    assert taken == [True, True, True]
    loop = Run(module, holdings, chosen, form="loop")
    for client, update in own.updates.items():
        np.testing.assert_allclose(update, loop.updates[client], rtol=1e-3, atol=2e-6)
        np.testing.assert_allclose(own.losses[client], loop.losses[client], rtol=1e-5)
    alone = Run(module, holdings, chosen, clients=[3])
    assert alone.updates[3].tobytes() == own.updates[3].tobytes()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("name", MODELS)
def test_clients_train_as_in_a_loop(name: str, taken: list[bool]) -> None:
    module, holdings, chosen = build(name), texts([24, 8, 3, 19]), settings(batch_size=8, lr=0.02)
    as_in_a_loop(module, holdings, chosen, taken)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("name", RECURRENT)
def test_clients_of_recurrent_layers_train_as_in_a_loop(name: str, taken: list[bool]) -> None:
    module, chosen = build(name), settings(batch_size=8, lr=0.1)
    holdings = texts([24, 8, 3, 19])
    if "numbers" in name:
        numbers = torch.randn(len(holdings.labels), LENGTH, NUMBERS, generator=torch.Generator().manual_seed(4))
        holdings = Holdings(features=numbers, labels=holdings.labels, rows=holdings.rows)
    as_in_a_loop(module, holdings, chosen, taken)


@pytest.mark.parametrize(
    ("name", "batch"),
    [("norms first, and GELU", 20), ("an LSTM, the last place", 50), ("two layers of two directions", 50)],
)
def test_no_number_depends_on_threads_or_workers(name: str, batch: int, taken: list[bool]) -> None:
    module, holdings, chosen = build(name), texts([batch, batch, batch]), settings(batch_size=batch, lr=0.02)
    before, found = torch.get_num_threads(), []
    try:
        for threads, workers in ((1, 1), (3, 1), (2, 2)):
            torch.set_num_threads(threads)
            found.append(Run(module, holdings, chosen, workers=workers))
    finally:
        torch.set_num_threads(before)
    assert taken == [True] * 9
    found[1].equals(found[0], exactly=True)
    found[2].equals(found[0], exactly=True)


@pytest.mark.parametrize(
    "changes", [{"momentum": 0.5}, {"weight_decay": 0.1}, {"mu": 0.1}, {"grad_clip": 0.1}], ids=str
)
def test_steps_that_are_not_plain_ones_are_not_taken(changes: dict[str, Any], taken: list[bool]) -> None:
    module, holdings, chosen = build("encoder"), texts([16, 9]), settings(batch_size=8, lr=0.02, **changes)
    own, loop = (Run(module, holdings, chosen, form=form) for form in ("auto", "loop"))
    assert not taken
    for client, update in own.updates.items():
        np.testing.assert_allclose(update, loop.updates[client], rtol=1e-3, atol=2e-6)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a function without a rule": lambda: Text(encoder(function=F.silu), _mean),
    "a norm of another width": lambda: Custom(
        lambda m, x: m.out(m.norm(m.narrow(m.layers(m.embed(x)).mean(1)))),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        narrow=nn.Linear(WIDTH, 9),
        norm=nn.LayerNorm(9),
        out=nn.Linear(9, 5),
    ),
    "a frozen part": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed(x)).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH).requires_grad_(False),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "numbers that are computed": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed((x + 1) % WORDS)).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "texts from behind": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed(x.flip(1))).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "every other place": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed(x[:, ::2])).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "a soft maximum": lambda: Text(encoder(), lambda x: x.logsumexp(1)),
    "a batch as one text": lambda: Custom(
        lambda m, x: m.out(m.layers(m.embed(x.reshape(1, -1)).view(*x.shape, WIDTH)).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "parts of a batch": lambda: Custom(
        lambda m, x: m.out(m.layers(torch.cat([m.embed(part) for part in torch.tensor_split(x, 2)])).mean(1)),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5),
    ),
    "places of 32 bits": lambda: Placed(torch.arange(LENGTH, dtype=torch.int32)),
    "a bias of one number": lambda: Custom(
        lambda m, x: torch.addmm(m.bias, m.layers(m.embed(x)).mean(1), m.out.weight.t()),
        embed=nn.Embedding(WORDS, WIDTH),
        layers=encoder(),
        out=nn.Linear(WIDTH, 5, bias=False),
        bias=nn.Parameter(torch.zeros(1)),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_train_as_before(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(10)
        module = OTHERS[name]()
    holdings, chosen = texts([16, 9]), settings(batch_size=8, lr=0.02)
    own, loop = (Run(module, holdings, chosen, form=form) for form in ("auto", "loop"))
    for client, update in own.updates.items():
        np.testing.assert_allclose(update, loop.updates[client], rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("least", [0.0, 0.1])
def test_a_loss_of_ones_own_is_not_taken_for_another(least: float, taken: list[bool]) -> None:
    def smooth(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels, reduction="none", label_smoothing=least)

    module, holdings, chosen = build("encoder"), texts([16, 9]), settings(batch_size=8, lr=0.02)
    own, loop = (Run(module, holdings, chosen, form=form, loss=smooth) for form in ("auto", "loop"))
    assert bool(taken) == (not least)
    for client, update in own.updates.items():
        np.testing.assert_allclose(update, loop.updates[client], rtol=1e-3, atol=2e-6)


def test_labels_that_a_loss_looks_up_are_the_batchs() -> None:
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))

    def moved(outputs: Tensor, labels: Tensor) -> Tensor:
        beside = F.embedding(labels[None].expand(2, len(labels)), table)[1]
        return F.cross_entropy(outputs + beside, labels, reduction="none")

    module, holdings, chosen = build("encoder"), texts([16, 9]), settings(batch_size=8, lr=0.02)
    own, loop = (Run(module, holdings, chosen, form=form, loss=moved) for form in ("auto", "loop"))
    for client, update in own.updates.items():
        np.testing.assert_allclose(update, loop.updates[client], rtol=1e-3, atol=2e-6)


MASK = torch.zeros(LENGTH, LENGTH)


class Masked(nn.Module):
    """A mask that is nobody's part, and does not lie in order."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 5)
        self.attend = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.out(self.attend(x, x, x, attn_mask=MASK.t(), need_weights=False)[0].mean(1))  # type: ignore[no-any-return]  # as above


def test_what_is_nobodys_part_counts_as_it_is_now(taken: list[bool]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        module = Masked()
    holdings, found = texts([16, 16]), []
    trainers = [
        cohort_trainer(
            module=module, holdings=holdings, settings=settings(batch_size=8), loss=cross_entropy, form=form, workers=1
        )
        for form in ("auto", "loop")
    ]
    try:
        for blocked in (0.0, -1e9):
            MASK.copy_(torch.full((LENGTH, LENGTH), blocked).tril(-1))
            for trainer in trainers:
                model = trainer.layout.read(module).numpy()
                trainer.train(model, [0], np.arange(1), 1, lambda _, update, __: found.append(update.copy()))
    finally:
        MASK.zero_()
        for trainer in trainers:
            trainer.close()
    assert taken == [True, True]
    for own, loop in (found[:2], found[2:]):
        np.testing.assert_allclose(own, loop, rtol=1e-3, atol=2e-6)
    assert np.abs(found[2] - found[0]).max() > 1e-4


PLACES = torch.arange(LENGTH)


def test_places_beyond_a_table_are_refused_too(taken: list[bool]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        module = Text(encoder(), lambda x: x.mean(1))
        module.read = lambda x: (x + F.embedding(PLACES.expand(len(x), LENGTH), module.places)).mean(1)
    trainer = cohort_trainer(
        module=module, holdings=texts([16, 16]), settings=settings(batch_size=8), loss=cross_entropy, workers=1
    )
    with closing(trainer):
        model = trainer.layout.read(module).numpy()
        trainer.train(model, [0], np.arange(1), 1, lambda *_: None)
        try:
            PLACES[3] = 1 << 40
            with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                trainer.train(model, [0], np.arange(1), 1, lambda *_: None)
        finally:
            PLACES[3] = 3
    assert taken == [True, False]


@pytest.mark.parametrize(("part", "wrong"), [("labels", 5), ("labels", -1), ("features", WORDS), ("features", -1)])
def test_numbers_beyond_a_table_are_refused_before_anything_is_read(part: str, wrong: int, taken: list[bool]) -> None:
    module, holdings = build("encoder"), texts([16, 16])
    trainer = cohort_trainer(
        module=module, holdings=holdings, settings=settings(batch_size=8), loss=cross_entropy, workers=1
    )
    with closing(trainer):
        model = trainer.layout.read(module).numpy()
        getattr(holdings, part)[int(holdings.rows[1][3])] = wrong
        told: list[int] = []
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):  # as torch says it
            trainer.train(model, [0, 1], np.arange(2), 1, lambda client, *_: told.append(client))
    assert taken == [True, False]
    assert told == [0]


@pytest.mark.parametrize("client", [0, 1])
def test_labels_that_are_left_out_are_torchs(client: int, taken: list[bool]) -> None:
    """Of the first client too, whose labels a list is compared with."""
    module, holdings, chosen = build("encoder"), texts([16, 16]), settings(batch_size=8, lr=0.02)
    holdings.labels[holdings.rows[client][:3]] = -100
    own, loop = (Run(module, holdings, chosen, form=form, workers=1) for form in ("auto", "loop"))
    assert taken == [client == 1, client == 0]
    for client, update in own.updates.items():
        np.testing.assert_allclose(update, loop.updates[client], rtol=1e-3, atol=2e-6)


def test_what_is_not_finite_stays_in_its_round(taken: list[bool]) -> None:
    module, holdings, chosen = build("encoder"), texts([16, 16]), settings(batch_size=8, lr=0.02)
    trainer = cohort_trainer(module=module, holdings=holdings, settings=chosen, loss=cross_entropy, workers=1)
    with closing(trainer):
        model = trainer.layout.read(module).numpy()
        found: list[Any] = []
        for start in (model, np.full_like(model, np.nan), model):
            trainer.train(start, [0], np.arange(1), 1, lambda _, update, __: found.append(update.copy()))
    assert taken == [True, True, True]
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1]).any()
    assert found[2].tobytes() == found[0].tobytes()  # nothing of a spoilt round is left in the room
