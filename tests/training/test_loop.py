"""What models and losses may do in a loop, and what one step, client or process must not leave for another."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.training.batches import Holdings
from tacit.training.cohort import CohortTrainer
from tacit.training.forms import Form, _Choice, cohort_trainer
from tacit.training.loop import LoopTrainer
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

SETTINGS = LocalTraining(epochs=2, batch_size=4, lr=0.1)


def holdings(sizes: list[int], *, words: int | None = None) -> Holdings:
    draw, count = torch.Generator().manual_seed(1), sum(sizes)
    shape = (count, 5)
    features = torch.randn(shape, generator=draw) if words is None else torch.randint(0, words, shape, generator=draw)
    labels = torch.randint(0, 2, (count,), generator=draw)
    return Holdings(features=features, labels=labels, rows=np.split(np.arange(count), np.cumsum(sizes)[:-1]))


def trainer(module: nn.Module, own: Holdings, form: Form = "loop", loss: Loss = cross_entropy) -> CohortTrainer:
    return cohort_trainer(module=module, holdings=own, settings=SETTINGS, loss=loss, form=form, workers=2)


def updates(made: CohortTrainer, module: nn.Module, clients: int, rounds: int = 1) -> list[NDArray[np.float32]]:
    found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * clients
    model = made.layout.read(module).numpy()
    for number in range(1, rounds + 1):
        keys = np.arange(clients) + 10 * number
        made.train(model, range(clients), keys, number, lambda client, own, _: found.__setitem__(client, own.copy()))
    return found


class Overwriting(nn.Module):
    """Writes over its input with a parameter, which makes the input a part of the step's graph."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.full((5,), 1.5)), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x *= self.scale
        result: Tensor = self.out(x)
        return result


class Halving(torch.autograd.Function):
    """Halves its gradient in place."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mul_(0.5)


def test_a_model_may_write_over_its_input_with_a_parameter() -> None:
    torch.manual_seed(0)
    module, own = Overwriting(), holdings([13, 9])
    made = trainer(module, own)
    found = updates(made, module, 2)
    made.close()

    class Plain(Overwriting):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.clone())

    plain = Plain()
    plain.load_state_dict(module.state_dict())
    made = trainer(plain, own)
    expected = updates(made, plain, 2)
    made.close()
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_loss_of_a_lone_example_may_be_a_single_number() -> None:
    def squeezed(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs.squeeze(), labels.float().squeeze(), reduction="none")

    torch.manual_seed(0)
    module = nn.Linear(5, 1)
    made = trainer(module, holdings([13]), loss=squeezed)
    assert np.isfinite(updates(made, module, 1)[0]).all()
    made.close()


def test_a_loss_that_writes_over_its_gradient_changes_no_other_step() -> None:
    torch.manual_seed(0)
    module, own = nn.Linear(5, 2), holdings([12, 12])
    found = []
    for loss in (
        lambda outputs, labels: Halving.apply(cross_entropy(outputs, labels)),  # type: ignore[no-untyped-call]  # torch's
        lambda outputs, labels: cross_entropy(outputs, labels) * 0.5,
    ):
        made = trainer(module, own, loss=loss)
        found.append(updates(made, module, 2, rounds=3))
        made.close()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)


def test_a_lone_step_that_fails_leaves_no_norm_aside() -> None:
    torch.manual_seed(0)
    module, fails = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), [False]

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        if fails[0] and len(labels) == 1:
            raise RuntimeError("a lone example")
        return cross_entropy(outputs, labels)

    made = trainer(module, holdings([13]), loss=loss)
    before = updates(made, module, 1)[0]
    fails[0] = True
    with pytest.raises(RuntimeError, match="a lone example"):
        updates(made, module, 1)
    fails[0] = False
    assert np.array_equal(updates(made, module, 1)[0], before)
    made.close()


@pytest.mark.parametrize("form", ["loop", "grouped"])
def test_what_becomes_of_the_callers_model_changes_no_client(form: Form) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    made = trainer(module, holdings([3] * 20), form)
    expected = updates(made, module, 20)
    model = made.layout.read(module).numpy()
    found: dict[int, NDArray[np.float32]] = {}

    def finish(client: int, own: NDArray[np.float32], _: float) -> None:
        found[client] = own.copy()
        np.add(model, own, out=model)

    made.train(model, range(20), np.arange(20) + 10, 1, finish)
    made.close()
    assert all(np.array_equal(found[client], expected[client]) for client in range(20))


@pytest.mark.parametrize("row", [0, 3, -1])
def test_the_row_of_padding_trains_for_no_client(row: int) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(9, 4, padding_idx=row), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.out(self.table(x).mean(1))
            return result

    torch.manual_seed(0)
    module, own = Words(), holdings([30, 30, 28], words=9)
    found = []
    for form in ("vmap", "loop"):
        made = trainer(module, own, form)
        found.append(updates(made, module, 3, rounds=2))
        made.close()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        table = one[:36].reshape(9, 4)
        assert not table[row].any()
        assert np.abs(table).sum(1).astype(bool).sum() == 8


_FORKS = """
import os
import numpy as np
import torch
from torch import nn
from tests.training.test_loop import holdings, trainer, updates

module, own = nn.Linear(5, 2), holdings([12] * 20)
torch.set_num_threads(2)
assert torch.randn(1_000_000).exp().isfinite().all()  # by OpenMP's threads, which the child does not have
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    found = updates(trainer(module, own, "auto"), module, 20)
    os._exit(0 if all(np.isfinite(update).all() for update in found) else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks as Linux does")
def test_a_forked_process_trains() -> None:
    # In a process of its own: what other tests leave behind in libraries need not survive a fork.
    folder = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", _FORKS], cwd=folder, timeout=120, check=False)
    assert ended.returncode == 0


@pytest.mark.parametrize("form", ["loop", "grouped"])
def test_no_update_is_handed_over_once_a_round_has_failed(form: Form) -> None:
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    made, failed, late = trainer(module, holdings([12] * 40), form), threading.Event(), list[int]()

    def finish(client: int, _: object, __: float) -> None:
        if failed.is_set():
            late.append(client)
        elif client == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.train(made.layout.read(module).numpy(), range(40), np.arange(40), 1, finish)
    failed.set()
    made.close()
    assert not late


def _convolves(read: Any, *, channels: int = 1, norm: bool = True) -> nn.Module:
    return Custom(
        lambda m, x: m.out(read(F.max_pool2d(torch.relu(m.norm(m.first(x))), 2))),
        first=nn.Conv2d(channels, 8, 3, padding=1),
        norm=nn.BatchNorm2d(8) if norm else nn.Identity(),
        out=nn.Linear(8 * 16, CLASSES),
    )


class Hides(nn.Module):
    """Reads memory behind zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.beside = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(512, CLASSES)
        self.out = nn.Linear(8 * 64, CLASSES)
        nn.init.zeros_(self.beside.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.out(x.flatten(1)) + self.beside(x.as_strided((len(x), 512), (512, 1)))  # type: ignore[no-any-return]  # torch gives it no types


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"momentum": 0.5}, {"grad_clip": 0.1}], ids=str)
def test_images_with_their_channels_innermost_train_the_same(
    channels: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, chosen = _convolves(lambda x: x.flatten(1), channels=channels), settings(epochs=2, **changes)
    holdings = make_holdings((channels, 8, 8), [9, 8, 7])
    found: list[bool] = []
    plain = LoopTrainer.__init__

    def seen(self: LoopTrainer, **given: Any) -> None:
        found.append(given["innermost"])
        plain(self, **given)

    monkeypatch.setattr(LoopTrainer, "__init__", seen)
    own = Run(module, holdings, chosen, form="loop")
    monkeypatch.setattr(_Choice, "_bears_innermost", False)
    own.equals(Run(module, holdings, chosen, form="loop"))
    assert set(found) == {True, False}


@pytest.mark.parametrize(
    "module",
    [
        _convolves(lambda x: x.view(len(x), -1)),  # no view of what lies so
        _convolves(lambda x: F.group_norm(x, 2).flatten(1), norm=False),  # four times slower so
        _convolves(lambda x: x.as_strided((len(x), 128), (128, 1))),  # another number so
        Hides(),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1)),  # losses view its images
        Custom(lambda m, x: m.out(x.flatten(1)), out=nn.Linear(64, CLASSES)),
    ],
    ids=["view", "group norm", "memory", "memory behind zeros", "image", "no convolution"],
)
def test_images_lie_as_they_are_where_that_counts(module: nn.Module) -> None:
    choice = _Choice(
        module=module,
        holdings=make_holdings((1, 8, 8), [9, 8]),
        settings=settings(),
        loss=cross_entropy,
        asked="loop",
        hooks=None,
        workers=1,
    )
    assert not choice._bears_innermost
