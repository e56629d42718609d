"""SignDS on LeNet: loss and accuracy beside plain federated averaging, and what a client sends.

MNIST, and, where LEAF's FEMNIST is found, the original's own data: FEMNIST by writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tacit.studies.plan import with_values
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.learning import learned
from tacit_labs.signds_001.measured import DOCUMENTED, EARLIER, FEMNIST, PLAIN, Part, to_dict
from tacit_labs.signds_001.page import findings, sections, tables


@dataclass(frozen=True, kw_only=True)
class Task:
    """One data set, how clients train on it, and which ways are compared."""

    name: str
    title: str
    split: str
    clients: int | None  # None is one per writer
    rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    ways: tuple[str, ...] = (PLAIN, DOCUMENTED)

    def settings(self, way: str, asked: Settings) -> dict[str, Any]:
        """Return the settings of a run."""
        shared: dict[str, Any] = {
            "seed": asked.seed,
            "gpu": asked.gpu,
            "data": {"name": self.name, "split": self.split, "folder": asked.data_dir and str(asked.data_dir)},
            "model": {"name": "lenet"},
            "federate": {"rounds": self.rounds, "clients": self.clients},
            "train": {"batch_size": self.batch_size, "local_epochs": self.local_epochs},
            "optimizer": {"lr": self.lr},
            "evaluate": {"every": max(1, self.rounds // 40), "train": False},
        }
        return with_values(shared, WAYS[way])

    def words(self, clients: int) -> str:
        """Return what was run."""
        epochs = "one local epoch" if self.local_epochs == 1 else f"{self.local_epochs} local epochs"
        return (
            f"{self.title}, {clients} clients, all of them in each of {self.rounds} rounds, {epochs} in batches of "
            f"{self.batch_size} at rate {self.lr:g}"
        )


WAYS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"mode": "plain", "server.lr": 1.0, "federate.weighting": "uniform"},
    EARLIER: {"mode": "signds", "signds.sign_k": 0.01, "signds.sign_global_lr": 4.0, "signds.step": "fixed"},
    DOCUMENTED: {"mode": "signds", "signds.sign_k": 0.2, "signds.sign_global_lr": 4.0},
}
MNIST = Task(
    name="mnist",
    title="MNIST, mixed evenly",
    split="iid",
    clients=100,
    rounds=200,
    local_epochs=1,
    batch_size=16,
    lr=0.05,
)
WRITERS = Task(
    name=FEMNIST,
    title="FEMNIST by writer, 62 classes",
    split="natural",
    clients=None,
    rounds=200,
    local_epochs=20,
    batch_size=32,
    lr=0.01,
    ways=(PLAIN, EARLIER, DOCUMENTED),
)
FULL = (MNIST, WRITERS)
QUICK = (replace(MNIST, rounds=8),)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the experiment as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(tasks: tuple[Task, ...], settings: Settings, progress: Progress) -> Reproduction:
    """Train each task in each of its ways, and compare; FEMNIST is left out where it can't be had."""
    from tacit.tasks.femnist import locate_femnist

    here = [task for task in tasks if task.name != FEMNIST or locate_femnist(settings.data_dir) is not None]
    parts = []
    for task in here:
        results = learned(
            {way: task.settings(way, settings) for way in task.ways},
            settings.work(EXPERIMENT.name) / task.name,
            what=task.title,
            progress=progress,
            workers=1,  # threads share a run's clients; the runs differ too much in cost to share the cores evenly
        )
        clients = next(iter(results.values())).clients
        parts.append(Part(name=task.name, title=task.title, words=task.words(clients), results=results))
    missing = len(here) < len(tasks)
    return Reproduction(
        settings=_said(parts, missing=missing),
        smaller=_smaller(tasks),
        findings=findings(parts, missing=missing),
        sections=sections(parts),
        tables=tables(parts),
        data=to_dict(parts),
    )


def _said(parts: list[Part], *, missing: bool) -> str:
    said = "LeNet, its convolutions without bias as in the original. " + " ".join(f"{part.words}." for part in parts)
    return said + (
        " FEMNIST, the original's data, was not found and is left out: `tacit data get femnist` says how it is made; "
        "then name its folder with `--data-dir` or `TACIT_DATA`."
        if missing
        else ""
    )


def _smaller(tasks: tuple[Task, ...]) -> str:
    if tasks == FULL:
        return ""
    return (
        f"MNIST only, without the original's FEMNIST, and {tasks[0].rounds} rounds instead of {MNIST.rounds}: the "
        "curves are those of the beginning. Upload sizes are the same in both."
    )


EXPERIMENT = Experiment(
    name="signds-001",
    title="SignDS on LeNet",
    source="MindSpore Federated's documentation of SignDS: LeNet with 66,404 parameters, 100 clients of FEMNIST, 20 "
    "local epochs at rate 0.01, `eps=100, ratio=0.6, lr=4, out=0`. The earlier edition has 200 rounds with `k=0.01` "
    "and two accuracies; the current one has 600 rounds with `k=0.2` and a figure of loss and AUC without numbers. "
    "Both say that an upload shrinks from 266,084 to 656.",
    run=run,
)
