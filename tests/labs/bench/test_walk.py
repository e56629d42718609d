"""How many files of Tacit a round crosses: few enough to be walked by somebody new."""

from __future__ import annotations

from typing import Any

import pytest

from tacit_labs.bench.documented.common import in_a_child

AT_MOST = {"plain": 18, "dp": 24, "paillier with dp": 34}


@pytest.fixture(scope="module")
def walks() -> Any:
    return in_a_child("tacit_labs.bench.documented.walk", *AT_MOST, settings={})


@pytest.mark.parametrize(("name", "files"), AT_MOST.items())
def test_a_round_crosses_few_files(name: str, files: int, walks: Any) -> None:
    walked = walks[name]
    assert len(walked) <= files, "\n".join(f"{path}: {', '.join(called)}" for path, called in walked.items())
    assert "runs/runner.py" in walked
