"""Skellam noise from the clients against Gaussian noise from a trusted server: accuracy on MNIST at the same epsilon.

Both run the recipes of examples/dp-mnist: 1,000 clients of 60 examples, all of them in every round, delta 1e-5. Central
DP is mode dp as it is. The other side has the mechanism of `--mode paillier --dp`, and its integers are summed in the
clear: a Paillier sum of integers is exact, so that encryption changes neither the law of the noise nor a bit of the
model, and two billion encrypted numbers per run need not be waited for. The smallest cohort is the whole one; where
rounds may lose clients, its noise grows with the root of what may be lost (`--smallest 900`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tacit
from tacit.accounting.calibration import calibrate_skellam
from tacit.config.resolved import Resolved
from tacit.config.run_config import from_yaml
from tacit.federated.plan import Plan
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes import catalogue as modes
from tacit.modes.dp import DP
from tacit.modes.parts import minimum_clients
from tacit_labs.bench.documented.common import keep

SIDES = ("gaussian", "skellam")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run."""

    side: str
    recipes: Path  # the folder of examples/dp-mnist
    epsilon: float
    seed: int
    gpu: int
    rounds: int | None
    smallest: int | None
    folder: str | None


def in_the_clear(config: Resolved, clients: int) -> Plan:
    """Return the plan of central DP with the clients' Skellam noise in place of the server's Gaussian noise."""
    federate = config.federate.model_copy(update={"minimum_clients": None})  # which central DP does not have
    plan = DP.plan(config.model_copy(update={"federate": federate}), clients)
    assert plan.claim is not None
    assert config.dp.epsilon is not None
    mechanism = SkellamMechanism(
        clip_bound=config.dp.clip if isinstance(config.dp.clip, float) else 0.5,
        noise_multiplier=0.0,
        smallest_cohort=minimum_clients(config, plan.sampler),
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


SKELLAM = replace(DP, name="encrypted-dp-in-the-clear", plan=in_the_clear, central=False)


def run(case: Case) -> dict[str, Any]:
    """Run one case."""
    values = from_yaml(case.recipes / f"iid-epsilon-{case.epsilon:g}.yaml")
    values["evaluate"] = {"every": 1000, "train": False}
    if case.rounds is not None:
        values["federate"]["rounds"] = case.rounds
    if case.folder is not None:
        values["data"]["folder"] = case.folder
    if case.side == "skellam":
        modes.MODES[SKELLAM.name] = SKELLAM
        smallest = case.smallest or values["federate"]["clients"]
        values["mode"] = SKELLAM.name
        values["federate"]["minimum_clients"] = smallest
    config = tacit.RunConfig(**values, seed=case.seed, gpu=case.gpu)
    plan = modes.plan_of(modes.resolve(config), config.federate.clients or 0)
    result = tacit.run(config)
    row = {
        "noise": case.side,
        "asked": case.epsilon,
        "seed": case.seed,
        "epsilon": result.claimed.epsilon,
        "accountant": result.claimed.accountant,
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


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
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


def measure(cases: Sequence[Case], *, at_once: int, results: Path) -> None:
    """Run the cases, keep each row as soon as it is there, and say what the two sides reach."""
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        for row in pool.map(run, cases):
            rows.append(row)
            keep({"summary": summary(rows), "runs": rows}, results)
    for mean in summary(rows):
        print(
            f"epsilon {mean['epsilon']:g}: Gaussian {100 * mean['gaussian']:.2f}%, "
            f"Skellam {100 * mean['skellam']:.2f}%, gap {mean['gap_in_points']:.2f} points"
        )
