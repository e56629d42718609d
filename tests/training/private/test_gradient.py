from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.grid import within
from tacit.training.dropout import KeyedDropout, use_keys
from tacit.training.private import book_keeping, captured, comparison, double, ghost_norms
from tacit.training.private.book_keeping import NoRule, _Passed
from tacit.training.private.captured import _Graphs
from tacit.training.private.clipping import RULES, Clipping, Rule
from tacit.training.private.comparison import Comparison
from tacit.training.private.ghost_norms import gram_pays
from tacit.training.private.gradient import Form, PrivateGradient
from tacit.training.settings import cross_entropy, squared_error
from tests.training.private.common import CASES, CLASSES, Case, Crossed, Gate, Outside, Text, Tied, TiedWords


def gradient(
    model: nn.Module, features: Tensor, labels: Tensor, rule: Rule = "flat", bound: float = 0.5, form: Form = "auto"
) -> PrivateGradient:
    clipping = Clipping(bound=bound, rule=rule)
    return PrivateGradient(model=model, loss=cross_entropy, clipping=clipping, example=(features, labels), form=form)


def one_by_one(model: nn.Module, features: Tensor, labels: Tensor, bound: float) -> list[Tensor]:
    """Return the flat clipped sum by the definition: an example at a time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    for i in range(len(labels)):
        loss = cross_entropy(model(features[i : i + 1]), labels[i : i + 1]).sum()
        own = torch.autograd.grad(loss, parameters, materialize_grads=True)
        norm = torch.stack([g.square().sum() for g in own]).sum().sqrt()
        for sums, g in zip(total, own, strict=True):
            sums.add_(g, alpha=min(1.0, within(bound) / float(norm)))
    return total


def close(one: list[Tensor], other: list[Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_book_keeping_equals_the_functional_form_on_every_layer(case: Case, rule: Rule) -> None:
    model, features, labels = case.build()
    for bound in (0.1, 1e3):  # all clipped, none clipped
        books, losses = gradient(model, features, labels, rule, bound, "book-keeping").sums(features, labels)
        formed, same = gradient(model, features, labels, rule, bound, "functional").sums(features, labels)
        for a, b in zip(books, formed, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6 * (1.0 if rule != "automatic" else max(1.0, bound)))
        torch.testing.assert_close(losses, same)


@pytest.mark.parametrize("small", [0.0, 1e9], ids=["twice", "kept"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_memory_is_scarce_gradients_are_formed_twice_and_in_parts(
    monkeypatch: pytest.MonkeyPatch, case: Case, small: float
) -> None:
    """As on a GPU: large gradients of a batch are not kept, small ones are, and the sums are the same."""
    monkeypatch.setattr(book_keeping, "_SMALL", small)
    model, features, labels = case.build()
    usual = gradient(model, features, labels, bound=0.3).sums(features, labels)[0]
    monkeypatch.setattr(double, "scarce", lambda _: True)
    monkeypatch.setattr(double, "_BESIDE", 8)
    monkeypatch.setattr(ghost_norms, "_FITS_A_CACHE", 64)
    books = gradient(model, features, labels, bound=0.3, form="book-keeping")
    close(books.sums(features, labels)[0], usual)
    for i in range(len(labels)):
        sums = books.sums(50 * features[i : i + 1] if not case.words else features[i : i + 1], labels[i : i + 1])[0]
        assert float(torch.cat([own.reshape(-1) for own in sums]).norm()) <= 0.3


@pytest.mark.parametrize(("positions", "times"), [(4, 2), (64, 1)], ids=["large", "small"])
def test_gradients_are_formed_once_where_they_are_small_beside_what_a_step_holds(
    monkeypatch: pytest.MonkeyPatch, positions: int, times: int
) -> None:
    """A matrix of 12 x 12 beside as many inputs and outputs as there are positions."""
    monkeypatch.setattr(double, "scarce", lambda _: True)
    monkeypatch.setattr(ghost_norms, "gram_pays", lambda *_: False)
    usual, formed = ghost_norms.Sequences.formed, []

    def counted(self: ghost_norms.Sequences, rows: slice | Tensor) -> Tensor:
        formed.append(rows)
        return usual(self, rows)

    monkeypatch.setattr(ghost_norms.Sequences, "formed", counted)
    model = nn.Sequential(nn.Linear(12, 12, bias=False), nn.Flatten())
    features, labels = torch.randn(3, positions, 12), torch.zeros(3, dtype=torch.int64)
    books = gradient(model, features, labels, form="book-keeping")
    formed.clear()  # it was tried out
    books.sums(features, labels)
    assert len(formed) == times


class TwoPlaces(nn.Module):
    """Two matrices of one size, one at sixteen times as many positions as the other."""

    def __init__(self) -> None:
        super().__init__()
        self.many, self.few = nn.Linear(12, 12, bias=False), nn.Linear(12, 12, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.many(x)[:, :4] + self.few(x[:, :4])
        return outputs.flatten(1)


@pytest.mark.parametrize(("room", "formed"), [(143, [64, 64, 4, 4]), (144, [64, 4, 4]), (288, [64, 4])])
def test_gradients_are_kept_as_there_is_room_those_of_most_positions_first(
    monkeypatch: pytest.MonkeyPatch, room: int, formed: list[int]
) -> None:
    monkeypatch.setattr(book_keeping, "_SMALL", room / (68 * 24))  # of the numbers that an example has held
    monkeypatch.setattr(double, "scarce", lambda _: True)
    monkeypatch.setattr(ghost_norms, "gram_pays", lambda *_: False)
    usual, found = ghost_norms.Sequences.formed, []

    def counted(self: ghost_norms.Sequences, rows: slice | Tensor) -> Tensor:
        found.append(self.inputs.shape[1])
        return usual(self, rows)

    features, labels = torch.randn(3, 64, 12), torch.zeros(3, dtype=torch.int64)
    books = gradient(TwoPlaces(), features, labels, form="book-keeping")
    monkeypatch.setattr(ghost_norms.Sequences, "formed", counted)
    books.sums(features, labels)
    assert sorted(found, reverse=True) == formed


@pytest.mark.parametrize(("examples", "each"), [(0, 5), (1, 1), (7, 1 << 30), (256, 1 << 12), (9, 1 << 18), (64, 1)])
@pytest.mark.parametrize("scarce", [True, False])
def test_parts_cover_a_batch_and_stay_small(examples: int, each: int, scarce: bool) -> None:
    found = ghost_norms.parts(examples, each, scarce=scarce)
    assert [row for part in found for row in range(examples)[part]] == list(range(examples))
    most = max((part.stop - part.start for part in found), default=0)
    assert most * each <= (1 << 24 if scarce else 1 << 20) or most == 1
    if scarce and examples * each > 1 << 22:
        assert most <= -(-examples // 4)


@pytest.mark.parametrize("form", ["book-keeping", "functional"])
def test_the_sum_is_that_of_examples_clipped_one_by_one(form: Form) -> None:
    model, features, labels = CASES["convolution"].build()
    asked = gradient(model, features, labels, bound=0.3, form=form)
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


def test_sums_are_those_of_their_parameters_in_whatever_order_a_layer_holds_them() -> None:
    """A weight that was taken out and put back, as the removal of a weight norm does, comes after the bias."""
    shapes: dict[tuple[int, ...], list[nn.Module]] = {
        (5,): [nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, CLASSES)],
        (2, 8): [nn.Conv1d(2, 4, 3), nn.Linear(6, 5), nn.Flatten(), nn.Linear(20, CLASSES)],
    }
    for shape, layers in shapes.items():
        for layer in layers[:-1]:
            weight = layer._parameters.pop("weight", None)
            if weight is not None:
                layer.register_parameter("weight", weight)
        model, features, labels = nn.Sequential(*layers), torch.randn(4, *shape), torch.tensor([0, 1, 2, 0])
        assert next(name for name, _ in model.named_parameters()) == "0.bias"
        sums = gradient(model, features, labels, bound=0.3, form="book-keeping").sums(features, labels)[0]
        close(sums, one_by_one(model, features, labels, 0.3))


class Scaled(nn.Linear):
    """Outputs times a single number."""

    def __init__(self) -> None:
        super().__init__(5, CLASSES)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, value: Tensor) -> Tensor:
        return self.scale * super().forward(value)


@pytest.mark.parametrize("native", [True, False])
def test_a_parameter_may_be_a_single_number(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(double, "native", None)
    model, features, labels = Scaled(), torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    sums = gradient(model, features, labels, bound=0.3).sums(features, labels)[0]
    assert sums[2].shape == ()
    close(sums, one_by_one(model, features, labels, 0.3))


def test_a_parameter_beside_weight_and_bias_has_no_rule() -> None:
    layer = nn.Linear(5, CLASSES)
    layer.register_parameter("scale", nn.Parameter(torch.tensor(2.0)))
    books = gradient(layer, torch.randn(6, 5), torch.zeros(6, dtype=torch.int64))
    assert "has parameters beside its weight and bias" in books.reason


@pytest.mark.parametrize("rule", RULES)
def test_no_example_adds_more_than_the_bound(rule: Rule) -> None:
    model, features, labels = CASES["convolution"].build()
    asked = gradient(model, 50 * features, labels, rule, 0.2)
    for i in range(len(labels)):
        sums, _ = asked.sums(50 * features[i : i + 1], labels[i : i + 1])
        norm = float(torch.stack([s.square().sum() for s in sums]).sum().sqrt())
        assert norm <= 0.2
        assert norm > 0.15  # long gradients come to the bound, they don't vanish


def test_norms_are_those_of_the_gradients_before_clipping() -> None:
    model, features, labels = CASES["embedding, and a layer twice"].build()
    norms = gradient(model, features, labels, bound=1e-3).norms(features, labels)
    torch.testing.assert_close(norms, gradient(model, features, labels, form="functional").norms(features, labels))
    assert float(norms.min()) > 0.1


class OutsideRecurrent(nn.Module):
    """Uses a weight of a recurrent layer outside of it, by the name it has in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.GRU(4, 16, batch_first=True, bidirectional=True), nn.Linear(32, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        weight: Any = self.layer.weight_ih_l0_reverse
        output: Tensor = self.out(self.layer(value[:, None])[0][:, 0] + value @ weight[:32].t())
        return output


class Spare(nn.Module):
    """Asks a layer that has no part in the output, and one whose gradient is stopped on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.spare, self.stopped, self.out = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        self.spare(value)
        output: Tensor = self.out(self.stopped(value).detach())
        return output


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Gate, "Gate"),
        (Crossed, "share parameters"),
        (Outside, "outside its layer"),
        (OutsideRecurrent, "outside its layer"),
        (lambda: Outside(only="training"), "outside its layer"),
        (lambda: Outside(only="evaluation"), "outside its layer"),
    ],
)
def test_what_has_no_book_takes_the_functional_form_and_says_why(make: Callable[[], nn.Module], reason: str) -> None:
    model, features, labels = Case(make=make, features=(4,)).build()
    asked = gradient(model, features, labels, bound=0.3)
    assert asked.form == "functional"
    assert reason in asked.reason
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))
    with pytest.raises(ConfigError, match="Book-keeping does not fit"):
        gradient(model, features, labels, form="book-keeping")


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1e6])
def test_a_weight_outside_its_layer_shows_in_gradients_of_any_size(size: float) -> None:
    model, features, labels = Case(make=Outside, features=(4,)).build()
    asked = PrivateGradient(
        model=model,
        loss=lambda outputs, labels: size * cross_entropy(outputs, labels),
        clipping=Clipping(bound=1.0),
        example=(features, labels),
    )
    assert "outside its layer" in asked.reason


def test_a_weight_outside_its_layer_shows_beside_gradients_that_are_much_longer() -> None:
    """Of the norm of the whole gradient it is a ten-thousandth."""

    class Beside(Outside):
        def forward(self, value: Tensor) -> Tensor:
            return super().forward(1e-2 * value)

    model, features, labels = Case(make=Beside, features=(4,)).build()
    assert "outside its layer" in gradient(model, features, labels).reason


def test_a_look_at_a_model_in_training_leaves_nothing_behind() -> None:
    """Neither a number that it drew nor a pass that it counted, and dropout is no difference between the forms."""

    class Counting(nn.Sequential):
        passes = 0

        def forward(self, value: Tensor) -> Tensor:
            self.passes += 1
            output: Tensor = super().forward(value)  # type: ignore[no-untyped-call]  # torch gives it no types
            return output

    model, features, labels = Case(
        make=lambda: Counting(nn.Linear(5, 40), nn.Dropout(), nn.Linear(40, CLASSES)), features=(5,)
    ).build()
    asked = gradient(model, features, labels, form="book-keeping")
    before = torch.get_rng_state()
    asked._compared(features, labels).check_book_keeping()
    assert torch.equal(torch.get_rng_state(), before)
    assert model.passes == 0
    assert model.training


@pytest.mark.parametrize("rule", RULES)
def test_what_no_gradient_comes_to_adds_nothing(rule: Rule) -> None:
    model, features, labels = Case(make=Spare, features=(4,)).build()
    books = gradient(model, features, labels, rule, 0.3, "book-keeping").sums(features, labels)[0]
    close(books, gradient(model, features, labels, rule, 0.3, "functional").sums(features, labels)[0])
    assert [bool(own.any()) for own in books] == [False] * 4 + [True] * 2


class NormedBeside(nn.Module):
    """A norm that is called twice, and no gradient comes to the outputs of one of the calls."""

    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.norm, self.layer, self.out = norm(), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(self.norm(self.layer(value)) + self.norm(value).detach())
        return output


@pytest.mark.parametrize(
    "norm",
    [lambda: nn.LayerNorm(8), lambda: nn.RMSNorm(8), lambda: nn.GroupNorm(2, 8), lambda: nn.Linear(8, 8)],
    ids=["layer", "rms", "group", "linear"],
)
def test_a_call_to_which_no_gradient_comes_adds_nothing(norm: Callable[[], nn.Module]) -> None:
    model, features, labels = Case(make=lambda: NormedBeside(norm), features=(8,)).build()
    asked = gradient(model, features, labels, bound=0.3, form="book-keeping")
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


class Salient(nn.Module):
    """Takes a backward pass of its own through a norm, whose outputs are its images too, or are of no more use."""

    def __init__(self, norm: nn.Module, *, used: bool) -> None:
        super().__init__()
        self.first, self.norm, self.layer = nn.Conv2d(3, 16, 3), norm, nn.Conv2d(16, 16, 3, padding=1)
        self.out, self.used = nn.Linear(16, CLASSES), used

    def forward(self, value: Tensor) -> Tensor:
        with torch.enable_grad():
            states = self.first(value)
            normal = self.norm(states)
            (salience,) = torch.autograd.grad(torch.tanh(normal).square().sum(), states, retain_graph=True)
        states = torch.tanh(self.layer(normal if self.used else states)) * torch.sigmoid(salience.detach())
        output: Tensor = self.out(states.mean((2, 3)))
        return output


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize(
    "norm", [lambda: nn.GroupNorm(4, 16), lambda: nn.LayerNorm((16, 8, 8))], ids=["group", "layer"]
)
def test_a_backward_pass_of_the_models_own_is_none_of_the_step_s(norm: Callable[[], nn.Module], used: bool) -> None:
    model, features, labels = Case(make=lambda: Salient(norm(), used=used), features=(3, 10, 10)).build()
    asked = gradient(model, features, labels, bound=0.05, form="book-keeping")
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.05))


class Reordered(nn.Module):
    """A layer sees the examples the other way round, or in any order, and what it makes is brought back in theirs."""

    def __init__(self, *, at_random: bool) -> None:
        super().__init__()
        self.first, self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.at_random = at_random

    def forward(self, value: Tensor) -> Tensor:
        value = self.first(value)
        order = torch.arange(len(value)).flip(0)
        if self.at_random:
            order = torch.randperm(len(value))
        order = order if self.training else order.sort().values
        output: Tensor = self.out(torch.tanh(self.layer(value[order])[order.argsort()]))
        return output


@pytest.mark.parametrize("at_random", [True, False])
def test_layers_that_see_examples_in_another_order_have_no_book(at_random: bool) -> None:
    """Else an example's gradient is clipped by the norm of another's, and no bound holds."""
    model, features, labels = Case(make=lambda: Reordered(at_random=at_random), features=(4,)).build()
    features[0] *= 100.0
    asked = gradient(model, features, labels, bound=0.01)
    assert asked.form == "functional"
    assert "in another order" in asked.reason
    sums, without = (asked.sums(features[i:], labels[i:])[0] for i in (0, 1))
    moved = torch.stack([(own - other).square().sum() for own, other in zip(sums, without, strict=True)]).sum().sqrt()
    assert float(moved) <= 0.01


class Dropped(nn.Module):
    """Leaves out layers at random in training, two of which share a weight."""

    def __init__(self, *, outside: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([*(nn.Linear(4, 4) for _ in range(3)), nn.LayerNorm(4)])
        self.out, self.taken, self.outside = nn.Linear(4, CLASSES), "0123", outside
        self.layers[1].weight = self.layers[0].weight

    def forward(self, value: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            if str(number) in self.taken and (not self.training or torch.rand(()) < 0.7):
                value = value + torch.tanh(layer(value))
        if self.outside and "3" not in self.taken:
            last: Any = self.layers[2]
            value = value + F.linear(value, last.weight)
        output: Tensor = self.out(value)
        return output


def test_layers_that_passes_leave_out_add_nothing() -> None:
    """Whichever they are; and in training they are left out at random."""
    model, features, labels = Case(make=Dropped, features=(4,)).build()
    asked = gradient(model, features, labels, bound=0.3)
    assert asked.form == "book-keeping"
    for seed in range(20):
        torch.manual_seed(seed)
        assert all(own.isfinite().all() for own in asked.sums(features, labels)[0])
    model.eval()
    for taken in ("", "0", "1", "02", "123", "0123"):
        model.taken = taken  # type: ignore[assignment]  # no module
        close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


def test_a_pass_that_does_what_none_did_before_is_refused_with_a_way_out() -> None:
    model, features, labels = Case(make=lambda: Dropped(outside=True), features=(4,)).build()
    asked = gradient(model.eval(), features, labels)
    assert asked.form == "book-keeping"
    model.taken = "01"  # type: ignore[assignment]  # no module
    for run in (asked.sums, asked.norms):
        with pytest.raises(ConfigError, match=r"a weight is used outside its layer\. Use form='functional'"):
            run(features, labels)
    formed = gradient(model, features, labels, bound=0.3, form="functional")
    close(formed.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


class Twice(nn.Module):
    """A recurrent layer and a norm, once without gradients, whose outputs are written over."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer, self.norm = nn.GRU(4, size, batch_first=True), nn.LayerNorm(size)
        self.out = nn.Linear(size, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        with torch.no_grad():
            scale = self.norm(self.layer(value)[0])
        states = self.layer(value)[0].mul_(3.0)
        output: Tensor = self.out((self.norm(states) * scale).sum(1))
        return output


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("size", [5, 16], ids=["in parts", "native"])
def test_calls_without_gradients_are_left_out_and_outputs_may_be_written_over(size: int, steps: int) -> None:
    model, features, labels = Case(make=lambda: Twice(size), features=(steps, 4)).build()
    sums = gradient(model, features, labels, bound=0.3, form="book-keeping").sums(features, labels)[0]
    close(sums, one_by_one(model, features, labels, 0.3))


def test_a_last_layer_of_zeros_hides_no_weight_that_is_used_outside_its_layer() -> None:
    """All gradients before it are zero in the first step, and those of later steps are not."""
    model, features, labels = Case(make=Outside, features=(4,)).build()
    last = model.get_submodule("out")
    nn.init.zeros_(last.get_parameter("weight"))
    asked = gradient(model, features, labels, bound=0.3)
    assert "outside its layer" in asked.reason
    assert not last.get_parameter("weight").any()
    nn.init.ones_(last.get_parameter("weight")[0])
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 3, batch_first=True),
    "gru": lambda: nn.GRU(4, 3, 2, batch_first=True),
    "gru without bias, both ways": lambda: nn.GRU(4, 3, batch_first=True, bias=False, bidirectional=True),
    "plain": lambda: nn.RNN(4, 3, batch_first=True),
    "native lstm, twice both ways": lambda: nn.LSTM(4, 16, 2, batch_first=True, bidirectional=True),
    "native gru without bias": lambda: nn.GRU(4, 16, batch_first=True, bias=False),
}


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
@pytest.mark.parametrize("form", ["book-keeping", "functional"])
def test_recurrent_layers_are_clipped_by_the_gradient_over_all_steps(
    layer: Callable[[], nn.Module], form: Form
) -> None:
    model, features, labels = Case(make=lambda: Text(layer), features=(5,), words=True).build()
    asked = gradient(model, features, labels, bound=0.3, form=form)
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


@pytest.mark.parametrize("frozen", ["ih", "hh", "weight"])
def test_what_is_frozen_of_a_native_recurrent_layer_stays_out(frozen: str) -> None:
    case = Case(make=lambda: Text(lambda: nn.LSTM(4, 16, batch_first=True)), features=(5,), words=True)
    model, features, labels = case.build()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (name.startswith("layer") and frozen in name))
    asked = gradient(model, features, labels, bound=0.3, form="book-keeping")
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


@pytest.mark.parametrize(
    "case",
    [
        Case(make=Tied, features=(4,)),
        Case(make=TiedWords, features=(5,), words=True),
        Case(make=lambda: TiedWords(bias=False), features=(5,), words=True),
    ],
    ids=["two linear layers", "words and output", "without bias"],
)
@pytest.mark.parametrize("bound", [0.02, 0.3, 1e3])
def test_a_shared_weight_is_clipped_by_the_gradient_of_all_its_uses(case: Case, bound: float) -> None:
    """The classic trap: a norm that leaves out what the uses have in common is too small where they agree."""
    model, features, labels = case.build()
    asked = gradient(model, features, labels, bound=bound)
    assert asked.form == "book-keeping"
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, bound))
    for i in range(len(labels)):
        sums, _ = asked.sums(features[i : i + 1], labels[i : i + 1])
        assert float(torch.stack([s.square().sum() for s in sums]).sum().sqrt()) <= bound


@pytest.mark.parametrize("form", ["book-keeping", "functional"])
def test_a_layer_under_two_names_stays_the_models_own(form: Form) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(CLASSES, CLASSES)
    model, weight = nn.Sequential(layer, nn.Tanh(), layer), layer.weight
    features, labels = torch.randn(5, CLASSES), torch.randint(0, CLASSES, (5,))
    asked = gradient(model, features, labels, bound=0.3, form=form)
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))
    assert layer.weight is weight


def test_uses_that_cancel_are_formed() -> None:
    """Two uses of one weight whose gradients cancel: by Gram matrices alone nothing of the norm would be left."""

    class Cancels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, CLASSES, bias=False), nn.Linear(4, CLASSES, bias=False)
            self.two.weight = self.one.weight

        def forward(self, value: Tensor) -> Tensor:
            output: Tensor = 300.0 * self.one(value) - 299.0 * self.two(value)
            return output

    torch.manual_seed(1)
    model, features, labels = Cancels(), torch.randn(5, 4), torch.randint(0, CLASSES, (5,))
    asked = gradient(model, features, labels, bound=1e-5)
    assert asked.form == "book-keeping"
    for i in range(5):
        sums, _ = asked.sums(features[i : i + 1], labels[i : i + 1])
        assert float(sums[0].norm()) <= 1e-5


@pytest.mark.parametrize(
    ("positions", "width", "height", "pays"),
    [(2, 64, 256, True), (40, 64, 256, False), (128, 768, 50_000, True), (1_024, 64, 64, False)],
)
def test_gradients_are_formed_where_that_is_cheaper_and_fits(
    positions: int, width: int, height: int, pays: bool
) -> None:
    assert gram_pays(positions, width, height) == pays


def test_packed_sequences_have_no_form_and_that_is_said() -> None:
    class Packed(Text):
        def forward(self, words: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(
                self.norm(self.table(words)), torch.full((len(words),), 3), batch_first=True
            )
            output: Tensor = self.out(self.layer(packed)[1][-1])
            return output

    model, features, labels = Case(
        make=lambda: Packed(lambda: nn.GRU(4, 3, batch_first=True)), features=(5,), words=True
    ).build()
    with pytest.raises(ConfigError, match=r"No form of DP-SGD fits this model: .*packed or single sequences"):
        gradient(model, features, labels)


def test_dropout_in_a_recurrent_layer_follows_the_models_mode() -> None:
    torch.manual_seed(1)
    model = Text(lambda: nn.GRU(4, 3, 2, batch_first=True, dropout=0.5))
    features, labels = torch.randint(0, 9, (6, 5)), torch.randint(0, CLASSES, (6,))
    asked = gradient(model, features, labels, form="book-keeping")
    one, other = (asked.sums(features, labels)[0][1] for _ in range(2))
    assert not torch.equal(one, other)
    model.eval()
    one, other = (asked.sums(features, labels)[0][1] for _ in range(2))
    assert torch.equal(one, other)


def test_frozen_parameters_stay_out() -> None:
    model, features, labels = CASES["convolution"].build()
    first = next(model.parameters())
    first.requires_grad_(False)
    asked = gradient(model, features, labels, bound=0.3)
    assert asked.form == "book-keeping"
    close(asked.sums(features, labels)[0], one_by_one(model, features, labels, 0.3))


def test_an_empty_batch_sums_to_zero() -> None:
    model, features, labels = CASES["convolution"].build()
    sums, losses = gradient(model, features, labels).sums(features[:0], labels[:0])
    assert [s.abs().sum().item() for s in sums] == [0.0] * len(sums)
    assert len(losses) == 0


def test_the_model_keeps_no_hooks_and_its_mode() -> None:
    model, features, labels = CASES["convolution"].build()
    model.eval()
    gradient(model, features, labels).sums(features, labels)
    assert not any(m._forward_hooks for m in model.modules())
    assert not model.training


def test_dropout_trains() -> None:
    model = nn.Sequential(nn.Linear(5, 40), nn.Dropout(), nn.Linear(40, CLASSES))
    features, labels = torch.randn(6, 5), torch.randint(0, CLASSES, (6,))
    asked = gradient(model, features, labels, form="book-keeping")
    one, other = (asked.sums(features, labels)[0][0] for _ in range(2))
    assert not torch.equal(one, other)
    assert gradient(model, features, labels, form="functional").sums(features, labels)[0][0].abs().sum() > 0


def test_another_loss() -> None:
    model, features = nn.Linear(5, 1), torch.randn(6, 5)
    labels = torch.randn(6)
    clipping = Clipping(bound=0.1)
    books, formed = (
        PrivateGradient(model=model, loss=squared_error, clipping=clipping, example=(features, labels), form=form)
        for form in ("book-keeping", "functional")
    )
    close(books.sums(features, labels)[0], formed.sums(features, labels)[0])


def test_a_branch_on_the_data_has_no_form() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.out = nn.Linear(4, CLASSES)

        def forward(self, value: Tensor) -> Tensor:
            output: Tensor = self.out(value * self.scale if bool(value.abs().sum() > 0) else value)
            return output

    with pytest.raises(ConfigError, match="No form of DP-SGD fits"):
        gradient(Branch(), torch.randn(4, 4), torch.zeros(4, dtype=torch.int64))


def test_a_form_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="Unknown form 'ghost'"):
        gradient(nn.Linear(2, 2), torch.ones(2, 2), torch.zeros(2, dtype=torch.int64), form="ghost")  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [0.0, -1.0, float("inf"), float("nan")])
def test_bounds_that_bound_nothing(bound: float) -> None:
    with pytest.raises(ConfigError, match="clip bound"):
        Clipping(bound=bound)
    with pytest.raises(ConfigError, match="Unknown clipping 'ghost'"):
        Clipping(bound=1.0, rule="ghost")  # type: ignore[arg-type]


@pytest.fixture
def _precise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions, and products that stand for them, without TF32."""
    if torch.cuda.is_available():
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.usefixtures("_precise")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_gpu_gives_what_the_cpu_gives(case: Case) -> None:
    model, features, labels = case.build()
    here = gradient(model, features, labels, bound=0.3).sums(features, labels)[0]
    model.cuda()
    there = gradient(model, features, labels, bound=0.3).sums(features.cuda(), labels.cuda())[0]
    for a, b in zip(here, there, strict=True):
        torch.testing.assert_close(a, b.cpu(), rtol=1e-4, atol=1e-6)


def graphs(asked: PrivateGradient) -> int:
    """Return how many graphs or programs there are."""
    assert asked._repeated is not None
    found = 0
    for own in asked._repeated._states.values():
        if isinstance(own, _Graphs):
            found += len(own._captures)
        else:
            found += sum(shape.program is not None for shape in own._straight._shapes.values())
    return found


def repeats(case: Case, device: str) -> None:
    """Sum batches of any size, one of them with a value that is not finite, in the room of eight."""
    model, features, labels = case.build()
    model, features, labels = model.to(device), features.to(device), labels.to(device)
    asked = gradient(model, features, labels, bound=0.3)
    for turn, size in enumerate((7, 7, 7, 3, 7, 1, 5)):
        own = features[:size].clone()
        if not case.words and turn == 4:
            own[0] = float("nan")
        there, losses = asked.sums(own, labels[:size])
        plain, same, _ = asked._form.sums(own, labels[:size])
        for a, b in zip(there, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(losses, same, equal_nan=True)
        with torch.no_grad():  # as an optimiser does: parameters are read where they are
            for parameter in model.parameters():
                parameter.mul_(1.01)
    assert graphs(asked) == 1


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "_USES", 2)


def plainly(device: str) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out, self.scale = nn.Linear(16, 12), nn.Linear(12, CLASSES), 1.0

        def forward(self, value: Tensor) -> Tensor:
            mapped = self.layer(value) * self.scale
            output: Tensor = self.out(torch.tanh(mapped[:, 0] - mapped[:, 1]))
            return output

    torch.manual_seed(0)
    model = Scaled().to(device)
    features, labels = torch.randn(8, 2, 16).to(device), torch.randint(0, CLASSES, (8,)).to(device)
    asked = gradient(model, features, labels)

    def agree(own: Tensor) -> None:
        for a, b in zip(asked.sums(own, labels)[0], asked._form.sums(own, labels)[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)

    for _ in range(4):
        agree(features)
    assert graphs(asked) == 1
    agree(1e4 + features)  # positions that cancel: gradients are formed
    assert float(torch.cat([a.reshape(-1) for a in asked.sums(1e4 + features, labels)[0]]).norm()) <= 8 * 0.5
    model.scale = 2.0  # what is repeated would not see it
    for _ in range(4):
        agree(features)
    assert graphs(asked) == 2


GATE = {"functional": Case(make=Gate, features=(4,))}
FOLLOWED = ("attention", "linear of few positions", "convolution", "embedding with padding", "group norm")


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("case", [*(CASES[name] for name in FOLLOWED), *GATE.values()], ids=[*FOLLOWED, *GATE])
def test_a_program_of_a_tiny_step_gives_what_the_step_gives(case: Case) -> None:
    repeats(case, "cpu")


@pytest.mark.usefixtures("soon")
def test_a_program_drops_by_the_key_of_the_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
    use_keys(model)
    features, labels = torch.randn(8, 4), torch.randint(0, CLASSES, (8,))
    asked = gradient(model, features, labels, bound=0.3)
    dropout = model[1]
    assert isinstance(dropout, KeyedDropout)
    found = []
    for step in range(5):
        dropout.key.fill_(1_000_003 * step)
        found.append(asked.sums(features, labels)[0][0])
        torch.testing.assert_close(found[-1], asked._form.sums(features, labels)[0][0])
    assert graphs(asked) == 1
    assert not torch.allclose(found[3], found[4])


@pytest.mark.usefixtures("soon")
def test_what_a_program_can_not_do_is_computed_plainly() -> None:
    plainly("cpu")


def by_a_list(value: Tensor) -> Tensor:
    return torch.tensor([2.0 if first > 0.0 else 1.0 for first in value[:, 0].tolist()])


def by_an_array(value: Tensor) -> Tensor:
    return torch.from_numpy(np.where(value[:, 0].numpy() > 0.0, 2.0, 1.0).astype(np.float32))


def by_a_selection(value: Tensor) -> Tensor:
    factors = torch.ones(len(value))
    chosen = value[value[:, 0] > 0.0]
    return factors.masked_scatter(value[:, 0] > 0.0, torch.full((len(chosen),), 2.0))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("factors", [by_a_list, by_an_array, by_a_selection])
def test_no_program_goes_on_by_what_an_earlier_batch_held(factors: Callable[[Tensor], Tensor]) -> None:
    """An example would have its say in every step after the one that was followed, beyond any clipping."""

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, CLASSES)

        def forward(self, value: Tensor) -> Tensor:
            output: Tensor = self.layer(value * factors(value.detach())[:, None])
            return output

    torch.manual_seed(0)
    model, features, labels = Asking(), torch.randn(8, 4), torch.randint(0, CLASSES, (8,))
    asked = gradient(model, features, labels)
    for own in (features, features, features, -features, features.roll(1, 0)):
        for a, b in zip(asked.sums(own, labels)[0], asked._form.sums(own, labels)[0], strict=True):
            torch.testing.assert_close(a, b)
    assert graphs(asked) == 0


@pytest.mark.usefixtures("soon")
def test_a_program_is_made_anew_for_another_number_in_a_dictionary_or_in_the_loss() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.held = nn.Linear(4, CLASSES), {"scale": [1.0]}

        def forward(self, value: Tensor) -> Tensor:
            output: Tensor = self.layer(value) * self.held["scale"][0]
            return output

    class Focal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = 1.0

        def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
            losses = cross_entropy(outputs, labels)
            return losses * (1.0 - torch.exp(-losses)) ** self.gamma

    torch.manual_seed(0)
    model, loss, features, labels = Listed(), Focal(), torch.randn(8, 4), torch.randint(0, CLASSES, (8,))
    asked = PrivateGradient(model=model, loss=loss, clipping=Clipping(bound=0.5), example=(features, labels))

    def agree() -> None:
        for _ in range(4):
            for a, b in zip(asked.sums(features, labels)[0], asked._form.sums(features, labels)[0], strict=True):
                torch.testing.assert_close(a, b)

    agree()
    model.held["scale"][0] = 2.0
    agree()
    loss.gamma = 2.0
    agree()
    assert graphs(asked) == 3


@pytest.mark.usefixtures("soon")
def test_the_first_steps_and_those_of_a_program_agree_bit_for_bit() -> None:
    """A run that is resumed begins without programs, and ends in the same weights."""
    model, features, labels = CASES["linear"].build()
    asked, fresh = (gradient(model, features, labels, bound=0.3) for _ in range(2))
    for _ in range(4):
        asked.sums(features, labels)
    assert (graphs(asked), graphs(fresh)) == (1, 0)
    for a, b in zip(asked.sums(features, labels)[0], fresh.sums(features, labels)[0], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_others_may_stand_in_the_place_of_parameters(case: Case) -> None:
    """So that a graph meets leaves that nobody's losses depend on."""
    model, features, labels = case.build()
    form, own = gradient(model, features, labels, bound=0.3)._form, list(model.parameters())
    kept = form.module(features)
    expected = form.sums(features, labels)[0]
    with captured._leaves_anew(form.module):
        assert not {*map(id, form.module.parameters())} & {*map(id, own)}
        found = form.sums(features, labels)[0]
    assert [*map(id, model.parameters())] == [*map(id, own)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    del kept


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_norms_leave_nothing_behind_that_only_the_collector_frees(kind: type[nn.LayerNorm | nn.RMSNorm]) -> None:
    """What is left would keep parameters' gradients on the stream of an earlier pass, and its memory."""
    model, features, labels = Case(
        make=lambda: nn.Sequential(nn.Linear(5, 8), kind(8), nn.Linear(8, CLASSES)), features=(5,)
    ).build()
    form = gradient(model, features, labels, form="book-keeping")._form
    gc.collect()
    gc.disable()
    try:
        form.sums(features, labels)
        left = [found for found in gc.get_objects() if type(found) is _Passed]
    finally:
        gc.enable()
    assert not left


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.usefixtures("_precise")
@pytest.mark.parametrize("case", [*CASES.values(), *GATE.values()], ids=[*CASES, *GATE])
def test_a_captured_step_gives_what_the_step_gives(case: Case) -> None:
    repeats(case, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_what_a_graph_can_not_do_is_computed_plainly() -> None:
    plainly("cuda")


def test_a_model_may_write_to_its_examples() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, CLASSES))
    features, labels = torch.randn(8, 6), torch.arange(8) % CLASSES
    ours = PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=1.0), example=(features, labels))
    sums, _ = ours.sums(features.clone(), labels)
    plain = PrivateGradient(
        model=nn.Sequential(nn.ReLU(), model[1]),
        loss=cross_entropy,
        clipping=Clipping(bound=1.0),
        example=(features, labels),
    )
    for own, other in zip(sums, plain.sums(features, labels)[0], strict=True):
        torch.testing.assert_close(own, other)


def test_a_mapped_pass_leaves_no_number_of_its_own_in_the_model() -> None:
    class Counts(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Linear(6, 6), nn.Linear(6, CLASSES)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            output: Tensor = self.out(torch.tanh(F.linear(x, self.first.weight)))
            return output

    model, few = Counts(), (torch.randn(8, 6), torch.arange(8) % CLASSES)
    with pytest.raises(ConfigError, match="puts another tensor in the place of the buffer 'calls'"):
        PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=1.0), example=few)
    assert int(model.calls) == int(model.calls.clone())


def test_a_loss_may_ask_for_a_view_of_outputs_that_lie_as_the_images_do() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1), nn.Flatten(2))
    features = torch.randn(8, 3, 8, 8)
    labels = (features[:, :2] > 0).float().flatten(1)

    def viewed(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs.view(len(labels), -1), labels, reduction="none").mean(1)

    ours = PrivateGradient(model=model, loss=viewed, clipping=Clipping(bound=1.0), example=(features, labels))
    assert ours.sums(features, labels)[0][0].any()


@pytest.mark.parametrize("form", ["book-keeping", "functional"])
def test_what_rounding_decides_in_a_deep_network_is_compared_beyond_rounding(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rectifiers that two kernels disagree about are no weight that is used outside its layer."""

    def rounds(layer: nn.GroupNorm, value: Tensor) -> Tensor:  # as a kernel may that adds up in another order
        output = F.group_norm(value, layer.num_groups, layer.weight, layer.bias, layer.eps)
        return output + (1e-5 * torch.cos(1e3 * output.detach()) if value.dtype == torch.float32 else 0.0)

    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(8):
        parts += [nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    model = nn.Sequential(*parts, nn.Flatten(), nn.Linear(8 * 16 * 16, CLASSES))
    features, labels = torch.randn(6, 3, 16, 16), torch.arange(6) % CLASSES
    plain = comparison._Few._by_autograd
    monkeypatch.setattr(comparison._Few, "_by_autograd", lambda *given: _otherwise(rounds, plain, given))
    asked = Comparison(model=model, loss=cross_entropy, features=features, labels=labels, lay_out=lambda own: own)
    few = asked._own
    compare = few.check_book_keeping if form == "book-keeping" else few.check_mapped
    assert not compare()
    (asked.check_book_keeping if form == "book-keeping" else asked.check_mapped)()


def _otherwise(rounds: Any, plain: Any, given: Any) -> Any:
    """Compute gradients with group norms that round otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.GroupNorm, "forward", rounds)
        return plain(*given)


@pytest.mark.parametrize("form", ["auto", "functional"])
@pytest.mark.parametrize("away", [0.0, 1.0], ids=["proximal", "decay"])
def test_a_loss_that_depends_on_the_models_parameters_by_itself_is_refused(form: Form, away: float) -> None:
    """A proximal term has no gradient where it begins, and later one that no form would see."""
    torch.manual_seed(0)
    model, features, labels = nn.Linear(6, CLASSES), torch.randn(6, 6), torch.arange(6) % CLASSES
    start = [parameter.detach() - away for parameter in model.parameters()]
    still = [parameter.clone() for parameter in start]

    def loss(outputs: Tensor, given: Tensor) -> Tensor:
        away = sum((own - was).square().sum() for own, was in zip(model.parameters(), still, strict=True))
        return cross_entropy(outputs, given) + 1e-3 * away

    with pytest.raises(ConfigError, match=r"depends on parameters of the model by itself.*weight_decay"):
        PrivateGradient(model=model, loss=loss, clipping=Clipping(bound=1.0), example=(features, labels), form=form)


class Beside(nn.Module):
    """Adds something of its first layer's weight beside it; nothing where that is what it began with."""

    def __init__(self, share: float = 0.02) -> None:
        super().__init__()
        self.first, self.out, self.share = nn.Linear(6, 6), nn.Linear(6, CLASSES), share
        self.began = self.first.weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        away = (self.first.weight - self.began).square().sum()
        output: Tensor = self.out(torch.tanh(self.first(x) + self.share * F.linear(x, self.first.weight)))
        return output * (1.0 + away)


@pytest.mark.parametrize("share", [0.02, 0.0])
def test_what_has_no_gradient_where_training_begins_is_compared_too(share: float) -> None:
    torch.manual_seed(0)
    model, features, labels = Beside(share), torch.randn(6, 6), torch.arange(6) % CLASSES
    before = [own.detach().clone() for own in model.parameters()]
    versions = [own._version for own in model.parameters()]
    assert gradient(model, features, labels).form == "functional"
    assert [own._version for own in model.parameters()] == versions
    assert all(map(torch.equal, before, model.parameters()))


def test_a_hook_with_a_closure_is_no_gradient_of_a_copy() -> None:
    """In double precision nobody would notice that the hook has the parameters of another model."""
    torch.manual_seed(0)
    first = nn.Linear(6, 6)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(6, CLASSES))
    model[1].register_forward_hook(lambda _, __, output: output + 0.01 * first.bias)
    few = torch.randn(6, 6), torch.arange(6) % CLASSES
    with pytest.raises(ConfigError, match="outside its layer"):
        PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=1.0), example=few, form="book-keeping")


class Unit(nn.Module):
    """Rows of a weight of length one, beyond which there is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, CLASSES)
        with torch.no_grad():
            self.layer.weight.copy_(F.normalize(self.layer.weight, dim=1))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x) * torch.sqrt(1.001 - self.layer.weight.square().sum(1))
        return output


class Flagged(nn.Module):
    """Asks a parameter what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.share = nn.Linear(6, CLASSES), nn.Parameter(torch.ones(3))
        self.flag = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if float(self.flag.detach()) not in (0.0, 1.0):
            raise ValueError("a flag is 0 or 1")
        if float(self.share.detach().max()) > 1.0:
            raise ValueError("a share is at most 1")
        output: Tensor = self.layer(x) * self.share.mean()
        return output


@pytest.mark.parametrize("make", [Unit, Flagged])
def test_what_has_no_numbers_a_little_away_is_compared_where_it_is(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, features, labels = make(), torch.randn(6, 6), torch.arange(6) % CLASSES
    assert gradient(model, features, labels).form == "functional"


def test_a_loss_may_listen_to_gradients_and_write_to_outputs() -> None:
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            assert outputs.requires_grad
            outputs.register_hook(lambda pulled: pulled.clamp(-0.1, 0.1))  # type: ignore[no-untyped-call]  # torch's
        return cross_entropy(outputs.mul_(2.0), labels)

    model, features, labels = nn.Linear(6, CLASSES), torch.randn(6, 6), torch.arange(6) % CLASSES
    PrivateGradient(model=model, loss=loss, clipping=Clipping(bound=1.0), example=(features, labels))


@pytest.mark.usefixtures("soon")
def test_losses_of_a_program_may_be_written_to() -> None:
    model, features, labels = CASES["linear"].build()
    asked = gradient(model, features, labels)
    for _ in range(4):
        losses = asked.sums(features, labels)[1]
        losses.add_(1.0)
        (torch.ones((), requires_grad=True) * losses).sum().backward()  # type: ignore[no-untyped-call]  # torch's
    assert graphs(asked) == 1


class Itself(nn.Module):
    """A frozen part that all copies share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))

    def __deepcopy__(self, memo: dict[int, Any]) -> Itself:
        return self


def test_a_part_that_is_its_own_copy_stays_as_it_is() -> None:
    torch.manual_seed(0)
    part = Itself()
    model = nn.Sequential(part, Beside())
    assert gradient(model, torch.randn(6, 6), torch.arange(6) % CLASSES).form == "functional"
    assert part.layer.weight.dtype == torch.float32
    assert part.training


def test_parameters_of_other_kinds_keep_their_places() -> None:
    class Own(nn.Parameter):
        pass

    own: Any = nn.Linear(6, 6)
    tagged: Any = nn.Linear(6, CLASSES)
    model = nn.Sequential(own, nn.Linear(6, 6).requires_grad_(False), tagged)
    own.weight = Own(own.weight.detach())
    tagged.weight.scale = 0.5  # as some do
    before = list(model.parameters())
    with captured._leaves_anew(model):
        stands_in = [one is not other for one, other in zip(model.parameters(), before, strict=True)]
        assert tagged.weight.scale == 0.5
    assert stands_in == [False, True, False, False, True, True]
    assert all(one is other for one, other in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("where", ["forward", "loss", "backward"])
def test_a_pass_that_fails_leaves_nothing_that_listens(where: str) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            raise OSError("no way back")

    bad, model = False, nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES))

    def fails(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        if bad and where == "forward":
            raise OSError("no way on")
        return Fails.apply(output) if bad and where == "backward" else output  # type: ignore[no-untyped-call]  # torch's

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        if bad and where == "loss":
            raise OSError("no loss")
        return cross_entropy(outputs, labels)

    features, labels = torch.randn(6, 6), torch.arange(6) % CLASSES
    form = book_keeping.BookKeeping(model, loss, Clipping(bound=1.0))
    model[2].register_forward_hook(fails)
    right = form.sums(features, labels)[0]
    bad = True
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(OSError, match="no "):
            form.sums(features, labels)
        assert not any(type(own) is _Passed and own._value is not None for own in gc.get_objects())
    finally:
        gc.enable()
    bad = False
    assert all(map(torch.equal, form.sums(features, labels)[0], right))


def test_a_share_of_a_weight_that_is_used_outside_its_layer_shows_beyond_rounding() -> None:
    class Sharing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Linear(6, 6), nn.Linear(6, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.out(torch.tanh(self.first(x) + 0.01 * F.linear(x, self.first.weight)))
            return output

    torch.manual_seed(0)
    model, features, labels = Sharing(), torch.randn(6, 6), torch.arange(6) % CLASSES
    asked = Comparison(model=model, loss=cross_entropy, features=features, labels=labels, lay_out=lambda own: own)
    assert not asked._own.check_book_keeping()  # no more than a rectifier might do
    with pytest.raises(NoRule, match="outside its layer"):
        asked.check_book_keeping()
    assert gradient(model, features, labels).form == "functional"


class Kept(nn.Module):
    """A penalty on what has been moved since it began, in its outputs."""

    def __init__(self, turn: str) -> None:
        super().__init__()
        self.layer, self.out = nn.Conv2d(3, 8, 3), nn.Linear(32, CLASSES)
        if turn == "channels innermost":
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub knows fewer
        elif turn == "turned":
            self.layer.weight = nn.Parameter(
                self.layer.weight.detach().permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
            )
        self.began = self.layer.weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        away = (self.layer.weight - self.began).square().sum()
        output: Tensor = self.out(torch.relu(self.layer(x)).flatten(1)) * (1.0 + away)
        return output


@pytest.mark.parametrize("turn", ["", "channels innermost", "turned"])
def test_parameters_are_moved_however_they_lie(turn: str) -> None:
    torch.manual_seed(0)
    model = Kept(turn)
    assert gradient(model, torch.randn(6, 3, 4, 4), torch.arange(6) % CLASSES).form == "functional"


class Headed(nn.Module):
    """A head of zeros that bears no other numbers, and a weight outside its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        outside = F.linear(x, self.first.weight)[:, :CLASSES] * torch.arange(float(CLASSES))
        root = torch.sqrt(1.0 - self.head(x * 1e4).square() + 1e-6)
        output: Tensor = root + self.first(x)[:, :CLASSES] + outside
        return output


class Gated(nn.Module):
    """What a frozen gate of zeros leaves out for now."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.gate = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.first(x).tanh())
        return output + self.gate * self.first.weight.sum() * torch.arange(float(CLASSES))


@pytest.mark.parametrize("make", [Headed, Gated])
def test_zeros_hide_nothing(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    assert gradient(make(), torch.randn(6, 5), torch.arange(6) % CLASSES).form == "functional"


def test_what_is_finite_nowhere_is_refused() -> None:
    class Nowhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sqrt(-1.0 - self.layer(x).square())

    with pytest.raises(ConfigError, match="not finite, so that nothing tells"):
        gradient(Nowhere(), torch.randn(6, 5), torch.arange(6) % CLASSES)


def test_a_loss_may_listen_to_outputs_of_a_kind_of_their_own() -> None:
    class Told:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Telling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, CLASSES)

        def forward(self, x: Tensor) -> Told:
            return Told(self.layer(x))

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            outputs.logits.register_hook(lambda pulled: pulled.clamp(-0.1, 0.1))
        return cross_entropy(outputs.logits, labels)

    few = torch.randn(6, 5), torch.arange(6) % CLASSES
    asked = PrivateGradient(model=Telling(), loss=loss, clipping=Clipping(bound=1.0), example=few)
    assert asked.form == "book-keeping"
