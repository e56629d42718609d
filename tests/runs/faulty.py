"""Models that go wrong, for the tests of what is left of the other runs."""

from __future__ import annotations

import os
import signal

from torch import nn


class Dies(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        os.kill(os.getpid(), signal.SIGKILL)


class Raises(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        raise ZeroDivisionError("by design")
