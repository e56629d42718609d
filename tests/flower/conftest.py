from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _home(tmp_path: Path) -> None:
    """Give every test a folder: nodes keep their memory in Flower's home, which is there."""
