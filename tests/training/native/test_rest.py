"""Threads that wait for a parallel loop end when they are told to, and come again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tacit.training import native

# In an interpreter of its own: in this one, threads of other tests come and go.
SCRIPT = """
import time
from pathlib import Path

import torch

from tacit.training import native


def threads():
    return sum(1 for _ in Path("/proc/self/task").iterdir())


torch.set_num_threads(3)
alone = threads()  # with those of PyTorch's other pool, which stay
values = torch.randn(300_000)
for _ in range(2):
    wanted = values.exp()
    assert threads() > alone
    assert native.kernels.rest()
    end = time.monotonic() + 30  # the system lists a thread for an instant after it has been joined
    while threads() > alone and time.monotonic() < end:
        time.sleep(0.01)
    assert threads() == alone
assert torch.equal(values.exp(), wanted)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or native.kernels is None, reason="counts threads as Linux tells them"
)
def test_threads_rest_and_come_again() -> None:
    finished = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
