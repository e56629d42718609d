"""The mode local-dp: each client clips and noises its own update, and trusts nobody."""

from __future__ import annotations

from tacit.config.resolved import Resolved
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Plan
from tacit.mechanisms import calibration as gaussians
from tacit.mechanisms.gaussian import LocalGaussianMechanism
from tacit.modes import images
from tacit.modes.mode import Mode
from tacit.modes.parts import BUDGET, clip_bound, joined, limit, noise_multiplier, refuse_weights, sampler_of

_FIXED = (
    "Mode 'local-dp' has a fixed clip bound for the whole update, replace-one neighbours, no weights and no denoising."
)


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan: clients add Gaussian noise to their own clipped updates."""
    refuse_weights(config)
    if config.dp.clip == "adaptive":
        raise ConfigError(f"{_FIXED} Set dp.clip to a number, without adaptive.")
    sampler = sampler_of(config, clients)
    mechanism = LocalGaussianMechanism(
        clip_bound=clip_bound(config),
        noise_multiplier=_noise(config),
        expected_clients=sampler.expected,
    )
    claim = Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours="replace-one",
        against="everyone but the client itself, the server included",
        max_epsilon=limit(config),
        notes=(
            "Epsilon is that of a client that takes part in every round; one that is drawn less often spends less.",
        ),
    )
    sees = "every client's clipped update under that client's own noise"
    return joined(config, sampler, mechanism, claim=claim, server_sees=sees)


def _noise(config: Resolved) -> float:
    """Return the noise of a client's message, by the whole run's cost or by a named mechanism for each message."""
    dp, rounds = config.dp, config.federate.rounds
    if dp.mechanism is None or dp.epsilon is None:
        return noise_multiplier(config, rate=1.0, sampling="poisson", neighbours="replace-one")
    calibration = gaussians.calibrate(
        dp.mechanism, epsilon=dp.epsilon / rounds, delta=dp.delta / rounds, sensitivity=2.0
    )
    if calibration.sigma is None:
        raise ConfigError(
            f"dp.mechanism={dp.mechanism} can't give epsilon {dp.epsilon / rounds}: {calibration.reason}."
        )
    return calibration.sigma


LOCAL_DP = Mode(
    name="local-dp",
    summary="each client adds noise to its own update",
    plan=plan,
    images=images.LOCAL,
    dp=BUDGET | {"mechanism"},
    advice=f"{_FIXED} Leave it out.",
    adds_noise=True,
    budget=("dp",),
    examples="optional",
    grad_clip=1.0,  # under the noise of few clients' messages steps grow beyond what floats hold
)
