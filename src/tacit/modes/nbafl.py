"""The mode nbafl: clipped weights with noise up, and noise down where the paper asks for it (Wei et al. 2020).

With ``nbafl.compat=federatedscope`` it is FederatedScope's algorithm of the same name, which certifies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Plan
from tacit.mechanisms.nbafl import BroadcastNoise, FederatedScopeBroadcast, FederatedScopeNbAFL, NbAFL
from tacit.modes.mode import Mode
from tacit.modes.parts import joined, must_be_set, refuse_weights, sampler_of
from tacit.randomness import Randomness


def noised(config: Resolved, clients: int) -> Plan:
    """Return the plan of noised weights.

    Until the data are there, the smallest client is taken to have one example: no noise is larger.
    """
    return _federatedscopes(config, clients) if _is_federatedscopes(config) else _papers(config, clients)


def fitted(config: Resolved, _: Plan, sizes: Sequence[int]) -> tuple[Resolved, Plan]:
    """Return configuration and plan with what the mode takes from the data: the smallest client."""
    mu = config.nbafl.mu
    if config.optimizer.mu not in (0.0, mu):
        raise ConfigError(
            f"optimizer.mu={config.optimizer.mu:g} and nbafl.mu={mu:g} are one and the same weight of the proximal "
            "term. Set nbafl.mu."
        )
    config = config.model_copy(
        update={
            "nbafl": config.nbafl.model_copy(update={"smallest": config.nbafl.smallest or min(sizes)}),
            "optimizer": config.optimizer.model_copy(update={"mu": mu}),
        }
    )
    return config, noised(config, len(sizes))


def _papers(config: Resolved, clients: int) -> Plan:
    """Return the paper's: weights clipped and noised by the client, charged by what the noise hides."""
    refuse_weights(config)
    settings, rounds, sampler = config.nbafl, config.federate.rounds, sampler_of(config, clients)
    mechanism = NbAFL(
        clip_bound=settings.w_clip,
        epsilon=settings.epsilon,
        constant=settings.constant,
        rounds=rounds,
        clients=clients,
        exposures=settings.exposures or max(1, math.ceil(rounds * min(sampler.expected / clients, 1.0) - 1e-9)),
        smallest=settings.smallest or 1,
    )
    claim = _claim_of(
        config,
        mechanism.nominal,
        f"Noise up {mechanism.up:.4g}, noise down {mechanism.down:.4g} per weight (C {mechanism.clip_bound:g}, "
        f"smallest client {mechanism.smallest}, exposures {mechanism.exposures}).",
        "The certified epsilon takes 2C for the sensitivity: trained weights are no average over examples.",
    )
    sees = "every client's clipped weights under that client's own noise"
    plan = joined(config, sampler, mechanism, claim=claim, server_sees=sees)
    if mechanism.down == 0.0:
        return plan
    return replace(plan, injectors=(BroadcastNoise(deviation=mechanism.down, randomness=_randomness(config)),))


def _federatedscopes(config: Resolved, clients: int) -> Plan:
    """Return FederatedScope's: weights noised and never clipped by the client, of which no epsilon holds."""
    settings, sampler = config.nbafl, sampler_of(config, clients)
    if settings.exposures is not None:
        raise ConfigError(
            f"nbafl.exposures={settings.exposures} means nothing to FederatedScope's NbAFL, which takes the rounds in "
            "its place. Leave it out, or set nbafl.compat=paper."
        )
    mechanism = FederatedScopeNbAFL(
        clip_bound=settings.w_clip,
        epsilon=settings.epsilon,
        constant=settings.constant,
        rounds=config.federate.rounds,
        clients=clients,
        per_round=max(1, round(sampler.expected)),
        smallest=settings.smallest or 1,
        weighting=config.federate.weighting or "examples",
    )
    claim = _claim_of(
        config,
        mechanism.nominal,
        f"FederatedScope's noise: up {mechanism.up(1):.4g} per weight over a client's number of examples, down "
        f"{mechanism.down:.4g}. Its server clips each coordinate to {mechanism.clip_bound:g} once it has seen all "
        "weights, which protects nobody from it.",
        infinite="FederatedScope's clients add noise to weights that they do not clip: nothing bounds how far a "
        "client's data move them, so no noise hides that (nbafl.compat=paper clips)",
    )
    sees = "every client's weights, as long as they come out, under that client's own noise, and its number of examples"
    broadcast = FederatedScopeBroadcast(
        clip_bound=mechanism.clip_bound, deviation=mechanism.down, randomness=_randomness(config)
    )
    plan = joined(config, sampler, mechanism, claim=claim, server_sees=sees)
    return replace(plan, injectors=(broadcast,))


def _randomness(config: Resolved) -> Randomness:
    return Randomness.of(seed=config.seed).within("nbafl")


def _claim_of(config: Resolved, nominal: tuple[float, float], *notes: str, infinite: str = Claim.infinite) -> Claim:
    """Return what the run promises, and the paper's claim beside it."""
    return Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours="replace-one",
        against="everyone but the client itself, the server included",
        max_epsilon=config.dp.max_epsilon,
        by_participation=True,
        nominal=nominal,
        infinite=infinite,
        notes=notes,
    )


def _is_federatedscopes(config: RunConfig) -> bool:
    return config.nbafl.compat == "federatedscope"


def defaults(config: RunConfig) -> Mapping[str, Any]:
    """Return what FederatedScope has where nothing was said: SGD at a constant rate, clients by their examples."""
    if not _is_federatedscopes(config):
        return {}
    return {"optimizer.momentum": 0.0, "optimizer.schedule": "constant", "federate.weighting": "examples"}


def refuse_apart(config: RunConfig) -> None:
    """Refuse to count the smallest client where nobody can."""
    must_be_set(["nbafl.smallest"] if config.nbafl.smallest is None else [])


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
    defaults=defaults,
    by_examples=_is_federatedscopes,
)
