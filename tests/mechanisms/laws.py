"""Is a sample from a law? Chi-square for integers, Kolmogorov-Smirnov for noise; samples of the system's bits too.

Such a sample is another one in every run. So a true law is refused once in a billion times, and samples are so large
that a scale which is a tenth off is accepted even less often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tacit.vectors import Integers

FALSE_ALARM = 1e-9
Law = Callable[[Any], NDArray[np.float64]]  # the cumulative distribution at whole numbers


def p_value(sample: Integers, law: Law, *, bins: int = 60) -> float:
    """Return the p-value of ``sample`` against the cumulative distribution ``law``."""
    quantiles = np.quantile(sample, np.linspace(0.0, 1.0, bins + 1)[1:-1], method="lower")
    edges = np.unique(quantiles)  # a bin ends at, and includes, its edge
    counts = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    expected = len(sample) * np.diff(np.concatenate([[0.0], law(edges), [1.0]]))
    while expected[-1] < 10.0:
        expected[-2] += expected[-1]
        counts[-2] += counts[-1]
        expected, counts = expected[:-1], counts[:-1]
    # The edges follow the sample, so that a law far off may have empty bins.
    return float(stats.chisquare(counts, np.maximum(expected, 1e-9), sum_check=False).pvalue)


def is_normal(sample: NDArray[np.floating], std: float) -> bool:
    """Return whether 100,000 numbers may be normal with this standard deviation."""
    assert len(sample) == 100_000
    return bool(stats.kstest(sample / std, "norm").pvalue > FALSE_ALARM)
