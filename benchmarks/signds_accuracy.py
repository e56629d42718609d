"""Accuracy of SignDS on MNIST and of NbAFL on FEMNIST, each beside plain FedAvg with the same rounds and training.

    python benchmarks/signds_accuracy.py signds [--gpu 0] [--seeds 3] [--only documented] [--rounds 300]
    python benchmarks/signds_accuracy.py nbafl  [--gpu 0] [--seeds 3] [--data-dir FOLDER]

Results go to benchmarks/results/signds_accuracy.json and nbafl_femnist.json, a row as soon as it is there.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tacit
from tacit.runs.config import from_mapping, from_yaml
from tacit.runs.overrides import merge
from tacit_labs.nbafl_femnist import jobs as table

ROOT = Path(__file__).parents[1]
EXAMPLES, RESULTS = ROOT / "examples", ROOT / "benchmarks" / "results"
PLAIN: dict[str, Any] = {"mode": "plain", "server": {"lr": 1.0}, "federate": {"weighting": "uniform"}}


def signds_jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the recipes of examples/signds-mnist (less the one in MindSpore's words), and their plain counterpart."""
    seen: list[dict[str, Any]] = []
    for path in sorted((EXAMPLES / "signds-mnist").glob("[de]*.yaml")):
        job = from_yaml(path)
        plain = copy.deepcopy({k: v for k, v in job.items() if k not in ("signds", "mode", "server", "dp")})
        merge(plain, PLAIN)
        if plain not in seen:
            seen.append(copy.deepcopy(plain))
            yield f"plain-{plain['model']['name']}", plain
        yield path.stem, job


def nbafl_jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield plain FedAvg and the table of `tacit reproduce nbafl-femnist`, with both conventions of scale."""
    yield table.PLAIN, table.plain_settings()
    for point in table.points():
        yield point.name, point.settings()


def measure(name: str, job: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Run a job with several seeds."""
    results = [tacit.run(from_mapping(job | {"seed": seed})) for seed in range(1, seeds + 1)]
    cells = {point.name: point for point in table.points()}
    row = table.summary(name, results, cells.get(name))
    each = ", ".join(f"{100 * value:.2f}" for value in row["accuracy"])
    print(
        f"{name:24} mean {100 * row['mean']:.2f}%  ({each})  epsilon {row['epsilon']}  {row['seconds']} s", flush=True
    )
    return row


def main() -> None:
    """Run the jobs that were asked for and keep their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["signds", "nbafl"])
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--set", action="append", default=[], help="section.key=value over every job, for trials")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    path = options.results or RESULTS / ("signds_accuracy.json" if options.table == "signds" else "nbafl_femnist.json")
    rows: dict[str, Any] = {}
    if path.exists():
        rows = {row["name"]: row for row in json.loads(path.read_text())}
    for name, job in signds_jobs() if options.table == "signds" else nbafl_jobs():
        if options.only and name not in options.only:
            continue
        merge(job, {"gpu": options.gpu})
        if options.rounds:
            merge(job, {"federate": {"rounds": options.rounds}})
        if options.data_dir:
            merge(job, {"data": {"folder": options.data_dir}})
        for word in options.set:
            key, _, value = word.partition("=")
            merge(job, {key: json.loads(value)})
        rows[name] = measure(name, job, options.seeds)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(list(rows.values()), indent=2) + "\n")


if __name__ == "__main__":
    main()
