"""What all parties of a run have to agree on, and what each may set for itself."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tacit.config.run_config import RunConfig

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


def agreed(config: RunConfig) -> dict[str, Any]:
    """Return the settings that all parties must share, by dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in config.model_dump(mode="json").items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return {key: value for key, value in flat.items() if key not in _OWN and key.partition(".")[0] not in _OWN}


def agreement(config: RunConfig, clients: int) -> bytes:
    """Return the hash of what all parties must share in a federation of so many clients.

    Replies under encryption and masks are bound to it: a server could otherwise tell all clients but one to learn
    nothing, by a rate of zero, and the sum would be that one's update.
    """
    shared = agreed(config) | {"federate.clients": clients}
    return hashlib.sha256(b"tacit agreement 1\n" + json.dumps(shared, sort_keys=True).encode()).digest()
