"""SignDS on LeNet as 001 has it: 600 rounds on FEMNIST by writer beside plain averaging, or MNIST in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tacit.studies.plan import with_values
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.learning import learned
from tacit_labs.signds_001.measured import DOCUMENTED, FEMNIST, PLAIN, ROUNDS, Part, to_dict
from tacit_labs.signds_001.page import findings, sections, tables


@dataclass(frozen=True, kw_only=True)
class Task:
    """One data set, and how clients train on it."""

    name: str
    title: str
    split: str
    clients: int
    rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    per_round: int | None = None  # None is all of them

    def settings(self, way: str, asked: Settings) -> dict[str, Any]:
        """Return the settings of a run."""
        shared: dict[str, Any] = {
            "seed": asked.seed,
            "gpu": asked.gpu,
            "data": {"name": self.name, "split": self.split, "folder": asked.data_dir and str(asked.data_dir)},
            "model": {"name": "lenet"},
            "federate": {"rounds": self.rounds, "clients": self.clients, "per_round": self.per_round},
            "train": {"batch_size": self.batch_size, "local_epochs": self.local_epochs},
            "optimizer": {"lr": self.lr},
            "evaluate": {"every": max(1, self.rounds // 60), "train": False},
        }
        return with_values(shared, WAYS[way])

    def words(self, clients: int) -> str:
        """Return what was run."""
        epochs = "one local epoch" if self.local_epochs == 1 else f"{self.local_epochs} local epochs"
        cohort = "all" if self.per_round is None else str(self.per_round)
        return (
            f"{self.title}, {clients} clients, {cohort} of them in each of {self.rounds} rounds, {epochs} in batches "
            f"of {self.batch_size} at rate {self.lr:g}"
        )


WAYS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"mode": "plain", "server.lr": 1.0, "federate.weighting": "uniform"},
    DOCUMENTED: {"mode": "signds", "signds.sign_k": 0.2, "signds.sign_global_lr": 4.0},
}
WRITERS = Task(
    name=FEMNIST,
    title="FEMNIST by writer, 62 classes",
    split="natural",
    clients=100,
    rounds=ROUNDS,
    local_epochs=20,
    batch_size=32,
    lr=0.01,
)
SAMPLED = replace(WRITERS, per_round=10)  # on a CPU; how many take part is not stated
MNIST = Task(  # not in the document; it stands in where FEMNIST is not at hand
    name="mnist",
    title="MNIST, mixed evenly",
    split="iid",
    clients=100,
    rounds=200,
    local_epochs=1,
    batch_size=16,
    lr=0.05,
)
QUICK = replace(MNIST, rounds=8)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the experiment as large as ``settings`` ask."""
    if settings.quick:
        return reproduce(QUICK, settings, progress)
    from tacit.tasks.femnist import locate_femnist

    writers = SAMPLED if settings.gpu < 0 else WRITERS
    return reproduce(MNIST if locate_femnist(settings.data_dir) is None else writers, settings, progress)


def reproduce(task: Task, settings: Settings, progress: Progress) -> Reproduction:
    """Train a task in each of its ways, and compare."""
    results = learned(
        {way: task.settings(way, settings) for way in WAYS},
        settings.work(EXPERIMENT.name) / task.name,
        what=task.title,
        progress=progress,
        workers=1,  # threads share a run's clients; the runs differ too much in cost to share the cores evenly
    )
    clients = next(iter(results.values())).clients
    parts = [Part(name=task.name, title=task.title, words=task.words(clients), results=results)]
    missing = task.name != FEMNIST and not settings.quick
    return Reproduction(
        settings=_said(task, parts, missing=missing),
        smaller=_smaller(task) if settings.quick else "",
        findings=findings(parts, missing=missing),
        sections=sections(parts),
        tables=tables(parts),
        data=to_dict(parts),
    )


def _said(task: Task, parts: list[Part], *, missing: bool) -> str:
    said = "LeNet, its convolutions without bias. " + " ".join(f"{part.words}." for part in parts)
    if task == SAMPLED:
        said += (
            " How many of the 100 take part in an iteration the document does not say. On a CPU it is a tenth of them "
            "here; `--gpu 0` has all of them."
        )
    return said + (
        " FEMNIST, the document's data, was not found and is left out: `tacit data get femnist` says how it is made; "
        "then name its folder with `--data-dir` or `TACIT_DATA`."
        if missing
        else ""
    )


def _smaller(task: Task) -> str:
    return (
        f"MNIST instead of the document's FEMNIST, and {task.rounds} rounds instead of {WRITERS.rounds}: the curves "
        "are those of the beginning, and uploads those of LeNet with ten classes instead of 62."
    )


EXPERIMENT = Experiment(
    name="signds-001",
    title="Document 001: SignDS on LeNet",
    source="MindSpore Federated's documentation of SignDS: LeNet, “100 client datasets of `3500_clients_bin`, 600 "
    "iterations of federated aggregation”, 20 local epochs at rate 0.01, “k=0.2, eps=100, ratio=0.6, lr=4, out=0”; a "
    "figure of loss and Auc, and lengths of uploads without a unit, 266,084 and 656. Around it an example of 8 "
    "dimensions, five options with their domains, a proof of local privacy and the formulas of random response.",
    document="001_52447155210e6a81.txt",
    parts=("loss and accuracy over 600 rounds", "length of an upload", "options", "worked example and formulas"),
    quick="68 s of one core",
    full="40 min of one core; all writers on a GPU",
    run=run,
)
