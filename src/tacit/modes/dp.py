"""The mode dp: central DP-FedAvg, where the server is trusted to add the noise and forget (McMahan et al. 2018)."""

from __future__ import annotations

from tacit.accounting.events import Sampling
from tacit.accounting.ledger import Neighbours
from tacit.config.resolved import Resolved
from tacit.config.sections import Dp
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, FixedSize, Plan, Sampler, Separated
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.mechanisms.correlated.strategy import Correlation
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism
from tacit.modes import images
from tacit.modes.mode import Mode
from tacit.modes.parts import clip_bound, joined, limit, noise_multiplier, refuse_weights, sampler_of
from tacit.protocols.clear import ClearSum

_TRUSTED = "The server is trusted: it sees every client's clipped update before the noise is added."
_AGAINST = "whoever sees the released models: other clients, the public"
_BUFFERS = 4  # of a BLT: more gain nothing that can be measured
_BITS = 20  # the clipping bits' noise is the expected cohort over this (Andrew et al. 2021)


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan: clients clip, the server adds Gaussian noise to the sum."""
    refuse_weights(config)
    _refuse_minimum(config)
    sampler = sampler_of(config, clients, default="poisson")
    if isinstance(sampler, Separated):
        return _scheduled(config, sampler)
    _refuse_correlation(config)
    rate = sampler.expected / clients if config.dp.amplification else 1.0
    sampling: Sampling = "fixed" if isinstance(sampler, FixedSize) and rate < 1 else "poisson"
    neighbours = _relation(config, sampler, clients)
    noise = noise_multiplier(config, rate=rate, sampling=sampling, neighbours=neighbours)
    notes = [_TRUSTED]
    if rate < 1.0:
        notes.append("Who takes part in a round must stay hidden from whoever epsilon holds against.")
    if not config.dp.amplification:
        notes.append("True sizes of cohorts are told, and who replied: epsilon claims no amplification by sampling.")
    claim = Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours=neighbours,
        against=_AGAINST,
        rate=rate,
        sampling=sampling,
        max_epsilon=limit(config),
        cohorts_hidden=config.dp.amplification,
        notes=tuple(notes),
    )
    return _joined(config, sampler, _gaussian(config, sampler, noise), claim)


def _scheduled(config: Resolved, sampler: Separated) -> Plan:
    """Return the plan of a public schedule: nothing is drawn, and a client is charged for the rounds that it is in."""
    if config.dp.neighbours == "add-remove":
        raise ConfigError(
            "dp.neighbours=add-remove does not hold with federate.separation: the schedule tells who is there. Use "
            "zero-out, which hides what a client contributes, or replace-one."
        )
    from tacit.mechanisms.correlated.factorise import total_price  # SciPy, which no other run waits for

    neighbours: Neighbours = config.dp.neighbours or "zero-out"
    correlation = _correlation(config, sampler.separation)
    participations = -(-config.federate.rounds // sampler.separation)
    releases = float(participations) if correlation is None else total_price(correlation)
    noise = noise_multiplier(config, rate=1.0, sampling="poisson", neighbours=neighbours, releases=releases)
    gaussian = _gaussian(config, sampler, noise)
    notes = [_TRUSTED, f"Each client is in every {sampler.separation}-th round; the schedule is public."]
    if correlation is not None:
        notes.append(
            "Noise of past rounds is kept in the server's memory until later rounds have taken it back, and must not "
            "leave it."
        )
    claim = Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours=neighbours,
        against=_AGAINST,
        max_epsilon=limit(config),
        by_participation=True,
        notes=tuple(notes),
    )
    mechanism = gaussian if correlation is None else CorrelatedMechanism(gaussian=gaussian, correlation=correlation)
    return _joined(config, sampler, mechanism, claim)


def _gaussian(config: Resolved, sampler: Sampler, noise: float) -> GaussianMechanism:
    adaptive = None
    if config.dp.clip == "adaptive":
        adaptive = AdaptiveClip(
            quantile=config.dp.clip_quantile, rate=config.dp.clip_rate, bit_noise=sampler.expected / _BITS
        )
    return GaussianMechanism(
        clip_bound=config.dp.clip_start if adaptive else clip_bound(config),
        noise_multiplier=noise,
        expected_clients=sampler.expected,
        weight_cap=config.dp.weight_cap,
        adaptive=adaptive,
        denoise=config.dp.denoise,
        per_layer=config.dp.per_layer,
        noise_split=config.dp.noise_split,
    )


def _joined(
    config: Resolved, sampler: Sampler, mechanism: GaussianMechanism | CorrelatedMechanism, claim: Claim
) -> Plan:
    return joined(
        config,
        sampler,
        mechanism,
        claim=claim,
        server_sees="every client's clipped update; it adds the noise",
        protocol=ClearSum(minimum_clients=0, accepted=mechanism.accepted),
    )


def _correlation(config: Resolved, separation: int) -> Correlation | None:
    """Return how rounds' noise hangs together, or None where it does not."""
    dp = config.dp
    if dp.correlation == "none":
        _refuse_correlation(config)
        return None
    useless = "bands" if dp.correlation == "blt" else "buffers"
    if getattr(dp, useless) is not None:
        raise ConfigError(
            f"dp.{useless}={getattr(dp, useless)} has no effect with dp.correlation={dp.correlation}: a BLT has "
            "buffers, the others have bands. Leave it out."
        )
    return Correlation(
        kind=dp.correlation,
        rounds=config.federate.rounds,
        separation=separation,
        bands=1 if dp.correlation == "blt" else dp.bands or separation,
        buffers=dp.buffers or _BUFFERS,
    )


def _refuse_correlation(config: Resolved) -> None:
    """Refuse correlated noise where nothing keeps a client's rounds apart, and what belongs to it without it."""
    if config.dp.correlation != "none":
        raise ConfigError(
            f"dp.correlation={config.dp.correlation} needs federate.separation, such as 10: each client in every tenth "
            "round. Noise that rounds share is counted for clients whose rounds are that far apart."
        )
    for key in ("bands", "buffers"):
        if (value := getattr(config.dp, key)) is not None:
            raise ConfigError(f"dp.{key}={value} has no effect without dp.correlation, such as banded or blt.")


def _relation(config: Resolved, sampler: Sampler, clients: int) -> Neighbours:
    """Return the neighbouring relation.

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


def _refuse_minimum(config: Resolved) -> None:
    if config.federate.minimum_clients is not None:
        raise ConfigError(
            f"federate.minimum_clients={config.federate.minimum_clients} does not work in mode 'dp': a round that is "
            "released only if enough clients are in it tells how many there are, which epsilon does not cover. The "
            "noise is complete without the clients, so every round is released. Leave it out."
        )


DP = Mode(
    name="dp",
    summary="the server adds noise to the sum of clipped updates",
    plan=plan,
    images=images.DP,
    dp=frozenset(Dp.model_fields) - {"mechanism"},
    advice="It is for mode 'local-dp'; mode 'dp' calibrates by the whole run's tight cost.",
    adds_noise=True,
    budget=("dp",),
    examples="optional",
    central=True,
)
