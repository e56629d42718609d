"""What a measurement was made on, without names of hosts, people or folders."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The processor, its cores, Python and the versions of packages."""

    processor: str
    cores: int
    system: str
    python: str
    packages: Mapping[str, str]


def describe(packages: Iterable[str] = ()) -> Machine:
    """Return this machine, with the versions of those ``packages`` that are installed."""
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        system=platform.system(),
        python=platform.python_version(),
        packages={name: version for name in packages if (version := version_of(name)) is not None},
    )


def second_core(repeats: int = 3) -> float:
    """Return how much more two processes get done than one: 2 on a quiet machine, and what bounds any figure of two."""
    spin = [sys.executable, "-I", "-c", "x = 0\nfor i in range(8_000_000): x += i"]

    def wall(count: int) -> float:
        start = time.perf_counter()
        running = [subprocess.Popen(spin) for _ in range(count)]
        for one in running:
            one.wait()
        return time.perf_counter() - start

    return max(2 * wall(1) / wall(2) for _ in range(repeats))


def version_of(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
