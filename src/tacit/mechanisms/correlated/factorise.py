r"""The best strategies of their classes: the least mean squared error of prefix sums at a given cost.

With A the prefix sums, :math:`\lVert A C^{-1} \rVert_F^2 / n` is the mean squared error over the rounds of a run with
draws of deviation 1, and the cost is what :mod:`tacit.mechanisms.correlated.strategy` says. Only their product matters,
as C may be scaled. Banded matrices: Choquette-Choo et al., "(Amplified) banded matrix factorization", NeurIPS 2023, and
McKenna, "Scaling up the banded matrix factorization mechanism", 2024; BLT: Dvijotham et al., "Efficient and
near-optimal noise generation for streaming differential privacy", 2024, and McMahan et al., "A hassle-free algorithm
for strong differential privacy in federated learning systems", 2024.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from dataclasses import astuple
from pathlib import Path

import numpy as np
from scipy.linalg import blas, lapack
from scipy.optimize import minimize
from scipy.signal import fftconvolve, lfilter
from scipy.special import expit

from tacit.errors import ConfigError, StorageError
from tacit.mechanisms.correlated.strategy import (
    Array,
    Banded,
    Blt,
    Correlation,
    Strategy,
    columns,
    exponentials,
    in_full,
    prices,
)
from tacit.storage import cache_folder, write_atomically

_FORMAT = "banded 1"  # changed with every change of the numbers
_SLOW = 256  # rounds from which a matrix is worth a file
_ENOUGH = 2e-5  # of the squared error: a step that gains less is the last
_EVALUATIONS = 14  # each inverts a matrix; the start is a percent from the best, and five come within a thousandth
_BELOW_ONE = 1.0 - 1e-12  # columns of norm 1 may exceed it by a rounding


@functools.lru_cache(maxsize=16)
def strategy_of(correlation: Correlation) -> Strategy:
    """Return the strategy; the slow ones are kept on disk, and looked at when they are read back."""
    if correlation.kind == "blt":
        return _blt(correlation)
    if correlation.kind == "toeplitz" or correlation.bands == 1:
        return Banded(rows=_normalised(_constant(correlation)))
    if correlation.rounds < _SLOW:
        return Banded(rows=_banded(correlation))
    path = _place(correlation)
    kept = _read(path, correlation)
    if kept is None:
        kept = Banded(rows=_banded(correlation))
        _keep(path, kept.rows)
    return kept


def total_price(correlation: Correlation) -> float:
    """Return the squared norm that all participations of one client may have together.

    Of banded matrices it is known before they are.
    """
    if correlation.kind != "blt":
        return float(correlation.participations)
    chosen = strategy_of(correlation)
    return sum(chosen.price(participation) for participation in range(correlation.participations))


def toeplitz(rounds: int, bands: int) -> Array:
    """Return the coefficients of the best banded Toeplitz matrix, the first of them 1."""
    start = np.cumprod(np.concatenate([[1.0], 1.0 - 0.5 / np.arange(1, bands)]))
    if bands == 1:
        return start

    def value(rest: Array) -> tuple[float, Array]:
        coefficients = np.concatenate([[1.0], rest])
        size = float(coefficients @ coefficients)
        lost, gradient = toeplitz_error(coefficients, rounds)
        return float(np.log(size * lost)), (2.0 * coefficients / size + gradient / lost)[1:]

    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-14, "gtol": 1e-9}
    found = minimize(value, start[1:], jac=True, method="L-BFGS-B", options=options)
    return np.concatenate([[1.0], found.x])


def toeplitz_error(coefficients: Array, rounds: int) -> tuple[float, Array]:
    r"""Return the mean squared error of a Toeplitz matrix, and its gradient.

    The first column w of :math:`A C^{-1}` solves :math:`c * w = 1`; of a sum over all columns, entry j is in n - j.
    """
    weights = np.arange(rounds, 0.0, -1.0) / rounds
    column = lfilter([1.0], coefficients, np.ones(rounds))
    back = lfilter([1.0], coefficients, (2.0 * weights * column)[::-1])[::-1]
    gradient = -fftconvolve(back, column[::-1])[rounds - 1 : rounds - 1 + len(coefficients)]
    return float(weights @ column**2), gradient


def _constant(correlation: Correlation) -> Array:
    bands = min(correlation.bands, correlation.rounds)
    return np.tile(toeplitz(correlation.rounds, bands), (correlation.rounds, 1))


def _normalised(rows: Array) -> Array:
    """Return the rows of the matrix with every column divided by its norm."""
    rounds, bands = rows.shape
    lengths = np.sqrt(columns(rows)) / _BELOW_ONE
    scaled = np.zeros_like(rows)
    for back in range(min(bands, rounds)):
        scaled[back:, back] = rows[back:, back] / lengths[: rounds - back]
    return scaled


def _banded(correlation: Correlation) -> Array:
    """Return the rows of the best matrix, by L-BFGS from the best Toeplitz one.

    In :math:`X = C^T C` the problem is convex, so what it ends in is the optimum. Columns are divided by their norms
    inside, so that no constraint is left.
    """
    start = _normalised(_constant(correlation))
    first, slope = banded_error(start)
    probe = 1e-3 / float(np.linalg.norm(slope))
    curvature = float(np.sum(slope * (slope - banded_error(start - probe * slope)[1]))) / probe
    # L-BFGS moves by one at first: in this unit that is a Newton step along the gradient.
    unit = curvature / float(np.linalg.norm(slope)) ** 3 if curvature > 0.0 else 1.0

    def value(point: Array) -> tuple[float, Array]:
        lost, gradient = banded_error(point.reshape(start.shape) / unit)
        return lost, gradient.ravel() / unit

    options = {"maxfun": _EVALUATIONS, "maxcor": 20, "ftol": _ENOUGH, "gtol": 0.0}
    found = minimize(value, start.ravel() * unit, jac=True, method="L-BFGS-B", options=options)
    return _normalised(found.x.reshape(start.shape) / unit) if found.fun < first else start


def banded_error(rows: Array) -> tuple[float, Array]:
    r"""Return the logarithm of the mean squared error of a matrix with normalised columns, and the rows' gradient.

    With :math:`B = A C^{-1}` and :math:`H = B C^{-T}`, the derivative by :math:`C_{tj}` is :math:`-2 (B^T H)_{tj}`, of
    which only the bands are computed.
    """
    rounds, bands = rows.shape
    scaled = _normalised(rows)
    full = np.asfortranarray(in_full(scaled))
    inverse = lapack.dtrtri(full, lower=1)[0]
    sums = np.asfortranarray(np.cumsum(inverse, axis=0))
    lost = float(np.sum(sums * sums)) / rounds
    twice = blas.dtrsm(1.0, full, sums, side=1, lower=1, trans_a=1)
    gradient = np.zeros_like(rows)
    block = max(bands, 64)
    for start in range(0, rounds, block):
        end, reach = min(rounds, start + block), min(rounds, start + block + bands - 1)
        part = sums[start:, start:reach].T @ twice[start:, start:end]  # rows from `start` on, columns of the block
        for back in range(bands):
            column = np.arange(min(end, rounds - back) - start)
            if len(column):
                gradient[start + column + back, back] = part[column + back, column]
    gradient *= -2.0 / rounds / lost
    along = np.zeros(rounds)  # the part along each column changes nothing
    for back in range(min(bands, rounds)):
        along[: rounds - back] += gradient[back:, back] * scaled[back:, back]
    lengths = np.sqrt(columns(rows))
    for back in range(min(bands, rounds)):
        own = gradient[back:, back] - along[: rounds - back] * scaled[back:, back]
        gradient[back:, back] = own / lengths[: rounds - back]
    return float(np.log(lost)), gradient


def _blt(correlation: Correlation) -> Blt:
    """Return the best BLT, the best of several starts by L-BFGS."""
    rounds, separation, count = correlation.rounds, correlation.separation, correlation.buffers
    starts = range(0, rounds, separation)

    def parts(point: Array) -> tuple[Array, Array]:
        grown = np.exp(np.clip(point[:count], -60.0, 60.0))
        return grown / (1.0 + grown.sum()), expit(point[count:])

    def value(point: Array) -> tuple[float, Array]:
        outputs, decays = parts(point)
        coefficients = exponentials(outputs, decays, rounds)
        together = np.zeros(rounds)
        for start in starts:
            together[start:] += coefficients[: rounds - start]
        size = float(together @ together)
        slope = np.zeros(rounds)
        for start in starts:
            slope[: rounds - start] += 2.0 * together[start:]
        lost, gradient = toeplitz_error(coefficients, rounds)
        by_coefficient = (slope / size + gradient / lost)[1:]
        powers = np.arange(rounds - 1)
        by_output = decays[:, None] ** powers @ by_coefficient
        by_decay = outputs * ((powers * decays[:, None] ** np.maximum(powers - 1, 0)) @ by_coefficient)
        mixed = outputs * (by_output - float(outputs @ by_output))
        return float(np.log(size * lost)), np.concatenate([mixed, by_decay * decays * (1.0 - decays)])

    best = None
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-10}
    for nearest in (1.0, 10.0, 100.0):  # rounds that the shortest memory reaches back
        reach = np.geomspace(nearest, max(2.0 * nearest, float(rounds)), count)
        first = np.concatenate([np.full(count, -1.0), np.log(reach)])
        found = minimize(value, first, jac=True, method="L-BFGS-B", options=options)
        if best is None or found.fun < best.fun:
            best = found
    assert best is not None
    outputs, decays = parts(best.x)
    coefficients = exponentials(outputs, decays, rounds)
    scale = _BELOW_ONE / float(np.linalg.norm(coefficients))
    return Blt(
        outputs=outputs,
        decays=decays,
        scale=scale,
        rounds=rounds,
        prices=prices(scale * coefficients, separation),
    )


def _place(correlation: Correlation) -> Path:
    name = hashlib.blake2b(repr((_FORMAT, astuple(correlation))).encode(), digest_size=16).hexdigest()
    return cache_folder() / "noise" / f"{name}.npy"


def _read(path: Path, correlation: Correlation) -> Banded | None:
    """Return a matrix that was kept, if it is one that this correlation may have."""
    try:
        rows = np.load(path, allow_pickle=False)
        bands = min(correlation.bands, correlation.rounds)
        fits = rows.dtype == np.float64 and rows.shape == (correlation.rounds, bands)
        return Banded(rows=rows) if fits else None
    except (OSError, ValueError, EOFError, ConfigError):
        return None


def _keep(path: Path, rows: Array) -> None:
    buffer = io.BytesIO()
    np.save(buffer, rows)
    with contextlib.suppress(StorageError):
        write_atomically(path, buffer.getvalue())
