"""Accuracy of SignDS on MNIST beside plain FedAvg with the same rounds and training."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tacit
from tacit.config.overrides import merge
from tacit.config.run_config import from_mapping, from_yaml
from tacit_labs.bench.documented.common import keep
from tacit_labs.nbafl_femnist.measured import Row, row

PLAIN: dict[str, Any] = {"mode": "plain", "server": {"lr": 1.0}, "federate": {"weighting": "uniform"}}


def signds_jobs(recipes: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the recipes of a folder (less the one in MindSpore's words), and their plain counterpart."""
    seen: list[dict[str, Any]] = []
    for path in sorted(recipes.glob("[de]*.yaml")):
        job = from_yaml(path)
        plain = copy.deepcopy({k: v for k, v in job.items() if k not in ("signds", "mode", "server", "dp")})
        merge(plain, PLAIN)
        if plain not in seen:
            seen.append(copy.deepcopy(plain))
            yield f"plain-{plain['model']['name']}", plain
        yield path.stem, job


def _row(name: str, job: dict[str, Any], seeds: int) -> Row:
    """Run a job with several seeds."""
    results = [tacit.run(from_mapping(job | {"seed": seed})) for seed in range(1, seeds + 1)]
    made = row(name, results)
    each = ", ".join(f"{100 * value:.2f}" for value in made.accuracy)
    print(f"{name:24} mean {100 * made.mean:.2f}%  ({each})  epsilon {made.epsilon}  {made.seconds} s", flush=True)
    return made


def measure(
    jobs: Iterator[tuple[str, dict[str, Any]]],
    *,
    seeds: int,
    only: Sequence[str],
    changes: Sequence[Mapping[str, Any]],
    results: Path,
) -> None:
    """Run the jobs, or ``only`` those, with some changes, and keep each row among those that are there already."""
    rows: dict[str, Any] = {}
    if results.exists():
        rows = {kept["name"]: kept for kept in json.loads(results.read_text())}
    for name, job in jobs:
        if only and name not in only:
            continue
        for change in changes:
            merge(job, change)
        rows[name] = _row(name, job, seeds).to_dict()
        keep(list(rows.values()), results)
