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
from tacit.training.cohort import Holdings
from tacit.training.forms import Form, cohort_trainer
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tacit.training.straight import StraightStep

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
) -> NDArray[np.float32]:
    """Return the updates of all clients in all rounds."""
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
    model = trainer.layout.read(module).numpy()
    rounds = np.zeros((ROUNDS, len(sizes), len(model)), np.float32)
    for number, updates in enumerate(rounds, 1):
        before(number)

        def finish(client: int, update: NDArray[np.float32], _: float, own: NDArray[np.float32] = updates) -> None:
            own[client] = update

        trainer.train(model, range(len(sizes)), np.arange(len(sizes)) + 10 * number, number, finish)
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
