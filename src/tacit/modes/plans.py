"""Each mode's plan: the one place where a mechanism and a protocol are joined."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace

from tacit.accounting.calibration import calibrate
from tacit.accounting.events import Sampling
from tacit.accounting.ledger import Neighbours
from tacit.config.defaults import resolve
from tacit.config.run_config import RunConfig
from tacit.config.sections import Dp
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Everyone, FixedSize, Plan, Poisson, Sampler, ServerOptimizer
from tacit.mechanisms import calibration as gaussians
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism, LocalGaussianMechanism
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.mechanisms.weighted import WeightedMean
from tacit.modes import nbafl as noising
from tacit.modes import paillier as encrypted
from tacit.modes import signds as signs
from tacit.modes.examples import level_of
from tacit.modes.unused import refuse_foreign
from tacit.protocols.clear import ClearSum
from tacit.protocols.protocol import SumProtocol
from tacit.protocols.signs import SignSum

_CLIP = 0.5
_CLIENT_LEVEL = "It protects a client as a whole; what the clients' DP-SGD does for an example is the other epsilon."
_BITS = 20  # the clipping bits' noise is the expected cohort over this (Andrew et al. 2021)


def plain(config: RunConfig, clients: int) -> Plan:
    """Federated averaging in the clear (McMahan et al. 2017)."""
    unused = [f"dp.{key}" for key, value in config.dp if value != getattr(Dp(), key)]
    if unused:
        raise ConfigError(
            f"{', '.join(unused)} has no effect in mode 'plain', which adds no noise. Remove it, or choose a mode with "
            "differential privacy: --mode dp or --mode local-dp."
        )
    sampler = sampler_of(config, clients)
    return _plan(config, sampler, WeightedMean(weighting=config.federate.weighting or "examples"))


def dp(config: RunConfig, clients: int) -> Plan:
    """Central DP-FedAvg: the server is trusted to clip-check, add noise and forget (McMahan et al. 2018)."""
    _refuse_weights(config)
    if config.dp.mechanism is not None:
        raise ConfigError("dp.mechanism is for mode 'local-dp'; mode 'dp' calibrates by the whole run's tight cost.")
    _refuse_minimum(config)
    sampler = sampler_of(config, clients, default="poisson")
    rate = sampler.expected / clients if config.dp.amplification else 1.0
    sampling: Sampling = "fixed" if isinstance(sampler, FixedSize) and rate < 1 else "poisson"
    neighbours = _relation(config, sampler, clients)
    noise = _noise(config, rate=rate, sampling=sampling, neighbours=neighbours)
    adaptive = None
    if config.dp.clip == "adaptive":
        adaptive = AdaptiveClip(
            quantile=config.dp.clip_quantile, rate=config.dp.clip_rate, bit_noise=sampler.expected / _BITS
        )
    mechanism = GaussianMechanism(
        clip_bound=config.dp.clip_start if adaptive else _clip_bound(config),
        noise_multiplier=noise,
        expected_clients=sampler.expected,
        weight_cap=config.dp.weight_cap,
        adaptive=adaptive,
        denoise=config.dp.denoise,
        per_layer=config.dp.per_layer,
        noise_split=config.dp.noise_split,
    )
    notes = ["The server is trusted: it sees every client's clipped update before the noise is added."]
    if rate < 1.0:
        notes.append("Who takes part in a round must stay hidden from whoever epsilon holds against.")
    if not config.dp.amplification:
        notes.append("True sizes of cohorts are told, and who replied: epsilon claims no amplification by sampling.")
    claim = Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours=neighbours,
        against="whoever sees the released models: other clients, the public",
        rate=rate,
        sampling=sampling,
        max_epsilon=_limit(config),
        cohorts_hidden=config.dp.amplification,
        notes=tuple(notes),
    )
    sees = "every client's clipped update; it adds the noise"
    protocol = ClearSum(minimum_clients=0, accepted=mechanism.accepted)
    return _plan(config, sampler, mechanism, claim, sees, protocol)


def local_dp(config: RunConfig, clients: int) -> Plan:
    """Local DP: each client clips and noises its own update, and trusts nobody."""
    _refuse_weights(config)
    own = {"clip", "noise", "epsilon", "delta", "max_epsilon", "mechanism"}
    unused = [key for key, value in config.dp if key not in own and value != getattr(Dp(), key)]
    if config.dp.clip == "adaptive" or unused:
        raise ConfigError(
            f"Mode 'local-dp' has a fixed clip bound for the whole update, replace-one neighbours, no weights and no "
            f"denoising. Set dp.clip to a number, without {', '.join(f'dp.{key}' for key in unused) or 'adaptive'}."
        )
    sampler = sampler_of(config, clients)
    mechanism = LocalGaussianMechanism(
        clip_bound=_clip_bound(config),
        noise_multiplier=_local_noise(config),
        expected_clients=sampler.expected,
    )
    claim = Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours="replace-one",
        against="everyone but the client itself, the server included",
        max_epsilon=_limit(config),
        notes=(
            "Epsilon is that of a client that takes part in every round; one that is drawn less often spends less.",
        ),
    )
    return _plan(config, sampler, mechanism, claim, "every client's clipped update under that client's own noise")


def dp_sgd(config: RunConfig, clients: int) -> Plan:
    """DP-SGD in every client: each trusts nobody with a single example of its data (Abadi et al. 2016)."""
    own = {"clip", "noise", "epsilon", "delta", "max_epsilon"}
    unused = [f"dp.{key}" for key, value in config.dp if key not in own and value != getattr(Dp(), key)]
    if unused:
        raise ConfigError(f"{', '.join(unused)} has no effect in mode 'dp-sgd'. Its settings are those of dpsgd.")
    _refuse_weights(config)
    sampler = sampler_of(config, clients)
    mechanism = WeightedMean(weighting="uniform", losses=False)
    return _plan(config, sampler, mechanism, None, "every client's update, which that client's own noise protects")


def paillier(config: RunConfig, clients: int) -> Plan:
    """The sum under Paillier encryption: the server adds what it cannot read; with `--dp` clients add Skellam noise."""
    sampler = sampler_of(config, clients)
    minimum = encrypted.smallest_cohort(config, sampler, minimum_clients(config, sampler))
    mechanism: BoundedMean | SkellamMechanism
    claim = sees = None
    if config.paillier.dp:
        _refuse_weights(config)
        mechanism = encrypted.noise_of(config, sampler, minimum, _clip_bound(config))
        claim, sees = encrypted.claim_of(config, mechanism, _limit(config)), encrypted.SEES
    else:
        mechanism = encrypted.mean_of(config)
    protocol = encrypted.protocol_of(config, mechanism, sampler, clients, minimum)
    return _plan(config, sampler, mechanism, claim, sees, protocol)


def signds(config: RunConfig, clients: int) -> Plan:
    """SignDS: clients name coordinates under local privacy, and no value leaves them (Jiang et al. 2022)."""
    _refuse_weights(config)
    sampler = sampler_of(config, clients)
    minimum = minimum_clients(config, sampler)
    mechanism = signs.mechanism_of(config, sampler, clients, minimum)
    protocol = SignSum(minimum_clients=minimum, named=mechanism.named)
    return _plan(config, sampler, mechanism, signs.claim_of(config, mechanism), protocol=protocol)


def nbafl(config: RunConfig, clients: int) -> Plan:
    """NbAFL: clipped weights with noise up, and noise down where the paper asks for it (Wei et al. 2020)."""
    _refuse_weights(config)
    sampler = sampler_of(config, clients)
    mechanism = noising.mechanism_of(config, sampler, clients)
    sees = "every client's clipped weights under that client's own noise"
    plan = _plan(config, sampler, mechanism, noising.claim_of(config, mechanism), sees)
    return replace(plan, injectors=noising.broadcast_noise(config, mechanism))


MODES: dict[str, Callable[[RunConfig, int], Plan]] = {
    "plain": plain,
    "dp": dp,
    "local-dp": local_dp,
    "dp-sgd": dp_sgd,
    "paillier": paillier,
    "signds": signds,
    "nbafl": nbafl,
}


def unknown_mode(mode: str) -> ConfigError:
    """Return the error on a mode that does not exist."""
    close = difflib.get_close_matches(mode, MODES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ConfigError(f"Unknown mode {mode!r}.{hint} Modes of this version: {', '.join(MODES)}.")


def plan_of(config: RunConfig, clients: int) -> Plan:
    """Return the plan of the configuration's mode for a federation of ``clients``."""
    build = MODES.get(config.mode)
    if build is None:
        raise unknown_mode(config.mode)
    refuse_foreign(config)
    plan = build(config, clients)
    level = level_of(config)
    if level is None:
        return plan
    claim = plan.claim and replace(plan.claim, notes=(*plan.claim.notes, _CLIENT_LEVEL))
    return replace(plan, claim=claim, examples=level)


def sampler_of(config: RunConfig, clients: int, default: str = "fixed") -> Sampler:
    """Return who takes part, as the configuration says; ``default`` is how a part of the clients is drawn."""
    federate = config.federate
    if federate.per_round is not None and federate.per_round > clients:
        raise ConfigError(
            f"federate.per_round={federate.per_round} is more than the {clients} clients there are. "
            "Lower it, or raise federate.clients."
        )
    sampling = federate.sampling or ("all" if federate.per_round in (None, clients) else default)
    if sampling == "all":
        if federate.per_round not in (None, clients):
            raise ConfigError(
                f"federate.sampling=all contradicts federate.per_round={federate.per_round}. Leave one out."
            )
        return Everyone(population=clients)
    if sampling == "fixed":
        return FixedSize(population=clients, size=federate.per_round or clients)
    return Poisson(population=clients, rate=(federate.per_round or clients) / clients)


def minimum_clients(config: RunConfig, sampler: Sampler) -> int:
    """Return how many replies a round needs: half the expected cohort, and two where there are two."""
    asked = config.federate.minimum_clients
    largest = round(sampler.expected)
    if asked is not None:
        if asked > largest and not isinstance(sampler, Poisson):
            raise ConfigError(f"federate.minimum_clients={asked} could never be met: a round has {largest} clients.")
        return asked
    return max(min(2, largest), -(-largest // 2), 1)


def _plan(
    config: RunConfig,
    sampler: Sampler,
    mechanism: Mechanism,
    claim: Claim | None = None,
    server_sees: str | None = None,
    protocol: SumProtocol | None = None,
) -> Plan:
    protocol = protocol or ClearSum(minimum_clients=minimum_clients(config, sampler))
    return Plan(
        mode=config.mode,
        sampler=sampler,
        mechanism=mechanism,
        protocol=protocol,
        guarantee=replace(protocol.guarantee, server=server_sees or protocol.guarantee.server),
        optimizer=ServerOptimizer(**resolve(config).server.model_dump()),
        claim=claim,
    )


def _noise(config: RunConfig, *, rate: float, sampling: Sampling, neighbours: Neighbours) -> float:
    """Return the noise multiplier that was asked for, or the least that keeps the budget."""
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
        rounds=config.federate.rounds,
        rate=rate,
        sampling=sampling,
        neighbours=neighbours,
    )
    return calibrated.noise_multiplier * (1.0 + 1e-9)  # so that no order of adding up the rounds exceeds the budget


def _local_noise(config: RunConfig) -> float:
    """Return the noise of a client's message, by the whole run's cost or by a named mechanism a message."""
    dp, rounds = config.dp, config.federate.rounds
    if dp.mechanism is None or dp.epsilon is None:
        return _noise(config, rate=1.0, sampling="poisson", neighbours="replace-one")
    calibration = gaussians.calibrate(
        dp.mechanism, epsilon=dp.epsilon / rounds, delta=dp.delta / rounds, sensitivity=2.0
    )
    if calibration.sigma is None:
        raise ConfigError(
            f"dp.mechanism={dp.mechanism} can't give epsilon {dp.epsilon / rounds}: {calibration.reason}."
        )
    return calibration.sigma


def _relation(config: RunConfig, sampler: Sampler, clients: int) -> Neighbours:
    """Return the neighbouring relation of mode dp.

    One client more would be one more in a size that is told: there, what a client contributed is hidden, not that it
    took part.
    """
    fixed = isinstance(sampler, FixedSize) and sampler.size < clients
    if config.dp.amplification:
        return config.dp.neighbours or ("replace-one" if fixed else "add-remove")
    if config.dp.neighbours == "add-remove":
        raise ConfigError(
            "dp.neighbours=add-remove does not hold with dp.amplification=false: the true sizes that are told then "
            "show one client more or less. Use zero-out or replace-one, or keep dp.amplification."
        )
    return config.dp.neighbours or ("replace-one" if fixed else "zero-out")


def _refuse_minimum(config: RunConfig) -> None:
    if config.federate.minimum_clients is not None:
        raise ConfigError(
            f"federate.minimum_clients={config.federate.minimum_clients} does not work in mode 'dp': a round that is "
            "released only if enough clients are in it tells how many there are, which epsilon does not cover. The "
            "noise is complete without the clients, so every round is released. Leave it out."
        )


def _clip_bound(config: RunConfig) -> float:
    return config.dp.clip if isinstance(config.dp.clip, float) else _CLIP


def _limit(config: RunConfig) -> float | None:
    limits = [limit for limit in (config.dp.epsilon, config.dp.max_epsilon) if limit is not None]
    return min(limits) if limits else None


def _refuse_weights(config: RunConfig) -> None:
    if config.federate.weighting == "examples" and config.dp.weight_cap is None:
        raise ConfigError(
            "federate.weighting=examples reveals how many examples a client has, and its sensitivity has no bound. "
            "Leave it out, or set dp.weight_cap to a public number: weights are then min(examples / cap, 1)."
        )
