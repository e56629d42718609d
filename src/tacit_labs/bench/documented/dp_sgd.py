"""A DP-SGD step beside a plain step and Opacus's modes: the 21,840-parameter CNN, all in one process.

Ratios, each the best of interleaved repetitions. A plain step is forward, backward and SGD on a batch that lies ready;
`plain, channels last` is the same with the layout that Tacit gives images on CPUs. A step of Tacit's has everything a
private one needs: gathering the batch, clipping, noise from the system's generator, the optimiser. Opacus's steps have
its own noise (torch's generator) and optimiser.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.randomness import Randomness
from tacit.tasks import models
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import Form, PrivateGradient
from tacit.training.private.steps import Batch, PoissonBatches, PrivateSteps
from tacit.training.settings import cross_entropy

Step = Callable[[], Any]
_RATE, _CLIP, _NOISE = 0.05, 1.0, 1.1


def build(device: torch.device) -> nn.Module:
    """Return the CNN."""
    return models.build("cnn", shape=(1, 28, 28), classes=10, seed=1).to(device).train()


def plain(features: Tensor, labels: Tensor) -> Step:
    """Return a step without privacy, as torch's users write it."""
    model = build(features.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(features), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        optimizer.step()

    return step


def channels_last(features: Tensor) -> Tensor:
    """Return images of one channel in the layout that Tacit gives them on CPUs."""
    height, width = features.shape[2:]
    return features.as_strided(features.shape, (height * width, 1, width, 1))


def ours(features: Tensor, labels: Tensor, form: Form) -> Step:
    """Return a step of Tacit's in one of its forms."""
    model = build(features.device)
    gradient = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=_CLIP), example=(features, labels), form=form
    )
    steps = PrivateSteps(
        gradient=gradient,
        optimizer=torch.optim.SGD(model.parameters(), lr=_RATE),
        features=features.repeat(4, 1, 1, 1),
        labels=labels.repeat(4),
        batches=PoissonBatches(examples=4 * len(labels), expected=len(labels)),
        noise_multiplier=_NOISE,
        clip_bound=_CLIP,
        randomness=Randomness.of(seed=None),
    )
    number = 0

    def step() -> None:
        nonlocal number
        steps.accumulate(Batch(step=number, rows=np.arange(len(labels))))  # always 256: sizes would blur the ratio
        steps.release(number)
        number += 1

    return step


def opacus(features: Tensor, labels: Tensor, mode: str) -> Step:
    """Return a step of Opacus in one of its modes: hooks, ew (expanded weights), functorch, ghost."""
    from opacus import PrivacyEngine  # type: ignore[import-not-found,unused-ignore]  # an extra that need not be there
    from torch.utils.data import DataLoader, TensorDataset

    model = build(features.device)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=_RATE)
    loader = DataLoader(TensorDataset(features, labels), batch_size=len(labels))
    engine = PrivacyEngine()
    options: dict[str, Any] = {"noise_multiplier": _NOISE, "max_grad_norm": _CLIP, "poisson_sampling": False}
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        made = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            criterion=criterion,
            grad_sample_mode="ghost",
            **options,
        )
        private, optimizer, criterion = made[0], made[1], made[2]
    else:
        private, optimizer, _ = engine.make_private(
            module=model, optimizer=optimizer, data_loader=loader, grad_sample_mode=mode, **options
        )

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(private(features), labels)
        loss.backward()
        optimizer.step()

    return step


def _best(steps: dict[str, Step], rounds: int, device: torch.device) -> dict[str, float]:
    """Return the best seconds of each step, taken in turn: CPU seconds on a CPU, which neighbours disturb least."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    best = dict.fromkeys(steps, float("inf"))
    for turn in range(rounds + 3):  # three warm up
        for name, step in steps.items():
            _wait(device)
            start = clock()
            step()
            _wait(device)
            if turn >= 3:
                best[name] = min(best[name], clock() - start)
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _opacus_steps(features: Tensor, labels: Tensor) -> tuple[dict[str, Step], str | None, str]:
    """Return a step for each of Opacus's modes that works here, its version, and what is missing in words."""
    try:
        import opacus as package
    except ImportError:
        return {}, None, "Opacus is not installed here: its modes were left out (see benchmarks/dp_sgd.py)."
    steps, missing = {}, ""
    for mode in ("hooks", "ew", "functorch", "ghost"):
        try:
            step = opacus(features, labels, mode)
            step()
        except Exception as error:  # a mode may not know this model or this torch; the others still count
            missing += f"Opacus {mode} failed: {(str(error) or type(error).__name__).splitlines()[0]}. "
        else:
            steps[f"opacus {mode}"] = step
    return steps, package.__version__, missing


def measure(*, device: str, threads: int, batch: int, rounds: int) -> dict[str, Any]:
    """Return milliseconds per step and ratios to a plain one; Opacus's where it is installed."""
    torch.set_num_threads(threads)
    warnings.filterwarnings("ignore")
    place = torch.device(device)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(batch, 1, 28, 28, generator=generator).to(place)
    labels = torch.randint(0, 10, (batch,), generator=generator).to(place)
    steps: dict[str, Step] = {"plain": plain(features, labels)}
    if place.type == "cpu":
        steps["plain, channels last"] = plain(channels_last(features), labels)
    steps |= {f"tacit {form}": ours(features, labels, form) for form in ("book-keeping", "functional")}
    others, version, missing = _opacus_steps(features, labels)
    best = _best(steps | others, rounds, place)
    for name, seconds in best.items():
        print(f"{name:22} {1000 * seconds:8.2f} ms  {seconds / best['plain']:.2f}x")
    if missing:
        print(missing)
    return {
        "device": torch.cuda.get_device_name() if place.type == "cuda" else platform.processor() or platform.machine(),
        "threads": threads,
        "batch": batch,
        "torch": torch.__version__,
        "opacus": version,
        "milliseconds": {name: round(1000 * seconds, 3) for name, seconds in best.items()},
        "ratio": {name: round(seconds / best["plain"], 3) for name, seconds in best.items()},
        "note": missing,
    }
