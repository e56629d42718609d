"""Models of every supported layer, with a few examples each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 3
EXAMPLES = 7


class Words(nn.Module):
    """Embedding, layer norm and a linear layer of sequences that is used twice."""

    def __init__(self, *, padding: int | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6, padding_idx=padding)
        self.norm = nn.LayerNorm(6)
        self.twice = nn.Linear(6, 6)
        self.out = nn.Linear(6, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        value = self.twice(self.norm(self.twice(self.table(words))))
        output: Tensor = self.out(value.mean(1))
        return output


class ConvolvedTwice(nn.Module):
    """Convolutions of which an example has few windows and many weights, one of them used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice = nn.Conv2d(8, 24, 3, bias=False), nn.Conv2d(24, 24, 3, padding=1)
        self.out = nn.Linear(96, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        value = self.twice(torch.tanh(self.twice(torch.tanh(self.first(value)))))
        output: Tensor = self.out(value.flatten(1))
        return output


class NormedTwice(nn.Module):
    """A norm that is used twice, once before an operation in place, and another kind of norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(6, 6), nn.LayerNorm(6), nn.RMSNorm(6)
        self.out = nn.Linear(6, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        value = torch.relu_(self.twice(self.first(value)))
        output: Tensor = self.out(self.last(value + self.twice(1.0 + value)).mean(1))
        return output


class Outside(nn.Module):
    """Uses a layer's weight outside the layer, where no hook hears of it, in every mode or one only."""

    def __init__(self, only: str = "") -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.out = nn.Linear(4, CLASSES)
        self.only = only

    def forward(self, value: Tensor) -> Tensor:
        states = self.layer(value)
        if self.only in ("", "training" if self.training else "evaluation"):
            states = states + F.linear(value, self.layer.weight)
        output: Tensor = self.out(states)
        return output


class Gate(nn.Module):
    """A parameter of its own: no rule covers it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 0.5))
        self.out = nn.Linear(4, CLASSES)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(value * self.scale)
        return output


class Tied(nn.Module):
    """Two layers that share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.two.weight = self.one.weight

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(self.two(torch.tanh(self.one(value))))
        return output


class TiedWords(nn.Module):
    """A table of words that is the output layer too, used twice there, with a bias of its own."""

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(9, 6), nn.Linear(6, 9, bias=bias)
        self.out.weight = self.table.weight

    def forward(self, words: Tensor) -> Tensor:
        states = torch.tanh(self.table(words))
        again: Tensor = self.out(states[:, -1] + self.out(states).mean(1)[:, :6])
        return again[:, :CLASSES]


class Crossed(nn.Module):
    """Two layers, the bias of each of which is the other's weight's neighbour: shared, but not as a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.norm = nn.LayerNorm(4)
        self.norm.bias = self.one.bias

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.two(self.norm(self.one(value)))
        return output


class Text(nn.Module):
    """A layer over words (recurrent, or attention), then the mean."""

    def __init__(self, layer: Callable[[], nn.Module], *, attends: bool = False) -> None:
        super().__init__()
        self.table, self.layer, self.attends = nn.Embedding(9, 4), layer(), attends
        self.norm, self.out = nn.RMSNorm(4), nn.LazyLinear(CLASSES)
        self(torch.zeros(1, 5, dtype=torch.int64))

    def forward(self, words: Tensor) -> Tensor:
        value = self.norm(self.table(words))
        states = self.layer(value, value, value)[0] if self.attends else self.layer(value)[0]
        output: Tensor = self.out(states.mean(1))
        return output


class TextOfOwn(Text):
    """The same behind a parameter without a layer."""

    def __init__(self) -> None:
        super().__init__(lambda: nn.GRU(4, 3, batch_first=True))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, words: Tensor) -> Tensor:
        output: Tensor = self.out(self.layer(self.norm(self.table(words)) * getattr(self, "scale", 1.0))[0].mean(1))
        return output


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and the features it takes."""

    make: Callable[[], nn.Module]
    features: tuple[int, ...]
    words: bool = False

    def build(self, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
        torch.manual_seed(seed)
        model = self.make()
        shape = (EXAMPLES, *self.features)
        features = torch.randint(0, 9, shape) if self.words else torch.randn(shape)
        return model, features, torch.randint(0, CLASSES, (EXAMPLES,))


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, CLASSES)]


CASES = {
    "attention": Case(
        make=lambda: Text(lambda: nn.MultiheadAttention(4, 2, batch_first=True), attends=True),
        features=(5,),
        words=True,
    ),
    "linear": Case(make=lambda: nn.Linear(5, CLASSES), features=(5,)),
    "linear without bias": Case(
        make=lambda: nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, CLASSES)), features=(5,)
    ),
    "linear of few positions": Case(
        make=lambda: nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Flatten(), nn.Linear(90, CLASSES)),
        features=(3, 40),
    ),
    "linear of many positions": Case(
        make=lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, CLASSES)), features=(20, 2)
    ),
    "convolution": Case(
        make=lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3), *head(6)),
        features=(1, 9, 9),
    ),
    "convolution, stride and padding": Case(
        make=lambda: nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Tanh(), *head(4)), features=(2, 9, 8)
    ),
    "convolution, dilation and reflection": Case(
        make=lambda: nn.Sequential(
            nn.Conv2d(3, 4, (3, 2), dilation=(2, 1), padding=(2, 1), padding_mode="reflect", bias=False), *head(4)
        ),
        features=(3, 8, 7),
    ),
    "convolution, groups": Case(
        make=lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2, padding="same"), *head(6)), features=(4, 6, 6)
    ),
    "convolution, depthwise": Case(
        make=lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), *head(8)), features=(4, 6, 6)
    ),
    "convolution of few positions, used twice": Case(make=ConvolvedTwice, features=(8, 4, 4)),
    "convolution of one axis and few positions": Case(
        make=lambda: nn.Sequential(nn.Conv1d(6, 20, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, CLASSES)),
        features=(6, 5),
    ),
    "convolution of one axis": Case(
        make=lambda: nn.Sequential(
            nn.Conv1d(3, 5, 4, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(25, CLASSES)
        ),
        features=(3, 11),
    ),
    "group norm": Case(
        make=lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), *head(4)), features=(1, 7, 7)
    ),
    "norms, one twice": Case(make=NormedTwice, features=(4, 6)),
    "layer norm": Case(
        make=lambda: nn.Sequential(nn.LayerNorm((3, 5)), nn.Flatten(), nn.Linear(15, CLASSES)), features=(3, 5)
    ),
    "embedding, and a layer twice": Case(make=Words, features=(6,), words=True),
    "embedding with padding": Case(make=lambda: Words(padding=2), features=(6,), words=True),
}
