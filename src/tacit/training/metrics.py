"""What a model is worth beside its loss and accuracy: AUC, F1, precision, recall, each class, or a function of yours.

A metric takes the outputs of all examples, ``(n, classes)`` or one logit each, and their labels ``(n,)``, as NumPy
arrays, and returns a number, or several by name.

>>> metrics_named(["auc"])["auc"](np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1]))
1.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError

Metric = Callable[[NDArray[Any], NDArray[Any]], Any]


def accuracy(outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the share of examples whose largest output is their label."""
    return float((_decided(outputs) == labels.reshape(-1)).mean())


def balanced_accuracy(outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the mean recall of the classes."""
    return float(np.mean(list(per_class(outputs, labels).values())))


def auc(outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the area under the ROC curve: of class 1 of two, or the mean of each class against the others."""
    scores, known = _scores(outputs), labels.reshape(-1)
    if scores.shape[1] == 2:
        return _area(scores[:, 1] - scores[:, 0], known == 1)
    areas = [_area(scores[:, place], known == place) for place in range(scores.shape[1]) if (known == place).any()]
    return float(np.mean(areas))


def precision(outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return how many of those that are named a class are of it: class 1 of two, or the mean of all classes."""
    return _mean(outputs, labels, lambda hits, named, _known: hits / named if named else 0.0)


def recall(outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return how many of a class are named it: class 1 of two, or the mean of all classes."""
    return _mean(outputs, labels, lambda hits, _named, known: hits / known if known else 0.0)


def f1(outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the harmonic mean of precision and recall: of class 1 of two, or the mean of all classes."""
    return _mean(outputs, labels, lambda hits, named, known: 2 * hits / (named + known) if named + known else 0.0)


def per_class(outputs: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Return the share of each class that is named it."""
    decided, known = _decided(outputs), labels.reshape(-1)
    present = [int(one) for one in np.unique(known)]
    return {f"accuracy of {one}": float((decided[known == one] == one).mean()) for one in present}


METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "balanced-accuracy": balanced_accuracy,
    "auc": auc,
    "f1": f1,
    "precision": precision,
    "recall": recall,
    "per-class": per_class,
}


def metrics_named(asked: Any) -> dict[str, Metric]:
    """Return metrics by name: of names, of functions (by their own names), or of a mapping from names to functions."""
    if isinstance(asked, Mapping):
        pairs = list(asked.items())
    elif isinstance(asked, str):
        pairs = [(asked, asked)]
    elif isinstance(asked, Iterable):
        pairs = [(one if isinstance(one, str) else getattr(one, "__name__", "metric"), one) for one in asked]
    else:
        pairs = [("", asked)]
    found: dict[str, Metric] = {}
    for name, one in pairs:
        known = METRICS.get(one) if isinstance(one, str) else one
        if not callable(known) or not isinstance(name, str):
            raise ConfigError(
                f"Unknown metric {one!r}. Known: {', '.join(METRICS)}, or a function of outputs and labels, such as "
                "metrics={'mine': function}."
            )
        found[name] = known
    return found


def computed(
    metrics: Mapping[str, Metric], outputs: NDArray[Any], labels: NDArray[Any], classes: Sequence[str] = ()
) -> dict[str, float]:
    """Return every metric's number; classes are called by their names where there are any."""
    numbers: dict[str, float] = {}
    for name, metric in metrics.items():
        try:
            value = metric(outputs, labels)
            parts = value.items() if isinstance(value, Mapping) else [(name, value)]
            told = {str(part): float(number) for part, number in parts}
        except Exception as error:  # it may be somebody else's code
            raise ConfigError(
                f"The metric {name!r} can't take outputs of shape {outputs.shape} and labels of shape {labels.shape}: "
                f"{(str(error).splitlines() or [repr(error)])[0].rstrip('.')} ({type(error).__name__})."
            ) from error
        numbers |= {_renamed(part, classes): number for part, number in told.items() if math.isfinite(number)}
    return numbers


def _renamed(part: str, classes: Sequence[str]) -> str:
    what, _, number = part.rpartition(" of ")
    return f"{what} of {classes[int(number)]}" if what and number.isdigit() and int(number) < len(classes) else part


def _scores(outputs: NDArray[Any]) -> NDArray[Any]:
    """Return one column per class; one logit is that of class 1 against class 0."""
    flat = outputs.reshape(len(outputs), -1)
    return np.hstack([np.zeros_like(flat), flat]) if flat.shape[1] == 1 else flat


def _decided(outputs: NDArray[Any]) -> NDArray[Any]:
    decided: NDArray[Any] = _scores(outputs).argmax(1)
    return decided


def _area(scores: NDArray[Any], positive: NDArray[Any]) -> float:
    """Return how likely a positive example is above a negative one, ties counting half (Mann-Whitney)."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return math.nan
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place.reshape(-1)]
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _mean(outputs: NDArray[Any], labels: NDArray[Any], of: Callable[[int, int, int], float]) -> float:
    scores, known = _scores(outputs), labels.reshape(-1)
    decided = scores.argmax(1)
    classes = [1] if scores.shape[1] == 2 else list(range(scores.shape[1]))
    each = [
        of(int(((decided == c) & (known == c)).sum()), int((decided == c).sum()), int((known == c).sum()))
        for c in classes
    ]
    return float(np.mean(each))
