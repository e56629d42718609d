"""What modes share whose server learns sums alone: bounded means, and noise that the clients bring themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tacit.accounting import accountant
from tacit.accounting.calibration import calibrate_skellam
from tacit.accounting.events import RepeatedEvent
from tacit.accounting.ledger import Ledger, Neighbours
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError
from tacit.federated.plan import Plan, Sampler
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes.parts import clip_bound

FIXED = "has a fixed clip bound for the whole update and no weights"
CHARGED = (
    "A client is charged for every round: no amplification by sampling is claimed, and who takes part is not hidden, "
    "only what it contributed: a client that stays away takes its share of the noise along, which can be seen."
)
_WEIGHT_CAP = 10_000  # examples that weigh 1 where nobody sees how many the largest client has
_RELATION: Neighbours = "zero-out"


def mean_of(config: Resolved, *, clip: float, weight_cap: int | None, rounding: float) -> BoundedMean:
    """Return the weighted mean without noise."""
    return BoundedMean(
        clip=clip,
        weighting=config.federate.weighting or "examples",
        weight_cap=weight_cap or _WEIGHT_CAP,
        rounding=rounding,
    )


def weighted(plan: Plan, sizes: Sequence[int], weight_cap: int | None) -> Plan:
    """Return the plan with weights by the largest client, where no public number was given."""
    if isinstance(plan.mechanism, BoundedMean) and weight_cap is None:
        return replace(plan, mechanism=replace(plan.mechanism, weight_cap=max(sizes)))
    return plan


def noise_of(config: Resolved, sampler: Sampler, *, minimum: int, colluding: int, where: str) -> SkellamMechanism:
    """Return the clients' noise, sized for the smallest cohort whose sum may be opened."""
    dp = config.dp
    if dp.clip == "adaptive":
        raise ConfigError(
            f"dp.clip=adaptive is not for differential privacy {where}, which {FIXED}. Leave it out, or set dp.clip to "
            "a number."
        )
    if (dp.noise is None) == (dp.epsilon is None):
        given = "neither" if dp.noise is None else "both"
        raise ConfigError(
            f"Differential privacy {where} needs dp.noise (--sigma) or dp.epsilon (--epsilon), one of them; {given} "
            "was given."
        )
    mechanism = SkellamMechanism(
        clip_bound=clip_bound(config),
        noise_multiplier=dp.noise or 0.0,
        smallest_cohort=minimum,
        colluding=colluding,
        expected_clients=sampler.expected,
    )
    if dp.epsilon is None:
        return mechanism
    calibrated = calibrate_skellam(
        epsilon=dp.epsilon,
        delta=dp.delta,
        rounds=config.federate.rounds,
        sensitivity=mechanism.rounding.norm,
        neighbours=relation(config),
    )
    return replace(mechanism, noise_multiplier=calibrated.noise_multiplier)


def epsilon_alone(config: Resolved, mechanism: SkellamMechanism) -> float:
    """Return what is left of the promise where somebody meets a client's own share of the noise only."""
    rounds = config.federate.rounds
    single = Ledger(unit="client", neighbours="replace-one").charged(
        RepeatedEvent(event=mechanism.alone, count=rounds), round_number=rounds
    )
    return accountant.epsilon(single, config.dp.delta).epsilon


def relation(config: Resolved) -> Neighbours:
    """Return the neighbouring relation of noise that the clients themselves bring: any but add-remove."""
    if config.dp.neighbours == "add-remove":
        raise ConfigError(
            "dp.neighbours=add-remove does not hold for noise that the clients add: a client that is absent takes its "
            "share of the noise with it, and the variance of the sum tells so. Use zero-out (the default) or "
            "replace-one, or --mode dp, where the server adds the noise."
        )
    return config.dp.neighbours or _RELATION


def smallest_cohort(config: Resolved, sampler: Sampler, usual: int, *, noisy: bool) -> int:
    """Return how many clients a sum needs: with noise nine tenths of the cohort, as fewer would each need more."""
    if not noisy or config.federate.minimum_clients is not None:
        return usual
    return max(usual, -(-9 * round(sampler.expected) // 10))


def largest_cohort(sampler: Sampler, clients: int, *, instead: str) -> int:
    """Return how many clients a sum has room for; a sum of one is refused."""
    largest: int = min(clients, round(sampler.expected + 12 * sampler.expected**0.5))  # more nobody ever draws
    if largest < 2:
        raise ConfigError(
            f"A round has one client, and the sum of one is that client's update: {instead}. Let at least two take "
            "part (federate.clients, federate.per_round), or use --mode plain or local-dp."
        )
    return largest
