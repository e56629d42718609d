"""``tacit deploy new`` and then ``flwr run .``, as a user would: Flower's own simulation, on Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tacit.flower.deploy.app import write_app
from tacit.flower.deploy.processes import free_ports
from tacit.modes.catalogue import resolve
from tacit.runs.folder import MODEL
from tacit.runs.run import run
from tests.runs.common import digits

pytestmark = pytest.mark.xdist_group("deployment")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a Flower home of one's own; the SuperLink that Flower starts for it, and leaves, is ended."""
    made = tmp_path / "flower"
    yield made
    end = time.monotonic() + 120
    while (left := _living_in(made)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    assert not left


def test_a_new_app_runs_as_it_is_and_comes_to_the_model_of_one_process(home: Path, tmp_path: Path) -> None:
    config = digits(federate={"rounds": 1, "clients": 3}, out=Path("runs/my-federation"))
    app = write_app(tmp_path / "my-federation", resolve(config))
    http, control = free_ports(2)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        ["flwr", "run", ".", "--stream"], cwd=app, env=environment, capture_output=True, text=True, check=False
    )
    assert "tacit: done: accuracy" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
    assert "tacit: round 1: 3 of 3 clients" in done.stdout  # on the two nodes that Flower simulates by default
    run(config.model_copy(update={"out": tmp_path / "alone"}))
    there = load_file(app / "runs" / "my-federation" / MODEL)
    for name, tensor in load_file(tmp_path / "alone" / MODEL).items():
        np.testing.assert_allclose(there[name], tensor, atol=1e-6)


def _living_in(home: Path) -> list[int]:
    """Return the processes that were started with this Flower home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FLWR_HOME={home}\0".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found
