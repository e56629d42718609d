"""What the private modes do on images when they are told little: settings under which they learn, in one place.

Noise is paid per parameter, so a linear model on scattering features, a fixed transform that costs no privacy, learns
where a deep model on pixels drowns (docs/features.md). A mode names its settings by data set as ``images``; they apply
where neither a model nor features were chosen, to keys that were not set.

The settings were searched on 10,000 training images of MNIST held out for it (``benchmarks/features_search.py``,
targets ``default-*``), never on the test set, but for local-dp: its search had 5,000 clients, and of what it found only
the rates were changed for 1,000 (its clients take one step, and their mean moves half as far), by trying twice. Those
of dp-sgd and signds are the modes' own. Digits are 8 x 8 pixels and few: a linear model on pixels will do, and its
settings were searched likewise (target ``default-digits``), on a sixth of its training images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SETS = ("mnist", "fashion-mnist")  # of which there are features
# These a comparison of several modes shares; the others are each mode's own.
SHARED = ("data.features", "data.scatter_scales", "model.name", "federate.clients", "federate.rounds")

_LINEAR: dict[str, Any] = {"data.features": "scatter", "model.name": "scatter-linear"}
_STEADY: dict[str, Any] = {"optimizer.momentum": 0.0, "optimizer.final": 1.0}

_DP: dict[str, Any] = (
    _LINEAR
    | _STEADY
    | {
        "federate.clients": 100,
        "federate.rounds": 20,
        "train.batch_size": 20,
        "optimizer.lr": 0.02,
        "server.lr": 4.0,
        "dp.clip": 0.05,
    }
)
# Half the numbers and half the rounds, so that encrypting takes a quarter as long.
_ENCRYPTED: dict[str, Any] = _DP | {
    "data.scatter_scales": 3,
    "federate.rounds": 10,
    "optimizer.lr": 0.1,
    "server.lr": 8.0,
    "dp.clip": 0.1,
}
# Every client's own noise is averaged over clients only, so it takes thousands of them to see anything through it.
_LOCAL: dict[str, Any] = (
    _LINEAR
    | _STEADY
    | {
        "data.scatter_scales": 3,
        "federate.clients": 1000,
        "federate.rounds": 10,
        "train.batch_size": 60,
        "optimizer.lr": 0.05,
        "server.lr": 4.0,
        "dp.clip": 0.02,
    }
)
_DIGITS: dict[str, Any] = _STEADY | {
    "model.name": "logistic",
    "federate.clients": 100,
    "federate.rounds": 10,
    "train.batch_size": 5,
    "optimizer.lr": 0.1,
    "server.lr": 4.0,
    "dp.clip": 0.3,
}

BySet = Mapping[str, Mapping[str, Any]]


def _by_set(with_features: dict[str, Any], **others: dict[str, Any]) -> BySet:
    return dict.fromkeys(SETS, with_features) | others


DP = _by_set(_DP, digits=_DIGITS)
ENCRYPTED = _by_set(_ENCRYPTED, digits=_DIGITS)
LOCAL = _by_set(_LOCAL)
DP_SGD = _by_set(_LINEAR | {"federate.rounds": 10})
_VOTES = {"federate.clients": 100, "federate.rounds": 20}
SIGNDS = _by_set(_LINEAR | _VOTES, digits={"model.name": "logistic"} | _VOTES)
