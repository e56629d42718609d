"""Cohorts and models for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.training.batches import Holdings
from tacit.training.forms import Form, cohort_trainer
from tacit.training.hooks import Hooks
from tacit.training.settings import LocalTraining, Loss, cross_entropy

CLASSES = 3


def make_holdings(
    shape: tuple[int, ...], sizes: Sequence[int], *, words: int | None = None, scale: float = 1.0
) -> Holdings:
    """Random examples; whole numbers below ``words`` where that is given."""
    generator = torch.Generator().manual_seed(4)
    count = sum(sizes)
    if words is None:
        features = scale * torch.randn(count, *shape, generator=generator)
    else:
        features = torch.randint(0, words, (count, *shape), generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    order = torch.randperm(count, generator=generator).numpy()
    return Holdings(features=features, labels=labels, rows=np.split(order, np.cumsum(sizes)[:-1]))


def key_of(client: int, round_number: int = 1) -> int:
    return 0x1234567890ABCDE + 7919 * client + 104_729 * round_number


class Run:
    """What came of training a cohort once: updates and losses by client."""

    def __init__(
        self,
        module: nn.Module,
        holdings: Holdings,
        settings: LocalTraining,
        *,
        form: Form = "auto",
        clients: Sequence[int] | None = None,
        workers: int = 1,
        hooks: Hooks | None = None,
        loss: Loss = cross_entropy,
        round_number: int = 1,
    ) -> None:
        chosen = list(range(len(holdings.rows))) if clients is None else list(clients)
        self.updates: dict[int, NDArray[np.float32]] = {}
        self.losses: dict[int, float] = {}
        trainer = cohort_trainer(
            module=module,
            holdings=holdings,
            settings=settings,
            loss=loss,
            form=form,
            workers=workers,
            hooks=hooks,
        )
        with closing(trainer):
            self.form, self.reason, self.layout = trainer.form, trainer.reason, trainer.layout
            start = trainer.layout.read(module).numpy()
            keys = np.array([key_of(client) for client in chosen], np.int64)
            trainer.train(start, chosen, keys, round_number, self._finish)

    def _finish(self, client: int, update: NDArray[np.float32], loss: float) -> None:
        assert client not in self.updates
        self.updates[client] = update.copy()
        self.losses[client] = loss

    def equals(self, other: Run, *, exactly: bool = False) -> None:
        assert self.updates.keys() == other.updates.keys()
        for client, update in self.updates.items():
            assert np.abs(update).max() > 1e-4, "nothing was learned, so nothing is compared"
            if exactly:
                assert update.tobytes() == other.updates[client].tobytes()
            else:
                np.testing.assert_allclose(update, other.updates[client], rtol=1e-4, atol=1e-6)
                np.testing.assert_allclose(self.losses[client], other.losses[client], rtol=1e-5, atol=1e-6)


def settings(**changes: Any) -> LocalTraining:
    values: dict[str, Any] = {"epochs": 1, "batch_size": 4, "lr": 0.05}
    return LocalTraining(**(values | changes))


class Custom(nn.Module):
    """A module whose forward pass is given."""

    def __init__(self, compute: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self._compute = compute
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self._compute(self, x)


class Handwritten(nn.Module):
    """As students write it: functions in forward, not layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, 3)
        self.conv2 = nn.Conv2d(3, 4, 3)
        self.fc1 = nn.Linear(4 * 2 * 2, 8)
        self.fc2 = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.dropout2d(F.relu(self.conv2(x)), 0.25, self.training)
        x = x.view(-1, 16)
        x = F.dropout(F.relu(self.fc1(x)), training=self.training)
        return self.fc2(x)  # type: ignore[no-any-return]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.inner = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.head = nn.Linear(4 * 4 * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = x + torch.tanh(self.inner(x))
        return self.head(torch.flatten(F.avg_pool2d(x, 2), 1))  # type: ignore[no-any-return]
