from __future__ import annotations

import numpy as np

from tacit.mechanisms.mechanism import Unprotected
from tacit.randomness import Randomness


def test_unprotected_changes_nothing_on_either_side() -> None:
    vector = np.array([1.0, -2.0, 3e30], np.float32)
    for side in (Unprotected().on_client, Unprotected().on_server):
        assert side(vector, Randomness.of(seed=1)).tobytes() == vector.tobytes()
