"""Defaults that depend on other settings."""

from __future__ import annotations

from tacit.config.run_config import RunConfig

_CLIENTS = 10
_SUITS = {"digits": "mlp", "breast-cancer": "logistic", "heart-disease": "logistic"}  # elsewhere: cnn
_PRIVATE_RATE = 0.5  # a clipped gradient is short
# How far DP-SGD moves in all is what its noise is proportional to, so the rate grows with epsilon; many short rounds
# keep what the noise does to a client's model between two averages small. docs/dp-sgd.md has the figures.
_RATE_BY_EPSILON, _LARGEST_RATE = 1.0, 4.0
_PRIVATE_ROUNDS = 20
_OWNED = ("femnist", "heart-disease")  # data whose owners are the clients one expects
# More than 1 moves further along the average than it goes, which an average of many clients can bear. Tried on one seed
# it learned more a round than 1 on iid, dirichlet:0.3 and shards:2; `benchmarks/defaults.py --splits` measures it.
_SERVER_RATES = {"fedavg": 1.5, "fedavgm": 0.3, "fedadam": 0.02, "fedyogi": 0.02}


def resolve(config: RunConfig) -> RunConfig:
    """Fill in the defaults that depend on other settings."""
    split = config.data.split or ("natural" if config.data.name in _OWNED else "iid")
    alone = config.engine == "alone"
    split = "iid" if alone else split
    clients = config.federate.clients or (1 if alone else None if split == "natural" else _CLIENTS)
    return config.model_copy(
        update={
            "data": config.data.model_copy(update={"split": split}),
            "model": config.model.model_copy(update={"name": config.model.name or _SUITS.get(config.data.name, "cnn")}),
            "optimizer": config.optimizer.model_copy(update={"lr": _rate(config)}),
            "server": config.server.model_copy(update={"lr": config.server.lr or _server_rate(config)}),
            "federate": config.federate.model_copy(update={"clients": clients, "rounds": _rounds(config)}),
        }
    )


def _rate(config: RunConfig) -> float:
    if config.mode != "dp-sgd" or "lr" in config.optimizer.model_fields_set:
        return config.optimizer.lr
    epsilon = None if config.dpsgd.noise is not None else config.dpsgd.epsilon or config.dp.epsilon
    if config.engine == "alone" or epsilon is None:
        return _PRIVATE_RATE
    return min(_RATE_BY_EPSILON * epsilon, _LARGEST_RATE)


def _rounds(config: RunConfig) -> int:
    federated = config.mode == "dp-sgd" and config.engine != "alone"
    if federated and "rounds" not in config.federate.model_fields_set:
        return _PRIVATE_ROUNDS
    return config.federate.rounds


def _server_rate(config: RunConfig) -> float:
    noisy = config.mode not in ("plain", "paillier") or (config.mode == "paillier" and config.paillier.dp)
    if config.server.name == "fedavg" and noisy:
        return 1.0  # moving further than the average would move the noise further too
    return _SERVER_RATES[config.server.name]
