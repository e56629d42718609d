"""What models of millions of parameters take: the memory of a whole run in one process, seconds by stage, files.

Every case is a federation of a plain network with two examples per client, so that what is measured is the way of the
vectors and not the training of them. It runs in a process of its own, whose peak resident memory the system tells.
"""

from __future__ import annotations

import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit_labs.bench.documented.common import in_a_child

_MODULE = "tacit_labs.bench.documented.large"
_EXAMPLES = 2  # per client
_CLASSES = 10
_INPUTS = 64


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that is measured.

    Attributes:
        parameters: of the model, about.
        clients: in the run, all of them in every round.
        settings: of the run.
        rounds: how many.
    """

    parameters: int
    clients: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 2


_DP = {"mode": "dp", "dp": {"noise": 1.0, "clip": 1.0}}
_PAILLIER = {"mode": "paillier"}
CASES: dict[str, Case] = {
    "plain 25M x 20": Case(parameters=25_000_000, clients=20),
    "dp 25M x 20": Case(parameters=25_000_000, clients=20, settings=_DP),
    "masks 25M x 20": Case(parameters=25_000_000, clients=20, settings={"mode": "masks"}),
    "plain 1M x 200": Case(parameters=1_000_000, clients=200),
    "dp 1M x 200": Case(parameters=1_000_000, clients=200, settings=_DP),
    "masks 1M x 200": Case(parameters=1_000_000, clients=200, settings={"mode": "masks"}),
    "paillier 1M x 5": Case(parameters=1_000_000, clients=5, settings=_PAILLIER, rounds=1),
    "paillier 10M x 5": Case(parameters=10_000_000, clients=5, settings=_PAILLIER, rounds=1),
    "flower 25M x 5": Case(parameters=25_000_000, clients=5, settings={"engine": "flower"}, rounds=1),
    "plain 10k x 20": Case(parameters=10_000, clients=20),
}
LONG = ("paillier 10M x 5",)


def run(case: Case, workers: int | None) -> dict[str, Any]:
    """Run a case in this process, and return what it took."""
    import torch
    from torch import nn

    from tacit import Federation
    from tacit.randomness import Randomness
    from tacit.runs.folder import CHECKPOINT, JOURNAL

    started = _resident()
    width = _width(case.parameters)
    module = nn.Sequential(
        nn.Linear(_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, _CLASSES)
    )
    size = sum(parameter.numel() for parameter in module.parameters())
    draw = Randomness.of(seed=1).stream("examples")
    clients = [
        (
            torch.from_numpy(draw.normal(size=(_EXAMPLES, _INPUTS)).astype("float32")),
            torch.from_numpy(draw.integers(_CLASSES, size=_EXAMPLES)),
        )
        for _ in range(case.clients)
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = dict(case.settings)
        if workers is not None:
            settings["train"] = {"workers": workers}
        federation = Federation(
            model=module,
            clients=clients,
            seed=1,
            out=str(out),
            evaluate={"every": case.rounds, "train": False},
            **settings,
        )
        start = time.perf_counter()
        result = federation.fit(rounds=case.rounds, quiet=True)
        wall = time.perf_counter() - start
        files = {name: (out / name).stat().st_size for name in (JOURNAL, CHECKPOINT)}
    last = result.rounds[-1]
    return {
        "parameters": size,
        "clients": case.clients,
        "rounds": case.rounds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "before_bytes": started,
        "model_bytes": 4 * size,
        "form": result.form,
        "seconds": {stage: round(spent, 3) for stage, spent in (last.seconds or {}).items()},
        "round_seconds": round(last.lasted, 3),
        "run_seconds": round(wall, 3),
        "journal_bytes": files[JOURNAL],
        "checkpoint_bytes": files[CHECKPOINT],
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def measure(name: str, *, workers: int | None = None) -> dict[str, Any]:
    """Return what a case took, measured in a process of its own."""
    told = json.dumps({"case": asdict(CASES[name]), "workers": workers})
    found: dict[str, Any] = in_a_child(_MODULE, told, settings={})
    return found


def _width(parameters: int) -> int:
    """Return how wide the two hidden layers are: w^2 + w (inputs + classes + 2) + classes is about as many."""
    beside = _INPUTS + _CLASSES + 2
    return round((math.sqrt(beside**2 + 4 * parameters) - beside) / 2)


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    import sys

    told = json.loads(sys.argv[1])
    print(json.dumps(run(Case(**told["case"]), told["workers"])))
