"""Defaults that depend on other settings."""

from __future__ import annotations

from tacit.runs.config import RunConfig

_CLIENTS = 10
_SUITS = {"digits": "mlp", "breast-cancer": "logistic", "heart-disease": "logistic"}  # elsewhere: cnn
_OWNED = ("femnist", "heart-disease")  # data whose owners are the clients one expects


def resolve(config: RunConfig) -> RunConfig:
    """Fill in the defaults that depend on other settings."""
    split = config.data.split or ("natural" if config.data.name in _OWNED else "iid")
    clients = config.federate.clients or (None if split == "natural" else _CLIENTS)
    return config.model_copy(
        update={
            "data": config.data.model_copy(update={"split": split}),
            "model": config.model.model_copy(update={"name": config.model.name or _SUITS.get(config.data.name, "cnn")}),
            "federate": config.federate.model_copy(update={"clients": clients}),
        }
    )
