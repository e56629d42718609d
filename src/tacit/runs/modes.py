"""Each mode's plan: the one place where a mechanism and a protocol are joined."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from tacit.errors import ConfigError
from tacit.federated.plan import Plan
from tacit.federated.sampling import Everyone, FixedSize, Poisson, Sampler
from tacit.federated.server import ServerOptimizer
from tacit.mechanisms.weighted import WeightedMean
from tacit.protocols.clear import ClearSum
from tacit.runs.config import RunConfig
from tacit.runs.defaults import resolve


def plain(config: RunConfig, clients: int) -> Plan:
    """Federated averaging in the clear (McMahan et al. 2017)."""
    unused = [f"dp.{key}" for key, value in config.dp.model_dump().items() if value is not None]
    if unused:
        raise ConfigError(
            f"{', '.join(unused)} has no effect in mode 'plain', which adds no noise. Remove it, or choose a mode with "
            "differential privacy."
        )
    sampler = sampler_of(config, clients)
    return Plan(
        mode="plain",
        sampler=sampler,
        mechanism=WeightedMean(weighting=config.federate.weighting),
        protocol=ClearSum(minimum_clients=minimum_clients(config, sampler)),
        optimizer=ServerOptimizer(**resolve(config).server.model_dump()),
    )


MODES: dict[str, Callable[[RunConfig, int], Plan]] = {"plain": plain}


def plan_of(config: RunConfig, clients: int) -> Plan:
    """Return the plan of the configuration's mode for a federation of ``clients``."""
    build = MODES.get(config.mode)
    if build is None:
        close = difflib.get_close_matches(config.mode, MODES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"Unknown mode {config.mode!r}.{hint} Modes of this version: {', '.join(MODES)}.")
    return build(config, clients)


def sampler_of(config: RunConfig, clients: int) -> Sampler:
    """Return who takes part, as the configuration says."""
    federate = config.federate
    if federate.per_round is not None and federate.per_round > clients:
        raise ConfigError(
            f"federate.per_round={federate.per_round} is more than the {clients} clients there are. "
            "Lower it, or raise federate.clients."
        )
    sampling = federate.sampling or ("all" if federate.per_round is None else "fixed")
    match sampling:
        case "all":
            if federate.per_round not in (None, clients):
                raise ConfigError(
                    f"federate.sampling=all contradicts federate.per_round={federate.per_round}. Leave one out."
                )
            return Everyone(population=clients)
        case "fixed":
            return FixedSize(population=clients, size=federate.per_round or clients)
        case "poisson":
            return Poisson(population=clients, rate=(federate.per_round or clients) / clients)


def minimum_clients(config: RunConfig, sampler: Sampler) -> int:
    """Return how many replies a round needs: half the expected cohort, and two where there are two."""
    asked = config.federate.minimum_clients
    largest = round(sampler.expected)  # q N may fall a rounding error short of a whole number
    if asked is not None:
        if asked > largest and not isinstance(sampler, Poisson):
            raise ConfigError(f"federate.minimum_clients={asked} could never be met: a round has {largest} clients.")
        return asked
    return max(min(2, largest), -(-largest // 2), 1)
