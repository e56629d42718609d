"""A small decoder learns Shakespeare, and adapters on it learn from speakers it has not met, under DP and masks.

    python run.py --text tinyshakespeare.txt [--gpu 0] [--out results.json] [--search]

Every fourth speaker is public: the base learns from them. Every eighth is public too, and judges what --search tries.
The rest are the clients: each holds its own lines, and keeps the last fifth of them to test on. What is compared is the
perplexity per character on those fifths: of the base as it is, of adapters trained in the clear, and of adapters
trained under masks with noise for client-level differential privacy.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tacit

CONTEXT, WIDTH, HEADS, LAYERS = 64, 128, 4, 4
FEWEST, MOST = 5, 64  # windows of text that a client holds at least, and trains on at most
CLIP, DELTA = 0.1, 1e-3

Clients = dict[str, tuple[Any, Any]]


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed: nn.Module = nn.Linear(WIDTH, 3 * WIDTH)
        self.out: nn.Module = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each position takes from those before it."""
        parts = self.mixed(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        value: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return value


class Block(nn.Module):
    """Attention and two layers, each beside what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide: nn.Module = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow: nn.Module = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's outputs."""
        x = x + self.attention(self.first(x))
        value: Tensor = x + self.narrow(F.gelu(self.wide(self.second(x))))
        return value


class Decoder(nn.Module):
    """Guesses the next character at every position."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, text: Tensor) -> Tensor:
        """Return logits, ``(examples, positions, characters)``."""
        x = self.characters(text) + self.places(torch.arange(text.shape[1], device=text.device))
        logits: Tensor = self.out(self.norm(self.blocks(x)))
        return logits


class Adapter(nn.Module):
    """A frozen layer, and a trained product of low rank beside it (Hu et al. 2022); it starts at zero."""

    def __init__(self, base: nn.Module, rank: int) -> None:
        super().__init__()
        assert isinstance(base, nn.Linear)
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs and the adapter's."""
        value: Tensor = self.base(x) + self.up(self.down(x))
        return value


def adapted(base: Decoder, rank: int) -> Decoder:
    """Return a copy of the decoder, frozen, with adapters on its attention and its wide layers."""
    model = copy.deepcopy(base).requires_grad_(False)
    for block in model.blocks:
        assert isinstance(block, Block)
        for holder, name in (
            (block.attention, "mixed"),
            (block.attention, "out"),
            (block, "wide"),
            (block, "narrow"),
        ):
            setattr(holder, name, Adapter(getattr(holder, name), rank))
    return model


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss per character, one number per example."""
    return F.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").mean(1)


def speakers(path: Path) -> tuple[dict[str, Tensor], int]:
    """Return each speaker's lines as windows of numbers, ``(windows, CONTEXT + 1)``, and how many characters exist."""
    text = path.read_text()
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    lines: dict[str, str] = {}
    for block in text.split("\n\n"):
        said = re.match(r"([A-Z][A-Za-z ']+):\n", block)
        if said is not None:
            lines[said[1]] = lines.get(said[1], "") + block[said.end() :] + "\n"
    windows = {}
    for name, own in sorted(lines.items()):
        numbers = torch.tensor([alphabet[character] for character in own])
        if len(numbers) >= FEWEST * (CONTEXT + 1):
            windows[name] = numbers[: len(numbers) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    return windows, len(alphabet)


def pretrained(windows: Tensor, judges: Tensor, characters: int, steps: int) -> Decoder:
    """Return the decoder that public text made, as it was when other public text liked it most."""
    torch.manual_seed(1)
    model = Decoder(characters).to(windows.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, kept = math.inf, copy.deepcopy(model)
    for step in range(1, steps + 1):
        batch = windows[torch.randint(len(windows), (64,))]
        optimizer.zero_grad()
        loss(model(batch[:, :-1]), batch[:, 1:]).mean().backward()
        optimizer.step()
        falls.step()
        if step % max(1, steps // 20) == 0 and (found := perplexity(model, judges)) < best:
            best, kept = found, copy.deepcopy(model)
    return kept


def perplexity(model: nn.Module, windows: Tensor) -> float:
    """Return how many characters a model wavers between, in the mean."""
    with torch.no_grad():
        parts = [loss(model(part[:, :-1]), part[:, 1:]) for part in windows.split(512)]
        return math.exp(float(torch.cat(parts).mean()))


@dataclass(frozen=True, kw_only=True)
class Way:
    """How adapters are trained; a private way has an epsilon, and a clip that shortens every update."""

    rank: int
    lr: float
    rounds: int
    server: float
    epsilon: float | None = None

    def settings(self, *, masks: bool) -> dict[str, Any]:
        """Return the settings of a federation; without masks the same noise is the server's."""
        shared = {
            "optimizer": {"name": "adam", "lr": self.lr, "schedule": "constant"},
            "train": {"local_epochs": 1, "batch_size": 16},
            "federate": {"weighting": "uniform"},
            "server": {"lr": self.server},
        }
        if self.epsilon is None:
            return shared
        private = {"dp": {"epsilon": self.epsilon, "delta": DELTA, "clip": CLIP}}
        return shared | private | ({"mode": "masks", "masks": {"dp": True}} if masks else {"mode": "dp"})


WAYS = {  # the best of --search
    "clear": Way(rank=4, lr=1e-2, rounds=100, server=1.0),
    "private": Way(rank=4, lr=3e-3, rounds=20, server=6.0, epsilon=8.0),
}
SEARCH = (
    *(Way(rank=4, lr=lr, rounds=rounds, server=1.0) for lr in (3e-3, 1e-2) for rounds in (30, 100)),
    *(
        Way(rank=rank, lr=3e-3, rounds=rounds, server=server, epsilon=8.0)
        for rank in (1, 4)
        for rounds in (10, 20)
        for server in (3.0, 6.0, 9.0, 13.0)
    ),
)


def adapt(
    base: Decoder, clients: Clients, way: Way, *, gpu: int | None, seed: int, masks: bool = True
) -> tuple[Decoder, tacit.Result]:
    """Return the base with adapters that learned from clients, and the run's result."""
    torch.manual_seed(seed)
    model = adapted(base, way.rank).cpu()
    device, settings = -1 if gpu is None else gpu, way.settings(masks=masks)
    federation = tacit.Federation(model=model, clients=clients, loss=loss, seed=seed, gpu=device, **settings)
    result = federation.fit(rounds=way.rounds, quiet=True)
    return model.to(next(base.parameters()).device), result


def main() -> None:
    """Train, adapt, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--steps", type=int, default=3000, help="of the base model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--way", choices=[*WAYS, "all"], default="all")
    parser.add_argument("--search", action="store_true", help="try settings, judged by public speakers")
    options = parser.parse_args()
    device = torch.device("cpu" if options.gpu is None else f"cuda:{options.gpu}")
    windows, characters = speakers(options.text)
    names = list(windows)
    public, judging = names[::4], names[2::8]
    own = [name for name in names if name not in {*public, *judging}]
    cut = {name: len(windows[name]) * 4 // 5 for name in own}
    clients = {name: (windows[name][: cut[name]][:MOST]).numpy() for name in own}
    examples = {name: (text[:, :-1], text[:, 1:]) for name, text in clients.items()}
    judges = torch.cat([windows[name] for name in judging]).to(device)
    held_out = torch.cat([windows[name][cut[name] :][:MOST] for name in own]).to(device)
    base = pretrained(torch.cat([windows[name] for name in public]).to(device), judges, characters, options.steps)
    print(f"{len(public)} public speakers, {len(judging)} that judge, {len(own)} clients")
    judged = judges if options.search else held_out
    rows: list[dict[str, Any]] = [{"perplexity": [perplexity(base, judged)]}]
    seeds = range(1, 2 if options.search else options.seeds + 1)
    chosen = [way for name, way in WAYS.items() if options.way in (name, "all")]
    for way in SEARCH if options.search else chosen:
        begin = time.perf_counter()
        found = [adapt(base, examples, way, gpu=options.gpu, seed=seed, masks=not options.search) for seed in seeds]
        told: dict[str, Any] = {"numbers": found[0][1].parameters, "form": found[0][1].form}
        told["seconds"] = (time.perf_counter() - begin) / len(found)
        rows.append(vars(way) | {"perplexity": [perplexity(model, judged) for model, _ in found]} | told)
        print(rows[-1], flush=True)
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"without adaptation {rows[0]['perplexity'][0]:.3f}")


if __name__ == "__main__":
    main()
