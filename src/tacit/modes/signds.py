"""The mode signds: clients name coordinates under local privacy, and no value leaves them (Jiang et al. 2022)."""

from __future__ import annotations

import math

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.config.sections import Signds
from tacit.federated.plan import Claim, Plan, Sampler
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.mechanisms.signds import SignDS
from tacit.modes import images
from tacit.modes.mode import Mode
from tacit.modes.parts import joined, minimum_clients, refuse_weights, sampler_of
from tacit.protocols.signs import SignSum

FEW = 50  # as many coordinates to choose from, or fewer, are hardly a choice


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan of votes for coordinates."""
    refuse_weights(config)
    sampler = sampler_of(config, clients)
    minimum = minimum_clients(config, sampler)
    mechanism = _mechanism_of(config, sampler, clients, minimum)
    protocol = SignSum(minimum_clients=minimum, named=mechanism.named)
    return joined(config, sampler, mechanism, claim=_claim_of(config, mechanism), protocol=protocol)


def _mechanism_of(config: Resolved, sampler: Sampler, clients: int, minimum: int) -> SignDS:
    """Return the mechanism that the settings ask for."""
    settings = config.signds
    return SignDS(
        share=settings.sign_k,
        epsilon=settings.sign_eps,
        ratio=settings.sign_thr_ratio,
        fixed_step=settings.sign_global_lr,
        chosen=settings.sign_dim_out,
        most=settings.h_max,
        population=clients,
        expected_clients=min(sampler.expected, float(clients)),
        magnitude=_estimate_of(settings) if settings.step == "magrr" else None,
        least_share=settings.min_share,
        shuffled=minimum if settings.shuffle else None,
    )


def _estimate_of(settings: Signds) -> MagnitudeEstimate:
    """Return the first estimate of the magnitude."""
    return MagnitudeEstimate(
        response=RandomizedResponse(epsilon=settings.rr_eps),
        estimate=settings.r_start,
        growth=settings.r_growth,
        shrink=settings.r_shrink,
        growth_bound=settings.growth_bound,
        contraction_bound=settings.contraction_bound,
        step_factor=settings.step_factor,
        patience=settings.patience,
    )


def _claim_of(config: Resolved, mechanism: SignDS) -> Claim:
    """Return what the run promises."""
    cost = f"A report costs {mechanism.epsilon_per_report:g}: {mechanism.epsilon:g} for the set of coordinates"
    if mechanism.estimates and mechanism.magnitude is not None:
        cost += f" and {mechanism.magnitude.response.epsilon:g} for the magnitude's bit"
    notes = [f"{cost}; the sign is free."]
    against = "everyone but the client itself, the server included"
    if mechanism.shuffled is not None:
        against = "everyone but the client itself and the shuffler, the server included"
        notes.append(
            f"It assumes a trusted shuffler between clients and server, which mixes at least {mechanism.shuffled} "
            "reports and strips them of their senders. This run did not have one: it is not part of the protocol."
        )
    return Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours="replace-one",
        against=against,
        max_epsilon=config.dp.max_epsilon,
        by_participation=True,
        notes=tuple(notes),
    )


def warnings(plan: Plan, parameters: int) -> tuple[str, ...]:
    """Return what people should know before the first round."""
    mechanism = plan.mechanism
    assert isinstance(mechanism, SignDS)
    selection = mechanism.selection(parameters)
    said = [] if selection.largest > FEW else [few(mechanism.share, selection.largest, parameters)]
    if mechanism.estimates and mechanism.magnitude is not None:
        response, reports = mechanism.magnitude.response, mechanism.expected_clients
        deviation = math.sqrt(reports * response.keep * response.flip) / math.tanh(response.epsilon / 2.0)
        if 2.0 * deviation > reports / 2.0:
            said.append(
                f"signds.rr_eps={response.epsilon:g} makes the majority of {reports:g} answers hardly more than a coin "
                "toss, and each 0 multiplies the step. Raise rr_eps, or set signds.step=fixed."
            )
    return tuple(said)


def few(share: float, largest: int, dimensions: int) -> str:
    """Return the warning that there are hardly enough coordinates to choose from."""
    return (
        f"signds.sign_k={share:g} of {dimensions} coordinates is {largest}: expected more than {FEW}. With so few the "
        "choice is coarse; raise sign_k, which may be up to 0.25."
    )


def _promise(config: RunConfig) -> str:
    return f"epsilon {config.signds.sign_eps:g} and {config.signds.rr_eps:g} per round"


SIGNDS = Mode(
    name="signds",
    summary="clients name coordinates under local privacy",
    plan=plan,
    images=images.SIGNDS,
    section="signds",
    dp=frozenset({"delta", "max_epsilon"}),
    advice="Set signds.sign_eps and signds.rr_eps, or ask `tacit signds suggest` for a budget's.",
    adds_noise=True,
    epsilon_from="signds.sign_eps and signds.rr_eps",
    promise=_promise,
    warnings=warnings,
)
