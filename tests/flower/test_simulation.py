"""The strategy and the mod in Flower's own simulation: virtual nodes on Ray, and messages that are really carried."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam, FedAvg

from tacit.errors import RunError
from tacit.flower import Private, private_mod
from tacit.flower.simulation import simulated
from tests.flower.common import FEW_BITS, app, federation, floats, mean_shift, start

pytestmark = [
    pytest.mark.xdist_group("flower"),
    # Ray leaves files and processes to the collector, which says so
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_in_flowers_simulation() -> None:
    with simulated(app(private_mod), nodes=3, cpus=float(os.cpu_count() or 1)) as grid:
        encrypted = Private(FedAvg(), mode="paillier", paillier={"weight_cap": 30, **FEW_BITS})
        result = encrypted.start(grid, start(), num_rounds=1, timeout=120)
        np.testing.assert_allclose(floats(result.arrays) - floats(start()), mean_shift(range(3), 1), atol=1e-5)
        assert result.arrays["seen"] == start()["seen"]
        assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.6)

        noisy = Private(FedAdam(fraction_evaluate=0), mode="local-dp", dp={"noise": 0.5}, seed=2)
        with pytest.raises(RunError, match="something else of the run than it said first"):
            noisy.start(grid, start(), num_rounds=1, timeout=120)
    with simulated(app(private_mod), nodes=3, cpus=float(os.cpu_count() or 1)) as grid:
        noisy = Private(FedAdam(fraction_evaluate=0), mode="local-dp", dp={"noise": 0.5}, seed=2)
        one = noisy.start(grid, start(), num_rounds=1, timeout=120)
    in_memory = Private(FedAdam(fraction_evaluate=0), mode="local-dp", dp={"noise": 0.5}, seed=2)
    two = in_memory.start(federation(3), start(), num_rounds=1)
    np.testing.assert_allclose(floats(one.arrays), floats(two.arrays), rtol=1e-4)
    assert noisy.privacy == in_memory.privacy
    gc.collect()  # while the warnings are ignored
