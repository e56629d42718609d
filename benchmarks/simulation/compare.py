"""Seconds a round of Tacit, a student's loop, Flower and pfl-research, side by side on the same cores.

Every peer runs in a process of its own, one after another, several times in turn, so that a noisy neighbour hits all
of them; the best warm round of each counts. Peers whose environment is missing (see environments.md) are left out
and named. Results go to benchmarks/results/simulation.json.

    python benchmarks/simulation/compare.py [--repeats 3] [--job device] [--peer tacit --peer student]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "simulation.json"
ROUNDS = {"device": 8, "silo": 3}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One side of the comparison."""

    name: str
    script: str
    python: Path
    title: str


PEERS = [
    Peer(name="student", script="run_student.py", python=Path(sys.executable), title="a student's loop"),
    Peer(name="flower", script="run_flower.py", python=ROOT / ".bench/flower/bin/python", title="Flower's simulation"),
    Peer(name="pfl", script="run_pfl.py", python=ROOT / ".bench/pfl/bin/python", title="pfl-research"),
    Peer(name="tacit", script="run_tacit.py", python=Path(sys.executable), title="Tacit"),
]


def measure(peer: Peer, job: str, data: Path) -> dict[str, Any]:
    """Run a peer once and return what it printed; a peer may crash at its exit, after its work is done."""
    command = [
        str(peer.python),
        str(HERE / peer.script),
        "--job",
        job,
        "--rounds",
        str(ROUNDS[job]),
        "--data",
        str(data),
    ]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        lines = done.stdout.strip().splitlines()
        if lines and lines[-1].startswith("{"):
            printed: dict[str, Any] = json.loads(lines[-1])
            return printed
    raise SystemExit(f"{peer.name} failed on {job}:\n{done.stderr[-3000:]}")


def mnist(folder: Path) -> Path:
    """Write MNIST's training set as the peers read it."""
    from tacit.tasks import catalogue

    train = catalogue.load("mnist").train
    pixels = np.rint((train.features[:, 0] * 0.3081 + 0.1307) * 255).clip(0, 255).astype(np.uint8)
    path = folder / "mnist.npz"
    np.savez(path, xtr=pixels, ytr=train.labels)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--job", action="append", choices=list(ROUNDS))
    parser.add_argument("--peer", action="append", choices=[peer.name for peer in PEERS])
    options = parser.parse_args()
    wanted = [peer for peer in PEERS if not options.peer or peer.name in options.peer]
    present = [peer for peer in wanted if peer.python.exists()]
    for peer in wanted:
        if peer not in present:
            print(f"left out: {peer.title} (no {peer.python.relative_to(ROOT)}; see environments.md)")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = mnist(Path(folder))
        for job in options.job or list(ROUNDS):
            runs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in present}
            for repeat in range(options.repeats):
                for peer in present:
                    runs[peer.name].append(measure(peer, job, data))
                    warm = min(runs[peer.name][-1]["seconds"][1:])
                    print(f"{job} {repeat + 1}/{options.repeats} {peer.title}: {warm:.3f} s a round", flush=True)
            rows += [row(peer, job, runs[peer.name]) for peer in present]
    tacit = {r["job"]: r["seconds"] for r in rows if r["peer"] == "tacit"}
    for r in rows:
        r["tacit_is_faster_by"] = round(r["seconds"] / tacit[r["job"]], 2) if r["job"] in tacit else None
        extra = f"  around training {100 * r['around_training']:.1f}%" if "around_training" in r else ""
        ratio = f"{r['tacit_is_faster_by']:.2f}x" if r["tacit_is_faster_by"] else ""
        speed = f"{r['seconds']:7.3f} s  {r['clients_a_second']:6.0f} clients/s"
        print(f"{r['job']:7} {r['title']:20} {speed}  {ratio}{extra}")
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"cores": len(os.sched_getaffinity(0)), "processor": processor(), "python": platform.python_version()}
    RESULTS.write_text(json.dumps({"machine": machine, "repeats": options.repeats, "rows": rows}, indent=2) + "\n")
    print(f"written to {RESULTS.relative_to(ROOT)}")


def row(peer: Peer, job: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up a peer's runs of one job."""
    best = min(seconds for run in runs for seconds in run["seconds"][1:])
    summary = {
        "peer": peer.name,
        "title": peer.title,
        "version": runs[0]["version"],
        "job": job,
        "seconds": best,
        "clients_a_second": runs[0]["clients_per_round"] / best,
        "notes": runs[0]["notes"],
    }
    if "around_training" in runs[0]:
        summary["around_training"] = min(run["around_training"] for run in runs)
    return summary


def processor() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
