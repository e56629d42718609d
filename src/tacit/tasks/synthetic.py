"""Clients out of nothing, as many as one likes: what scale is tried with.

``synthetic:1000000`` has a million holders. It is drawn from a fixed generator, so that the name says which data they
are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.limits import CLIENTS
from tacit.randomness import Randomness
from tacit.tasks.data import DataSet, Examples

LICENCE = "none needed: drawn, not collected"
HOLDERS = 1_000
CLASSES, FEATURES = 4, 8
_SMALLEST, _LARGEST = 2, 6  # examples of a holder
_OWN = 0.5  # how far a holder's examples lie from everybody's
_NOISE = 0.5
_SEED = 20_030
_AT_ONCE = 1 << 20


def load_synthetic(holders: int = HOLDERS) -> DataSet:
    r"""Return the data of ``holders`` clients who hold 2 to 6 examples each, 4 on average.

    Holder k has features :math:`x = v_k + z` with a place of its own, :math:`v_k \sim N(0, 0.5^2 I)`, and :math:`z \sim
    N(0, I)`; the class is the largest entry of :math:`W x + 0.5 g` with one W for all and normal g. So clients differ,
    and one linear model fits all of them: the set that Li et al. 2020 (FedProx) call Synthetic, without a model of its
    own for each client. The test is on the examples of other holders.
    """
    if not 1 <= holders <= CLIENTS:
        raise ConfigError(f"Expected synthetic:N with N from 1 to {CLIENTS:,} holders, got {holders:,}.")
    fixed = Randomness.of(seed=_SEED)
    generator = fixed.stream("synthetic", holders)
    weights = fixed.stream("synthetic").standard_normal((FEATURES, CLASSES), dtype=np.float32)
    sizes = generator.integers(_SMALLEST, _LARGEST + 1, holders)
    tested = generator.integers(_SMALLEST, _LARGEST + 1, HOLDERS)
    return DataSet(
        name="synthetic" if holders == HOLDERS else f"synthetic:{holders}",
        title=f"Synthetic: {holders:,} holders",
        classes=CLASSES,
        train=_drawn(sizes, weights, generator),
        test=_drawn(tested, weights, generator),
        origin="a fixed generator",
        licence=LICENCE,
        groups=np.repeat(np.arange(holders), sizes),
    )


def _drawn(sizes: NDArray[np.int64], weights: NDArray[np.float32], generator: np.random.Generator) -> Examples:
    """Return the examples of holders, one holder after another."""
    places = _OWN * generator.standard_normal((len(sizes), FEATURES), dtype=np.float32)
    features = np.repeat(places, sizes, axis=0)
    labels = np.empty(len(features), np.int64)
    for start in range(0, len(features), _AT_ONCE):  # what is only needed on the way takes little memory
        part = features[start : start + _AT_ONCE]
        part += generator.standard_normal(part.shape, dtype=np.float32)
        scores = part @ weights + _NOISE * generator.standard_normal((len(part), CLASSES), dtype=np.float32)
        labels[start : start + _AT_ONCE] = scores.argmax(axis=1)
    return Examples(features=features, labels=labels)
