"""The models: residual networks, recurrent ones, transformers, a table's, and one with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHARACTERS, LENGTH, CLASSES = 80, 40, 10
CATEGORIES = ((9, 4), (16, 6), (7, 4), (15, 6), (6, 3), (5, 3), (2, 2), (42, 8))  # Adult's columns, and their widths
_NUMBERS = 6


class Block(nn.Module):
    """Two convolutions with group norm, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(8, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's outputs."""
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.short(x))


class ResNet(nn.Module):
    """ResNet-8 (widths 16, 32, 64) or ResNet-18 (64 to 512, two blocks each) for small images, with group norm."""

    def __init__(self, widths: tuple[int, ...], blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.norm = nn.GroupNorm(8, widths[0])
        layers, inputs = [], widths[0]
        for stage, width in enumerate(widths):
            for number in range(blocks):
                layers.append(Block(inputs, width, 2 if stage and not number else 1))
                inputs = width
        self.blocks = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.out = nn.Linear(inputs, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.out(torch.flatten(self.pool(x), 1))  # type: ignore[no-any-return]  # torch gives it no types


class Recurrent(nn.Module):
    """Guesses the next character: an embedding of 8, one recurrent layer of 64, as on Shakespeare by speaker."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], hidden: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, 8)
        self.rnn = kind(8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the next character."""
        states, _ = self.rnn(self.embed(x))
        return self.out(states[:, -1])  # type: ignore[no-any-return]  # torch gives it no types


class Encoder(nn.Module):
    """Two layers of ``nn.TransformerEncoder``, places as a table, the mean over the text."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        places = torch.arange(x.shape[1], device=x.device).expand(x.shape)
        return self.out(self.layers(self.embed(x) + self.places(places)).mean(1))  # type: ignore[no-any-return]  # as above


class DecoderLayer(nn.Module):
    """Causal attention and a perceptron, each after a norm, as GPT has them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs."""
        batch, length, width = x.shape
        parts = self.projection(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.back(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]  # as above


class Decoder(nn.Module):
    """Two causal layers whose output table is the input table (tied weights)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(DecoderLayer(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, CHARACTERS, bias=False)
        self.out.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the next character."""
        values = self.embed(x) + self.places(torch.arange(x.shape[1], device=x.device).expand(x.shape))
        for layer in self.layers:
            values = layer(values)
        return self.out(self.norm(values)[:, -1])  # type: ignore[no-any-return]  # as above


class Adult(nn.Module):
    """A perceptron over a table's columns: eight of categories with tables of their own, six of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, width) for count, width in CATEGORIES)
        self.norm = nn.LayerNorm(_NUMBERS)
        self.first = nn.Linear(sum(width for _, width in CATEGORIES) + _NUMBERS, 64)
        self.second, self.out = nn.Linear(64, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        words = [table(x[:, place].long()) for place, table in enumerate(self.tables)]
        x = torch.cat([*words, self.norm(x[:, len(words) :])], 1)
        return self.out(F.relu(self.second(F.relu(self.first(x)))))  # type: ignore[no-any-return]  # as above


class Direct(nn.Module):
    """Parameters without a layer: a scale, places that are sliced and a token; means, reshapes and products."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.places = nn.Parameter(0.1 * torch.randn(64, width))
        self.token = nn.Parameter(0.1 * torch.randn(width))
        self.mix = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.out = nn.Linear(2 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        rows = x.reshape(len(x), -1, self.scale.shape[0])
        rows = torch.tanh((rows * self.scale + self.places[: rows.shape[1]]) @ self.mix)
        weights = (rows * self.token).sum(-1, keepdim=True).softmax(1)
        return self.out(torch.cat([(weights * rows).sum(1), rows.mean(1)], 1))  # type: ignore[no-any-return]  # as above


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model and what it takes."""

    words: str
    make: Callable[[], nn.Module]
    kind: Literal["images", "text", "table", "numbers"]
    classes: int
    heavy: bool = False  # too much for many clients on a CPU

    def data(self, examples: int) -> tuple[Tensor, Tensor]:
        """Return as many random examples: how long a step takes does not depend on what is in them."""
        draw = torch.Generator().manual_seed(1)
        labels = torch.randint(0, self.classes, (examples,), generator=draw)
        if self.kind == "text":
            return torch.randint(0, CHARACTERS, (examples, LENGTH), generator=draw), labels
        if self.kind == "table":
            words = [torch.randint(0, count, (examples, 1), generator=draw).float() for count, _ in CATEGORIES]
            return torch.cat([*words, torch.randn(examples, _NUMBERS, generator=draw)], 1), labels
        shape = (3, 32, 32) if self.kind == "images" else (28, 32)
        return torch.randn(examples, *shape, generator=draw), labels

    def build(self) -> nn.Module:
        """Return the model with the same first weights every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return self.make()


ZOO = {
    "resnet8": Entry(
        words="ResNet-8, group norm", make=lambda: ResNet((16, 32, 64), 1), kind="images", classes=CLASSES
    ),
    "resnet18": Entry(
        words="ResNet-18, group norm",
        make=lambda: ResNet((64, 128, 256, 512), 2),
        kind="images",
        classes=CLASSES,
        heavy=True,
    ),
    "lstm": Entry(words="LSTM", make=lambda: Recurrent(nn.LSTM), kind="text", classes=CHARACTERS),
    "gru": Entry(words="GRU", make=lambda: Recurrent(nn.GRU), kind="text", classes=CHARACTERS),
    "encoder": Entry(words="transformer encoder", make=Encoder, kind="text", classes=CHARACTERS),
    "decoder": Entry(words="transformer decoder", make=Decoder, kind="text", classes=CHARACTERS),
    "adult": Entry(words="MLP with embeddings", make=Adult, kind="table", classes=2),
    "direct": Entry(words="parameters used directly, tied", make=Direct, kind="numbers", classes=CLASSES),
}
