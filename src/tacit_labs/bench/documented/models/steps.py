"""A DP-SGD step beside a plain one and Opacus's modes: times, and on a GPU the most memory that is taken.

A plain step is forward, backward and SGD on a batch that lies ready. A step of Tacit's has everything a private one
needs: gathering the batch, clipping, noise from the system's generator, the optimiser. Opacus's steps have its own
noise (torch's generator) and optimiser; it has layers of its own for recurrent and attention layers, as it asks for.
All are warmed up alike, until what Tacit repeats (graphs, programs) is made.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.randomness import Randomness
from tacit.training.captured import capture_stream
from tacit.training.optimizers import Sgd
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.steps import Batch, PoissonBatches, PrivateSteps
from tacit.training.settings import cross_entropy
from tacit_labs.bench.documented.models.rounds import _seconds, _wait
from tacit_labs.bench.documented.models.zoo import Entry

Step = Callable[[], object]
_RATE, _CLIP, _NOISE = 0.05, 1.0, 1.1
_MODES = ("hooks", "functorch", "ghost")
_SHORT, _IN_A_ROW = 0.01, 10  # steps of less than so many seconds come so many in a row, as they do in training
_STEPS, _BEFORE = 4, 72  # until a graph is captured and replayed, and until a program is made of a tiny model's step


def measure(entry: Entry, device: torch.device, *, batch: int, repeats: int) -> dict[str, Any]:
    """Return milliseconds per step, ratios to a plain step, memory on a GPU, and which form was taken and why."""
    features, labels = (part.to(device) for part in entry.data(batch))
    data = features.repeat((4, *(1,) * (features.dim() - 1))), labels.repeat(4)  # what Tacit draws its batches from
    form, reason = _ours(entry, *data, batch)[1:]
    makers: dict[str, Callable[[], Step]] = {
        "plain": lambda: _plain(entry, features, labels),
        "tacit": lambda: _ours(entry, *data, batch)[0],
    }
    makers |= {f"opacus {mode}": functools.partial(_opacus, entry, features, labels, mode) for mode in _MODES}
    steps: dict[str, Step] = {}
    missing, memory = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if device.type == "cuda":  # before there are others, whose models would be counted
            for name, make in makers.items():
                with contextlib.suppress(Exception):  # why it can't be is told below
                    memory[name] = _memory(make, device)
        for name, make in makers.items():
            try:
                step = make()
                _warm_up(step)
                steps[name] = step
            except Exception as error:
                if not name.startswith("opacus"):
                    raise
                # It may not be installed, or not know the model; the others still count.
                missing[name] = (str(error) or type(error).__name__).splitlines()[0][:120]
        best: dict[str, float] = {}
        short = _seconds(steps["plain"], device) < _SHORT
        for _ in range(repeats):
            for name, step in steps.items():
                taken = 1e3 * min(_seconds(step, device) for _ in range(_IN_A_ROW if short else 1))
                best[name] = min(best.get(name, taken), taken)
    return {
        "batch": batch,
        "form": form,
        "reason": reason,
        "milliseconds": best,
        "ratio": {name: taken / best["plain"] for name, taken in best.items()},
        "memory": {name: own / memory["plain"] for name, own in memory.items()},
        "missing": missing,
    }


def _warm_up(step: Step) -> None:
    """Take as many steps as come before a program is made of a tiny model's, or as three seconds have."""
    begin = time.perf_counter()
    for number in range(_BEFORE):
        step()
        if number >= _STEPS and time.perf_counter() - begin > 3.0:
            return


def _plain(entry: Entry, features: Tensor, labels: Tensor) -> Step:
    model = entry.build().to(features.device).train()
    parameters = list(model.parameters())
    values: list[Tensor] = [p.detach() for p in parameters]

    def step() -> None:
        loss = F.cross_entropy(model(features), labels)
        torch._foreach_add_(values, torch.autograd.grad(loss, parameters), alpha=-_RATE)

    return step


def _ours(entry: Entry, features: Tensor, labels: Tensor, batch: int) -> tuple[Step, str, str]:
    model = entry.build().to(features.device).train()
    gradient = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=_CLIP), example=(features, labels)
    )
    steps = PrivateSteps(
        gradient=gradient,
        optimizer=Sgd(list(model.parameters()), lr=_RATE),
        features=features,
        labels=labels,
        batches=PoissonBatches(examples=len(labels), expected=batch),
        noise_multiplier=_NOISE,
        clip_bound=_CLIP,
        randomness=Randomness.of(seed=None),
    )
    number = 0

    def step() -> None:
        nonlocal number
        steps.accumulate(Batch(step=number, rows=np.arange(batch)))  # always as many: sizes would blur the ratio
        steps.release(number)
        number += 1

    return step, gradient.form, gradient.reason


def _opacus(entry: Entry, features: Tensor, labels: Tensor, mode: str) -> Step:
    from opacus import PrivacyEngine  # type: ignore[import-not-found,unused-ignore]  # an extra that need not be there
    from opacus.validators import ModuleValidator  # type: ignore[import-not-found,unused-ignore]  # as above
    from torch.utils.data import DataLoader, TensorDataset

    model = ModuleValidator.fix(copy.deepcopy(entry.build())).to(features.device).train()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=_RATE)
    loader = DataLoader(TensorDataset(features, labels), batch_size=len(labels))
    options: dict[str, Any] = {"noise_multiplier": _NOISE, "max_grad_norm": _CLIP, "poisson_sampling": False}
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        options["criterion"] = criterion
    made = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, grad_sample_mode=mode, **options
    )
    private, own = made[0], made[1]
    criterion = made[2] if mode == "ghost" else criterion

    def step() -> None:
        own.zero_grad(set_to_none=True)
        criterion(private(features), labels).backward()
        own.step()

    return step


def _memory(make: Callable[[], Step], device: torch.device) -> int:
    """Return the most bytes that a model and its first steps take beside the data.

    The model counts, and what a step leaves behind: Opacus keeps examples' gradients until the next step begins, so
    that what a step adds to them is less than what it needs. Several steps count, because the third step of a size is
    captured as a graph, whose memory is taken then and not when it is replayed.
    """
    _make_room(device)
    before = torch.cuda.memory_allocated(device)
    try:
        step = make()
        _wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(_STEPS):
            step()
        _wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    finally:
        step = None  # type: ignore[assignment]  # the model goes with it
        _make_room(device)


def _make_room(device: torch.device) -> None:
    """Free what nobody holds, and have the workspaces of matrix products there, which stay."""
    gc.collect()
    torch.cuda.empty_cache()
    for stream in (torch.cuda.current_stream(device), capture_stream(device)):
        with torch.cuda.stream(stream):
            torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)
    _wait(device)
