"""Where the comparison of encryptions is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.bench.crypto_figure import draw
from tacit.errors import StorageError


def write(results: dict[str, Any], folder: Path) -> None:
    """Write ``crypto.json`` and, where matplotlib is installed, ``crypto.png``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "crypto.json").write_text(json.dumps(results, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise StorageError(f"Can't write the results to {folder}: {error.strerror}.") from error
    try:
        draw(results, folder / "crypto.png")
    except ImportError:
        (folder / "crypto.png").unlink(missing_ok=True)  # an older figure would not be of these results
