from __future__ import annotations

import os
from pathlib import Path

import pytest

from tacit import limits


def test_a_container_may_have_less_memory_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "_ALLOWED", allowed)
    assert limits.memory() == machine
    for told, expected in (("max\n", machine), ("1000000\n", 1_000_000), (f"{2 * machine}\n", machine)):
        allowed.write_text(told)
        assert limits.memory() == expected
    monkeypatch.delattr(os, "sysconf")
    assert limits.memory() is None
