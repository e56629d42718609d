"""What a run's journal says of its surroundings, for its report: machine, versions, and how the data are split."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import tacit
from tacit.randomness import Randomness
from tacit.runs.job import Job
from tacit.runs.journal import Environment, Split, Start
from tacit.runs.machine import examine
from tacit.runs.run import GIVEN
from tacit.training.cohort import Holdings

_MOST_CELLS = 50_000  # a larger table of clients and classes is left out of the journal; the sizes stay
_MOST_CLASSES = 1_000
_CPUS = Path("/proc/cpuinfo")


def beginning(job: Job, randomness: Randomness) -> Start:
    """Return the journal's first record: the key, the job, when and where it began, who holds what."""
    return Start(
        key=randomness.key.hex(),
        simulation=randomness.simulation,
        dataset=job.dataset,
        examples=len(job.holdings.labels),
        time=now(),
        title=job.title,
        model=job.model_name,
        parameters=job.trainer.layout.size,
        device=str(job.holdings.features.device),
        form=job.trainer.form,
        split=_split(job),
        chance=None if job.chance is None else job.chance.share,
        test_examples=None if job.chance is None else job.chance.examples,
        client_names=job.told_names or None,
        environment=environment(),
    )


def _split(job: Job) -> Split | None:
    """Return who holds what; of private data no counts, which no noise protects.

    Sizes alone are there where clients run DP-SGD, which takes them to be public: they set its sampling rate.
    """
    split = split_of(job.holdings)
    if job.dataset != GIVEN or not job.plan.private:
        return split
    return None if job.plan.examples is None else Split(sizes=split.sizes)


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment() -> Environment:
    """Return versions and machine; nothing that names its owner."""
    machine = examine()
    values = {part.name: part.value for part in machine.parts}
    return Environment(
        tacit=tacit.__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        numpy=np.__version__,
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu(),
        cores=machine.cores,
        gpu=values["gpu"],
        crypto=values["crypto"],
        kernels=values["kernels"],
    )


def split_of(holdings: Holdings) -> Split:
    """Return how many examples each client holds and, where labels are classes and not too many, of each class."""
    sizes = tuple(len(rows) for rows in holdings.rows)
    labels = holdings.labels
    if labels.ndim != 1 or labels.is_floating_point() or not len(labels) or int(labels.min()) < 0:
        return Split(sizes=sizes)
    classes = int(labels.max()) + 1
    if classes > _MOST_CLASSES or classes * len(sizes) > _MOST_CELLS:
        return Split(sizes=sizes)
    numbers = labels.cpu().numpy()
    counts = tuple(tuple(np.bincount(numbers[rows], minlength=classes).tolist()) for rows in holdings.rows)
    return Split(sizes=sizes, counts=counts)


def _cpu() -> str:
    """Return the processor's name, as far as the system tells."""
    try:
        lines = _CPUS.read_text().splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
