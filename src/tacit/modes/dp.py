"""The mode dp: central DP-FedAvg, where the server is trusted to add the noise and forget (McMahan et al. 2018)."""

from __future__ import annotations

from tacit.accounting.events import Sampling
from tacit.accounting.ledger import Neighbours
from tacit.config.resolved import Resolved
from tacit.config.sections import Dp
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, FixedSize, Plan, Sampler
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism
from tacit.modes import images
from tacit.modes.mode import Mode
from tacit.modes.parts import clip_bound, joined, limit, noise_multiplier, refuse_weights, sampler_of
from tacit.protocols.clear import ClearSum

_BITS = 20  # the clipping bits' noise is the expected cohort over this (Andrew et al. 2021)


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan: clients clip, the server adds Gaussian noise to the sum."""
    refuse_weights(config)
    _refuse_minimum(config)
    sampler = sampler_of(config, clients, default="poisson")
    rate = sampler.expected / clients if config.dp.amplification else 1.0
    sampling: Sampling = "fixed" if isinstance(sampler, FixedSize) and rate < 1 else "poisson"
    neighbours = _relation(config, sampler, clients)
    noise = noise_multiplier(config, rate=rate, sampling=sampling, neighbours=neighbours)
    adaptive = None
    if config.dp.clip == "adaptive":
        adaptive = AdaptiveClip(
            quantile=config.dp.clip_quantile, rate=config.dp.clip_rate, bit_noise=sampler.expected / _BITS
        )
    mechanism = GaussianMechanism(
        clip_bound=config.dp.clip_start if adaptive else clip_bound(config),
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
        max_epsilon=limit(config),
        cohorts_hidden=config.dp.amplification,
        notes=tuple(notes),
    )
    return joined(
        config,
        sampler,
        mechanism,
        claim=claim,
        server_sees="every client's clipped update; it adds the noise",
        protocol=ClearSum(minimum_clients=0, accepted=mechanism.accepted),
    )


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
