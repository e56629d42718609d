"""A DP-SGD step beside a plain step and Opacus's modes: the 21,840-parameter CNN, batch 256, all in one process.

    python benchmarks/dp_sgd.py [--device cuda] [--threads 1] [--batch 256] [--rounds 40] [--results FILE]

Ratios, each the best of interleaved repetitions. Opacus is not a dependency of Tacit: without it its lines are
missing and that is said. To have them, run this file with an environment that has both (see below); it imports the
working tree's `src` where Tacit itself is not installed there:

    python -m venv .bench/opacus
    .bench/opacus/bin/pip install --constraint constraints.txt torch==2.13.0
    .bench/opacus/bin/pip install --constraint constraints.txt opacus
    .bench/opacus/bin/python benchmarks/dp_sgd.py

A plain step is forward, backward and SGD on a batch that lies ready. `plain, channels last` is the same with the layout
that Tacit gives images on CPUs. A step of Tacit's has everything a private one needs: gathering the batch, clipping,
noise from the system's generator, the optimiser. Opacus's steps have its own noise (torch's generator) and optimiser.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tacit.randomness import Randomness  # noqa: E402
from tacit.tasks import models  # noqa: E402
from tacit.training.private.clipping import Clipping  # noqa: E402
from tacit.training.private.gradient import Form, PrivateGradient  # noqa: E402
from tacit.training.private.sampling import PoissonBatches  # noqa: E402
from tacit.training.private.training import Batch, PrivateSteps  # noqa: E402
from tacit.training.settings import cross_entropy  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
Step = Callable[[], Any]
_RATE, _CLIP, _NOISE = 0.05, 1.0, 1.1


def build(device: torch.device) -> nn.Module:
    return models.build("cnn", shape=(1, 28, 28), classes=10, seed=1).to(device).train()


def plain(features: Tensor, labels: Tensor) -> Step:
    model = build(features.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(features), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def channels_last(features: Tensor) -> Tensor:
    height, width = features.shape[2:]
    return features.as_strided(features.shape, (height * width, 1, width, 1))


def ours(features: Tensor, labels: Tensor, form: Form) -> Step:
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
    from opacus import PrivacyEngine  # type: ignore[import-not-found,unused-ignore]
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


def measure(steps: dict[str, Step], rounds: int, device: torch.device) -> dict[str, float]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    device = torch.device(options.device)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(options.batch, 1, 28, 28, generator=generator).to(device)
    labels = torch.randint(0, 10, (options.batch,), generator=generator).to(device)
    steps: dict[str, Step] = {"plain": plain(features, labels)}
    if device.type == "cpu":
        steps["plain, channels last"] = plain(channels_last(features), labels)
    steps |= {f"tacit {form}": ours(features, labels, form) for form in ("book-keeping", "functional")}
    missing = ""
    try:
        import opacus as package

        version = package.__version__
    except ImportError:
        version, missing = None, "Opacus is not installed here: its modes were left out (see the top of this file)."
    for mode in ("hooks", "ew", "functorch", "ghost") if version else ():
        try:
            step = opacus(features, labels, mode)
            step()
        except Exception as error:  # a mode may not know this model or this torch; the others still count
            missing += f"Opacus {mode} failed: {(str(error) or type(error).__name__).splitlines()[0]}. "
        else:
            steps[f"opacus {mode}"] = step
    best = measure(steps, options.rounds, device)
    for name, seconds in best.items():
        print(f"{name:22} {1000 * seconds:8.2f} ms  {seconds / best['plain']:.2f}x")
    if missing:
        print(missing)
    path = options.results or RESULTS / ("dp_sgd.json" if device.type == "cpu" else "dp_sgd_gpu.json")
    path.parent.mkdir(exist_ok=True)
    record = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine(),
        "threads": options.threads,
        "batch": options.batch,
        "torch": torch.__version__,
        "opacus": version,
        "milliseconds": {name: round(1000 * seconds, 3) for name, seconds in best.items()},
        "ratio": {name: round(seconds / best["plain"], 3) for name, seconds in best.items()},
        "note": missing,
    }
    path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
