"""Which strategies can be wrapped: those that need nothing but the mean."""

from __future__ import annotations

from flwr import serverapp
from flwr.serverapp.strategy import Strategy

from tacit.errors import ConfigError

_SINGLE = {  # strategies that look at single updates, which nobody but their clients sees here
    "FedMedian": "a median",
    "FedTrimmedAvg": "a trimmed mean",
    "Krum": "distances between updates",
    "MultiKrum": "distances between updates",
    "Bulyan": "distances between updates",
    "QFedAvg": "each client's loss",
    "FedXgbBagging": "each client's trees",
    "FedXgbCyclic": "each client's trees",
}


def checked(strategy: Strategy) -> Strategy:
    """Return the strategy, or say why it can't be wrapped."""
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"Expected a strategy of Flower's Message API (flwr.serverapp.strategy), got {strategy!r}.")
    name = type(strategy).__name__
    single = [kind for kind in _SINGLE if isinstance(strategy, getattr(serverapp.strategy, kind))]
    if single:
        raise ConfigError(
            f"{name} needs {_SINGLE[single[0]]}, and no single update reaches the server's strategy here. Use one that "
            "averages: FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad or FedProx."
        )
    if any(kind.__name__.startswith("DifferentialPrivacy") for kind in type(strategy).__mro__):
        raise ConfigError(
            f"{name} adds noise of its own, whose cost the ledger would not know. Wrap the strategy inside it, with "
            "mode='dp' or 'local-dp'."
        )
    return strategy
