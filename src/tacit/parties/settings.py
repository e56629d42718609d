"""A run's settings on Flower: read from its config, what all parties share of them, and what they promise a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.overrides import put
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError
from tacit.modes.catalogue import mode_of
from tacit.modes.parts import minimum_clients, sampler_of

_OWN = {  # what every party may set for itself
    "out",
    "gpu",
    "engine",
    "flower",
    "data.folder",
    "data.download",
    "train.workers",
    "train.form",
    "evaluate.every",
    "evaluate.train",
    "evaluate.metrics",
    "evaluate.clients",
    "paillier.key",
}


def from_dotted(values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that dotted keys give, as a Flower app's run config has them.

    >>> from_dotted({"mode": "dp", "dp.noise": 1.0}).dp.noise
    1.0
    """
    nested: dict[str, Any] = {}
    for key, value in values.items():
        put(nested, key, value)
    return from_mapping(nested)


def agreed(config: RunConfig) -> dict[str, Any]:
    """Return the settings that all parties must share, by dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in config.model_dump(mode="json").items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return {key: value for key, value in flat.items() if key not in _OWN and key.partition(".")[0] not in _OWN}


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
