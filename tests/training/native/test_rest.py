"""Threads that wait for a parallel loop end when they are told to, and come again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tacit.training import native

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or native.kernels is None, reason="counts threads as Linux tells them"
)


def threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def test_threads_rest_and_come_again() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        values = torch.randn(300_000)
        wanted = values.exp()
        assert native.kernels.rest()
        resting = threads()
        assert torch.equal(values.exp(), wanted)
        assert threads() > resting
        assert native.kernels.rest()
        assert threads() == resting
        assert torch.equal(values.exp(), wanted)
    finally:
        torch.set_num_threads(before)
