"""The mode plain: federated averaging in the clear (McMahan et al. 2017)."""

from __future__ import annotations

from tacit.config.resolved import Resolved
from tacit.federated.plan import Plan
from tacit.mechanisms.weighted import WeightedMean
from tacit.modes.mode import Mode
from tacit.modes.parts import joined, sampler_of


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan of weighted averages that the server sees."""
    sampler = sampler_of(config, clients)
    return joined(config, sampler, WeightedMean(weighting=config.federate.weighting or "examples"))


PLAIN = Mode(
    name="plain",
    summary="federated averaging in the clear",
    plan=plan,
    advice="It adds no noise: remove it, or choose a mode with differential privacy: --mode dp or --mode local-dp.",
)
