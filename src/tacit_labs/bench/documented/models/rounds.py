"""A round of clients in the form that Tacit takes, beside a loop over them as a careful person writes it.

The loop copies the model once, writes the start over it for each client, takes the client's batches from tensors on the
device, steps with one fused call for all parameters, and adds the updates up where they are. Both end with the sum of
all updates on the host. On a CPU the loop runs with one thread and with all, and the better counts. What it takes grows
with its clients, so a few of them are timed and the rest is multiplied. Processor time is told beside the clock's: on a
machine that others use too it says more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.training.batches import Holdings
from tacit.training.cohort import Moved
from tacit.training.forms import cohort_trainer
from tacit.training.parameters import in_one_piece
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.vectors import Vector
from tacit_labs.bench.documented.models.zoo import Entry

_RATE = 0.05
_WARM_UPS = 3
_SHORT, _MORE = 0.1, 5  # rounds of less than so many seconds are repeated so many times as often


class Model(Protocol):
    """What trains, and random examples for it."""

    def data(self, examples: int) -> tuple[Tensor, Tensor]:
        """Return as many examples and their labels."""
        ...

    def build(self) -> nn.Module:
        """Return the model."""
        ...


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Clients of a round, and how many of them the loop trains."""

    words: str
    features: Tensor
    labels: Tensor
    rows: Sequence[NDArray[np.int64]]  # of each client
    batch: int
    timed: int


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many clients hold how much, and how many of them the loop trains."""

    clients: int
    examples: int
    batch: int
    timed: int

    @property
    def words(self) -> str:
        """The size as text."""
        return f"{self.clients} x {self.examples}, batch {self.batch}"

    def cohort(self, entry: Model) -> Cohort:
        """Return as many clients, of equal size and with random data."""
        features, labels = entry.data(self.clients * self.examples)
        rows = np.split(np.arange(len(labels)), self.clients)
        return Cohort(words=self.words, features=features, labels=labels, rows=rows, batch=self.batch, timed=self.timed)


def sizes(entry: Entry, device: torch.device, *, quick: bool) -> dict[str, Size]:
    """Return the two sizes of a round: many small clients, and a few large ones."""
    if device.type == "cuda":
        return {
            "small": Size(clients=100, examples=60, batch=10, timed=10),
            "large": Size(clients=10, examples=2_000, batch=64, timed=2),
        }
    if entry.heavy:
        return {"small": Size(clients=4, examples=10, batch=10, timed=2)}
    small = Size(clients=8 if quick else 32, examples=60, batch=10, timed=4 if quick else 8)
    return {"small": small, "large": Size(clients=4, examples=128 if quick else 512, batch=64, timed=2)}


def measure(entry: Model, cohort: Cohort, device: torch.device, *, repeats: int) -> dict[str, Any]:
    """Return seconds per round of both, the form that was taken and why, and how long it took to begin."""
    features, labels = cohort.features.to(device), cohort.labels.to(device)
    module = entry.build().to(device)
    threads = (1,) if device.type == "cuda" else tuple(sorted({1, torch.get_num_threads()}))
    usual = torch.get_num_threads()
    begin = time.perf_counter()
    trainer = cohort_trainer(
        module=module,
        holdings=Holdings(features=features, labels=labels, rows=cohort.rows),
        settings=LocalTraining(epochs=1, batch_size=cohort.batch, lr=_RATE),
        loss=cross_entropy,
    )
    model = trainer.layout.read(module).cpu().numpy()
    clients = list(range(len(cohort.rows)))

    def ours(count: int) -> None:
        total, lock = np.zeros(len(model)), threading.Lock()

        def add(_: int, update: Vector, __: float) -> None:
            with lock:
                np.add(total, update, out=total)

        def add_rows(names: Sequence[int], rows: Moved, _: NDArray[np.float64]) -> None:
            np.add(total, rows.weighted_sum(np.ones(len(names))), out=total)

        if trainer.adds:  # as a run does, where a mechanism adds rows
            trainer.train_rows(model, clients[:count], np.arange(count), 1, add_rows)
        else:
            trainer.train(model, clients[:count], np.arange(count), 1, add)

    loop = Loop(module, features, labels, cohort)
    try:
        ours(len(clients))
        _wait(device)
        first = time.perf_counter() - begin
        for _ in range(_WARM_UPS):  # programs are made between rounds, of steps that have come several times
            ours(len(clients))
        loop.round(1)
        best: dict[str, float] = {}
        work: dict[str, float] = {}
        short = _seconds(lambda: ours(len(clients)), device) < _SHORT
        for _ in range(_MORE * repeats if short else repeats):
            spent = time.process_time()
            _keep(best, "tacit", _seconds(lambda: ours(len(clients)), device))
            _keep(work, "tacit", time.process_time() - spent)
            for count in threads:
                torch.set_num_threads(count)
                name = f"loop, {count} threads" if device.type == "cpu" else "loop"
                spent = time.process_time()
                _keep(best, name, _seconds(lambda: loop.round(cohort.timed), device) * len(clients) / cohort.timed)
                _keep(work, name, (time.process_time() - spent) * len(clients) / cohort.timed)
                torch.set_num_threads(usual)
    finally:
        trainer.close()
    theirs = min(seconds for name, seconds in best.items() if name != "tacit")
    return {
        "size": cohort.words,
        "form": trainer.form,
        "reason": trainer.reason,
        "seconds": best,
        "processor_seconds": work,
        "begins": first,
        "faster": theirs / best["tacit"],
    }


class Loop:
    """One client after another, without Tacit."""

    def __init__(self, module: nn.Module, features: Tensor, labels: Tensor, cohort: Cohort) -> None:
        self._module = in_one_piece(module).train()
        self._parameters = list(self._module.parameters())
        self._start = [p.detach().clone() for p in self._parameters]
        self._features, self._labels, self._batch = features, labels, cohort.batch
        self._rows = [torch.from_numpy(own).to(labels.device) for own in cohort.rows]

    def round(self, clients: int) -> Tensor:
        """Train so many clients and return the sum of their updates."""
        values: list[Tensor] = [p.detach() for p in self._parameters]
        total = [torch.zeros_like(own) for own in values]
        for own in self._rows[:clients]:
            torch._foreach_copy_(values, self._start)
            order = own[torch.randperm(len(own), device=own.device)]
            for rows in torch.split(order, self._batch):
                loss = F.cross_entropy(self._module(self._features[rows]), self._labels[rows])
                torch._foreach_add_(values, torch.autograd.grad(loss, self._parameters), alpha=-_RATE)
            torch._foreach_add_(total, torch._foreach_sub(values, self._start))
        return torch.cat([own.reshape(-1) for own in total]).cpu()


def _keep(best: dict[str, float], name: str, seconds: float) -> None:
    best[name] = min(best.get(name, seconds), seconds)


def _seconds(action: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    action()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
