"""Models that go wrong, for the tests of what is left of the other runs."""

from __future__ import annotations

import os
import signal
from typing import Any

from torch import nn


class Dies(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        os.kill(os.getpid(), signal.SIGKILL)


class Raises(nn.Linear):
    """Raises where nobody expects it; what its making or a pass raises is told in a sentence."""

    def __init__(self) -> None:
        super().__init__(64, 10)

    def to(self, *given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("by design")
