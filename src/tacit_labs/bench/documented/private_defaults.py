"""What private modes reach when they are told nothing: ``tacit run --mode dp`` and the like, several seeds each."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tacit
from tacit.errors import ConfigError
from tacit.rounding import epsilon_text
from tacit.runs.observer import Silent
from tacit.storage import CACHE_VARIABLE, cache_folder
from tacit.tasks.sources import DATA_VARIABLE
from tacit_labs.bench.documented import common
from tacit_labs.bench.documented.common import between, keep
from tacit_labs.bench.machine import describe

BEGIN, END = "<!-- private defaults: python benchmarks/private_defaults.py -->", "<!-- end of private defaults -->"
MODES: dict[str, dict[str, Any]] = {
    "dp": {"mode": "dp"},
    "paillier --dp": {"mode": "paillier", "paillier": {"dp": True}},
    "masks --dp": {"mode": "masks", "masks": {"dp": True}},
    "local-dp": {"mode": "local-dp"},
    "dp-sgd": {"mode": "dp-sgd"},
    "signds": {"mode": "signds"},
    "dp --data digits": {"mode": "dp", "data": "digits"},
}


def measure(names: Sequence[str], *, seeds: int, results: Path | None, rounds: int | None = None) -> dict[str, Any]:
    """Run the modes that are named, or all, and return what they reached.

    The first run of each mode begins without features, and computes them where it needs some; the others find them.

    Args:
        names: the modes.
        seeds: how many runs of each.
        results: where each row is kept as soon as it is there; rows of other modes stay. Nowhere if None.
        rounds: fewer than the modes choose, to try whether it runs.
    """
    unknown = [name for name in names if name not in MODES]
    if unknown:
        raise ConfigError(f"Unknown mode {unknown[0]!r}. Choose of {', '.join(map(repr, MODES))}.")
    kept: dict[str, Any] = {"machine": asdict(describe(["torch", "gmpy2"])), "rows": {}}
    if results is not None and results.exists():
        kept["rows"] = json.loads(results.read_text())["rows"]
    for name in names or MODES:
        with _no_features():
            found = [_run(name, seed, rounds) for seed in range(1, seeds + 1)]
        last = found[-1][0]
        assert last.privacy is not None
        kept["rows"][name] = {
            "clients": last.clients,
            "rounds": len(last.rounds),
            "parameters": last.parameters,
            "epsilon": max(result.claimed.epsilon for result, _ in found),
            "delta": last.privacy.delta,
            "unit": last.privacy.unit,
            "accuracy": [result.test_accuracy for result, _ in found],
            "seconds": [round(seconds, 1) for _, seconds in found],
        }
        print(name, kept["rows"][name], flush=True)
        if results is not None:
            keep(kept, results)
    return kept


@contextlib.contextmanager
def _no_features() -> Iterator[None]:
    """Begin with an empty cache; data are found where they are."""
    before = {name: os.environ.get(name) for name in (CACHE_VARIABLE, DATA_VARIABLE)}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(DATA_VARIABLE, str(cache_folder()))
        os.environ[CACHE_VARIABLE] = folder
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _run(name: str, seed: int, rounds: int | None) -> tuple[tacit.Result, float]:
    fewer = {} if rounds is None else {"federate": {"rounds": rounds}}
    start = time.perf_counter()
    result = tacit.run(tacit.RunConfig(**MODES[name], **fewer, seed=seed), observer=Silent())
    return result, time.perf_counter() - start


def table(kept: Mapping[str, Any]) -> str:
    """Return the rows as a table for the documentation."""
    rows = {name: kept["rows"][name] for name in MODES if name in kept["rows"]}
    lines = [
        "| `tacit run --mode` | clients | rounds | epsilon | test accuracy (lowest) | seconds, first run | later |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        mean, lowest = statistics.mean(row["accuracy"]), min(row["accuracy"])
        cost = f"{epsilon_text(row['epsilon'])} per {row['unit']}, delta {row['delta']:g}".replace("e-0", "e-")
        share = f"{mean:.1%} ({lowest:.1%})" if len(row["accuracy"]) > 1 else f"{mean:.1%}"
        first, *later = row["seconds"]  # the first is None where a run found features that others had kept
        once, again = (f"{statistics.median(some):.0f}" if some else "–" for some in ([first] if first else [], later))
        lines.append(f"| `{name}` | {row['clients']:,} | {row['rounds']} | {cost} | {share} | {once} | {again} |")
    machine = kept["machine"]
    seeds = sorted({len(row["accuracy"]) for row in rows.values()})
    words = " or ".join(str(count) for count in seeds) + (" seed" if seeds == [1] else " seeds")
    where = f"{machine['processor']}, {machine['cores']} cores"
    lines += ["", f"{words} each, {where}; seconds by the clock, of later runs the median."]
    return "\n".join(lines)


def filled(text: str, kept: Mapping[str, Any]) -> str:
    """Return a documentation page with the table between its marks."""
    return between(text, (BEGIN, END), table(kept))


def rewrite(page: Path, results: Path) -> None:
    """Put the results' table into a documentation page."""
    kept = json.loads(results.read_text())
    common.rewrite(page, lambda text: filled(text, kept))
