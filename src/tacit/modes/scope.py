"""Which settings mean something to which mode, so that modes which share settings each get their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tacit.config import overrides
from tacit.config.sections import Dp

_OWNERS = {"dpsgd": "dp-sgd", "paillier": "paillier", "signds": "signds", "nbafl": "nbafl"}  # section -> its mode
_BUDGET = {"clip", "noise", "epsilon", "delta", "max_epsilon"}
_DP = {  # mode -> the keys of the section dp that it knows
    "plain": set[str](),
    "dp": set(Dp.model_fields) - {"mechanism"},
    "local-dp": _BUDGET | {"mechanism"},
    "dp-sgd": _BUDGET,
    "paillier": set[str](),
    "signds": {"delta", "max_epsilon"},
    "nbafl": {"delta", "max_epsilon"},
}
_ENCRYPTED_DP = _BUDGET | {"neighbours"}


def meant_for(mode: str, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return those of the shared settings that mean something to ``mode``, and the dotted keys of the others.

    >>> meant_for("plain", {"dp": {"epsilon": 8}, "optimizer": {"lr": 0.1}})
    ({'optimizer': {'lr': 0.1}}, ['dp.epsilon'])
    """
    encrypted_dp = mode == "paillier" and bool((settings.get("paillier") or {}).get("dp"))
    kept: dict[str, Any] = {}
    left: list[str] = []
    for key, value in flat(settings):
        section, _, name = key.partition(".")
        if section == "dp":
            meant = name in (_ENCRYPTED_DP if encrypted_dp else _DP.get(mode, set()))
        elif key == "train.batch_size":
            meant = mode != "dp-sgd"  # which draws Poisson batches of dpsgd.batch_size
        elif key == "federate.minimum_clients":
            meant = mode != "dp"  # which releases every round
        else:
            meant = _OWNERS.get(section, mode) == mode
        if meant:
            overrides.put(kept, key, value)
        else:
            left.append(key)
    return kept, left


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values.

    >>> list(flat({"seed": 1, "dp": {"clip": 0.5}}))
    [('seed', 1), ('dp.clip', 0.5)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
