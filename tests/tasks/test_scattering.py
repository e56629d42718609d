"""Scattering features: kymatio's numbers, and that nothing in them depends on other examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tacit.errors import ConfigError
from tacit.tasks.scattering import Scattering

VECTORS = json.loads((Path(__file__).parent / "scattering.json").read_text())


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['height']}x{case['width']}")
def test_the_numbers_are_kymatios(case: dict[str, Any]) -> None:
    """Up to 3e-5 for each filter on the way: kymatio takes 3.1415 for pi where it scales them."""
    height, width = case["height"], case["width"]
    i, j = np.mgrid[:height, :width]
    image = np.sin(0.7 * i + 0.3 * j) + np.cos(0.11 * i * j / 4) + ((i * 7 + j * 13) % 5) / 5
    scattering = Scattering(height=height, width=width, scales=case["scales"], angles=case["angles"])
    features = scattering(torch.from_numpy(image)[None, None])[0].numpy()
    assert list(features.shape) == case["shape"] == [scattering.channels, *scattering.size]
    for channel, (first, inner, last) in case["values"].items():
        found = features[int(channel)]
        np.testing.assert_allclose([found[0, 0], found[1, 2], found[-1, -1]], [first, inner, last], rtol=2e-4)
    assert features.sum(dtype=np.float64) == pytest.approx(case["total"], rel=1e-4)


def test_an_example_is_on_its_own_and_channels_too() -> None:
    images = torch.rand(40, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    scattering = Scattering(height=32, width=32)
    together = scattering.normalised(images)
    assert together.shape == (40, 243, 8, 8)
    alone = torch.cat([scattering.normalised(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    by_channel = torch.cat([scattering(images[:, [channel]]) for channel in range(3)], 1)
    torch.testing.assert_close(scattering(images), by_channel, rtol=1e-4, atol=1e-6)
    groups = together.reshape(40, 81, -1)
    assert groups.mean(-1).abs().max() < 1e-4
    assert scattering(images[:0]).shape == (0, 243, 8, 8)


def test_a_shift_changes_features_less_than_pixels() -> None:
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    smooth = torch.nn.functional.avg_pool2d(image, 3, 1, 1)
    shifted = torch.roll(smooth, 1, -1)
    scattering = Scattering(height=28, width=28)

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).norm() / a.norm())

    assert apart(scattering(smooth), scattering(shifted)) < 0.6 * apart(smooth, shifted)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"scales": 0}, "1 to 6 scales"), ({"angles": 33}, "1 to 32 angles"), ({"height": 3}, "too small for 2 scales")],
)
def test_what_does_not_work_is_refused(change: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Scattering(**{"height": 28, "width": 28} | change)
    with pytest.raises(ConfigError, match=r"Expected images of shape \(n, c, 28, 28\), got \(1, 28, 28\)"):
        Scattering(height=28, width=28)(torch.zeros(1, 28, 28))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_gpu_gives_the_same() -> None:
    images = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(3))
    scattering = Scattering(height=28, width=28)
    torch.testing.assert_close(scattering(images.cuda()).cpu(), scattering(images), rtol=1e-4, atol=1e-5)
