"""The mode nbafl: clipped weights with noise up, and noise down where the paper asks for it (Wei et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Plan, Sampler
from tacit.mechanisms.nbafl import BroadcastNoise, NbAFL
from tacit.modes.mode import Mode
from tacit.modes.parts import joined, must_be_set, refuse_weights, sampler_of
from tacit.randomness import Randomness


def noised(config: Resolved, clients: int) -> Plan:
    """Return the plan of noised weights.

    Until the data are there, the smallest client is taken to have one example: no noise is larger.
    """
    refuse_weights(config)
    sampler = sampler_of(config, clients)
    mechanism = _mechanism_of(config, sampler, clients)
    sees = "every client's clipped weights under that client's own noise"
    joint = joined(config, sampler, mechanism, claim=_claim_of(config, mechanism), server_sees=sees)
    return replace(joint, injectors=_broadcast_noise(config, mechanism))


def fitted(config: Resolved, _: Plan, sizes: Sequence[int]) -> tuple[Resolved, Plan]:
    """Return configuration and plan with what the mode takes from the data: the smallest and the largest client."""
    mu = config.nbafl.mu
    if config.optimizer.mu not in (0.0, mu):
        raise ConfigError(
            f"optimizer.mu={config.optimizer.mu:g} and nbafl.mu={mu:g} are one and the same weight of the proximal "
            "term. Set nbafl.mu."
        )
    measured = {"smallest": config.nbafl.smallest or min(sizes), "largest": config.nbafl.largest or max(sizes)}
    config = config.model_copy(
        update={
            "nbafl": config.nbafl.model_copy(update=measured),
            "optimizer": config.optimizer.model_copy(update={"mu": mu}),
        }
    )
    return config, noised(config, len(sizes))


def _mechanism_of(config: Resolved, sampler: Sampler, clients: int) -> NbAFL:
    """Return the mechanism that the settings ask for."""
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


def _broadcast_noise(config: Resolved, mechanism: NbAFL) -> tuple[BroadcastNoise, ...]:
    """Return the server's noise as an injector, where there is any."""
    if mechanism.down == 0.0:
        return ()
    randomness = Randomness.of(seed=config.seed).within("nbafl")
    return (BroadcastNoise(deviation=mechanism.down, randomness=randomness),)


def _claim_of(config: Resolved, mechanism: NbAFL) -> Claim:
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


def refuse_apart(config: RunConfig) -> None:
    """Refuse to count the smallest and the largest client where nobody can."""
    bounds = {"nbafl.smallest": config.nbafl.smallest, "nbafl.largest": config.nbafl.largest}
    must_be_set([key for key, value in bounds.items() if value is None])


NBAFL = Mode(
    name="nbafl",
    summary="clients add noise to clipped weights (NbAFL)",
    plan=noised,
    section="nbafl",
    dp=frozenset({"delta", "max_epsilon"}),
    advice="Set nbafl.epsilon and nbafl.constant; dp.max_epsilon stops a run at a certified epsilon.",
    adds_noise=True,
    epsilon_from="nbafl.epsilon, nbafl.w_clip and nbafl.constant",
    promise=lambda config: f"nominal epsilon {config.nbafl.epsilon:g}",
    fitted=fitted,
    refuse_apart=refuse_apart,
    by_examples=lambda config: config.nbafl.compat == "federatedscope",
)
