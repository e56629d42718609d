"""The mode nbafl: from its settings to the mechanism, the server's noise and what may be claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Sampler
from tacit.mechanisms.nbafl import BroadcastNoise, NbAFL
from tacit.modes.unused import refuse_dp
from tacit.randomness import Randomness


def mechanism_of(config: RunConfig, sampler: Sampler, clients: int) -> NbAFL:
    """Return the mechanism that the settings ask for.

    Until the data are there, the smallest client is taken to have one example: no noise is larger.
    """
    refuse_dp(config, advice="Set nbafl.epsilon and nbafl.constant; dp.max_epsilon stops a run at a certified epsilon.")
    settings, rounds = config.nbafl, config.federate.rounds
    smallest = settings.smallest or 1
    return NbAFL(
        clip_bound=settings.w_clip,
        epsilon=settings.epsilon,
        constant=settings.constant,
        rounds=rounds,
        clients=clients,
        per_round=max(1, round(sampler.expected)),
        exposures=settings.exposures or max(1, math.ceil(rounds * min(sampler.expected / clients, 1.0) - 1e-9)),
        smallest=smallest,
        largest=settings.largest or smallest,
        compat=settings.compat,
    )


def broadcast_noise(config: RunConfig, mechanism: NbAFL) -> tuple[BroadcastNoise, ...]:
    """Return the server's noise as an injector, where there is any."""
    if mechanism.down == 0.0:
        return ()
    randomness = Randomness.of(seed=config.seed).within("nbafl")
    return (BroadcastNoise(deviation=mechanism.down, randomness=randomness),)


def claim_of(config: RunConfig, mechanism: NbAFL) -> Claim:
    """Return what the run promises, and the paper's claim beside it."""
    up = mechanism.up(mechanism.largest or mechanism.smallest)
    return Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours="replace-one",
        against="everyone but the client itself, the server included",
        max_epsilon=config.dp.max_epsilon,
        by_participation=True,
        nominal=mechanism.nominal,
        notes=(
            f"Noise up {up:.4g}, noise down {mechanism.down:.4g} a weight ({mechanism.compat}'s scales; C "
            f"{mechanism.clip_bound:g}, smallest client {mechanism.smallest}, exposures {mechanism.exposures}).",
            "The certified epsilon takes 2C for the sensitivity: trained weights are no average over examples.",
        ),
    )


def prepared(config: RunConfig, sizes: Sequence[int]) -> RunConfig:
    """Return the configuration with what the mode takes from the data, which hold ``sizes`` examples a client."""
    if config.mode != "nbafl":
        return config
    mu = config.nbafl.mu
    if config.optimizer.mu not in (0.0, mu):
        raise ConfigError(
            f"optimizer.mu={config.optimizer.mu:g} and nbafl.mu={mu:g} are one and the same weight of the proximal "
            "term. Set nbafl.mu."
        )
    measured = {"smallest": config.nbafl.smallest or min(sizes), "largest": config.nbafl.largest or max(sizes)}
    return config.model_copy(
        update={
            "nbafl": config.nbafl.model_copy(update=measured),
            "optimizer": config.optimizer.model_copy(update={"mu": mu}),
        }
    )
