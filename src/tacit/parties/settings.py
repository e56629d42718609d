"""A run's settings on Flower: read from its config, and what they promise a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.overrides import put
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError
from tacit.modes.catalogue import mode_of
from tacit.modes.parts import minimum_clients, sampler_of


def from_dotted(values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that dotted keys give, as a Flower app's run config has them.

    >>> from_dotted({"mode": "dp", "dp.noise": 1.0}).dp.noise
    1.0
    """
    nested: dict[str, Any] = {}
    for key, value in values.items():
        put(nested, key, value)
    return from_mapping(nested)


def promise(config: Resolved) -> str:
    """Return what the settings promise this node: mode, noise or epsilon, rounds, and how many clients a sum has."""
    federate = config.federate
    mode = mode_of(config.mode)
    parts = [f"this run was announced as mode {mode.name}", mode.promised_noise(config)]
    again = federate.retries and not mode.central  # which never tries a round again
    tries = f", each tried at most {federate.retries + 1} times" if again else ""
    tries += f" and {federate.rounds} tries in all" if again and mode.budgeted(config) else ""
    parts.append(f"{federate.rounds} rounds{tries}")
    if mode.central:
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
