"""What people pass to the Python API by mistake: one of our errors, with what was passed and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import tacit
from tacit.errors import ConfigError, DataError

X = np.random.RandomState(0).normal(size=(6, 4)).astype(np.float32)
Y = np.array([0, 1, 0, 1, 0, 1])


class Made(Dataset[Any]):
    """A data set of what a function gives."""

    def __init__(self, give: Callable[[int], Any], count: int = 6) -> None:
        self._give = give
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._give(index)


class Endless(Made):
    def __len__(self) -> int:
        raise OSError("the share is gone")


class Frame:
    """A table that can't be read, as pandas or Polars have it."""

    columns = ("a", "b", "c", "d")

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)

    def to_numpy(self) -> Any:
        return np.array([["a", 1.0, 2.0, 3.0]] * 6, dtype=object)


class Gives(nn.Module):
    """A model that gives whatever a function makes of its input."""

    def __init__(self, give: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._give = give

    def forward(self, features: Any) -> Any:
        return self._give(features)


def _normalised(*, track_running_stats: bool = True) -> nn.Module:
    norm = nn.BatchNorm1d(3, track_running_stats=track_running_stats)
    return nn.Sequential(nn.Linear(4, 3), norm, nn.Linear(3, 2))


def _fail(*_: Any) -> Any:
    raise ZeroDivisionError("by design")


NO_NUMBERS = "are no array of numbers"
OPTIMISER = torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=0.1)
BAD_DATA: list[tuple[str, Any, str]] = [
    (
        "string labels",
        (X, np.array(list("ababab"))),
        "labels of client 1 are text, such as 'a', those of client 0 are numbers",
    ),
    ("a list of strings", (X, list("ababab")), "labels of client 1 are text, such as 'a', those of client 0"),
    ("text and numbers as labels", (X, ["a", 1, 2, 3, 4, 5]), f"labels of client 1 {NO_NUMBERS}"),
    ("object features", (X.astype(object), Y), f"features of client 1 {NO_NUMBERS}, but of object"),
    ("dates", (X, np.array(["2020-01-01"] * 6, dtype="datetime64[D]")), NO_NUMBERS),
    ("records", (np.zeros(6, dtype=[("a", "f4")]), Y), NO_NUMBERS),
    ("ragged rows", ([[1.0, 2.0], [3.0]], [0, 1]), f"{NO_NUMBERS}.*every row the same length"),
    ("numbers beyond 64 bits", ([[10**30] * 4], [0]), NO_NUMBERS),
    ("one number as features", (np.float32(3), Y), "features of client 1 are the single number 3.0, expected an array"),
    ("one number as labels", (X, np.int64(3)), "labels of client 1 are the single number 3"),
    ("complex features", (X.astype(complex), Y), "features of client 1 are complex"),
    ("complex labels", (X, Y.astype(complex)), "labels of client 1 are complex"),
    ("sparse features", (torch.eye(4).to_sparse(), Y[:4]), "sparse or quantized tensor. Make it dense"),
    ("NaN features", (np.where(X > 0, np.nan, X), Y), "features of client 1 hold NaN"),
    ("infinite features", (np.where(X > 0, np.inf, X), Y), "hold NaN or infinity"),
    ("features beyond 32 bits", (X.astype(float) * 1e300, Y), "beyond what 32 bits hold"),
    ("NaN labels", (X, np.full(6, np.nan)), "labels of client 1 hold NaN"),
    ("nothing", None, "for client 1, got NoneType"),
    ("a pair of nothing", (None, None), "features of client 1 are NoneType, expected an array"),
    ("no labels", (X, None), "labels of client 1 are NoneType"),
    ("text", "ab", "for client 1, got str"),
    (
        "a mapping",
        {"x": X, "y": Y},
        r"no column with labels in the table of client 1.*one of 'x', 'y'",
    ),
    (
        "columns of other lengths",
        {"x": X, "label": Y[:3]},
        "columns of one length for client 1, got {'x': 6",
    ),
    ("too many columns", {"x": X, "z": X, "label": Y}, "one column of arrays or images beside the labels of client 1"),
    ("a pair of texts", ("a", "b"), "features of client 1 are str"),
    ("a table", Frame(), "The table of client 1 can't be read: KeyError: 'a'"),
    ("a table with labels", (Frame(), Y), "features of client 1 hold text in column 'a'. Encode it"),
    ("a generator", ((x, y) for x, y in zip(X, Y, strict=True)), "for client 1, got generator"),
    ("a data set that raises", Made(_fail), "client 1 can't be read: example 0 ended in ZeroDivisionError: by design"),
    ("a data set without a length", Endless(_fail), "how many there are ended in OSError: the share is gone"),
    ("a data set of mappings", Made(lambda i: {"x": X[i]}), "got dict as an example"),
    ("a data set without labels", Made(lambda i: X[i], 2), "got ndarray as an example"),
    ("a data set of nothing", Made(lambda _: None), "got NoneType as an example"),
    ("a data set with string labels", Made(lambda i: (X[i], "cat")), "labels of client 1 are text"),
    ("no example", (X[:0], Y[:0]), "Client 1 holds no example"),
    ("fewer labels", (X, Y[:3]), "got 3 and 6"),
]


@pytest.mark.parametrize(("data", "words"), [case[1:] for case in BAD_DATA], ids=[case[0] for case in BAD_DATA])
def test_data_that_are_none_name_the_client(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        tacit.Federation(model=nn.Linear(4, 2), clients=[(X, Y), data])
    if data is not None:
        with pytest.raises(
            DataError, match=words.replace("client 1", "the test set").replace("Client 1", "The test set")
        ):
            tacit.Federation(model=nn.Linear(4, 2), clients=[(X, Y)], test=data)


BAD_PARTS: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("a number of clients", {"clients": 3}, ConfigError, "clients as a list .* got int"),
    ("no clients", {"clients": None}, ConfigError, "got NoneType"),
    ("a table for clients", {"clients": {"x": X, "y": Y}}, ConfigError, "got a mapping of 'x', 'y'.*client="),
    ("a frame for clients", {"clients": Frame()}, ConfigError, "got Frame. Of one table for all clients.*client="),
    ("no table to share out", {"client": "hospital"}, ConfigError, "client='hospital' is a column of one table"),
    (
        "no such column of clients",
        {"client": "hospital", "clients": {"a": [1.0, 2.0], "label": [0, 1]}},
        ConfigError,
        "no column 'hospital' of clients, only 'a', 'label'",
    ),
    ("classes as text", {"classes": "ab"}, ConfigError, "classes' names as a list of text, got 'ab'"),
    ("columns of arrays", {"columns": {"a": [0, 1]}}, ConfigError, "is for tables, and arrays were given"),
    ("columns that are none", {"columns": 3}, ConfigError, "a range or categories by column, got 3"),
    ("unknown features", {"features": "wavelets"}, ConfigError, "features='wavelets' does not work"),
    ("features of rows", {"features": "scatter"}, ConfigError, "is for images"),
    ("an unknown metric", {"metrics": ["auk"]}, ConfigError, "Unknown metric 'auk'. Known: accuracy"),
    ("a number for a metric", {"metrics": 3}, ConfigError, "Unknown metric 3"),
    (
        "a metric that raises",
        {"metrics": {"mine": _fail}, "test": (X, Y)},
        ConfigError,
        "metric 'mine' can't take.*by",
    ),
    ("an unknown optimiser", {"optimizer": "sgdd"}, ConfigError, "optimizer.name='sgdd' does not work"),
    ("an optimiser that is made", {"optimizer": OPTIMISER}, ConfigError, "a function that makes an optimiser"),
    ("an optimiser that raises", {"optimizer": _fail}, ConfigError, "optimiser can't be made: by design"),
    ("an optimiser of nothing", {"optimizer": lambda _: None}, ConfigError, "over all of them, got NoneType"),
    ("a schedule by name", {"schedule": "cosine"}, ConfigError, "schedule as a function of the round, got 'cosine'"),
    ("a schedule that raises", {"schedule": _fail}, ConfigError, "schedule raised ZeroDivisionError in round 1"),
    ("a schedule of nothing", {"schedule": lambda _: 0.0}, ConfigError, "a rate above 0 for round 1, got 0.0"),
    ("an unknown model", {"model": "logistics"}, ConfigError, "Unknown model 'logistics'. Did you mean 'logistic'"),
    ("patience without a test", {"evaluate": {"patience": 2}}, ConfigError, "needs test data, by whose loss it stops"),
    ("a class for a loss", {"loss": nn.CrossEntropyLoss}, ConfigError, "got the class CrossEntropyLoss. Make one"),
    ("two outputs for one logit", {"loss": "binary-cross-entropy"}, ConfigError, "takes one output per example"),
    (
        "three classes for one logit",
        {"loss": nn.BCEWithLogitsLoss(), "model": nn.Linear(4, 1), "clients": [(X, Y + 1)]},
        ConfigError,
        "takes labels 0 and 1, but labels run from 1 to 2",
    ),
    ("text for clients", {"clients": "ab"}, ConfigError, "got str"),
    ("an empty list", {"clients": []}, ConfigError, "at least one client"),
    ("labels below 0", {"clients": [(X, Y - 1)]}, ConfigError, "labels run from -1 to 0 in the training data"),
    ("labels beyond 64 bits", {"clients": [(X, np.full(6, 2**63, np.uint64))]}, ConfigError, "labels run from"),
    ("test labels beyond the outputs", {"test": (X, Y + 5)}, ConfigError, "labels run from 5 to 6 in the test data"),
    ("test labels below 0", {"test": (X, Y - 3)}, ConfigError, "labels run from -3 to -2 in the test data"),
    (
        "float test labels",
        {"test": (X, Y.astype(float))},
        ConfigError,
        "labels of torch.float32, as the test data have",
    ),
    ("float labels", {"clients": [(X, Y.astype(float))]}, ConfigError, "labels of torch.float32"),
    ("one client with float labels", {"clients": [(X, Y), (X, Y / 2)]}, ConfigError, "labels of torch.float32"),
    (
        "whole numbers as features",
        {"clients": [(X.astype(int), Y)]},
        ConfigError,
        "int64.*give features as floats",
    ),
    ("no model", {"model": None}, ConfigError, "torch.nn.Module as the model, got NoneType"),
    ("a class for a model", {"model": nn.Linear}, ConfigError, "got Linear. Make one of that class first"),
    ("a function for a model", {"model": _fail}, ConfigError, "got _fail"),
    ("a model that raises", {"model": Gives(_fail)}, ConfigError, r"by design \(ZeroDivisionError\)"),
    (
        "a model that gives nothing",
        {"model": Gives(lambda _: None)},
        ConfigError,
        "a tensor, or .* got NoneType",
    ),
    ("a model that gives two", {"model": Gives(lambda x: (x, x))}, ConfigError, "return a tensor, or .* got tuple"),
    ("a number for a loss", {"loss": 3}, ConfigError, "Unknown loss 3"),
    ("a list for a loss", {"loss": []}, ConfigError, "Unknown loss"),
    ("a loss that raises", {"loss": _fail}, ConfigError, "by design"),
    ("a loss of nothing", {"loss": lambda _o, _l: None}, ConfigError, "one number per example.*got NoneType"),
    ("a loss of one number", {"loss": lambda _o, _l: 1.0}, ConfigError, "got float"),
    (
        "one left",
        {"model": _normalised(track_running_stats=False), "train": {"batch_size": 5}},
        DataError,
        r"in batches of 5 one is left alone.*tacit\.fix\(model\)",
    ),
    (
        "batch norm under differential privacy",
        {"model": _normalised(), "mode": "dp", "dp": {"noise": 1.0}},
        ConfigError,
        r"BatchNorm1d at '1'.*running statistics.*tacit\.fix\(model\)",
    ),
    ("another number of clients", {"federate": {"clients": 9}}, ConfigError, "2 clients were given. Leave it out"),
    ("a number for a section", {"federate": 3}, ConfigError, "federate=3 does not work"),
    ("a list for a section", {"optimizer": [1]}, ConfigError, r"optimizer=\[1\] does not work"),
    ("an unknown section", {"optimiser": {}}, ConfigError, "Unknown key 'optimiser'"),
    ("text for a seed", {"seed": "a"}, ConfigError, "seed='a' does not work"),
]


@pytest.mark.parametrize(
    ("changes", "kind", "words"), [case[1:] for case in BAD_PARTS], ids=[case[0] for case in BAD_PARTS]
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], kind: type[Exception], words: str) -> None:
    given: dict[str, Any] = {"model": nn.Linear(4, 2), "clients": [(X, Y), (X, Y)], "seed": 1}
    with pytest.raises(kind, match=words):
        tacit.Federation(**given | changes).fit(rounds=1)


@pytest.mark.parametrize("rounds", [0, -1, None, "two", 2.5, 2**63, float("nan")])
def test_rounds_that_are_none_are_refused(rounds: Any) -> None:
    with pytest.raises(ConfigError, match=r"federate\.rounds=.* does not work"):
        tacit.Federation(model=nn.Linear(4, 2), clients=[(X, Y)]).fit(rounds=rounds)


@pytest.mark.parametrize("out", [3, b"x", "x" * 300, "a\0b"])
def test_folders_that_can_not_be_are_refused(out: Any) -> None:
    with pytest.raises(ConfigError, match="out="):
        tacit.Federation(model=nn.Linear(4, 2), clients=[(X, Y)]).fit(rounds=1, out=out)


def test_what_is_unusual_and_fits_is_taken() -> None:
    clients: list[Any] = [
        (X.tolist(), Y.tolist()),
        (torch.from_numpy(X).clone().requires_grad_(), torch.from_numpy(Y)),
        (X.astype(np.float64), Y.astype(np.int8)),
        (X.astype(np.int64), Y > 0),
        Made(lambda i: [X[i], int(Y[i])]),
    ]
    one_by_one: Any = iter(clients)
    federation = tacit.Federation(model=nn.Linear(4, 2), clients=one_by_one, federate=None, seed=1)
    assert federation.fit(rounds=1).clients == 5


@pytest.mark.parametrize("callbacks", [3, "ab", [3], None])
def test_callbacks_that_are_none_are_refused(callbacks: Any) -> None:
    with pytest.raises(ConfigError, match="callbacks as a list of functions"):
        tacit.Federation(model=nn.Linear(4, 2), clients=[(X, Y)]).fit(rounds=1, callbacks=callbacks)
