"""What a run is made of: the configuration with every default that depends on other settings filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.run_config import RunConfig
from tacit.config.sections import Data, Model, Rate, Section, Server, Text

_CLIENTS = 10
_SPLIT_SEED = 0  # where parties in several places have to split the data alike, and no seed says how
_SUITS = {
    "digits": "mlp",
    "breast-cancer": "logistic",
    "heart-disease": "logistic",
    "synthetic": "logistic",
}  # elsewhere: cnn
_OWNED = ("femnist", "heart-disease", "synthetic")  # data whose owners are the clients one expects
# More than 1 moves further along the average than it goes, which an average of many clients can bear. Tried on one seed
# it learned more per round than 1 on iid, dirichlet:0.3 and shards:2; `benchmarks/defaults.py --splits` measures it.
_ADAPTIVE_RATE = 1e-3  # of Adam and AdamW on clients
_SERVER_RATES = {"fedavg": 1.5, "fedavgm": 0.3, "fedadam": 0.02, "fedyogi": 0.02}


class ResolvedData(Data):
    """Which examples, and how they are split."""

    split: Text


class ResolvedModel(Model):
    """Which model, by its name."""

    name: Text


class ResolvedServer(Server):
    """What the server does with the average, and how far it moves."""

    lr: Rate


class Resolved(RunConfig):
    """A configuration with nothing left open but what the data say, such as how many owners they have.

    Made by :func:`tacit.modes.catalogue.resolve`, once, where a run begins; plans and jobs take nothing else. Which
    keys were set on purpose stays in ``model_fields_set``.
    """

    data: ResolvedData
    model: ResolvedModel
    server: ResolvedServer


_KINDS: dict[str, type[Section]] = {"data": ResolvedData, "model": ResolvedModel, "server": ResolvedServer}


def fill(config: RunConfig, *, suits: Mapping[str, Any], noisy: bool) -> Resolved:
    """Fill in the defaults that depend on other settings.

    Args:
        config: what was asked.
        suits: what suits its mode, by dotted keys, where they were not set on purpose.
        noisy: whether its mode adds noise.
    """
    split = config.data.split or ("natural" if config.data.client or _base(config.data.name) in _OWNED else "iid")
    alone = config.single_holder
    split = "iid" if alone else split
    rate = 1.0 if config.server.name == "fedavg" and noisy else _SERVER_RATES[config.server.name]
    split_seed = config.data.split_seed
    if config.engine == "flower" and config.seed is None and split_seed is None:
        split_seed = _SPLIT_SEED
    changes: dict[str, dict[str, Any]] = {
        "data": {"split": split, "split_seed": split_seed},
        "model": {"name": config.model.name or _suiting(config.data.name)},
        "server": {"lr": config.server.lr or rate},  # with noise, moving further would move the noise further too
        "federate": {"clients": config.federate.clients or (1 if alone else None if split == "natural" else _CLIENTS)},
    }
    for key, value in suits.items():
        section, _, name = key.partition(".")
        if name not in getattr(config, section).model_fields_set:
            changes.setdefault(section, {})[name] = value
    if config.optimizer.name != "sgd" and "lr" not in config.optimizer.model_fields_set:
        changes.setdefault("optimizer", {})["lr"] = _ADAPTIVE_RATE
    sections = {name: _changed(getattr(config, name), name, values) for name, values in changes.items()}
    return Resolved.model_construct(config.model_fields_set, **dict(config) | sections)


def _base(data: str) -> str:
    """Return the name of a data set without its number of clients, as in synthetic:1000."""
    return data.partition(":")[0]


def _suiting(data: str) -> str:
    return _SUITS.get(_base(data), "logistic" if data.lower().endswith(".csv") else "cnn")


def _changed(section: Section, name: str, values: Mapping[str, Any]) -> Section:
    kind = _KINDS.get(name, type(section))
    return kind.model_construct(section.model_fields_set, **dict(section) | dict(values))


def given(config: Resolved, *, model: str) -> Resolved:
    """Return the configuration of a run whose data and model were handed over, and are no setting."""
    return config.model_copy(
        update={
            "data": config.data.model_copy(update={"split": "given"}),
            "model": config.model.model_copy(update={"name": model}),
        }
    )
