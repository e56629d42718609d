"""One side of a comparison: a process of its own that reads one job per line and answers with one line.

Only the standard library is used here, so that peers can be measured in environments that have nothing of Tacit's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

Jobs = Mapping[str, Callable[..., dict[str, Any]]]

_PACKAGES = str(Path(__file__).parents[2])


class WorkerError(Exception):
    """A job failed in the other process; the message is the last line of why."""


class Worker:
    """A child process that runs a module with :func:`serve`."""

    def __init__(self, module: str, *, python: str = sys.executable, settings: Mapping[str, str] | None = None) -> None:
        """Start it.

        Args:
            module: what ``python -m`` runs.
            python: which interpreter, where the packages to be measured live in another environment.
            settings: variables of the environment, beside those of this process.
        """
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", **(settings or {})}
        if python != sys.executable:
            environment["PYTHONPATH"] = _PACKAGES
        self._child = subprocess.Popen(
            [python, "-P", "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, job: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the answer to one job."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"job": job, "arguments": arguments}) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise WorkerError(f"the process ended during {job!r} with status {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        if kind is not None:  # interrupted in the middle of a job
            self._child.terminate()
        self._child.wait()
        self._child.stdout.close()


def serve(jobs: Jobs) -> None:
    """Answer jobs from standard input until it ends; what a job prints goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = jobs[asked["job"]](**asked["arguments"])
        except Exception as error:  # whatever a peer raises, the others go on
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def clocked(action: Callable[[], object]) -> dict[str, float]:
    """Return what an action took: ``seconds`` of this process's processor time, and ``wall`` by the clock."""
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return {"seconds": time.process_time() - processor, "wall": time.perf_counter() - wall}
