"""Settings for private learning on scattering features, searched on a part of the *training* data.

10,000 of the 60,000 training images of MNIST or Fashion-MNIST are held out, each setting is trained on the other 50,000
(as 1,000 clients of 50, or as one data holder) and judged by the 10,000; of FEMNIST a sixth of every writer's, of
digits, which are taken as pixels, a sixth. The test set is never read. A linear model, own loops on a GPU: a setting
takes about half a second, so that some hundred are tried for each target. The search itself is not private: whoever
searches on private data has to charge it (Papernot & Steinke 2022); here the training set stands for public data of the
same kind.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.accounting.calibration import calibrate
from tacit.randomness import Randomness
from tacit.tasks import catalogue
from tacit.tasks.features import Features, Kind

DELTA, HELD_OUT = 1e-5, 1 / 6
WHOLE = 200  # more images than a writer of FEMNIST has: its batch is all of them


@dataclass(frozen=True, kw_only=True)
class Target:
    """What settings are searched for."""

    epsilon: float
    data: str = "mnist"
    clients: int | None = 1000  # none: one data holder, and the unit is an example; FEMNIST has its writers
    shards: bool = False
    rounds: tuple[int, ...] = (120, 240)
    scales: int = 2
    local: bool = False  # every client adds noise of its own, and the server is not trusted


TARGETS = {
    **{f"clients-iid-{epsilon:g}": Target(epsilon=epsilon) for epsilon in (1.0, 3.0, 8.0)},
    **{f"clients-shards-{epsilon:g}": Target(epsilon=epsilon, shards=True) for epsilon in (1.0, 3.0, 8.0)},
    **{f"examples-{epsilon:g}": Target(epsilon=epsilon, clients=None) for epsilon in (1.2, 3.0, 8.0)},
    **{f"fashion-clients-iid-{epsilon:g}": Target(epsilon=epsilon, data="fashion-mnist") for epsilon in (3.0, 8.0)},
    **{
        f"fashion-examples-{epsilon:g}": Target(epsilon=epsilon, data="fashion-mnist", clients=None)
        for epsilon in (1.2, 3.0)
    },
    "writers-8": Target(epsilon=8.0, data="femnist", rounds=(1, 3, 10, 30)),
    "writers-coarse-8": Target(epsilon=8.0, data="femnist", rounds=(1, 3, 10, 30), scales=3),
    "writers-plain": Target(epsilon=math.inf, data="femnist", rounds=(80,)),
    # What a mode does when it is told nothing: few rounds, so that it is done within a minute on two cores.
    "default-dp": Target(epsilon=8.0, clients=100, rounds=(10, 20)),
    "default-paillier": Target(epsilon=8.0, clients=100, rounds=(10,), scales=3),
    "default-digits": Target(epsilon=8.0, data="digits", clients=100, rounds=(6, 10, 20)),
    "default-local-dp": Target(epsilon=8.0, clients=5000, rounds=(1, 3, 10), scales=3, local=True),
}


@dataclass(frozen=True, kw_only=True)
class ClientSetting:
    """Client-level DP: all clients in every round."""

    rounds: int
    lr: float
    server_lr: float
    clip: float
    epochs: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class ExampleSetting:
    """DP-SGD over Poisson batches."""

    batch: int
    epochs: int
    lr: float
    clip: float
    momentum: float


def client_settings(target: Target) -> Iterator[ClientSetting]:
    """Yield what is tried for clients; few rounds have to go further in each, and make do with one pass."""
    few = max(target.rounds) < 100
    writers = target.data == "femnist"
    if target.data == "digits":  # a client has a dozen, and pixels are further from each other than features
        for count, lr, server_lr, clip, batch in itertools.product(
            target.rounds, (0.1, 0.3, 1.0), (1.0, 2.0, 4.0), (0.1, 0.3, 1.0), (5, 10)
        ):
            yield ClientSetting(rounds=count, lr=lr, server_lr=server_lr, clip=clip, epochs=1, batch_size=batch)
        return
    for count, lr, server_lr, clip, epochs, batch in itertools.product(
        target.rounds,
        (0.02, 0.05, 0.1, 0.2) if few else (0.02, 0.05, 0.1, 0.3),
        (1.0, 2.0, 4.0, 8.0) if few else (1.0, 2.0, 4.0),
        (0.02, 0.05, 0.1, 0.3) if math.isfinite(target.epsilon) else (math.inf,),
        (1, 4) if writers else (1,) if few else (1, 2),
        (WHOLE,) if writers else (60, 20),
    ):
        yield ClientSetting(rounds=count, lr=lr, server_lr=server_lr, clip=clip, epochs=epochs, batch_size=batch)


def example_settings() -> Iterator[ExampleSetting]:
    """Yield what is tried for examples."""
    for batch, epochs, lr, clip, momentum in itertools.product(
        (2048, 4096, 8192), (15, 30, 60), (0.5, 1.0, 2.0, 4.0, 8.0), (0.1,), (0.0, 0.9)
    ):
        yield ExampleSetting(batch=batch, epochs=epochs, lr=lr * (1.0 - momentum), clip=clip, momentum=momentum)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Features to train on, and those held out."""

    train: Tensor  # (n, features + 1): the last is one, for the bias
    labels: Tensor
    held_out: Tensor
    held_out_labels: Tensor
    classes: int
    groups: Tensor | None = None  # whose each example is, where the data say it

    def accuracy(self, weights: Tensor) -> float:
        """Return the share of held-out examples that are classified right."""
        return float((self.held_out @ weights).argmax(1).eq(self.held_out_labels).float().mean())


def load(name: str, scales: int, device: torch.device) -> Data:
    """Return the features of a data set's training part, a sixth of them (of each client's) held out."""
    whole = catalogue.load(name)
    kind: Kind = "none" if name == "digits" else "scatter"
    found = Features(kind=kind, scales=scales).of_data(whole, device, print).train
    features = torch.from_numpy(found.features).flatten(1).to(device)
    features = torch.cat([features, torch.ones(len(features), 1, device=device)], 1)
    labels = torch.from_numpy(found.labels).to(device)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    groups = None if whole.groups is None else torch.from_numpy(whole.groups)
    if groups is None:
        held, rest = order[: round(HELD_OUT * len(order))], order[round(HELD_OUT * len(order)) :]
    else:
        of_each = [order[groups[order] == one] for one in range(len(whole.group_names))]
        held = torch.cat([own[: int(HELD_OUT * len(own))] for own in of_each])
        rest = torch.cat([own[int(HELD_OUT * len(own)) :] for own in of_each])
        groups = groups[rest].to(device)
    return Data(
        train=features[rest.to(device)],
        labels=labels[rest.to(device)],
        held_out=features[held.to(device)],
        held_out_labels=labels[held.to(device)],
        classes=whole.classes,
        groups=groups,
    )


def _of_clients(data: Data, target: Target, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return every client's features and targets, and how many examples it has; rows of zeros fill up the smaller."""
    device = data.train.device
    targets = F.one_hot(data.labels, data.classes).float()
    if data.groups is not None:
        rows = [torch.nonzero(data.groups == one).squeeze(1) for one in range(int(data.groups.max()) + 1)]
        pad = torch.nn.utils.rnn.pad_sequence
        features = pad([data.train[own] for own in rows], batch_first=True)
        return features, pad([targets[own] for own in rows], batch_first=True), features[:, :, -1].sum(1)
    clients = target.clients or 1
    order = torch.randperm(len(data.labels), device=device, generator=generator)
    order = order[: len(order) // clients * clients]
    if target.shards:
        blocks = torch.argsort(data.labels, stable=True).reshape(2 * clients, -1)
        order = blocks[torch.randperm(2 * clients, device=device, generator=generator)].reshape(-1)
    features = data.train[order].reshape(clients, -1, data.train.shape[1])
    return features, targets[order].reshape(clients, -1, data.classes), features[:, :, -1].sum(1)


def clients_accuracy(data: Data, setting: ClientSetting, target: Target, *, seed: int) -> float:
    """Train a federation and return its accuracy on what was held out."""
    device = data.train.device
    generator = torch.Generator(device).manual_seed(seed)
    features, targets, sizes = _of_clients(data, target, generator)
    clients, width = len(features), setting.batch_size
    noise = _noise(target, setting.rounds) * (setting.clip if math.isfinite(setting.clip) else 0.0)
    if target.local:
        noise *= clients**0.5
    weights = torch.zeros(features.shape[2], data.classes, device=device)
    for _ in range(setting.rounds):
        total = torch.randn(weights.shape, device=device, generator=generator) * noise
        for part in range(0, clients, 250):
            x, y, held = (one[part : part + 250] for one in (features, targets, sizes))
            local = weights.expand(len(x), -1, -1).clone()
            for _ in range(setting.epochs):
                for start in range(0, x.shape[1], width):
                    batch = x[:, start : start + width]
                    errors = torch.softmax(torch.bmm(batch, local), -1) - y[:, start : start + width]
                    errors /= held.clamp(max=batch.shape[1])[:, None, None]  # a writer's batch is all it has
                    local.baddbmm_(batch.transpose(1, 2), errors, alpha=-setting.lr)
            updates = (local - weights).flatten(1)
            norms = updates.norm(dim=1).clamp_min(setting.clip)
            factors = setting.clip / norms if math.isfinite(setting.clip) else torch.ones_like(norms)
            total += (factors @ updates).reshape(weights.shape)
        weights = weights + setting.server_lr * total / clients
    return data.accuracy(weights)


def _noise(target: Target, rounds: int) -> float:
    if math.isinf(target.epsilon):
        return 0.0
    neighbours: Literal["replace-one", "add-remove"] = "replace-one" if target.local else "add-remove"
    found = calibrate(epsilon=target.epsilon, delta=DELTA, rounds=rounds, neighbours=neighbours)
    return found.noise_multiplier


def examples_accuracy(data: Data, setting: ExampleSetting, epsilon: float, *, seed: int) -> float:
    """Train one data holder's model by DP-SGD and return its accuracy on what was held out."""
    device, count = data.train.device, len(data.labels)
    generator = torch.Generator(device).manual_seed(seed)
    rate = setting.batch / count
    steps = round(setting.epochs / rate)
    noise = calibrate(epsilon=epsilon, delta=DELTA, rounds=steps, rate=rate).noise_multiplier
    targets = F.one_hot(data.labels, data.classes).float()
    lengths = data.train.norm(dim=1)
    weights = torch.zeros(data.train.shape[1], data.classes, device=device)
    velocity = torch.zeros_like(weights)
    for _ in range(steps):
        rows = (torch.rand(count, device=device, generator=generator) < rate).nonzero().squeeze(1)
        batch = data.train[rows]
        errors = torch.softmax(batch @ weights, -1) - targets[rows]
        norms = lengths[rows] * errors.norm(dim=1)
        total = batch.T @ (errors * (setting.clip / norms.clamp_min(setting.clip))[:, None])
        total += torch.randn(weights.shape, device=device, generator=generator) * noise * setting.clip
        velocity = setting.momentum * velocity + total / (setting.batch * setting.clip)
        weights = weights - setting.lr * velocity
    return data.accuracy(weights)


def search(data: Data, name: str, seconds: float) -> dict[str, Any]:
    """Try settings in random order for so many seconds, then the best five with three other seeds."""
    target = TARGETS[name]
    federated = target.clients is not None
    settings: list[Any] = list(client_settings(target) if federated else example_settings())
    order = Randomness.of(seed=0).stream("settings").permutation(len(settings))

    def accuracy(setting: Any, seed: int) -> float:
        if federated:
            return clients_accuracy(data, setting, target, seed=seed)
        return examples_accuracy(data, setting, target.epsilon, seed=seed)

    start, tried = time.monotonic(), []
    for setting in (settings[number] for number in order):
        if time.monotonic() - start > seconds:
            break
        tried.append((accuracy(setting, 1), setting))
    finalists = sorted(tried, key=lambda pair: -pair[0])[:5]
    means = [(sum(accuracy(setting, seed) for seed in (2, 3, 4)) / 3, setting) for _, setting in finalists]
    best, setting = max(means, key=lambda pair: pair[0])
    row = {"target": name, "tried": len(tried), "held_out_accuracy": round(best, 4), **asdict(setting)}
    print(row, flush=True)
    return row


def search_all(targets: Sequence[str], *, seconds: float, device: str, results: Path) -> None:
    """Search settings for each target for so many seconds, and write the best of each."""
    found: dict[tuple[str, int], Data] = {}
    rows = []
    for name in targets:
        which = (TARGETS[name].data, TARGETS[name].scales)
        if which not in found:
            found = {which: load(*which, torch.device(device))}
        rows.append(search(found[which], name, seconds))
        results.write_text(json.dumps(rows, indent=2) + "\n")
