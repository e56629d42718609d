"""Few clients and small models beside the loop: where training many clients at once has least to gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tacit.tasks import models
from tacit_labs.bench.documented.models.rounds import Size


@dataclass(frozen=True, kw_only=True)
class Other:
    """A model of images, tables or signals, which takes random numbers of one shape."""

    words: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int = 10

    def data(self, examples: int) -> tuple[Tensor, Tensor]:
        """Return as many random examples."""
        draw = torch.Generator().manual_seed(1)
        features = torch.randn(examples, *self.shape, generator=draw)
        return features, torch.randint(0, self.classes, (examples,), generator=draw)

    def build(self) -> nn.Module:
        """Return the model with the same first weights every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return self.make()


def _perceptron(*widths: int) -> nn.Module:
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _with_batch_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(784, 10),
    )  # fmt: skip


def _leaf() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3_136, 2_048), nn.ReLU(), nn.Linear(2_048, 62),
    )  # fmt: skip


def _apart(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return a convolution of each channel for itself, and one across them."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.GroupNorm(8, inputs), nn.ReLU6(),
        nn.Conv2d(inputs, outputs, 1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU6(),
    )  # fmt: skip


def _mobile() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.GroupNorm(8, 32), nn.ReLU6(), _apart(32, 64, 1), _apart(64, 128, 2),
        _apart(128, 128, 1), _apart(128, 256, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def _signal() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(12, 32, 7, padding=3), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(32, 64, 7, padding=3), nn.ReLU(),
        nn.MaxPool1d(4), nn.Conv1d(64, 64, 7, padding=3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(64, 5),
    )  # fmt: skip


class _Sensor(nn.Module):
    """Names what somebody does by fifty readings of six numbers: a GRU's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.GRU(6, 64, batch_first=True), nn.Linear(64, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.out(self.layer(x)[0][:, -1])  # type: ignore[no-any-return]  # torch gives it no types


OTHERS = {
    "linear": Other(words="one layer, 784 features", make=lambda: nn.Linear(784, 10), shape=(784,)),
    "wide linear": Other(
        words="one layer, 30,000 features", make=lambda: nn.Linear(30_000, 2), shape=(30_000,), classes=2
    ),
    "digits": Other(words="perceptron 64-32-10", make=lambda: _perceptron(64, 32, 10), shape=(64,)),
    "perceptron": Other(words="perceptron 784-200-10", make=lambda: _perceptron(784, 200, 10), shape=(784,)),
    "cifar mlp": Other(
        words="Tacit's `mlp` on CIFAR-10",
        make=lambda: models.build("mlp", shape=(3, 32, 32), classes=10, seed=1),
        shape=(3, 32, 32),
    ),
    "cnn": Other(
        words="Tacit's `cnn` on MNIST",
        make=lambda: models.build("cnn", shape=(1, 28, 28), classes=10, seed=1),
        shape=(1, 28, 28),
    ),
    "batch norm": Other(
        words="perceptron with batch norm",
        make=lambda: nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)),
        shape=(20,),
    ),
    "batch norm cnn": Other(words="CNN with batch norm", make=_with_batch_norm, shape=(1, 28, 28)),
    "leaf": Other(words="LEAF's CNN for FEMNIST", make=_leaf, shape=(1, 28, 28), classes=62),
    "mobile": Other(words="MobileNet, group norm", make=_mobile, shape=(3, 32, 32)),
    "signal": Other(words="CNN of an ECG's twelve leads", make=_signal, shape=(12, 1_000), classes=5),
    "sensor": Other(words="GRU of a sensor's six numbers", make=_Sensor, shape=(50, 6), classes=6),
}

SIZES = {
    "one": Size(clients=1, examples=256, batch=32, timed=1),
    "three": Size(clients=3, examples=128, batch=32, timed=3),
    "five": Size(clients=5, examples=60, batch=10, timed=5),
    "twenty": Size(clients=20, examples=60, batch=10, timed=10),
}
_QUICK = {
    "one": Size(clients=1, examples=64, batch=32, timed=1),
    "three": Size(clients=3, examples=64, batch=32, timed=3),
}


def sizes(*, quick: bool) -> dict[str, Size]:
    """Return the sizes of a round, of which a quick measurement has fewer and smaller ones."""
    return _QUICK if quick else SIZES
