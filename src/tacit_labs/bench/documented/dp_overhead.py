"""What DP adds to a round: 200 of 1,000 clients, plain and private rounds in turn in one process.

Evaluation is left out; accounting, clipping and noise are in. Amplification is off in the private rounds: with it the
seconds of single rounds are not told.
"""

from __future__ import annotations

from typing import Any

import tacit

FEDERATE = {"clients": 1000, "per_round": 200, "rounds": 8}


def rounds(**settings: Any) -> list[float]:
    """Return the seconds of each warm round without evaluation, scaled to 200 clients: Poisson cohorts vary."""
    config = tacit.RunConfig(
        seed=1, federate=FEDERATE, train={"batch_size": 10}, evaluate={"every": 100, "train": False}, **settings
    )
    warm = tacit.run(config).rounds[1:]
    return [200 * (record.lasted - record.seconds["evaluate"]) / record.senders for record in warm]


def measure() -> dict[str, float]:
    """Return the seconds of the best plain and the best private round, and their ratio."""
    plain: list[float] = []
    private: list[float] = []
    for _ in range(3):
        plain += rounds()
        private += rounds(mode="dp", dp={"epsilon": 8.0, "amplification": False}, server={"lr": 1.5})
    ratio = min(private) / min(plain)
    print(f"plain {min(plain):.3f} s, dp {min(private):.3f} s: {ratio:.3f}x")
    return {"plain": min(plain), "dp": min(private), "ratio": ratio}
