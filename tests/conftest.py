from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Nothing timed is asserted: a busy machine is no bug. Examples are the same each time, so that a green tree stays
# green; with TACIT_LONG new ones are looked for.
settings.register_profile("tacit", deadline=None, derandomize="TACIT_LONG" not in os.environ)
settings.load_profile("tacit")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: threads inside an operation only wait for each other

SHARED = Path(__file__).parents[2] / "shared" / "data"
VECTORS = Path(__file__).parents[2] / "shared" / "vectors" / "dp.json"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(autouse=True)
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the user's folders, and return the cache it has instead."""
    monkeypatch.delenv("TACIT_DATA", raising=False)
    cache = tmp_path / "lonely-cache"
    monkeypatch.setenv("TACIT_CACHE", str(cache))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "lonely-flower"))
    monkeypatch.chdir(tmp_path)
    return cache


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data beside the checkout."""
    if not (SHARED / "mnist").is_dir():
        pytest.skip("the folder of real data is not beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def debian() -> Path:
    """Return the folder of Debian's package."""
    if not DEBIAN.is_dir():
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    return DEBIAN


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """Return the known answers beside the checkout; the tests hold the most telling ones themselves."""
    if not VECTORS.is_file():
        pytest.skip("the folder of known answers is not beside the checkout")
    answers: dict[str, Any] = json.loads(VECTORS.read_text())
    return answers
