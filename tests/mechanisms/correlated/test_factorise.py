from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm

from tacit.mechanisms.correlated import factorise
from tacit.mechanisms.correlated.factorise import banded_error, strategy_of, toeplitz, toeplitz_error, total_price
from tacit.mechanisms.correlated.strategy import Banded, Correlation, Kind, columns, error
from tacit.randomness import Randomness

VECTORS = json.loads((Path(__file__).parent / "jax_privacy.json").read_text())


def _noise(kind: Kind, rounds: int, separation: int, **more: Any) -> float:
    bands = 1 if kind == "blt" else separation
    correlation = Correlation(kind=kind, rounds=rounds, separation=separation, bands=bands, **more)
    return error(strategy_of(correlation)) * math.sqrt(total_price(correlation))


@pytest.mark.parametrize("case", VECTORS["values"], ids=lambda case: f"{case['rounds']} at {case['separation']}")
def test_noise_in_the_model_is_no_more_than_jax_privacys(case: dict[str, Any]) -> None:
    kinds: tuple[Kind, ...] = ("toeplitz", "banded", "blt")
    for kind in kinds:
        ours = _noise(kind, case["rounds"], case["separation"])
        assert ours <= case[f"{kind}_rmse"] * 1.005, kind
        assert ours >= case["banded_rmse"] * 0.995, kind


@pytest.mark.parametrize("case", VECTORS["values"], ids=lambda case: f"{case['rounds']} at {case['separation']}")
def test_toeplitz_coefficients_and_costs_are_jax_privacys(case: dict[str, Any]) -> None:
    found = toeplitz(case["rounds"], case["separation"])
    np.testing.assert_allclose((found / np.linalg.norm(found))[: len(case["toeplitz"])], case["toeplitz"], atol=2e-3)
    priced = Correlation(kind="toeplitz", rounds=case["rounds"], separation=case["separation"], bands=1)
    assert total_price(priced) == pytest.approx(case["toeplitz_sensitivity"] ** 2)


def test_costs_of_a_blt_are_jax_privacys() -> None:
    from tacit.mechanisms.correlated.strategy import exponentials, prices

    for case in VECTORS["values"]:
        blt = exponentials(np.array(case["blt_scale"]), np.array(case["blt_decay"]), case["rounds"])
        charged = prices(blt / np.linalg.norm(blt), case["separation"]).sum()
        assert charged == pytest.approx(case["blt_sensitivity_squared"], rel=1e-6)


@pytest.mark.parametrize(("rounds", "bands"), [(24, 4), (40, 10), (30, 1)])
def test_banded_is_within_a_percent_of_what_no_matrix_of_its_class_can_beat(rounds: int, bands: int) -> None:
    r"""Weak duality: for V >= 0 whose bands off the diagonal are zero and X = C^T C with a diagonal of ones,

    tr(W X^-1) >= 2 tr((W^1/2 V W^1/2)^1/2) - tr(V X), and tr(V X) = tr V whatever X is.
    """
    chosen = strategy_of(Correlation(kind="banded", rounds=rounds, separation=bands, bands=bands))
    matrix = chosen.matrix()
    sums = np.tril(np.ones((rounds, rounds)))
    weights = sums.T @ sums
    inverse = np.linalg.inv(matrix.T @ matrix)
    dual = inverse @ weights @ inverse
    near = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    dual = np.where((near > 0) & (near < bands), 0.0, dual)
    dual += np.eye(rounds) * max(0.0, -np.linalg.eigvalsh(dual).min()) * 1.000001
    root = np.real(sqrtm(weights))
    inner = np.linalg.eigvalsh(root @ dual @ root).clip(0.0)
    traces, trace = 2.0 * np.sqrt(inner).sum(), np.trace(dual)
    best = (traces / 2.0) ** 2 / trace  # the best multiple of V
    assert 1.0 <= error(chosen) ** 2 * rounds / best <= 1.02  # a percent of the error is two of its square


def test_banded_beats_toeplitz_beats_independent() -> None:
    independent = (10 * 101 / 2) ** 0.5
    assert _noise("banded", 100, 10) < _noise("toeplitz", 100, 10) < 0.45 * independent


def test_the_longest_memory_is_the_square_root() -> None:
    """With one participation and as many bands as rounds, coefficients come near binomials of 1/2 (Fichtenberger)."""
    found = toeplitz(200, 200)
    wanted = np.cumprod(np.concatenate([[1.0], 1.0 - 0.5 / np.arange(1, 20)]))
    np.testing.assert_allclose(found[:20], wanted, rtol=0.02)


def test_gradients_are_derivatives() -> None:
    stream = Randomness.of(seed=1).stream("points")
    coefficients = np.array([1.0, 0.5, 0.3, 0.2])
    rows = np.tile(coefficients, (12, 1)) * np.exp(0.1 * stream.standard_normal((12, 4)))
    for back in range(4):
        rows[:back, back] = 0.0
    _, slope = toeplitz_error(coefficients, 12)
    _, gradient = banded_error(rows)
    small = 1e-6
    for place in range(1, 4):
        moved = coefficients.copy()
        moved[place] += small
        change = (toeplitz_error(moved, 12)[0] - toeplitz_error(coefficients, 12)[0]) / small
        assert change == pytest.approx(slope[place], rel=1e-4)
    for entry in [(0, 0), (5, 2), (11, 3), (11, 0)]:
        changed = rows.copy()
        changed[entry] += small
        change = (banded_error(changed)[0] - banded_error(rows)[0]) / small
        assert change == pytest.approx(gradient[entry], abs=1e-6)


def test_the_error_is_that_of_the_matrix() -> None:
    coefficients = np.array([1.0, 0.4, 0.3])
    rows = np.tile(coefficients, (7, 1)) / 1.2
    assert toeplitz_error(coefficients, 7)[0] ** 0.5 * 1.2 == pytest.approx(error(Banded(rows=rows)))


def test_a_matrix_is_kept_and_one_that_was_tampered_with_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    monkeypatch.setattr(factorise, "_SLOW", 10)
    correlation = Correlation(kind="banded", rounds=21, separation=3, bands=3)
    made = _rows(correlation)
    [path] = (tmp_path / "noise").iterdir()
    np.save(path, made * 0.5)  # private, and not what was found: it shows that the file is what is read
    assert np.array_equal(_rows(correlation), made * 0.5)
    for wrong in (made * 3.0, made[:, :2], made.astype(np.float32), np.full_like(made, np.nan)):
        np.save(path, wrong)
        np.testing.assert_allclose(_rows(correlation), made)
    path.write_bytes(b"not an array")
    np.testing.assert_allclose(_rows(correlation), made)
    assert columns(made).max() <= 1.0


def _rows(correlation: Correlation) -> Any:
    strategy_of.cache_clear()
    found = strategy_of(correlation)
    assert isinstance(found, Banded)
    return found.rows
