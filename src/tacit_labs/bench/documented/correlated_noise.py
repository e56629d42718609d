"""What correlated noise gains: independent, banded and BLT noise over one public schedule, beside secret sampling.

MNIST, scattering features at three scales, a linear model, 250 clients of 60 images, evenly mixed, 100 rounds, each
client in every tenth (or, drawn in secret, with probability a tenth). All have the same clip, the same local training
and the same client work. One setting is each one's own: how far the server moves, chosen for each epsilon on 10,000
*training* images that no client holds, with a seed of its own; the test set is read once, with what was chosen. The
choice itself is not private; see docs/frontier.md.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.runs.federation import Federation
from tacit.runs.result import Result
from tacit.tasks import catalogue
from tacit.tasks.features import Features

CLIENTS, HOLD, ROUNDS, DELTA = 250, 60, 100, 1e-5
CLIP, LR, SCALES, HELD_OUT, CLASSES = 0.05, 0.05, 3, 10_000, 10
METHODS = ("independent", "banded", "blt", "sampled")
CASES = ((10, 4.0), (10, 8.0), (10, 2.0), (50, 4.0), (20, 4.0))  # separation and epsilon
STEPS = (0.125, 0.25, 0.5, 1.0, 2.0)  # what is tried as server.lr
Part = tuple[Tensor, Tensor]


def data() -> tuple[list[Part], Part, Part]:
    """Return what clients hold, what was held out of the training set, and the test set."""
    found = Features(kind="scatter", scales=SCALES).of_data(catalogue.load("mnist"), torch.device("cpu"), print)
    order = torch.from_numpy(Randomness.of(seed=0).stream("examples").permutation(len(found.train.labels)))
    features, labels = torch.from_numpy(found.train.features), torch.from_numpy(found.train.labels)
    own, rest = order[: CLIENTS * HOLD].reshape(CLIENTS, HOLD), order[-HELD_OUT:]
    test = torch.from_numpy(found.test.features), torch.from_numpy(found.test.labels)
    return [(features[rows], labels[rows]) for rows in own], (features[rest], labels[rest]), test


def trained(
    clients: Sequence[Part], judged: Part, *, method: str, separation: int, epsilon: float, step: float, seed: int
) -> Result:
    """Train by one method and return the result, with the accuracy on ``judged``."""
    federate: dict[str, Any] = {"separation": separation}
    dp: dict[str, Any] = {"clip": CLIP, "epsilon": epsilon, "delta": DELTA}
    if method == "sampled":
        federate = {"per_round": CLIENTS // separation, "sampling": "poisson"}
    elif method != "independent":
        dp["correlation"] = method
    linear = nn.Linear(clients[0][0][0].numel(), CLASSES)
    nn.init.zeros_(linear.weight)
    return Federation(
        model=nn.Sequential(nn.Flatten(), linear),
        clients=clients,
        test=judged,
        mode="dp",
        seed=seed,
        federate=federate,
        train={"batch_size": HOLD, "workers": 1},
        optimizer={"lr": LR, "momentum": 0.0, "final": 1.0},
        server={"name": "fedavg", "lr": step},
        evaluate={"every": ROUNDS, "train": False},
        dp=dp,
    ).fit(rounds=ROUNDS, quiet=True)


def measure(results: Path, *, seeds: Sequence[int]) -> None:
    """Choose each method's step on what was held out, test it, and write both down; what is there is kept."""
    told: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {"chosen": {}, "runs": {}}
    clients, held_out, test = data()

    def accuracy(judged: Part, key: str, step: float, seed: int) -> dict[str, Any]:
        method, separation, epsilon = key.split(" ")
        result = trained(
            clients,
            judged,
            method=method,
            separation=int(separation),
            epsilon=float(epsilon),
            step=step,
            seed=seed,
        )
        assert result.privacy is not None
        return {
            "accuracy": round(result.test_accuracy or 0.0, 4),
            "epsilon": round(result.privacy.epsilon, 6),
            "neighbours": result.privacy.neighbours,
            "accountant": result.privacy.accountant,
        }

    for number, ((separation, epsilon), method) in itertools.product(
        range(len(seeds)), itertools.product(CASES, METHODS)
    ):
        key = f"{method} {separation} {epsilon:g}"
        if key not in told["chosen"]:
            tried = {step: accuracy(held_out, key, step, 1000)["accuracy"] for step in STEPS}
            best = max(tried, key=lambda step: tried[step])
            told["chosen"][key] = {"step": best, "held_out": {str(step): value for step, value in tried.items()}}
        done = told["runs"].setdefault(key, {})
        if str(seeds[number]) not in done:
            done[str(seeds[number])] = accuracy(test, key, told["chosen"][key]["step"], seeds[number])
            results.write_text(json.dumps(told, indent=1) + "\n")
            print(key, told["chosen"][key], done, flush=True)


def means(results: Path) -> dict[tuple[str, int, float], tuple[float, float, int]]:
    """Return mean accuracy, the spread between seeds, and their number, by method, separation and epsilon."""
    found = {}
    for key, runs in json.loads(results.read_text())["runs"].items():
        method, separation, epsilon = key.split(" ")
        values = [each["accuracy"] for each in runs.values()]
        spread = max(values) - min(values)
        found[method, int(separation), float(epsilon)] = (sum(values) / len(values), spread, len(values))
    return found


def draw(results: Path, folder: Path) -> None:
    """Draw accuracy against client work, and against epsilon."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install 'tacit[plot]'.") from error
    found = means(results)
    words = {
        "independent": "independent noise, public schedule",
        "banded": "banded, public schedule",
        "blt": "BLT, public schedule",
        "sampled": "independent noise, secret sampling",
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for method, label in words.items():
        work = sorted((ROUNDS / b, value[0]) for (name, b, e), value in found.items() if (name, e) == (method, 4.0))
        left.plot([x for x, _ in work], [100 * y for _, y in work], "o-", label=label)
        spent = sorted((e, value[0]) for (name, b, e), value in found.items() if (name, b) == (method, 10))
        right.plot([x for x, _ in spent], [100 * y for _, y in spent], "o-", label=label)
    left.set(xlabel="rounds that a client takes part in, of 100", ylabel="test accuracy, %")
    left.set_title("epsilon 4")
    right.set(xlabel="epsilon", title="each client in a tenth of the rounds")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(folder / "frontier-correlated-noise.png", dpi=120)
