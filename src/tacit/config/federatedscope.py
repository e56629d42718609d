"""FederatedScope's settings in ours: its keys on the command line and in job files, as they stand.

``federate.total_round_num 300`` is ``federate.rounds=300``. One table has every key that FederatedScope's example on
FEMNIST and its documentation of differential privacy have, in the older layout (``optimizer.lr``) and in the newer one
(``train.optimizer.lr``). What means something else here is refused, what means nothing here is said to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.errors import ConfigError

Flat = Mapping[str, Any]  # by dotted keys
_Rule = Callable[[Any], dict[str, Any] | str]  # our settings, or why there are none


@dataclass(frozen=True, kw_only=True)
class Translation:
    """Settings in our words, and what has to be said of how they came about."""

    settings: Flat
    effective: tuple[str, ...] = ()  # `theirs is ours=value`
    without: tuple[str, ...] = ()  # `theirs (why)`: what has no counterpart

    @property
    def theirs(self) -> bool:
        """Whether anything was in FederatedScope's words."""
        return bool(self.effective or self.without)


def remarks(found: Translation) -> tuple[str, ...]:
    """Return the lines for people: which keys are in effect, and which have no counterpart."""
    said = [f"In FederatedScope's words: {'; '.join(found.effective)}."] if found.effective else []
    said += [f"Of FederatedScope, without effect here: {'; '.join(found.without)}."] if found.without else []
    return tuple(said)


def translated(settings: Flat) -> Translation:
    """Return settings with FederatedScope's keys turned into ours; all others stay as they are.

    >>> translated({"federate.total_round_num": 3, "optimizer.grad_clip": -1.0, "seed": 1}).settings
    {'federate.rounds': 3, 'optimizer.grad_clip': None, 'seed': 1}
    """
    ours: dict[str, Any] = {}
    effective, without = [], []
    for key, value in sorted(settings.items(), key=lambda item: item[0] != "use_gpu"):  # device says more
        if key == "device" and settings.get("use_gpu") is False:
            without.append(f"device={_shown(value)} (use_gpu is false)")
            continue
        rule = None if _is_ours(key, value) else KEYS.get(key)
        if rule is None:
            ours[key] = value
            continue
        found = _applied(rule, key, value)
        if isinstance(found, str):
            without.append(f"{key}={_shown(value)} ({found})")
            continue
        ours |= found
        named = ", ".join(f"{name}={_shown(one)}" for name, one in found.items())
        effective.append(f"{key} is {named}" if found.keys() != {key} else f"{key}={_shown(value)} is {named}")
    return Translation(settings=ours, effective=tuple(effective), without=tuple(without))


def joined(found: Sequence[Translation]) -> Translation:
    """Return what is to be said of several together; of what was said twice the later counts."""
    effective = {line.partition(" ")[0].partition("=")[0]: line for one in found for line in one.effective}
    without = {line.partition("=")[0]: line for one in found for line in one.without}
    return Translation(settings={}, effective=tuple(effective.values()), without=tuple(without.values()))


def chosen(settings: dict[str, Any], found: Translation) -> tuple[str, ...]:
    """Choose NbAFL, and FederatedScope's, where its words say so and no mode was given; return what to say."""
    nbafl = settings.get("nbafl")
    if "mode" in settings or not isinstance(nbafl, dict) or not nbafl or nbafl.get("use") is False:
        return ()
    if not found.theirs and "use" not in nbafl:
        return ()
    settings["mode"] = "nbafl"
    if "compat" in nbafl:
        return ()
    nbafl["compat"] = "federatedscope"
    return (
        "nbafl.* in FederatedScope's words is its own algorithm, mode=nbafl nbafl.compat=federatedscope, of which no "
        "epsilon holds; nbafl.compat=paper is the paper's.",
    )


def _applied(rule: _Rule, key: str, value: Any) -> dict[str, Any] | str:
    try:
        return rule(value)
    except ConfigError as error:
        raise ConfigError(f"FederatedScope's {key}={_shown(value)} does not work here: {error}") from None


def _is_ours(key: str, value: Any) -> bool:
    """Return whether a key that both have means the same in both."""
    return key == "optimizer.grad_clip" and not (_is_number(value) and value <= 0)


def _to(key: str) -> _Rule:
    return lambda value: {key: value}


def _if_positive(key: str, otherwise: str) -> _Rule:
    """FederatedScope writes -1 or 0 for what is not set."""
    return lambda value: otherwise if _is_number(value) and value <= 0 else {key: value}


def _off_unless_positive(key: str) -> _Rule:
    return lambda value: {key: None if _is_number(value) and value <= 0 else value}


def _only(words: tuple[Any, ...], why: str, advice: str) -> _Rule:
    """One of some values, which is how it is here anyway; any other one is refused."""

    def rule(value: Any) -> str:
        if (value.lower() if isinstance(value, str) else value) not in words:
            raise ConfigError(f"expected {' or '.join(_shown(word) for word in words)}. {advice}")
        return why

    return rule


def _one_of(key: str, names: Mapping[str, str]) -> _Rule:
    def rule(value: Any) -> dict[str, Any]:
        if str(value).lower() not in names:
            raise ConfigError(f"expected one of {', '.join(names)}.")
        return {key: names[str(value).lower()]}

    return rule


def _nothing(why: str) -> _Rule:
    return lambda _: why


def _gpu(value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise ConfigError("expected true or false.")
    return {"gpu": 0 if value else -1}


def _weighting(value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise ConfigError("expected true or false.")
    return {"federate.weighting": "uniform" if value else "examples"}


def _metrics(value: Any) -> dict[str, Any] | str:
    given = [value] if isinstance(value, str) else value
    names = {"acc": None, "correct": None, "loss": None, "total": None, "avg_loss": None, "f1": "f1", "roc_auc": "auc"}
    if not isinstance(given, list | tuple) or any(one not in names for one in given):
        raise ConfigError(f"expected a list of {', '.join(names)}.")
    more = [name for one in given if (name := names[one]) is not None]
    return {"evaluate.metrics": more} if more else "accuracy and loss are always told"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


_LOSS = _only(
    ("crossentropyloss",),
    "the loss of classification here",
    "Other losses are for tacit.Federation(loss=...) in Python.",
)
_PASSES = _only(
    ("epoch",), "clients train in whole passes here", "Clients train in whole passes: set train.local_epochs."
)
_OWN_MODEL = "Bring a model of your own: model.name=package.module:Class."
_OPTIMIZERS = {"sgd": "sgd", "adam": "adam", "adamw": "adamw"}
_MODELS = {"convnet2": "convnet2", "lenet": "lenet", "lr": "logistic", "mlp": "mlp"}
_BY_DATA = _nothing("it follows from the data")
_ALL_TEST = _nothing("the server tests on all test data at once")

KEYS: dict[str, _Rule] = {
    "device": _to("gpu"),
    "use_gpu": _gpu,
    "outdir": _to("out"),
    "backend": _only(("torch",), "there is no other", "Tacit is made of torch."),
    "verbose": _nothing("--quiet says less"),
    "federate.client_num": _if_positive("federate.clients", "as many as the data have"),
    "federate.sample_client_num": _if_positive("federate.per_round", "everyone takes part"),
    "federate.sample_client_rate": _if_positive("federate.share", "everyone takes part"),
    "federate.total_round_num": _to("federate.rounds"),
    "federate.mode": _only(
        ("standalone",), "a run is in one process unless engine=flower", "`tacit deploy` and engine=flower distribute."
    ),
    "federate.method": _one_of("server.name", {"fedavg": "fedavg"}),
    "federate.ignore_weight": _weighting,
    "federate.make_global_eval": _ALL_TEST,
    "federate.merge_test_data": _ALL_TEST,
    "federate.join_in_info": _nothing("the smallest client is known where it is needed"),
    "federate.sampler": _only(("uniform",), "there is no other", "Clients are drawn uniformly: see federate.sampling."),
    "federate.local_update_steps": _to("train.local_epochs"),
    "federate.batch_or_epoch": _PASSES,
    "train.local_update_steps": _to("train.local_epochs"),
    "train.batch_or_epoch": _PASSES,
    "data.root": _to("data.folder"),
    "data.type": _to("data.name"),
    "data.batch_size": _to("train.batch_size"),
    "dataloader.batch_size": _to("train.batch_size"),
    "data.splits": _nothing("data sets come with their own test part"),
    "data.subsample": _nothing("all owners whose files are there take part; LEAF's --sf makes fewer files"),
    "data.transform": _nothing("images are standardised in one fixed way"),
    "data.num_workers": _nothing("data are in memory"),
    "dataloader.num_workers": _nothing("data are in memory"),
    "model.type": _one_of("model.name", _MODELS),
    "model.hidden": _only((2048,), "convnet2 has so many", _OWN_MODEL),
    "model.out_channels": _BY_DATA,
    "model.in_channels": _BY_DATA,
    "model.dropout": _only((0, 0.0), "convnet2 has none", _OWN_MODEL),
    "optimizer.type": _one_of("optimizer.name", _OPTIMIZERS),
    "optimizer.grad_clip": _off_unless_positive("optimizer.grad_clip"),
    "grad.grad_clip": _off_unless_positive("optimizer.grad_clip"),
    "train.optimizer.type": _one_of("optimizer.name", _OPTIMIZERS),
    "train.optimizer.lr": _to("optimizer.lr"),
    "train.optimizer.momentum": _to("optimizer.momentum"),
    "train.optimizer.weight_decay": _to("optimizer.weight_decay"),
    "regularizer.type": _only(
        ("", "proximal_regularizer"), "regularizer.mu says how much", "The proximal term is the only one."
    ),
    "regularizer.mu": _to("optimizer.mu"),
    "fedprox.mu": _to("optimizer.mu"),
    "criterion.type": _LOSS,
    "trainer.type": _only(
        ("general", "cvtrainer"), "what trains follows from model and data", "Hooks change training in Python."
    ),
    "eval.freq": _to("evaluate.every"),
    "eval.metrics": _metrics,
    "eval.split": _ALL_TEST,
    "eval.best_res_update_round_wise_key": _nothing("every tested round is kept"),
    "early_stop.patience": _if_positive("evaluate.patience", "no early stop"),
}
