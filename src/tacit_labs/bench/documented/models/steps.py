"""A DP-SGD step beside a plain one and Opacus's modes: times, and on a GPU memory too.

A plain step is forward, backward and SGD on a batch that lies ready. A step of Tacit's has everything a private one
needs: gathering the batch, clipping, noise from the system's generator, the optimiser. Opacus's steps have its own
noise (torch's generator) and optimiser; it has layers of its own for recurrent and attention layers, as it asks for.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.randomness import Randomness
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


def measure(entry: Entry, device: torch.device, *, batch: int, repeats: int) -> dict[str, Any]:
    """Return milliseconds per step, ratios to a plain step, memory on a GPU, and which form was taken and why."""
    features, labels = (part.to(device) for part in entry.data(batch))
    ours, form, reason = _ours(entry, features, labels)
    steps: dict[str, Step] = {"plain": _plain(entry, features, labels), "tacit": ours}
    missing = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mode in _MODES:
            try:
                step = _opacus(entry, features, labels, mode)
                step()
                steps[f"opacus {mode}"] = step
            except Exception as error:  # it may not be installed, or not know the model; the others still count
                missing[f"opacus {mode}"] = (str(error) or type(error).__name__).splitlines()[0][:120]
        memory = {name: _memory(step, device) for name, step in steps.items()} if device.type == "cuda" else {}
        best: dict[str, float] = {}
        for turn in range(repeats + 1):  # one warms up
            for name, step in steps.items():
                taken = 1e3 * _seconds(step, device)
                if turn:
                    best[name] = min(best.get(name, taken), taken)
    return {
        "batch": batch,
        "form": form,
        "reason": reason,
        "milliseconds": best,
        "ratio": {name: taken / best["plain"] for name, taken in best.items()},
        "memory": {name: own / max(memory["plain"], 1) for name, own in memory.items()},
        "missing": missing,
    }


def _plain(entry: Entry, features: Tensor, labels: Tensor) -> Step:
    model = entry.build().to(features.device).train()
    parameters = list(model.parameters())
    values: list[Tensor] = [p.detach() for p in parameters]

    def step() -> None:
        loss = F.cross_entropy(model(features), labels)
        torch._foreach_add_(values, torch.autograd.grad(loss, parameters), alpha=-_RATE)

    return step


def _ours(entry: Entry, features: Tensor, labels: Tensor) -> tuple[Step, str, str]:
    model = entry.build().to(features.device).train()
    gradient = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=_CLIP), example=(features, labels)
    )
    times = (4, *(1,) * (features.dim() - 1))
    steps = PrivateSteps(
        gradient=gradient,
        optimizer=Sgd(list(model.parameters()), lr=_RATE),
        features=features.repeat(times),
        labels=labels.repeat(4),
        batches=PoissonBatches(examples=4 * len(labels), expected=len(labels)),
        noise_multiplier=_NOISE,
        clip_bound=_CLIP,
        randomness=Randomness.of(seed=None),
    )
    number = 0

    def step() -> None:
        nonlocal number
        steps.accumulate(Batch(step=number, rows=np.arange(len(labels))))  # always as many: sizes would blur the ratio
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


def _memory(step: Step, device: torch.device) -> int:
    """Return the bytes that a step takes beside what is there before it."""
    step()
    _wait(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    _wait(device)
    return torch.cuda.max_memory_allocated(device) - before
