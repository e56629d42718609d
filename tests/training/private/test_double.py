"""Rows in double precision: the native kernels beside torch's operations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tacit.training.private import double

_SHAPES = [(1, 1), (3, 31), (2, 32), (5, 1023), (4, 1024), (7, 2500), (0, 5), (3, 0)]
ways = pytest.mark.parametrize(
    "native",
    [
        pytest.param(True, marks=pytest.mark.skipif(double.native is None, reason="no native rows here")),
        False,
    ],
)


@pytest.fixture(autouse=True)
def way(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    if not native:
        monkeypatch.setattr(double, "native", None)


def _drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


@ways
@pytest.mark.parametrize("shape", _SHAPES)
def test_squares_and_sums_are_those_of_doubles(shape: tuple[int, int]) -> None:
    rows = _drawn(*shape)
    factors = _drawn(shape[0]).double()
    torch.testing.assert_close(double.squares(rows), rows.double().square().sum(1), rtol=1e-14, atol=0.0)
    torch.testing.assert_close(double.combined(factors, rows), factors @ rows.double(), rtol=1e-14, atol=1e-14)


@ways
def test_nothing_overflows_underflows_or_is_forgotten() -> None:
    rows = torch.tensor([[3e38, 3e38], [1e-45, 0.0], [1.0, 0.0]])
    assert double.squares(rows).tolist() == [2 * float(rows[0, 0]) ** 2, float(rows[1, 0]) ** 2, 1.0]
    rows = torch.tensor([[2.0**24], [1.0], [-(2.0**24)]])  # in single precision the one would be lost
    assert double.combined(torch.ones(3, dtype=torch.float64), rows).tolist() == [1.0]


@ways
def test_a_row_with_the_factor_zero_takes_no_part_whatever_it_holds() -> None:
    rows = torch.ones(4, 1500)
    rows[1], rows[2, 7] = math.nan, math.inf
    factors = torch.tensor([0.5, 0.0, 0.0, 2.0], dtype=torch.float64)
    assert torch.equal(double.combined(factors, rows), torch.full((1500,), 2.5, dtype=torch.float64))
    assert double.squares(rows).isfinite().tolist() == [True, False, False, True]
    assert not double.combined(factors + 1.0, rows).isfinite().any()


@ways
def test_rows_may_lie_anyhow() -> None:
    whole = _drawn(6, 5, 64)
    factors = torch.linspace(0.1, 1.0, 6, dtype=torch.float64)
    shared = factors[:1].expand(6)
    for rows in (whole, whole.movedim(2, 1), whole[:, ::2], whole[:, :, 1:], whole.half(), whole.bfloat16()):
        flat = rows.double().flatten(1)
        torch.testing.assert_close(double.squares(rows), flat.square().sum(1), rtol=1e-14, atol=0.0)
        for own in (factors, shared, factors.flip(0)):
            torch.testing.assert_close(double.combined(own, rows), own @ flat, rtol=1e-13, atol=1e-14)


@ways
def test_factors_that_are_not_one_double_per_row_are_refused() -> None:
    factors = torch.ones(4, dtype=torch.float64)
    for wrong in (factors.float(), factors[:3], factors.repeat(2), factors[:, None]):
        with pytest.raises(ValueError, match="expected 4 factors of float64"):
            double.combined(wrong, torch.ones(4, 5))
