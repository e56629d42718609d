from __future__ import annotations

import numpy as np
import pytest

from tacit.rounding import epsilon_text


@pytest.mark.parametrize("digits", [3, 4])
def test_an_epsilon_is_never_rounded_down(digits: int) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    for value in [*10.0 ** generator.uniform(-12, 12, 2_000), 5e-324, 1e-300, 999.4, 999.6, 999_999.6, 1e300]:
        told = float(epsilon_text(float(value), digits=digits).replace(",", ""))
        assert value * (1 - 2e-9) <= told <= value * (1 + 10.0 ** (1 - digits)) or value < 1e-300
    assert [epsilon_text(value) for value in (8.0, 8.0 * (1 + 1e-10), 8.001)] == ["8", "8", "8.01"]
