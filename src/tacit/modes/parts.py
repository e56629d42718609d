"""What plans of several modes are made of: who takes part, how many must reply, which noise keeps a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tacit.accounting.calibration import calibrate
from tacit.accounting.events import Sampling
from tacit.accounting.ledger import Neighbours
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Everyone, FixedSize, Plan, Poisson, Sampler, Separated, ServerOptimizer
from tacit.mechanisms.mechanism import Mechanism
from tacit.protocols.clear import ClearSum
from tacit.protocols.protocol import SumProtocol

BUDGET = frozenset({"clip", "noise", "epsilon", "delta", "max_epsilon"})  # of the section dp
_CLIP = 0.5


def joined(
    config: Resolved,
    sampler: Sampler,
    mechanism: Mechanism,
    *,
    claim: Claim | None = None,
    server_sees: str | None = None,
    protocol: SumProtocol | None = None,
) -> Plan:
    """Return the plan that joins a sampler, a mechanism and a protocol; by default the sum is one in the clear.

    Args:
        config: the run's.
        sampler: draws who takes part.
        mechanism: what differential privacy hides.
        claim: what the run promises, where it promises something.
        server_sees: what the server sees, where the mechanism leaves it less than the protocol would.
        protocol: what encryption hides.
    """
    protocol = protocol or ClearSum(minimum_clients=minimum_clients(config, sampler))
    return Plan(
        mode=config.mode,
        sampler=sampler,
        mechanism=mechanism,
        protocol=protocol,
        guarantee=replace(protocol.guarantee, server=server_sees or protocol.guarantee.server),
        optimizer=ServerOptimizer(**config.server.model_dump()),
        claim=claim,
    )


def sampler_of(config: RunConfig, clients: int, default: str = "fixed") -> Sampler:
    """Return who takes part, as the configuration says; ``default`` is how a part of the clients is drawn."""
    federate, per_round = config.federate, _per_round(config, clients)
    if per_round is not None and per_round > clients:
        raise ConfigError(
            f"federate.per_round={per_round} is more than the {clients} clients there are. "
            "Lower it, or raise federate.clients."
        )
    if federate.separation is not None:
        given = [key for key in ("per_round", "share", "sampling") if getattr(federate, key) is not None]
        if given:
            raise ConfigError(
                f"federate.separation={federate.separation} says who is in a round: each client in every "
                f"{federate.separation}-th. Leave out federate.{' and federate.'.join(given)}."
            )
        return Separated(population=clients, separation=federate.separation)
    sampling = federate.sampling or ("all" if per_round in (None, clients) else default)
    if sampling == "all":
        if per_round not in (None, clients):
            said = f"per_round={per_round}" if federate.share is None else f"share={federate.share:g}"
            raise ConfigError(f"federate.sampling=all contradicts federate.{said}. Leave one out.")
        return Everyone(population=clients)
    if sampling == "fixed":
        return FixedSize(population=clients, size=per_round or clients)
    return Poisson(population=clients, rate=(per_round or clients) / clients)


def _per_round(config: RunConfig, clients: int) -> int | None:
    per_round, share = config.federate.per_round, config.federate.share
    if share is None:
        return per_round
    if per_round is not None:
        raise ConfigError(
            f"federate.share={share:g} and federate.per_round={per_round} say the same thing twice. Leave one out."
        )
    return max(1, int(share * clients))


def minimum_clients(config: RunConfig, sampler: Sampler) -> int:
    """Return how many replies a round needs: half the expected cohort, and two where there are two."""
    asked = config.federate.minimum_clients
    largest = round(sampler.expected)
    if asked is not None:
        if asked > largest and not isinstance(sampler, Poisson):
            raise ConfigError(f"federate.minimum_clients={asked} could never be met: a round has {largest} clients.")
        return asked
    return max(min(2, largest), -(-largest // 2), 1)


def noise_multiplier(
    config: Resolved,
    *,
    rate: float,
    sampling: Sampling,
    neighbours: Neighbours,
    releases: float | None = None,
) -> float:
    """Return the noise multiplier that was asked for, or the least that keeps the budget.

    Args:
        config: the run's.
        rate: the share of clients in a round.
        sampling: how they are drawn.
        neighbours: the relation.
        releases: how many releases without sampling a client's costs add up to, where that is not the rounds' number.
    """
    dp = config.dp
    if (dp.noise is None) == (dp.epsilon is None):
        given = "neither" if dp.noise is None else "both"
        raise ConfigError(
            f"Mode {config.mode!r} needs dp.noise (--sigma) or dp.epsilon (--epsilon), one of them; {given} was given."
        )
    if dp.noise is not None:
        return dp.noise
    assert dp.epsilon is not None
    calibrated = calibrate(
        epsilon=dp.epsilon,
        delta=dp.delta,
        rounds=config.federate.rounds if releases is None else 1,
        rate=rate,
        sampling=sampling,
        neighbours=neighbours,
    )
    grown = 1.0 if releases is None else math.sqrt(releases)
    return (
        calibrated.noise_multiplier * grown * (1.0 + 1e-9)
    )  # so that no order of adding up the rounds exceeds the budget


def clip_bound(config: RunConfig) -> float:
    """Return the largest L2 norm of an update."""
    return config.dp.clip if isinstance(config.dp.clip, float) else _CLIP


def limit(config: RunConfig) -> float | None:
    """Return the epsilon before which the run stops."""
    limits = [limit for limit in (config.dp.epsilon, config.dp.max_epsilon) if limit is not None]
    return min(limits) if limits else None


def refuse_weights(config: RunConfig) -> None:
    """Refuse weights by examples where they would tell how many a client has."""
    if config.federate.weighting == "examples" and config.dp.weight_cap is None:
        raise ConfigError(
            "federate.weighting=examples reveals how many examples a client has, and its sensitivity has no bound. "
            "Leave it out, or set dp.weight_cap to a public number: weights are then min(examples / cap, 1)."
        )


def must_be_set(keys: Sequence[str]) -> None:
    """Refuse to go on without bounds on how many examples clients hold, where nobody sees them all."""
    if keys:
        raise ConfigError(
            f"{' and '.join(keys)} has to be set: nobody sees how many examples the clients hold. A public bound "
            "will do."
        )
