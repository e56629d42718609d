"""What a run was announced as, in one line for the log of a node's operator."""

from __future__ import annotations

from tacit.config.defaults import resolve
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.modes.plans import minimum_clients, sampler_of


def promise(config: RunConfig) -> str:
    """Return what the settings promise this node: mode, noise or epsilon, rounds, and how many clients a sum has."""
    config = resolve(config)
    federate = config.federate
    parts = [f"this run was announced as mode {config.mode}", *_noise(config)]
    again = federate.retries and config.mode != "dp"  # which never tries a round again
    tries = f", each tried at most {federate.retries + 1} times" if again else ""
    parts.append(f"{federate.rounds} rounds{tries}")
    if config.mode == "dp":
        parts.append("each released under the noise however many clients reply")
    elif federate.clients is not None:
        try:
            minimum = minimum_clients(config, sampler_of(config, federate.clients))
        except ConfigError:  # which the plan will tell
            minimum = 0
        parts.append(f"sums of at least {minimum} of {federate.per_round or federate.clients} clients")
    if config.seed is not None:
        parts.append("with a seed: whoever knows it can take the noise away")
    return ", ".join(parts)


def _noise(config: RunConfig) -> list[str]:
    """Return what is promised of the noise, as far as the mode has any."""
    dp, encrypted = config.dp, config.paillier
    if config.mode == "plain" or (config.mode == "paillier" and not encrypted.dp):
        return ["no noise"]
    if config.mode == "signds":
        return [f"epsilon {config.signds.sign_eps:g} and {config.signds.rr_eps:g} per round"]
    if config.mode == "nbafl":
        return [f"nominal epsilon {config.nbafl.epsilon:g}"]
    noise, epsilon, delta = dp.noise, dp.epsilon, dp.delta
    if config.mode == "dp-sgd":
        own = config.dpsgd
        noise, epsilon, delta = own.noise or noise, own.epsilon or epsilon, own.delta or delta
    said = [] if noise is None else [f"noise multiplier {noise:g}"]
    said += [] if epsilon is None else [f"epsilon {epsilon:g} at delta {delta:g}"]
    return said or ["noise that is not stated"]
