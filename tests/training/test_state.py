"""Models and losses that hold something: clients begin alike, forms agree or refuse, and no program freezes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.batches import Holdings
from tacit.training.forms import Form, cohort_trainer
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tacit.training.straight import StraightStep

Leaves = Callable[[Any, Tensor], Any]

SETTINGS = LocalTraining(epochs=2, batch_size=4, lr=0.1)
ROUNDS = 5


class Plain(nn.Module):
    """Two layers, and between them what a test puts there."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.out = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(torch.relu(self.between(self.first(x))))
        return outputs

    def between(self, values: Tensor) -> Tensor:
        output: Tensor = self.norm(values)
        return output


class ByAnotherName(Plain):
    """Reads batch norm's statistics by another way than their name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [self.norm.running_mean]

    def between(self, values: Tensor) -> Tensor:
        assert self.seen[0] is not None
        return super().between(values) - self.seen[0]


class OfItsWeight(Plain):
    """Reads a weight by another way, of which no gradient tells."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.weights = nn.Identity(), [self.first.weight]  # type: ignore[assignment]

    def between(self, values: Tensor) -> Tensor:
        return values * (1.0 + self.weights[0].detach().sum(1))


class Counting(Plain):
    """Counts its passes where nobody looks, and goes by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.passes = nn.Identity(), np.zeros(1)  # type: ignore[assignment]

    def between(self, values: Tensor) -> Tensor:
        self.passes[0] += 1
        return values * (2.0 if self.passes[0] > 3 else 1.0)


class CountingWhole(Counting):
    """The same in a buffer of whole numbers."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def between(self, values: Tensor) -> Tensor:
        self.steps += 1
        return values / self.steps.float()


class Assigning(Plain):
    """Keeps a mean in a buffer that every pass puts another in the place of."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Identity()  # type: ignore[assignment]
        self.register_buffer("mean", torch.zeros(8))

    def between(self, values: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * values.mean(0).detach()
        return values - self.mean


class Remembering(Assigning):
    """The same in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = {"mean": torch.zeros(8)}

    def between(self, values: Tensor) -> Tensor:
        self.kept["mean"] = 0.9 * self.kept["mean"] + 0.1 * values.mean(0).detach()
        return values - self.kept["mean"]


class Clamping(Plain):
    """Writes to a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Identity()  # type: ignore[assignment]

    def between(self, values: Tensor) -> Tensor:
        with torch.no_grad():
            self.out.weight.clamp_(-0.3, 0.3)
        return values


class Listening(Clamping):
    """Halves a gradient."""

    def between(self, values: Tensor) -> Tensor:
        if values.requires_grad:
            values.register_hook(lambda gradient: 0.5 * gradient)  # type: ignore[no-untyped-call]
        return values


class StillNorm(Plain):
    """One norm learns, and the model keeps the other one as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.still = nn.BatchNorm1d(8)

    def train(self, mode: bool = True) -> StillNorm:
        super().train(mode)
        self.still.eval()
        return self

    def between(self, values: Tensor) -> Tensor:
        return super().between(self.still(values))


class Slotted:
    """Holds a number without a dictionary."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0


class Leaving(Plain):
    """Leaves something in itself, by a function of the model and of values."""

    def __init__(self, leaves: Leaves, **own: Any) -> None:
        super().__init__()
        self.leaves = leaves
        for name, value in own.items():
            setattr(self, name, value)
        self.register_buffer("empty", None)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def between(self, values: Tensor) -> Tensor:
        output: Tensor = self.leaves(self, values)
        return output


def _moved(before: Tensor | None, values: Tensor) -> Tensor:
    mean = values.detach().mean(0)
    return mean if before is None else 0.9 * before + 0.1 * mean


def fills_a_buffer(own: Any, values: Tensor) -> Any:
    own.empty = _moved(own.empty, values)
    return values - own.empty


def fills_it_once(own: Any, values: Tensor) -> Any:
    own.empty = values.detach().mean(0) if own.empty is None else own.empty
    return values - own.empty


def adds_a_buffer(own: Any, values: Tensor) -> Any:
    own.register_buffer("late", _moved(getattr(own, "late", None), values))
    return values - own.late


def adds_a_part(own: Any, values: Tensor) -> Any:
    if len(values) < 4 and "late" not in own._modules:
        own.add_module("late", nn.Tanh())
    return own.late(values) if "late" in own._modules else values


def counts_past_versions(own: Any, values: Tensor) -> Any:
    own.count.data.add_(1)
    return values / own.count


def changes_with_gradients(own: Any, values: Tensor) -> Any:
    if torch.is_grad_enabled():
        own.mean += _moved(own.mean, values) - own.mean
    return values - own.mean


def changes_on_the_way_back(own: Any, values: Tensor) -> Any:
    if values.requires_grad:
        values.register_hook(lambda gradient: own.counts.append(1.0))  # type: ignore[no-untyped-call]
    return values / len(own.counts)


def changes_when_ragged(own: Any, values: Tensor) -> Any:
    own.seen = own.seen or len(values) < 4
    return values * (2.0 if own.seen else 1.0)


def changes_by_what_it_sees(own: Any, values: Tensor) -> Any:
    own.seen = own.seen or bool(values.max() > 1.8)
    return values * (2.0 if own.seen else 1.0)


def notes_what_stands_out(own: Any, values: Tensor) -> Any:
    most = values.detach().abs().max()
    if float(most) > float(own.most[0]):
        if isinstance(own.most[0], Tensor):
            own.most[0].copy_(most)
        else:
            own.most[0] = float(most)
    return values / own.most[0]


def notes_it_past_versions(own: Any, values: Tensor) -> Any:
    most = values.detach().abs().max()
    if float(most) > float(own.most):
        own.most.data.copy_(most)
    return values / own.most


def puts_a_norm_aside(own: Any, values: Tensor) -> Any:
    if len(values) < 4:
        own.norm.eval()
    return own.norm(values)


def listens_to_a_weight(own: Any, values: Tensor) -> Any:
    if own.out.weight.requires_grad:
        own.out.weight.register_hook(lambda gradient: 0.9 * gradient)
    return values


def notes_on_a_weight(own: Any, values: Tensor) -> Any:
    own.out.weight.note = getattr(own.out.weight, "note", 0.0) + 1.0
    return values / own.out.weight.note


def counts_in_a_list(own: Any, values: Tensor) -> Any:
    own.counts[0] += 1.0
    return values / float(own.counts[0])


def counts_in_a_slot(own: Any, values: Tensor) -> Any:
    own.held.now += 1.0
    return values / own.held.now


def draws_by_its_own(own: Any, values: Tensor) -> Any:
    return values * (1.0 + torch.rand(8, generator=own.draw))


def draws_by_numpy(own: Any, values: Tensor) -> Any:
    return values * (1.0 + float(own.draw.random()))


LEAVING: list[tuple[Leaves, dict[str, Callable[[], object]]]] = [
    (fills_a_buffer, {}),
    (fills_it_once, {}),
    (adds_a_buffer, {}),
    (adds_a_part, {}),
    (counts_past_versions, {}),
    (changes_with_gradients, {"mean": lambda: torch.zeros(8)}),
    (changes_on_the_way_back, {"counts": lambda: [1.0]}),
    (changes_when_ragged, {"seen": lambda: False}),
    (changes_by_what_it_sees, {"seen": lambda: False}),
    (notes_what_stands_out, {"most": lambda: [1.8]}),
    (notes_what_stands_out, {"most": lambda: {0: 1.8}}),
    (notes_what_stands_out, {"most": lambda: [torch.tensor(1.8)]}),
    (notes_it_past_versions, {"most": lambda: torch.tensor(1.8)}),
    (puts_a_norm_aside, {}),
    (listens_to_a_weight, {}),
    (notes_on_a_weight, {}),
    (counts_in_a_list, {"counts": lambda: [0.0] * 100}),
    (counts_in_a_list, {"counts": lambda: np.zeros(100)}),
    (counts_in_a_slot, {"held": Slotted}),
    (draws_by_its_own, {"draw": lambda: torch.Generator().manual_seed(0)}),
    (draws_by_numpy, {"draw": lambda: np.random.default_rng(0)}),
]


class Warming:
    """A loss that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        self.calls += 1
        return cross_entropy(outputs, labels) * (2.0 if self.calls > 60 else 1.0)


def among_others(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss of an example by those of others."""
    losses = cross_entropy(outputs, labels)
    return losses / (1.0 + losses.detach().mean())


def train(
    module: nn.Module,
    *,
    form: Form = "auto",
    loss: Loss = cross_entropy,
    sizes: Sequence[int] = (12, 12, 10, 13),
    workers: int = 2,
    uses: int = 2,
    before: Callable[[int], object] = lambda number: None,
    clients: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Return the updates of all clients in all rounds; zeros of those who don't train."""
    defaults: Any = StraightStep.__init__.__kwdefaults__
    usual, defaults["uses"] = defaults["uses"], uses
    draw, count = torch.Generator().manual_seed(1), sum(sizes)
    features, labels = torch.randn(64, 5, generator=draw), torch.randint(0, 3, (64,), generator=draw)
    holdings = Holdings(features=features, labels=labels, rows=np.split(np.arange(count), np.cumsum(sizes)[:-1]))
    try:
        trainer = cohort_trainer(
            module=module, holdings=holdings, settings=SETTINGS, loss=loss, form=form, workers=workers
        )
    finally:
        defaults["uses"] = usual
    model, clients = trainer.layout.read(module).numpy(), range(len(sizes)) if clients is None else clients
    rounds = np.zeros((ROUNDS, len(sizes), len(model)), np.float32)
    for number, updates in enumerate(rounds, 1):
        before(number)

        def finish(client: int, update: NDArray[np.float32], _: float, own: NDArray[np.float32] = updates) -> None:
            own[client] = update

        trainer.train(model, clients, np.asarray(clients) + 10 * number, number, finish)
        model = model + updates.mean(0)
    trainer.close()
    return rounds


@pytest.mark.parametrize(
    "kind",
    [
        ByAnotherName, OfItsWeight, Counting, CountingWhole, Assigning, Remembering, Clamping, Listening, StillNorm,
    ],
)  # fmt: skip
def test_whoever_trains_where_and_by_what_the_numbers_are_the_same(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind()
    plainly = train(module, form="loop", workers=1, uses=10**9)
    assert np.isfinite(plainly).all()
    for workers in (1, 2):
        np.testing.assert_array_equal(train(module, form="loop", workers=workers), plainly)
    np.testing.assert_allclose(train(module), plainly, atol=1e-5)
    with pytest.raises(ConfigError, match="does not fit this model"):
        train(module, form="vmap")
    alone = train(module, form="loop", sizes=(12,), uses=10**9)  # nobody comes before
    np.testing.assert_array_equal(alone[0, 0], plainly[0, 0])


@pytest.mark.parametrize(("leaves", "own"), LEAVING)
def test_what_a_client_leaves_in_the_module_goes_with_him(leaves: Leaves, own: dict[str, Callable[[], object]]) -> None:
    torch.manual_seed(0)
    module = Leaving(leaves, **{name: made() for name, made in own.items()})
    behind = train(module, form="loop", workers=1, uses=10**9)
    alone = train(module, form="loop", workers=1, uses=10**9, clients=[2])
    assert behind[0, 2].any()
    np.testing.assert_array_equal(alone[0, 2], behind[0, 2])
    np.testing.assert_array_equal(train(module, form="loop", workers=1), behind)  # by a program, where there is one


def test_numbers_that_change_places_in_a_buffer_that_is_not_sent_are_noticed() -> None:
    def turns(own: Any, values: Tensor) -> Any:
        own.turning.copy_(own.turning.roll(1))
        return values * own.turning

    module = Leaving(turns)
    module.register_buffer("turning", torch.linspace(0.5, 1.5, 8), persistent=False)
    with pytest.raises(ConfigError, match=r"'turning' is frozen, and training changed it"):
        train(module, form="loop", workers=1)


def test_complex_buffers_without_axes_are_watched_too() -> None:
    module = Leaving(lambda own, values: values * own.phase.abs().float())
    module.register_buffer("phase", torch.tensor(1 + 1j, dtype=torch.complex128))
    assert train(module, form="loop", workers=1).any()


def test_a_pass_that_freezes_what_trains_is_refused_and_leaves_nothing_frozen() -> None:
    def freezes(own: Any, values: Tensor) -> Any:
        own.first.weight.requires_grad_(len(values) == 4)
        return values

    torch.manual_seed(0)
    module = Leaving(freezes)
    draw = torch.Generator().manual_seed(1)
    holdings = Holdings(
        features=torch.randn(18, 5, generator=draw),
        labels=torch.randint(0, 3, (18,), generator=draw),
        rows=[np.arange(8), np.arange(8, 18)],
    )
    trainer = cohort_trainer(
        module=module, holdings=holdings, settings=SETTINGS, loss=cross_entropy, form="loop", workers=1
    )
    model = trainer.layout.read(module).numpy()
    found: list[NDArray[np.float32]] = []

    def fit(client: int) -> None:
        trainer.train(model, [client], np.array([5]), 1, lambda _client, update, _loss: found.append(update.copy()))

    fit(0)
    with pytest.raises(ConfigError, match=r"A pass froze 'first\.weight'"):
        fit(1)
    fit(0)
    trainer.close()
    np.testing.assert_array_equal(found[0], found[1])


def test_a_buffer_that_is_put_in_the_place_of_another_is_part_of_the_update() -> None:
    torch.manual_seed(0)
    assert np.abs(train(Assigning(), form="loop")[:, :, -8:]).min(axis=2).all()


@pytest.mark.parametrize("loss", [Warming, lambda: among_others], ids=["state", "others"])
def test_a_loss_that_is_no_function_of_one_example_is_one_of_a_client(loss: Callable[[], Loss]) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    plainly = train(module, form="loop", loss=loss(), workers=1, uses=10**9)
    np.testing.assert_array_equal(train(module, form="loop", loss=loss(), workers=1), plainly)
    np.testing.assert_array_equal(train(module, loss=loss(), workers=1), plainly)
    with pytest.raises(ConfigError, match="does not fit this model"):
        train(module, form="grouped", loss=loss())


@pytest.mark.parametrize("form", ["loop", "vmap", "grouped"])
def test_a_program_goes_by_what_a_loss_holds_now(form: Form) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    now = {"weight": 1.0}

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        return now["weight"] * cross_entropy(outputs, labels)

    def before(number: int) -> None:
        now["weight"] = 1.0 if number < 4 else 3.0

    by_program, plainly = (train(module, form=form, loss=loss, uses=uses, before=before) for uses in (2, 10**9))
    np.testing.assert_array_equal(by_program, plainly)


@pytest.mark.parametrize("form", ["loop", "grouped", "lanes"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_of_the_callers_thread_change_nothing(form: Form, mode: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    expected = train(module, form=form, workers=2)
    with mode():
        for workers in (1, 2):
            np.testing.assert_array_equal(train(module, form=form, workers=workers), expected)


def test_somebody_may_train_while_another_model_is_followed() -> None:
    module, other = Plain(), nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    calls = type(module).__call__
    stop, failed = threading.Event(), []

    def trains() -> None:
        try:
            while not stop.is_set():
                train(module, form="loop", sizes=(12, 12), uses=10**9)
        except Exception as error:  # told below
            failed.append(error)

    thread = threading.Thread(target=trains)
    thread.start()
    holdings = Holdings(features=torch.zeros(8, 5), labels=torch.zeros(8, dtype=torch.int64), rows=[np.arange(8)])
    for _ in range(40):
        cohort_trainer(module=other, holdings=holdings, settings=SETTINGS, loss=cross_entropy, workers=1).close()
    stop.set()
    thread.join()
    assert not failed
    assert type(module).__call__ is calls
