from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from tacit.accounting.profile import erfcx, erfcx_gap

POINTS = [-25.0, -5.0, -1.0, -1e-3, 0.0, 1e-9, 0.3, 1.0, 2.7, 7.77, 15.1, 24.999999, 25.0, 25.3, 100.0, 1e8, 1e200]


def test_the_function_agrees_with_50_digits() -> None:
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 50
    for x in POINTS:
        if x < 1e8:
            exact = mp.exp(mp.mpf(x) ** 2) * mp.erfc(mp.mpf(x))
            assert abs(erfcx(x) / exact - 1) < 2e-15, x
    assert erfcx(1e200) == pytest.approx(1e-200 / math.sqrt(math.pi), rel=1e-15)
    assert erfcx(math.inf) == 0.0


@given(x=st.floats(-25.0, 1e6))
def test_the_function_agrees_with_another_implementation(x: float) -> None:
    assert erfcx(x) == pytest.approx(float(special.erfcx(x)), rel=1e-13)


@pytest.mark.parametrize("width", [1e-30, 1e-12, 1e-6, 1e-3, 0.1, 0.24, 0.26, 1.0, 5.0, 30.0])
def test_differences_agree_with_50_digits(width: float) -> None:
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 100
    for u in (-1.0, -0.4, 0.0, 0.5, 3.0, 10.0, 21.0, 24.9, 60.0, 3000.0):
        low, high = mp.mpf(u), mp.mpf(u) + mp.mpf(width)
        exact = mp.exp(low**2) * mp.erfc(low) - mp.exp(high**2) * mp.erfc(high)
        assert abs(erfcx_gap(u, u + width, width) / exact - 1) < 1e-12, u
