"""Canaries in one run: how close their bound comes to the truth and how often it exceeds it, and what they cost.

*Ideal*: scores as a Gaussian release without sampling gives them, at a true epsilon that is known. *Cost*: the default
private run with and without canaries, the same seeds; the time is CPU time of what canaries add over that of the whole
run. Seeds are 1, 2, 3, ...; what is in the file already is kept.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.accounting import profile
from tacit.accounting.events import GaussianEvent
from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger
from tacit.accounting.one_run import CONFIDENCE, epsilon_of, held_against, least_mu
from tacit.config.run_config import RunConfig
from tacit.randomness import Randomness
from tacit.runs import run
from tacit.runs.canaries import ClientCanaries

CANARIES, DELTA = 1000, 1e-5
EPSILONS = (1.0, 3.0, 8.0)
EXTREMES = ((0.1, 100), (0.1, 1000), (1.0, 100), (8.0, 100), (20.0, 100), (20.0, 1000), (40.0, 1000))


def measure(*, runs: int, many: int, seeds: int, results: Path) -> None:
    """Measure both parts and write them as they come."""
    found: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {}
    found["canaries"], found["delta"], found["confidence"] = CANARIES, DELTA, CONFIDENCE
    if "ideal" not in found:
        found["ideal"] = [ideal(epsilon, runs) for epsilon in EPSILONS]
        found["coverage"] = [coverage(epsilon, CANARIES, many) for epsilon in EPSILONS]
        found["coverage"] += [coverage(epsilon, canaries, many) for epsilon, canaries in EXTREMES]
        _write(found, results)
    cost = found.setdefault("cost", {"runs": []})
    for seed in range(len(cost["runs"]) + 1, seeds + 1):
        cost["runs"].append(_cost(seed))
        with_them, without = ([own[name] for own in cost["runs"]] for name in ("accuracy", "accuracy_without"))
        cost["points_lost"] = round(100.0 * (statistics.mean(without) - statistics.mean(with_them)), 3)
        cost["share_of_time"] = round(statistics.mean(own["share_of_time"] for own in cost["runs"]), 4)
        _write(found, results)


def ideal(epsilon: float, runs: int) -> dict[str, Any]:
    """Return how the bounds lie to a true epsilon, in so many runs."""
    mu = profile.largest_mu(epsilon, DELTA)
    ledger = Ledger().charged(GaussianEvent(noise_multiplier=1.0 / mu), round_number=1)
    claimed = Claimed(ledger=ledger, delta=DELTA)
    bounds, any_shape, alarms = [], [], 0
    for seed in range(1, runs + 1):
        generator = Randomness.of(seed=seed).stream("ideal", repr(epsilon))
        inside = generator.random(CANARIES) < 0.5
        scores = generator.normal(size=CANARIES) + mu * inside
        one = held_against(claimed, scores, inside, normal=True)
        bounds.append(one.bound)
        any_shape.append(one.any_shape)
        alarms += one.refuted
    return {
        "epsilon": epsilon,
        "runs": runs,
        "median": round(statistics.median(bounds), 4),
        "of_the_truth": round(statistics.median(bounds) / epsilon, 4),
        "exceeded": sum(bound > epsilon for bound in bounds),
        "any_shape_median": round(statistics.median(any_shape), 4),
        "any_shape_exceeded": sum(bound > epsilon for bound in any_shape),
        "alarms": alarms,
    }


def coverage(epsilon: float, canaries: int, runs: int) -> dict[str, Any]:
    """Return how often the bound of the claimed shape exceeds a true epsilon, in very many runs."""
    mu = profile.largest_mu(epsilon, DELTA)
    generator = Randomness.of(seed=1).stream("coverage", repr(epsilon), canaries)
    exceeded = 0
    for _ in range(runs):
        inside = generator.random(canaries) < 0.5
        scores = generator.normal(size=canaries) + mu * inside
        exceeded += epsilon_of(least_mu(scores[inside], scores[~inside]), DELTA) > epsilon
    return {"epsilon": epsilon, "canaries": canaries, "runs": runs, "exceeded": exceeded / runs}


def _cost(seed: int) -> dict[str, Any]:
    """Run the default private run with and without canaries."""
    spent = 0.0

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*values: Any) -> Any:
            nonlocal spent
            begin = time.thread_time()
            try:
                return method(*values)
            finally:
                spent += time.thread_time() - begin

        return measured

    kept = {name: getattr(ClientCanaries, name) for name in ("joined", "saw_release", "found")}
    for name, method in kept.items():
        setattr(ClientCanaries, name, timed(method))
    try:
        begin = time.process_time()
        config = RunConfig(mode="dp", dp={"epsilon": 8.0}, seed=seed, audit={"canaries": CANARIES})
        own = run.run(config, quiet=True)
        whole = time.process_time() - begin
    finally:
        for name, method in kept.items():
            setattr(ClientCanaries, name, method)
    other = run.run(RunConfig(mode="dp", dp={"epsilon": 8.0}, seed=seed), quiet=True)
    assert own.audit is not None
    return {
        "seed": seed,
        "accuracy": own.test_accuracy,
        "accuracy_without": other.test_accuracy,
        "share_of_time": round(spent / (whole - spent), 4),
        "epsilon": round(own.audit.epsilon, 4),
        "bound": round(own.audit.bound, 4),
        "final": None if own.audit.final is None else round(own.audit.final, 4),
        "any_shape": round(own.audit.any_shape, 4),
    }


def _write(found: dict[str, Any], results: Path) -> None:
    results.write_text(json.dumps(found, indent=1) + "\n")
