"""Examples that were made to break the clip: NaN, infinity, overflow, underflow, cancellation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.private.clipping import RULES, Clipping, Rule
from tacit.training.private.functional import Functional
from tacit.training.private.ghost_norms import Gram, Sequences
from tacit.training.private.gradient import FORMS, Form, PrivateGradient
from tacit.training.settings import cross_entropy, squared_error
from tests.training.private.common import CLASSES, Tied, Words

BOUND = 1.0
TOGETHER = 4  # examples beside each other


class Difference(nn.Module):
    """A linear layer on two positions, of which the difference counts: the two gradients cancel."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(width, 12), nn.Linear(12, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        mapped = self.layer(value)
        output: Tensor = self.out(torch.tanh(mapped[:, 0] - mapped[:, 1]))
        return output


class Windows(nn.Module):
    """A convolution of two windows, of which the difference counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Conv2d(8, 24, 3), nn.Linear(24, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        mapped = self.layer(value)
        output: Tensor = self.out(torch.tanh(mapped[:, :, 0, 0] - mapped[:, :, 0, 1]))
        return output


class Pooled(nn.Module):
    """A linear layer of sequences, their mean, and a norm that takes the mean's part away."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.out = nn.Linear(16, 12), nn.LayerNorm(12), nn.Linear(12, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(self.norm(self.layer(value)).mean(1))
        return output


class Opposed(nn.Module):
    """Reads a table at two places and counts the difference: the same word twice adds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(5, 6), nn.Linear(6, CLASSES)
        self.scale = 1.0

    def forward(self, words: Tensor) -> Tensor:
        read = self.table(words) * self.scale
        output: Tensor = self.out(torch.tanh(read[:, 0] + read[:, 1] - read[:, 2] - read[:, 3]))
        return output


class Recurrent(nn.Module):
    """A gated recurrent unit of linear layers that are used at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.new, self.out = nn.Linear(9, 5), nn.Linear(9, 5), nn.Linear(5, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        state = torch.zeros_like(value[:, 0, :1]).expand(-1, 5)
        for position in range(value.shape[1]):
            both = torch.cat([value[:, position], state], 1)
            gate = torch.sigmoid(self.gate(both))
            state = gate * state + (1.0 - gate) * torch.tanh(self.new(both))
        output: Tensor = self.out(state)
        return output


class Memory(nn.Module):
    """An LSTM that native kernels compute where there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(4, 16, batch_first=True), nn.Linear(16, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(self.layer(value)[0][:, -1])
        return output


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, CLASSES), (6,)),
    "difference": (Difference, (2, 16)),
    "windows": (Windows, (8, 3, 4)),
    "pooling": (Pooled, (3, 16)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, CLASSES)),
        (2, 4, 4),
    ),
    "convolution of one axis": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES)),
        (2, 6),
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, CLASSES)),
        (6,),
    ),
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, CLASSES)),
        (1, 4, 4),
    ),
    "recurrent": (Recurrent, (3, 4)),
    "memory": (Memory, (3, 4)),
    "tied": (Tied, (4,)),
}
_kept: dict[tuple[str, Form, Rule], PrivateGradient] = {}


def gradient(name: str, form: Form, rule: Rule = "flat") -> PrivateGradient:
    if (name, form, rule) not in _kept:
        make, shape = MODELS[name]
        torch.manual_seed(1)
        example = torch.randn(3, *shape), torch.arange(3)
        _kept[name, form, rule] = PrivateGradient(
            model=make(), loss=cross_entropy, clipping=Clipping(bound=BOUND, rule=rule), example=example, form=form
        )
    return _kept[name, form, rule]


def forms(name: str) -> list[Form]:
    return ["functional"] if name == "tied" else ["book-keeping", "functional"]


def flat(sums: list[Tensor]) -> Tensor:
    assert all(total.dtype == torch.float64 for total in sums)
    return torch.cat([total.reshape(-1) for total in sums])


def contributions(asked: PrivateGradient, features: Tensor, labels: Tensor) -> list[float]:
    """Return how far each example moves the sum: with it, and with an example of zeros whose factor is 0 instead."""
    moved = []
    for i in range(len(labels)):
        with one_out(asked, i):
            without = flat(asked.sums(features, labels)[0])
        moved.append(float((flat(asked.sums(features, labels)[0]) - without).norm()))
    return moved


@contextmanager
def one_out(asked: PrivateGradient, example: int) -> Iterator[None]:
    """Give one example the factor 0."""
    clipping = asked._form._clipping

    class Without:
        def factors(self, squares: Tensor, real: Tensor | None = None) -> Tensor:
            factors = clipping.factors(squares, real).clone()
            factors[:, example] = 0.0
            return factors

    repeated, asked._repeated = asked._repeated, None  # a program would not hear of it
    asked._form._clipping = Without()  # type: ignore[assignment]
    try:
        yield
    finally:
        asked._form._clipping = clipping
        asked._repeated = repeated


magnitudes = st.floats(-30.0, 38.5).map(lambda exponent: min(10.0**exponent, 3e38))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    scales=st.lists(magnitudes, min_size=TOGETHER, max_size=TOGETHER),
    offset=st.sampled_from([0.0, 0.0, 1.0, 1e3, 1e6]),
)
@pytest.mark.parametrize("name", MODELS)
def test_no_example_moves_the_sum_by_more_than_the_bound(
    name: str, seed: int, scales: list[float], offset: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = MODELS[name][1]
    features = torch.randn(TOGETHER, *shape, generator=generator, dtype=torch.float64) + offset
    features = features * torch.tensor(scales, dtype=torch.float64).view(-1, *(1,) * len(shape))
    features = features.clamp(-3e38, 3e38).float()
    labels = torch.randint(0, CLASSES, (TOGETHER,), generator=generator)
    found = []
    for form in forms(name):
        asked = gradient(name, form)
        sums, _ = asked.sums(features, labels)
        assert bool(flat(sums).isfinite().all())
        assert max(contributions(asked, features, labels)) <= BOUND
        found.append(flat(sums))
    if len(found) == 2 and _well_conditioned(name, features, labels):
        torch.testing.assert_close(found[0], found[1], rtol=0.0, atol=1e-3 * BOUND)


def _well_conditioned(name: str, features: Tensor, labels: Tensor) -> bool:
    """Return whether float32 gets each example's gradient right, overflow and cancellation aside."""
    gradients, _ = gradient(name, "functional")._form.gradients(features, labels)  # type: ignore[union-attr]
    exact = Functional(
        copy.deepcopy(gradient(name, "functional")._model).double(), cross_entropy, Clipping(bound=BOUND)
    )
    precise, _ = exact.gradients(features.double(), labels)
    one, other = (torch.cat([g.flatten(1).double() for g in rows], 1) for rows in (gradients, precise))
    short = one.norm(dim=1).clamp(min=BOUND)
    return bool(one.isfinite().all()) and bool(((one - other).norm(dim=1) <= 1e-4 * short).all())


@pytest.mark.parametrize("form", ["book-keeping", "functional"])
@pytest.mark.parametrize("scale", [1.0, 1e2, 1e3, 1e4, 1e6, 1e9, 1e20])
@pytest.mark.parametrize("name", ["difference", "windows", "pooling"])
def test_positions_that_cancel(name: str, scale: float, form: Form) -> None:
    generator = torch.Generator().manual_seed(5)
    shape = MODELS[name][1]
    features = scale + torch.randn(8, *shape, generator=generator)  # equal but for a part in `scale`
    labels = torch.randint(0, CLASSES, (8,), generator=generator)
    asked = gradient(name, form)
    for i in range(8):
        alone = flat(asked.sums(features[i : i + 1], labels[i : i + 1])[0])
        assert float(alone.norm()) <= BOUND


def test_the_two_forms_agree_where_positions_cancel() -> None:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, CLASSES, (8,), generator=generator)
    for scale in (1.0, 1e2, 1e3, 1e4):
        features = scale + torch.randn(8, 2, 16, generator=generator)
        books, formed = (flat(gradient("difference", form).sums(features, labels)[0]) for form in forms("difference"))
        assert float((books - formed).norm()) <= 8 * BOUND * scale * 1e-6  # what float32 knows of the difference
        assert float(books.norm()) > 0.1


def gram(a: Tensor, b: Tensor, *, bias: bool = False) -> Gram:
    return Gram(at=Sequences(inputs=a, gradients=b), bias=b.sum(1) if bias else None)


def test_a_gram_norm_is_never_below_that_of_the_gradient() -> None:
    generator = torch.Generator().manual_seed(2)
    for trial in range(60):
        positions = 2 + trial % 7
        a = torch.randn(5, 1, 9, generator=generator) + 10.0 ** -(trial % 11) * torch.randn(
            5, positions, 9, generator=generator
        )
        b = torch.randn(5, positions, 4, generator=generator) * 10.0 ** (trial % 13 - 6)
        b[:, -1] = -b[:, :-1].sum(1)
        book = gram(a, b)
        truth = torch.bmm(b.double().mT, a.double()).flatten(1).norm(dim=1)
        for row, own in enumerate(truth):
            factors = torch.zeros(5, dtype=torch.float64)
            factors[row] = 1.0
            moved = book.weighted(factors)[0].norm()
            assert book.squares[row].sqrt() * (1 + 1e-12) >= moved
            if row not in book._cancelling:
                assert book.squares[row].sqrt() >= own * (1 - 1e-12)
                assert book.squares[row].sqrt() <= own * (1 + 1e-6) + 1e-30  # and hardly above it


@pytest.mark.parametrize("form", ["book-keeping", "functional"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e3, 1e30, 3e38])
def test_a_word_that_occurs_twice(scale: float, form: Form) -> None:
    torch.manual_seed(3)
    model = Opposed()
    words = torch.tensor([[1, 2, 2, 1], [1, 1, 2, 3], [0, 1, 0, 2], [4, 4, 4, 4]])
    labels = torch.tensor([0, 1, 2, 0])
    asked = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=BOUND), example=(words, labels), form=form
    )
    model.scale = scale
    assert max(contributions(asked, words, labels)) <= BOUND
    assert bool(flat(asked.sums(words, labels)[0]).isfinite().all())


def test_padding_takes_no_part_even_where_its_gradient_is_infinite() -> None:
    torch.manual_seed(0)
    model = Words(padding=2)
    words = torch.tensor([[2, 2, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
    asked = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=BOUND), example=(words, torch.tensor([0, 1]))
    )
    table = asked.sums(words, torch.tensor([0, 1]))[0][0]
    assert float(table[2].abs().sum()) == 0.0


@pytest.mark.parametrize("value", [3e38, -3e38, 1e20, float("inf"), float("nan")])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", MODELS)
def test_one_example_that_is_not_finite_takes_no_part_and_changes_no_other(name: str, rule: Rule, value: float) -> None:
    torch.manual_seed(4)
    shape = MODELS[name][1]
    features, labels = torch.randn(TOGETHER, *shape), torch.arange(TOGETHER) % CLASSES
    features[2] = value
    features[2].view(-1)[0] = 1.0
    for form in forms(name):
        asked = gradient(name, form, rule)
        sums = flat(asked.sums(features, labels)[0])
        assert bool(sums.isfinite().all())
        with one_out(asked, 2):
            without = flat(asked.sums(features, labels)[0])
        assert float((sums - without).norm()) <= BOUND
        with one_out(asked, 2):
            healthy = flat(asked.sums(features.index_fill(0, torch.tensor([2]), 0.0), labels)[0])
        torch.testing.assert_close(without, healthy, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_that_overflows(form: Form) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    features, labels = torch.randn(4, 3), torch.tensor([1.0, 3e38, -2.0, 1e-40])
    asked = PrivateGradient(
        model=model, loss=squared_error, clipping=Clipping(bound=BOUND), example=(features, labels), form=form
    )
    sums, losses = asked.sums(features, labels)
    assert bool(flat(sums).isfinite().all())
    assert not bool(losses.isfinite().all())
    assert max(contributions(asked, features, labels)) <= BOUND


def test_poison_among_the_first_examples_changes_nothing_of_the_form() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(6, 5), torch.arange(6) % CLASSES
    features[0] = 3e38
    asked = PrivateGradient(
        model=nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
        loss=cross_entropy,
        clipping=Clipping(bound=BOUND),
        example=(features, labels),
    )
    assert (asked.form, asked.reason) == ("book-keeping", "")


def test_labels_that_are_not_finite_take_no_part() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(4, 3), torch.tensor([float("nan"), 0.5, float("inf"), 1.0])
    for form in FORMS:
        asked = PrivateGradient(
            model=nn.Linear(3, 1),
            loss=squared_error,
            clipping=Clipping(bound=BOUND),
            example=(features, labels),
            form=form,
        )
        sums, losses = asked.sums(features, labels)
        assert bool(flat(sums).isfinite().all())
        assert losses.isfinite().tolist() == [False, True, False, True]


def test_parameters_in_double_precision_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"float32 or less, got torch.float64"):
        PrivateGradient(
            model=nn.Linear(3, 2).double(),
            loss=cross_entropy,
            clipping=Clipping(bound=BOUND),
            example=(torch.randn(4, 3).double(), torch.zeros(4, dtype=torch.int64)),
        )


def test_the_worst_case_of_adding_up() -> None:
    """Hundreds of examples whose positions cancel just short of being formed, and one more or less among them."""
    generator = torch.Generator().manual_seed(3)
    a = 1.0 + torch.randn(400, 2, 9, generator=generator) / 200.0
    b = torch.randn(400, 1, 8, generator=generator) * torch.tensor([1.0, -1.0])[:, None] * 1e5
    book = gram(a, b, bias=True)
    assert 0 < len(book._cancelling) < 400  # some on either side of the line
    factors = Clipping(bound=BOUND).factors(book.squares[None])[0]
    assert float(factors.max()) < 1.0
    whole = torch.cat([total.reshape(-1) for total in book.weighted(factors)])
    for example in range(0, 400, 37):
        others = [i for i in range(400) if i != example]
        fewer = gram(a[others], b[others], bias=True)
        without = torch.cat([total.reshape(-1) for total in fewer.weighted(factors[others])])
        assert float((whole - without).norm()) <= BOUND


@pytest.mark.parametrize("rule", RULES)
def test_the_least_bound_holds_for_the_longest_gradients(rule: Rule) -> None:
    """Below it factors would be numbers with few digits, and clipped gradients up to twice as long as the bound."""
    model, label = nn.Linear(4, 1, bias=False), torch.zeros(8)
    with pytest.raises(ConfigError, match="Expected a clip bound of 1e-200 or more, got 1e-248"):
        Clipping(bound=1e-248, rule=rule)
    clipping = Clipping(bound=1e-200, rule=rule)
    books = PrivateGradient(
        model=model, loss=lambda out, _: out[:, 0] * 3e38, clipping=clipping, example=(torch.ones(8, 4), label)
    )
    for size in torch.logspace(30, 38.5, 20).tolist():
        sums = books.sums(torch.full((1, 4), size), label[:1])[0][0]
        assert 0.9 < float((sums / clipping.bound).norm()) <= 1.0
