"""Which event tells two worlds apart: chosen on some trials, counted on others.

A trial is a row of numbers that an adversary sees. :func:`chosen` looks at every number by itself, and at the weighted
sum of all that separates the two worlds best (Fisher's linear discriminant: where noise was used twice, the weights
cancel it), and takes the threshold at which the rates exceed what is claimed by most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.evidence import Claimed, Rates, ends, rates

Rows = NDArray[np.float64]  # a row per trial
_MARKS = np.concatenate([[0.0, 0.002, 0.01, 0.03], np.linspace(0.06, 0.94, 23), [0.97, 0.99, 0.998, 1.0]])
_LARGEST = 1e12  # what is not a number, or larger, is this much in a column's own units
_RIDGE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Event:
    """That a weighted sum of the numbers of a trial is beyond a mark, and in which world it is the likely one.

    Attributes:
        weights: of the numbers.
        mark: what the sum exceeds.
        first: whether the event is likely in the first world, or else in the second.
        margin: by how much it exceeded the claim where it was chosen.
    """

    weights: NDArray[np.float64]
    mark: float
    first: bool
    margin: float

    def rates(self, first: Rows, second: Rows, *, confidence: float) -> Rates:
        """Count it on trials that had no part in its choice."""
        likely, unlikely = (first, second) if self.first else (second, first)
        hits, misses = (int((_tame(rows) @ self.weights > self.mark).sum()) for rows in (likely, unlikely))
        return rates(hits, misses, len(first), confidence=confidence)


def chosen(first: Rows, second: Rows, claimed: Claimed, *, confidence: float) -> Event:
    """Return the event at which two worlds' trials exceed the claim by most."""
    first, second = _tame(first), _tame(second)
    best: Event | None = None
    for weights in _candidates(first, second):
        scores = first @ weights, second @ weights
        marks = np.unique(np.quantile(np.concatenate(scores), _MARKS, method="inverted_cdf"))
        beyond = tuple((own[:, None] > marks).sum(axis=0) for own in scores)
        for likely in (0, 1):
            low, high = ends(beyond[likely], beyond[1 - likely], len(first), confidence=confidence)
            margins = claimed.margins(low, high)
            place = int(np.argmax(margins))
            if best is None or margins[place] > best.margin:
                best = Event(weights=weights, mark=float(marks[place]), first=likely == 0, margin=float(margins[place]))
    assert best is not None, "there is a column at least"
    return best


def _candidates(first: Rows, second: Rows) -> list[NDArray[np.float64]]:
    """Return weights: each number that varies by itself, in both directions, and the discriminant's."""
    both = np.concatenate([first, second])
    spread = both.std(axis=0)
    varying = np.flatnonzero(spread > 0.0)
    if not len(varying):
        return [np.ones(first.shape[1])]
    singles = [sign * np.eye(first.shape[1])[column] for column in varying for sign in (1.0, -1.0)]
    scale = spread[varying]
    a, b = first[:, varying] / scale, second[:, varying] / scale
    within = np.cov(a - a.mean(axis=0), rowvar=False) + np.cov(b - b.mean(axis=0), rowvar=False)
    within = np.atleast_2d(within) + _RIDGE * np.eye(len(varying))
    found = np.zeros(first.shape[1])
    found[varying] = np.linalg.solve(within, a.mean(axis=0) - b.mean(axis=0)) / scale
    return [*singles, found, -found]


def _tame(rows: Rows) -> Rows:
    return np.nan_to_num(np.clip(rows, -_LARGEST, _LARGEST), nan=_LARGEST)
