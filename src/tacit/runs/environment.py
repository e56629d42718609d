"""Where a run was made: what this machine and installation bring, and what its journal says of them at the start."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tacit
from tacit.crypto.backend import describe
from tacit.errors import ConfigError
from tacit.limits import cores
from tacit.randomness import Randomness
from tacit.runs.job import Job
from tacit.runs.journal import Environment, Split, Start
from tacit.runs.run import is_own
from tacit.training.batches import Holdings
from tacit.training.lanes import network as lanes

_MOST_CELLS = 50_000  # a larger table of clients and classes is left out of the journal; the sizes stay
_MOST_CLASSES = 1_000
MOST_SIZES = 100_000  # of more clients nothing is said one by one
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
        shape=tuple(job.holdings.features.shape[1:]),
        outputs=job.outputs,
        classes=job.classes or None,
        encoding=None if job.encoding is None else job.encoding.to_plain(),
        environment=here(),
    )


def _split(job: Job) -> Split | None:
    """Return who holds what; of private data no counts, which no noise protects.

    Sizes alone are there where clients run DP-SGD, which takes them to be public: they set its sampling rate. Of a very
    large population there is nothing: the record would be longer than all others together.
    """
    if len(job.holdings.rows) > MOST_SIZES:
        return None
    split = split_of(job.holdings)
    if not is_own(job.dataset) or not job.plan.private:
        return split
    return None if job.plan.examples is None else Split(sizes=split.sizes)


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def here() -> Environment:
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
    sizes = tuple(holdings.sizes.tolist())
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


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part: what runs, whether it is the best there is, and why."""

    name: str
    value: str
    reason: str
    best: bool = True


@dataclass(frozen=True, kw_only=True)
class Machine:
    """All parts, and how many cores they may use."""

    cores: int
    parts: tuple[Part, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, parts by name."""
        parts = {part.name: {key: asdict(part)[key] for key in ("value", "reason", "best")} for part in self.parts}
        return {"cores": self.cores, **parts}


def examine() -> Machine:
    """Look at the machine; nothing is changed or sent."""
    return Machine(cores=cores(), parts=(_python(), _torch(), _gpu(), _crypto(), _kernels()))


def _python() -> Part:
    system = f"{platform.system()} {platform.machine()}"
    return Part(name="python", value=platform.python_version(), reason=f"tacit {tacit.__version__} on {system}")


def _torch() -> Part:
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU only"
    return Part(name="torch", value=str(torch.__version__), reason=built)


def _gpu() -> Part:
    if not torch.cuda.is_available():
        return Part(name="gpu", value="none", reason="torch sees no NVIDIA GPU; runs use the CPU", best=False)
    found = [torch.cuda.get_device_properties(place) for place in range(torch.cuda.device_count())]
    names = ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in found)
    return Part(name="gpu", value=names, reason="used with --gpu 0" if len(found) == 1 else "used with --gpu NUMBER")


def _crypto() -> Part:
    try:
        choice = describe()
    except ConfigError as error:  # a doctor tells what is wrong instead of failing of it
        return Part(name="crypto", value="none", reason=str(error), best=False)
    name = choice.backend.name
    return Part(name="crypto", value=name, reason=choice.reason, best=name == "native")


def _kernels() -> Part:
    if not lanes.available():
        reason = "they were not built (no C compiler when tacit was installed); PyTorch trains alone"
    elif not lanes.vectorised():
        reason = "this CPU has no AVX2; PyTorch trains alone"
    else:
        return Part(name="kernels", value="native", reason="this CPU has AVX2 or AVX-512")
    return Part(name="kernels", value="none", reason=reason, best=False)
