"""Skellam noise from the clients against Gaussian noise from a trusted server: accuracy on MNIST at the same epsilon.

    python benchmarks/encrypted_dp.py [--gpu 0] [--seeds 3] [--epsilon 8] [--rounds 10] [--jobs 1]

Both run the recipes of examples/dp-mnist: 1,000 clients of 60 examples, all of them in every round, delta 1e-5. Central
DP is mode dp as it is. The other side has the mechanism of `--mode paillier --dp`, and its integers are summed in the
clear: a Paillier sum of integers is exact, so that encryption changes neither the law of the noise nor a bit of the
model, and two billion encrypted numbers a run need not be waited for. The smallest cohort is the whole one; where
rounds may lose clients, its noise grows with the root of what may be lost (`--smallest 900`).

Results go to benchmarks/results/encrypted_dp.json. On two cores a run takes three minutes with Gaussian noise and ten
with Skellam noise, because every client makes its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tacit
from tacit.accounting.skellam import calibrate_skellam
from tacit.federated.plan import Plan
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.runs import modes
from tacit.runs.config import RunConfig, from_yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "encrypted_dp.json"
SIDES = ("gaussian", "skellam")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run."""

    side: str
    epsilon: float
    seed: int
    gpu: int
    rounds: int | None
    smallest: int | None
    folder: str | None


def in_the_clear(config: RunConfig, clients: int) -> Plan:
    """Return the plan of central DP with the clients' Skellam noise in place of the server's Gaussian noise."""
    plan = modes.dp(config, clients)
    assert plan.claim is not None
    assert config.dp.epsilon is not None
    mechanism = SkellamMechanism(
        clip_bound=config.dp.clip if isinstance(config.dp.clip, float) else 0.5,
        noise_multiplier=0.0,
        smallest_cohort=modes.minimum_clients(config, plan.sampler),
        expected_clients=plan.sampler.expected,
    )
    calibrated = calibrate_skellam(
        epsilon=config.dp.epsilon,
        delta=config.dp.delta,
        rounds=config.federate.rounds,
        sensitivity=mechanism.rounding.norm,
        neighbours=plan.claim.neighbours,
    )
    return replace(plan, mechanism=replace(mechanism, noise_multiplier=calibrated.noise_multiplier))


def measure(case: Case) -> dict[str, Any]:
    """Run one case."""
    values = from_yaml(ROOT / "examples" / "dp-mnist" / f"iid-epsilon-{case.epsilon:g}.yaml")
    values["evaluate"] = {"every": 1000, "train": False}
    if case.rounds is not None:
        values["federate"]["rounds"] = case.rounds
    if case.folder is not None:
        values["data"]["folder"] = case.folder
    if case.side == "skellam":
        modes.MODES["encrypted-dp-in-the-clear"] = in_the_clear
        smallest = case.smallest or values["federate"]["clients"]
        values["mode"] = "encrypted-dp-in-the-clear"
        values["federate"]["minimum_clients"] = smallest
    config = tacit.RunConfig(**values, seed=case.seed, gpu=case.gpu)
    plan = modes.plan_of(config, config.federate.clients or 0)
    result = tacit.run(config)
    row = {
        "noise": case.side,
        "asked": case.epsilon,
        "seed": case.seed,
        "epsilon": result.privacy.epsilon,
        "accountant": result.privacy.accountant,
        "noise_multiplier": getattr(plan.mechanism, "noise_multiplier", None),
        "accuracy": result.test_accuracy,
        "rounds": len(result.rounds),
        "seconds": round(result.seconds, 1),
        "device": result.device,
    }
    print(
        f"{case.side:9} epsilon {row['epsilon']:.4f}  z {row['noise_multiplier']:.4f}  seed {case.seed}  "
        f"{100 * (result.test_accuracy or 0.0):.2f}%  {row['seconds']} s",
        flush=True,
    )
    return row


def summary(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean accuracy of each side at each epsilon, and the gap in points."""
    means = []
    for epsilon in sorted({row["asked"] for row in rows}):
        accuracies = {
            side: [row["accuracy"] for row in rows if (row["noise"], row["asked"]) == (side, epsilon)] for side in SIDES
        }
        if all(accuracies.values()):
            gaussian, skellam = (statistics.mean(accuracies[side]) for side in SIDES)
            gap = 100 * (gaussian - skellam)
            means.append({"epsilon": epsilon, "gaussian": gaussian, "skellam": skellam, "gap_in_points": gap})
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, action="append", help="3 and 8 if left out")
    parser.add_argument("--rounds", type=int, help="fewer than the recipe's, for a first look")
    parser.add_argument("--smallest", type=int, help="the smallest cohort; all clients if left out")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--folder", help="where the data are")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    cases = [
        Case(
            side=side,
            epsilon=epsilon,
            seed=seed,
            gpu=options.gpu,
            rounds=options.rounds,
            smallest=options.smallest,
            folder=options.folder,
        )
        for side in reversed(SIDES)  # the longer ones first
        for epsilon in options.epsilon or [3.0, 8.0]
        for seed in range(1, options.seeds + 1)
    ]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for row in pool.map(measure, cases):
            rows.append(row)
            options.results.parent.mkdir(exist_ok=True)
            options.results.write_text(json.dumps({"summary": summary(rows), "runs": rows}, indent=2) + "\n")
    for mean in summary(rows):
        print(
            f"epsilon {mean['epsilon']:g}: Gaussian {100 * mean['gaussian']:.2f}%, "
            f"Skellam {100 * mean['skellam']:.2f}%, gap {mean['gap_in_points']:.2f} points"
        )


if __name__ == "__main__":
    main()
