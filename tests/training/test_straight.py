"""Straight programs of tiny models' steps: the same numbers, bit for bit, and none where a program would be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tacit.errors import ConfigError
from tacit.training.batches import Holdings
from tacit.training.forms import Form, cohort_trainer
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tacit.training.state import state_of
from tacit.training.straight import Program, StraightStep
from tests.training.common import Custom

SIZES = [12, 12, 8, 6]
LOSSES: dict[int, list[float]] = {}  # of each client, in the rounds of the last training
SETTINGS = LocalTraining(epochs=1, batch_size=4, lr=0.1, momentum=0.9, weight_decay=1e-3, grad_clip=1.0, mu=0.1)


class Columns(nn.Module):
    """A table's model: two columns of categories, the others numbers; no rule knows how columns are taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Embedding(3, 2), nn.Embedding(4, 2)
        self.norm, self.drop = nn.LayerNorm(3), nn.Dropout(0.3)
        self.first, self.out = nn.Linear(7, 8), nn.Linear(8, 3)
        self.scale, self.passes = nn.Parameter(torch.ones(8)), 0

    def forward(self, x: Tensor) -> Tensor:
        values = torch.cat([self.one(x[:, 0].long()), self.two(x[:, 1].long()), self.norm(x[:, 2:])], 1)
        output: Tensor = self.out(self.drop(torch.tanh(self.first(values)) * self.scale))
        return output


class Counting(Columns):
    """The same, with a number that every pass changes."""

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return super().forward(x)


def by_the_labels(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss that looks at its labels: a program would do forever what they said once."""
    losses = cross_entropy(outputs, labels)
    return 2.0 * losses if bool(labels[0] == 0) else losses


def by_a_list_of_labels(outputs: Tensor, labels: Tensor) -> Tensor:
    """The same, by a question that torch does not refuse while it follows a step."""
    return cross_entropy(outputs, labels) * torch.tensor([1.0 + label for label in labels.flatten().tolist()])


def train(
    module: nn.Module,
    *,
    form: Form = "auto",
    loss: Loss = cross_entropy,
    settings: LocalTraining = SETTINGS,
    sizes: Sequence[int] = SIZES,
) -> tuple[list[NDArray[np.float32]], int]:
    """Return the updates of all rounds, and how many programs there were at the end; losses are in ``LOSSES``."""
    LOSSES.clear()
    draw, count = torch.Generator().manual_seed(1), sum(sizes)
    features = torch.cat([torch.randint(0, 3, (count, 2), generator=draw), torch.randn(count, 3, generator=draw)], 1)
    labels = torch.randint(0, 3, (count,), generator=draw)
    holdings = Holdings(features=features, labels=labels, rows=np.split(np.arange(count), np.cumsum(sizes)[:-1]))
    trainer = cohort_trainer(module=module, holdings=holdings, settings=settings, loss=loss, form=form, workers=2)
    made: list[StraightStep] = []
    stepper = getattr(trainer._between, "__self__", None)
    if isinstance(stepper, StraightStep):
        made.append(stepper)
    model = trainer.layout.read(module).numpy()
    rounds = []
    for number in range(1, 5):
        updates = np.zeros((len(sizes), len(model)), np.float32)

        def finish(client: int, update: NDArray[np.float32], loss: float, own: NDArray[np.float32] = updates) -> None:
            assert np.isfinite(loss)
            own[client] = update
            LOSSES.setdefault(client, []).append(loss)

        trainer.train(model, range(len(sizes)), np.arange(len(sizes)) + 10 * number, number, finish)
        rounds.append(updates)
        model = model + updates.mean(0)
    trainer.close()
    return rounds, sum(shape.program is not None for own in made for shape in own._shapes.values())


def due(monkeypatch: pytest.MonkeyPatch, uses: int) -> None:
    defaults: Any = StraightStep.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "uses", uses)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    due(monkeypatch, 2)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_program_gives_the_same_numbers_bit_for_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    settings = SETTINGS if name == "sgd" else LocalTraining(epochs=1, batch_size=4, lr=0.01, name="adam")
    module = Columns()
    by_program, programs = train(module, settings=settings)
    assert programs > 0
    due(monkeypatch, 10**9)
    plainly, programs = train(module, settings=settings)
    assert programs == 0
    for one, other in zip(by_program, plainly, strict=True):
        assert np.array_equal(one, other)
    in_a_loop, _ = train(module, settings=settings, form="loop")
    np.testing.assert_allclose(by_program[-1], in_a_loop[-1], atol=1e-5)


@pytest.mark.parametrize("sizes", [[12, 12, 12, 12], [12, 12, 8, 6], [13, 9], [3, 2]], ids=str)
def test_steps_that_python_does_not_see_give_the_same_numbers(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    settings, module = LocalTraining(epochs=2, batch_size=4, lr=0.1), Columns()
    taken: list[int] = []
    descend = Program.descend

    def watched(own: Program, parameters: list[Tensor], *given: Any) -> None:
        taken.append(len(given[3]))
        descend(own, parameters, *given)

    monkeypatch.setattr(Program, "descend", watched)
    seen, losses = train(module, settings=settings, sizes=sizes)[0], dict(LOSSES)
    assert bool(taken) == (max(sizes) > 3)  # one padded step each: nothing to take together
    due(monkeypatch, 10**9)
    assert train(module, settings=settings, sizes=sizes)[1] == 0
    plainly = train(module, settings=settings, sizes=sizes)[0]
    assert all(np.array_equal(one, other) for one, other in zip(seen, plainly, strict=True))
    assert losses == LOSSES  # a resumed run, whose programs are made anew, tells the same
    if len(set(sizes)) > 1:
        assert max(taken, default=0) <= 2 * max(sizes) // 4  # padded steps are not among them


@pytest.mark.parametrize(
    "changes", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"grad_clip": 1.0}, {"mu": 0.1}], ids=str
)
def test_what_comes_between_gradients_and_steps_is_not_passed_over(
    changes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    settings = LocalTraining(epochs=1, batch_size=4, lr=0.1, **changes)  # type: ignore[arg-type]  # all are numbers
    module = Columns()
    by_program, programs = train(module, settings=settings, sizes=[12] * 4)
    assert programs > 0
    in_a_loop, _ = train(module, settings=settings, form="loop", sizes=[12] * 4)
    np.testing.assert_allclose(by_program[-1], in_a_loop[-1], atol=1e-5)


class Normed(nn.Module):
    """Batch norm, whose statistics a step changes by itself, dropout, and a layer that does not train."""

    def __init__(self, *, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.first, self.norm, self.out = nn.Linear(5, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 3)
        self.drop, self.still = nn.Dropout(0.3), nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.still(self.drop(torch.relu(self.norm(self.first(x))))))
        return output


@pytest.mark.parametrize("sizes", [[12, 12, 12, 12], [13, 9, 4, 1], [3, 2], [12]], ids=str)
@pytest.mark.parametrize(
    "changes",
    [{}, {"momentum": 0.9, "weight_decay": 0.1}, {"grad_clip": 0.1}, {"mu": 0.1}, {"name": "adam", "lr": 0.01}],
    ids=str,
)
def test_a_loop_by_programs_gives_the_same_numbers(
    sizes: list[int], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    settings, module = LocalTraining(**({"epochs": 2, "batch_size": 4, "lr": 0.1} | changes)), Normed()
    seen, programs = train(module, settings=settings, sizes=sizes, form="loop")
    losses = {client: list(own) for client, own in LOSSES.items()}
    followed = not {"grad_clip", "mu", "name"} & set(changes)  # between gradients and steps they are in Python
    assert bool(programs) == followed
    due(monkeypatch, 10**9)
    plainly, programs = train(module, settings=settings, sizes=sizes, form="loop")
    assert programs == 0
    for one, other in zip(seen, plainly, strict=True):
        np.testing.assert_array_equal(one, other)
    for client, own in LOSSES.items():
        np.testing.assert_allclose(losses[client], own, rtol=1e-6)


def test_batches_are_counted_by_programs_too() -> None:
    torch.manual_seed(0)
    module = Normed(momentum=None)  # a mean over all batches, by their number
    settings = LocalTraining(epochs=1, batch_size=4, lr=0.1)
    seen, programs = train(module, settings=settings, sizes=[12, 12], form="loop")
    assert programs == 0  # which Python asks for
    assert np.isfinite(seen[-1]).all()


class Round(nn.Module):
    """Uses a weight a second time, by another way than its name in the module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 3)
        self.weights = [self.first.weight]

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.first(x) * self.weights[0].sum()
        return output


def test_a_parameter_that_is_reached_by_another_way_has_all_of_its_gradient() -> None:
    torch.manual_seed(0)
    module, settings = Round(), LocalTraining(epochs=1, batch_size=12, lr=0.1)
    found, programs = train(module, settings=settings, sizes=[12])
    assert programs == 0
    draw = torch.Generator().manual_seed(1)
    features = torch.cat([torch.randint(0, 3, (12, 2), generator=draw), torch.randn(12, 3, generator=draw)], 1)
    labels = torch.randint(0, 3, (12,), generator=draw)
    gradients = torch.autograd.grad(cross_entropy(module(features), labels).mean(), list(module.parameters()))
    expected = -0.1 * torch.cat([gradient.flatten() for gradient in gradients])
    np.testing.assert_allclose(found[0][0], expected.numpy(), rtol=1e-4, atol=1e-7)
    for form in ("vmap", "grouped"):
        with pytest.raises(ConfigError, match="reaches a parameter by another way than its name"):
            train(module, settings=settings, form=form)
    with pytest.raises(ConfigError, match="reaches a parameter by another way than its name"):
        PrivateGradient(
            model=module,
            loss=cross_entropy,
            clipping=Clipping(bound=1.0),
            example=(features, labels),
            form="functional",
        )


def test_what_a_program_would_get_wrong_is_computed_plainly() -> None:
    torch.manual_seed(0)
    assert train(Counting())[1] == 0
    assert train(Columns())[1] > 0
    for loss in (by_the_labels, by_a_list_of_labels):
        found, programs = train(Columns(), loss=loss)
        assert programs == 0
        assert np.isfinite(found[-1]).all()


def test_no_program_is_made_of_a_pass_that_changes_a_buffer() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("passes", torch.zeros(()))

    module = Counted()
    own = StraightStep(lambda value: [value * module.get_buffer("passes").add_(1.0)], module, uses=1)
    assert own(torch.ones(3)) is None
    own.make()
    assert own(torch.ones(3)) is None


def test_a_program_that_differs_is_not_used() -> None:
    turns = iter([1.0, 2.0])  # as a step that reads a clock, or a file
    own = StraightStep(lambda value: [value * next(turns)], nn.Identity(), uses=2)
    given = torch.ones(3)
    assert own(given) is None
    assert own(given) is None
    own.make()
    assert own(given) is None
    assert not any(shape.program for shape in own._shapes.values())


class MaxNorm(nn.Linear):
    """A layer whose weight never grows beyond a norm, as EEGNet's."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 1.0)
        return super().forward(input)


def _again(model: Any, x: Tensor) -> Tensor:
    output: Tensor = model.out(
        checkpoint(lambda own: torch.tanh(model.inner(own)), model.first(x), use_reentrant=False)
    )
    return output


def _split(model: Any, x: Tensor) -> Tensor:
    values = torch.tanh(model.first(x))
    one, other = torch.tensor_split(values, (values[0] > 0).sum().clamp(1, 7).view(1), dim=1)
    output: Tensor = model.out(torch.cat([2.0 * one, other], 1))
    return output


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), MaxNorm(8, 3)),
        lambda: Custom(_again, first=nn.Linear(5, 8), inner=nn.Linear(8, 8), out=nn.Linear(8, 3)),
        lambda: Custom(_split, first=nn.Linear(5, 8), out=nn.Linear(8, 3)),
    ],
    ids=["a weight that is replaced", "a checkpoint", "a split by numbers"],
)
def test_no_program_is_made_of_what_it_would_not_do_again(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module, plain = make(), LocalTraining(epochs=4, batch_size=4, lr=0.5)
    found, programs = train(module, settings=plain, form="loop")
    assert programs == 0
    due(monkeypatch, 10**9)
    expected, _ = train(module, settings=plain, form="loop")
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


class Kept:
    """What a user's loss may keep, and where."""

    __slots__ = ("__dict__", "slot")
    shared = torch.ones(3)

    def __init__(self) -> None:
        self.early, self.late = nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.5)
        self.now, self.function, self.of_torch = self.early, (lambda x: x), torch.relu
        self.long, self.array, self.slot = [1.0] * 100, np.ones(100), 1.0
        self.torchs, self.numpys = torch.Generator().manual_seed(0), np.random.default_rng(0)

    @staticmethod
    def of_all() -> float:
        return GLOBAL["static"]

    @property
    def of_one(self) -> float:
        return GLOBAL["property"]

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        losses: Tensor = settings_of_the_user.weight * cross_entropy(outputs, labels)
        return losses


GLOBAL = {"static": 1.0, "property": 1.0}
settings_of_the_user = ModuleType("settings")
vars(settings_of_the_user)["weight"] = 1.0


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: setattr(loss, "now", loss.late),
        lambda loss: setattr(loss, "function", lambda x: 3 * x),
        lambda loss: setattr(loss, "of_torch", torch.tanh),
        lambda loss: setattr(loss, "slot", 2.0),
        lambda loss: loss.long.__setitem__(99, 2.0),
        lambda loss: loss.array.__setitem__(99, 2.0),
        lambda loss: loss.numpys.random(),
        lambda loss: torch.rand(1, generator=loss.torchs),
        lambda _: GLOBAL.update(static=GLOBAL["static"] + 1.0),
        lambda _: vars(settings_of_the_user).update(weight=settings_of_the_user.weight + 1.0),
        lambda _: setattr(Kept, "shared", torch.zeros(3)),
    ],
    ids=["another", "function", "torch's", "slot", "list", "array", "NumPy", "torch", "static", "module", "class"],
)
def test_whatever_a_loss_goes_by_is_noticed_where_it_changes(change: Callable[[Any], object]) -> None:
    loss = Kept()
    before = state_of(loss)
    assert state_of(loss) == before
    change(loss)
    assert state_of(loss) != before


def test_of_all_that_code_can_reach_the_nearest_is_looked_into() -> None:
    loss: Any = Kept()
    loss.weights = {"a": {"b": 1.0}}
    loss.examples = [[(number, [number])] for number in range(100_000)]
    before = state_of(loss)
    assert len(before) < 300_000  # of 500,000
    loss.weights["a"]["b"] = 2.0
    assert state_of(loss) != before


def test_much_code_hides_no_number() -> None:
    many = type("Many", (), {f"f{number}": lambda _: None for number in range(300)})
    loss: Any = many()
    loss.weights = {"a": {"b": 1.0}}
    before = state_of(loss)
    loss.weights["a"]["b"] = 2.0
    assert state_of(loss) != before
