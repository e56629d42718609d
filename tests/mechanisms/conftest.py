from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "dp.json"


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """Return the known answers beside the checkout; the tests hold the most telling ones themselves."""
    if not VECTORS.is_file():
        pytest.skip("the folder of known answers is not beside the checkout")
    answers: dict[str, Any] = json.loads(VECTORS.read_text())
    return answers
