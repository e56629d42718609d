"""The breast cancer data with public bounds: what a private learner may know of a feature before it sees any row.

The bounds are the ranges that the data's own documentation gives, rounded outwards. A value is brought to its place in
its range; nothing is computed from the patients. These quantities are skewed to the right, most lie in the lower half
of their range; so the range is centred at three tenths and scaled by a sixth, round numbers again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.tasks import embedded

_CENTRE, _SCALE = 0.3, 1.0 / 6.0

BOUNDS = (
    ("radius (mean)", 6, 30),
    ("texture (mean)", 9, 40),
    ("perimeter (mean)", 40, 190),
    ("area (mean)", 140, 2600),
    ("smoothness (mean)", 0.05, 0.17),
    ("compactness (mean)", 0, 0.35),
    ("concavity (mean)", 0, 0.45),
    ("concave points (mean)", 0, 0.21),
    ("symmetry (mean)", 0.1, 0.31),
    ("fractal dimension (mean)", 0.05, 0.1),
    ("radius (standard error)", 0.1, 3),
    ("texture (standard error)", 0.3, 5),
    ("perimeter (standard error)", 0.7, 22),
    ("area (standard error)", 6, 550),
    ("smoothness (standard error)", 0, 0.032),
    ("compactness (standard error)", 0, 0.14),
    ("concavity (standard error)", 0, 0.4),
    ("concave points (standard error)", 0, 0.055),
    ("symmetry (standard error)", 0, 0.08),
    ("fractal dimension (standard error)", 0, 0.03),
    ("radius (worst)", 7, 37),
    ("texture (worst)", 12, 50),
    ("perimeter (worst)", 50, 260),
    ("area (worst)", 180, 4300),
    ("smoothness (worst)", 0.07, 0.23),
    ("compactness (worst)", 0, 1.1),
    ("concavity (worst)", 0, 1.3),
    ("concave points (worst)", 0, 0.3),
    ("symmetry (worst)", 0.15, 0.67),
    ("fractal dimension (worst)", 0.05, 0.21),
)


def load_table() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scikit-learn's 569 rows of 30 features as they are, and labels: malignant 0, benign 1."""
    return embedded.table("breast_cancer.csv", header=1)


def within_bounds(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return features as places in their public ranges, 0 to 1; what lies outside is brought to the edge."""
    low, high = np.array([bounds[1:] for bounds in BOUNDS], np.float64).T
    places: NDArray[np.float64] = np.clip((features - low) / (high - low), 0.0, 1.0)
    return places


def scaled(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return features centred and scaled by their public bounds alone."""
    return (within_bounds(features) - _CENTRE) / _SCALE
