"""What a run in one process reads off everybody's data, and has to be said where nobody sees them all."""

from __future__ import annotations

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError


def refuse_hidden_sizes(config: RunConfig) -> None:
    """Refuse to go on without bounds on how many examples clients hold, where the mode needs them."""
    needed = {
        "paillier": {"paillier.weight_cap": config.paillier.weight_cap},
        "nbafl": {"nbafl.smallest": config.nbafl.smallest, "nbafl.largest": config.nbafl.largest},
    }.get(config.mode, {})
    missing = [key for key, value in needed.items() if value is None]
    if config.mode == "paillier" and (config.paillier.dp or config.federate.weighting == "uniform"):
        missing = []
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} has to be set: nobody sees how many examples the clients hold. A public bound "
            "will do."
        )
