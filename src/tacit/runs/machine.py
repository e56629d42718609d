"""What this machine and installation bring: which of the fast paths run here, and why not the others."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from typing import Any

import torch

import tacit
from tacit.crypto.backend import describe
from tacit.crypto.ring import cores
from tacit.errors import ConfigError
from tacit.training.lanes import network as lanes


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
