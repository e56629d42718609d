"""How often a run resolves its configuration, makes its plan and calibrates its noise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tacit.modes import catalogue, parts

ONCE = Counter(resolved=1, planned=1, calibrated=1)


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter that goes on while the test lasts."""
    counts: Counter[str] = Counter()

    def watch(module: Any, name: str, what: str) -> None:
        original = getattr(module, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            counts[what] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, counting)

    watch(catalogue, "fill", "resolved")
    watch(catalogue, "with_examples", "planned")
    watch(parts, "calibrate", "calibrated")
    return counts
