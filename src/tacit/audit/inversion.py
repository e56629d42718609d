r"""Gradient inversion: images from what somebody has of an update, and how close they come.

A client that takes one step sends its gradient, times the rate. :func:`inverted` looks for images whose gradient points
the same way, by Adam on the signs of the gradient of

.. math:: 1 - \cos\bigl(\nabla_\theta L(x, y),\; g\bigr) + \alpha \, \mathrm{TV}(x)

(Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", 2020); the scale of what
was seen does not matter, so that a clip is no obstacle. Labels are given, as there. Where the first layer is linear and
there is one image, no search is needed: a row of its weights' gradient over its bias's *is* the image (Phong et al.
2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from tacit.tasks.pictures import Pixels, Scale

_STEP, _SMOOTH, _MEMORY = 0.1, 1e-2, 0.9
_FALL, _FALLS = 0.3, (0.5, 0.75, 0.875)  # the step falls by this factor after these shares of the search
_WINDOW, _SMALL_WINDOW = 7, 3  # pixels of a side, over which two images are compared; the other for the smallest
_LUMINANCE, _CONTRAST = 0.01**2, 0.03**2  # the constants of SSIM
_NOTHING = 1e-12


def inverted(
    module: nn.Module,
    update: NDArray[np.float64],
    *,
    shape: Sequence[int],
    scale: Scale,
    labels: Tensor,
    steps: int,
    seed: int,
) -> Pixels:
    """Return the images that explain an update best.

    Args:
        module: the model that the update started from.
        update: what was seen, of any scale, in the order of the model's parameters.
        shape: of an example's features.
        scale: how pixels became features.
        labels: of the images that are looked for.
        steps: how long to look.
        seed: of the images to start from.
    """
    gradient = torch.from_numpy(-update).float()
    gradient = gradient / gradient.norm().clamp_min(_NOTHING)
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    wanted = _split(gradient, weights)
    if len(labels) == 1 and (exact := _by_division(module, wanted)) is not None:
        return scale.pixels(exact)
    centre, deviation = (torch.from_numpy(own).float() for own in (scale.centre, scale.deviation))
    draw = torch.Generator().manual_seed(seed)
    found = torch.rand((len(labels), scale.height, scale.width), generator=draw).requires_grad_(True)
    momentum = torch.zeros_like(found)
    for step in range(steps):
        features = ((found.flatten(1) - centre) / deviation).reshape(len(labels), *shape)
        own = torch.autograd.grad(nn.functional.cross_entropy(module(features), labels), weights, create_graph=True)
        along = torch.stack([(one * other).sum() for one, other in zip(own, wanted, strict=True)]).sum()
        size = torch.stack([(one * one).sum() for one in own]).sum().clamp_min(_NOTHING).sqrt()
        cost = 1.0 - along / size + _SMOOTH * _variation(found)
        # Adam on signs: their squares are one, so that its second moment is one as well.
        momentum = _MEMORY * momentum + (1.0 - _MEMORY) * torch.autograd.grad(cost, found)[0].sign()
        rate = _STEP * _FALL ** sum(step >= share * steps for share in _FALLS)
        with torch.no_grad():
            found -= rate * momentum / (1.0 - _MEMORY ** (step + 1))
            found.clamp_(0.0, 1.0)
    return np.asarray(found.detach().numpy(), np.float64)


def _split(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = torch.tensor_split(vector, np.cumsum([one.numel() for one in like]).tolist())
    return [part.reshape(one.shape) for part, one in zip(parts, like, strict=False)]


def _by_division(module: nn.Module, gradient: Sequence[Tensor]) -> NDArray[np.float64] | None:
    """Return the one example that a linear first layer gives away, or None where it has none with a bias."""
    layers = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
    first = layers[0]
    if not isinstance(first, nn.Linear) or first.bias is None:
        return None
    weight, bias = gradient[0].double(), gradient[1].double()
    row = int(bias.abs().argmax())
    divisor = bias[row] if bias[row].abs() > _NOTHING else torch.tensor(_NOTHING)
    return np.asarray((weight[row] / divisor)[None].numpy(), np.float64)


def _variation(images: Tensor) -> Tensor:
    """Return how much neighbouring pixels differ, in the mean."""
    down, right = images[:, 1:] - images[:, :-1], images[:, :, 1:] - images[:, :, :-1]
    return down.abs().mean() + right.abs().mean()


@dataclass(frozen=True, kw_only=True)
class Score:
    """How close reconstructions come to originals, each beside the one that it is nearest to.

    Attributes:
        psnr: the peak signal-to-noise ratio in decibels, in the mean; 30 and more is hard to tell from the original.
        ssim: structural similarity (Wang et al. 2004), in the mean; 1 is the same.
        matched: the share of originals that are found again by their reconstructions among many other images.
    """

    psnr: float
    ssim: float
    matched: float


def paired(originals: Pixels, found: Pixels) -> Pixels:
    """Return reconstructions in the order of the originals: an update does not say which image was which."""
    apart = ((originals[:, None] - found[None]) ** 2).mean(axis=(2, 3))
    return np.asarray(found[linear_sum_assignment(apart)[1]])


def scored(originals: Pixels, found: Pixels, others: Pixels) -> Score:
    """Return how close reconstructions, in the originals' order, come to them.

    Args:
        originals: the images.
        found: as many reconstructions.
        others: images that were not in the update, among which the originals have to be found again.
    """
    errors = ((originals - found) ** 2).mean(axis=(1, 2))
    psnr = -10.0 * np.log10(np.maximum(errors, 1e-10))
    gallery = np.concatenate([originals, others]).reshape(len(originals) + len(others), -1)
    hits = 0
    for number, image in enumerate(found):
        flat = image.ravel() - image.mean()
        centred = gallery - gallery.mean(axis=1, keepdims=True)
        alike = centred @ flat / np.maximum(np.linalg.norm(centred, axis=1) * np.linalg.norm(flat), _NOTHING)
        hits += int(np.argmax(alike)) == number
    ssim = [similarity(one, other) for one, other in zip(originals, found, strict=True)]
    return Score(psnr=float(psnr.mean()), ssim=float(np.mean(ssim)), matched=hits / len(originals))


def similarity(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return SSIM of two images from 0 to 1, over windows of seven pixels, or of three where they are small.

    >>> image = np.linspace(0.0, 1.0, 64).reshape(8, 8)
    >>> similarity(image, image), similarity(image, 1.0 - image) < 0.0
    (1.0, True)
    """
    side = _WINDOW if min(one.shape) >= 2 * _WINDOW else _SMALL_WINDOW
    means = [uniform_filter(own, side) for own in (one, other)]
    spread = [uniform_filter(own * own, side) - mean**2 for own, mean in zip((one, other), means, strict=True)]
    together = uniform_filter(one * other, side) - means[0] * means[1]
    alike = (2.0 * means[0] * means[1] + _LUMINANCE) * (2.0 * together + _CONTRAST)
    whole = (means[0] ** 2 + means[1] ** 2 + _LUMINANCE) * (spread[0] + spread[1] + _CONTRAST)
    return float((alike / whole).mean())
