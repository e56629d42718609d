"""What models of millions of parameters take: the memory of a whole run, seconds by stage, and the length of its files.

Every case is a run on a few examples per client, so that what is measured is the way of the vectors and not the
training of them. It has a process of its own, whose peak resident memory the system tells.
"""

from __future__ import annotations

import json
import math
import os
import resource
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit_labs.bench.documented.common import between, in_a_child

if TYPE_CHECKING:
    from torch import nn

_MODULE = "tacit_labs.bench.documented.large"
MARKS = "<!-- large: python benchmarks/large.py --page-only -->", "<!-- end of large -->"
_PAUSE = 0.2  # seconds between looks at other processes


def _wide(parameters: int, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with two hidden layers, as wide as so many parameters allow."""
    from torch import nn

    inputs = math.prod(shape)
    beside = inputs + classes + 2
    width = round((math.sqrt(beside**2 + 4 * parameters) - beside) / 2)
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


SIZES = {"wide_25m": 25_000_000, "wide_10m": 10_000_000, "wide_1m": 1_000_000, "wide_10k": 10_000}
wide_25m, wide_10m, wide_1m, wide_10k = (partial(_wide, size) for size in SIZES.values())


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that is measured.

    Attributes:
        model: the name of one above.
        clients: in the run, all of them in every round.
        settings: of the run.
        rounds: how many.
        bits: of threshold keys, where server, key holders and clients have processes of their own (apart.py) and one
            round is summed without training; None where everybody is in one process.
    """

    model: str
    clients: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 2
    bits: int | None = None


_DP = {"mode": "dp", "dp": {"noise": 1.0, "clip": 1.0, "amplification": False}}
_MASKED_DP = {"mode": "masks", "masks": {"dp": True}, "dp": {"noise": 1.0, "clip": 1.0}}
_MASKS, _PAILLIER, _FLOWER = {"mode": "masks"}, {"mode": "paillier"}, {"engine": "flower"}
CASES: dict[str, Case] = {
    "plain 25M x 20": Case(model="wide_25m", clients=20),
    "dp 25M x 20": Case(model="wide_25m", clients=20, settings=_DP),
    "masks 25M x 20": Case(model="wide_25m", clients=20, settings=_MASKS),
    "masks with dp 25M x 20": Case(model="wide_25m", clients=20, settings=_MASKED_DP, rounds=1),
    "plain 1M x 32": Case(model="wide_1m", clients=32),
    "plain 1M x 400": Case(model="wide_1m", clients=400),
    "dp 1M x 200": Case(model="wide_1m", clients=200, settings=_DP),
    "masks 1M x 200": Case(model="wide_1m", clients=200, settings=_MASKS),
    "paillier 1M x 5": Case(model="wide_1m", clients=5, settings=_PAILLIER, rounds=1),
    "paillier 10M x 2": Case(model="wide_10m", clients=2, settings=_PAILLIER, rounds=1),
    "paillier 10M x 5": Case(model="wide_10m", clients=5, settings=_PAILLIER, rounds=1),
    "threshold 1M x 5": Case(model="wide_1m", clients=5, bits=2048),
    "threshold 1M x 20": Case(model="wide_1m", clients=20, bits=2048),
    "flower 25M x 5": Case(model="wide_25m", clients=5, settings=_FLOWER, rounds=1),
    "flower 10M x 4": Case(model="wide_10m", clients=4, settings=_FLOWER, rounds=1),
    "flower 10M x 16": Case(model="wide_10m", clients=16, settings=_FLOWER, rounds=1),
    "plain 10k x 20": Case(model="wide_10k", clients=20),
}
_LONG = ("paillier 10M", "threshold", "flower")  # minutes each on two cores
LONG = tuple(name for name in CASES if name.startswith(_LONG))


def run(case: Case, workers: int | None) -> dict[str, Any]:
    """Run a case in this process, and return what it took."""
    import tacit
    from tacit.config.run_config import RunConfig
    from tacit.runs.folder import CHECKPOINT, JOURNAL
    from tacit.runs.observer import Silent

    with tempfile.TemporaryDirectory() as folder, _Others() as others:
        out = Path(folder) / "run"
        config = RunConfig(
            data={"name": f"synthetic:{case.clients}"},
            model={"name": f"{_MODULE}:{case.model}"},
            federate={"clients": case.clients, "rounds": case.rounds},
            train={} if workers is None else {"workers": workers},
            evaluate={"every": case.rounds, "train": False},
            seed=1,
            out=str(out),
            **case.settings,
        )
        start = time.perf_counter()
        result = tacit.run(config, observer=Silent())
        wall = time.perf_counter() - start
        files = {name: (out / name).stat().st_size for name in (JOURNAL, CHECKPOINT)}
    last = result.rounds[-1]
    return {
        "parameters": result.parameters,
        "clients": case.clients,
        "rounds": case.rounds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "node_bytes": others.largest,
        "model_bytes": 4 * result.parameters,
        "form": result.form,
        "seconds": {stage: round(spent, 3) for stage, spent in last.seconds.items()},
        "round_seconds": round(last.lasted, 3),
        "run_seconds": round(wall, 3),
        "journal_bytes": files[JOURNAL],
        "checkpoint_bytes": files[CHECKPOINT],
        "workers": workers,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


class _Others:
    """Looks now and then at the processes that this one started, and keeps the largest one's resident memory."""

    def __init__(self) -> None:
        self.largest = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(_PAUSE):
            self.largest = max(self.largest, *_descendants(os.getpid()), 0)


def _descendants(process: int) -> list[int]:
    """Return the resident memory of all processes that descend from one, as Linux tells it."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            told = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:  # it has ended
            continue
        number = int(status.parent.name)
        parents[number] = int(told["PPid"])
        resident[number] = 1024 * int(told.get("VmRSS", "0 kB").split()[0])

    def descends(number: int) -> bool:
        while number in parents:
            number = parents[number]
            if number == process:
                return True
        return False

    return [resident[number] for number in parents if descends(number)]


def measure(name: str, *, workers: int | None = None) -> dict[str, Any]:
    """Return what a case took, measured in a process of its own."""
    case = CASES[name]
    module, told = _MODULE, {"case": asdict(case), "workers": workers}
    if case.bits is not None:
        module = "tacit_labs.bench.documented.apart"
        told = {"parameters": SIZES[case.model], "clients": case.clients, "bits": case.bits}
    found: dict[str, Any] = in_a_child(module, json.dumps(told), settings={})
    return found


def filled(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with the table of results between its marks."""
    rows = [
        "| a run | peak of memory | in copies of the model | journal |",
        "| --- | --- | --- | --- |",
        *(_row(name, results[name]) for name in CASES if name in results),
    ]
    return between(text, MARKS, "\n".join(rows))


def _row(name: str, found: Mapping[str, Any]) -> str:
    peak, copies = found["peak_bytes"] / 1e9, found["peak_bytes"] / found["model_bytes"]
    others = [(f"{where}_bytes", f"at a {where}") for where in ("node", "holder", "client")]
    beside = "".join(f"; {found[at] / 1e9:.2f} GB {where}" for at, where in others if found.get(at))
    cores = "" if found["cores"] == 2 else f", {found['cores']} cores"
    told = f"{copies:.0f}" if copies < 100 else "–"
    cells = (
        f"{name.replace(' x ', ' × ')} clients{cores}",
        f"{peak:.2f} GB{beside}",
        told,
        f"{found['journal_bytes']:,} bytes" if "journal_bytes" in found else "–",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    import sys

    told = json.loads(sys.argv[1])
    print(json.dumps(run(Case(**told["case"]), told["workers"])))
