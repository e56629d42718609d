r"""The report's bonus: Gaussian mechanisms for epsilon above 1, its claims about them computed.

The derivations are in ``docs/mathematics.md``; here is what they give at the report's delta of 0.001.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.accounting import profile
from tacit.mechanisms import calibration
from tacit.mechanisms.denoising import james_stein, soft_threshold
from tacit.mechanisms.heterogeneous import uniform, variance_minimal
from tacit.randomness import Randomness
from tacit.report.page import Chart, Fold, Section, Series, Table, Text, line
from tacit_labs.report_000 import quoted

NAMES = {"classical": 1, "extended": 4, "zhao-2": 3, "zhao-1": 2, "analytic": 0}  # and their styles, most noise first
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_LAYERS = (250, 10, 5000, 20, 16000, 50, 500, 10)  # tensors of the CNN


@dataclass(frozen=True, kw_only=True)
class Denoised:
    """Mean L2 errors of a noisy vector, as it is and after each step of denoising."""

    dimensions: int
    norm: float
    std: float
    raw: float
    james_stein: float
    soft_threshold: float


@dataclass(frozen=True, kw_only=True)
class Mechanisms:
    """What the bonus's claims come to."""

    delta: float
    sigmas: dict[str, list[float]]  # by mechanism, over EPSILONS, at sensitivity 1
    bound: list[float]  # 1/sqrt(2 epsilon)
    largest_delta: list[float]  # up to which the bound holds
    classical_until: float  # the epsilon from which on the classical formula's noise is too little
    denoised: Denoised
    heterogeneous: tuple[float, float]  # noise variance of an update per coordinate: even, and redistributed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"epsilons": list(EPSILONS)}


def compute(*, delta: float = quoted.DELTA) -> Mechanisms:
    """Compute all of it; takes a moment."""
    return Mechanisms(
        delta=delta,
        sigmas={name: [_sigma(name, epsilon, delta) for epsilon in EPSILONS] for name in NAMES},
        bound=[1.0 / math.sqrt(2.0 * epsilon) for epsilon in EPSILONS],
        largest_delta=[profile.delta_at(epsilon, math.sqrt(2.0 * epsilon)) for epsilon in EPSILONS],
        classical_until=_classical_until(delta),
        denoised=_denoised(),
        heterogeneous=_heterogeneous(),
    )


def _sigma(name: str, epsilon: float, delta: float) -> float:
    sigma = calibration.calibrate(name, epsilon=epsilon, delta=delta, allow_unproved=True).sigma
    assert sigma is not None
    return sigma


def _classical_until(delta: float) -> float:
    """Return where the classical formula's true delta crosses the one that was asked for, by bisection."""
    low, high = 1.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        valid = calibration.calibrate("classical", epsilon=middle, delta=delta, allow_unproved=True).valid
        low, high = (middle, high) if valid else (low, middle)
    return low


def _denoised(*, dimensions: int = 21_840, std: float = 0.01, trials: int = 5) -> Denoised:
    randomness = Randomness.of(seed=1)
    errors = np.zeros(3)
    for trial in range(trials):
        truth = randomness.normal(dimensions, "truth", trial)
        truth /= np.linalg.norm(truth)
        noisy = (truth + std * randomness.normal(dimensions, "noise", trial)).astype(np.float32)
        ways = (noisy, james_stein(noisy, std), soft_threshold(noisy, std))
        errors += [float(np.linalg.norm(way - truth)) / trials for way in ways]
    raw, shrunk, cut = errors.tolist()
    return Denoised(dimensions=dimensions, norm=1.0, std=std, raw=raw, james_stein=shrunk, soft_threshold=cut)


def _heterogeneous() -> tuple[float, float]:
    """Return the mean variance per coordinate at epsilon 1, tensors clipped to equal parts of sensitivity 1."""
    clips = [1.0 / math.sqrt(len(_LAYERS))] * len(_LAYERS)
    found = []
    for split in (uniform(_LAYERS), variance_minimal(_LAYERS, clips)):
        std = profile.std(1.0, quoted.DELTA, split.whitened_sensitivity(clips))
        variances = np.repeat(np.array(split.stds(std)) ** 2, _LAYERS)
        found.append(float(variances.mean()))
    return found[0], found[1]


def section(found: Mechanisms) -> Section:
    """Return the bonus with its claims beside what they come to."""
    scaled = [sigma * math.sqrt(2 * epsilon) for sigma, epsilon in zip(found.sigmas["analytic"], EPSILONS, strict=True)]
    even, redistributed = found.heterogeneous
    denoised = found.denoised
    return Section(
        title="Epsilon above 1: the bonus",
        lead=(
            f"Standard deviation of the noise for sensitivity 1 at delta {found.delta:g}. "
            "`docs/mathematics.md` derives every line; a test checks each derivation."
        ),
        parts=(
            _chart(found),
            Table(
                caption=(
                    "sigma by mechanism. Bound: Delta/sqrt(2 epsilon), below which no Gaussian mechanism is private "
                    "for any delta up to the last column. Optimal over bound tends to 1: sigma is of order "
                    "1/sqrt(epsilon)."
                ),
                columns=("epsilon", *NAMES, "bound", "optimal over bound", "delta up to"),
                rows=[
                    (
                        epsilon,
                        *(found.sigmas[name][place] for name in NAMES),
                        found.bound[place],
                        scaled[place],
                        found.largest_delta[place],
                    )
                    for place, epsilon in enumerate(EPSILONS)
                ],
            ),
            Text(
                text=(
                    "**Usage of epsilon above 1.** The classical mechanism is proved up to 1. At delta "
                    f"{found.delta:g} its noise suffices until epsilon {found.classical_until:.4f} and is too little "
                    "from there on: its order 1/epsilon cannot be extended, as the report says. Tacit refuses it above "
                    "1 and names the analytic one, which is exact for every epsilon; `tacit calibrate` shows them all. "
                    'The report\'s example of such use is a challenge with "experiments of epsilon as 10": there the '
                    f"classical formula says {found.sigmas['classical'][EPSILONS.index(10.0)]:.4f}, and the least that "
                    f"is private is {found.sigmas['analytic'][EPSILONS.index(10.0)]:.4f}."
                )
            ),
            Fold(
                summary="Optimal denoising and the heterogeneous mechanism",
                parts=(
                    Text(
                        text=(
                            f"**Denoising.** A vector of {denoised.dimensions:,} numbers and norm {denoised.norm:g} "
                            f"under noise of {denoised.std:g} per number: the mean error is {denoised.raw:.3f}, after "
                            f"James and Stein's shrinkage {denoised.james_stein:.3f}, after soft thresholding "
                            f"{denoised.soft_threshold:.3f}. It is post-processing and costs no privacy: "
                            "`dp.denoise`."
                        )
                    ),
                    Text(
                        text=(
                            "**Heterogeneous noise.** With the tensors of our CNN clipped to equal parts of 1, at "
                            f"epsilon 1, the mean variance per number is {even:.3g} with the same noise everywhere and "
                            f"{redistributed:.3g} with noise that goes by the tensors' sizes, for the same privacy: "
                            "`dp.noise_split`."
                        )
                    ),
                ),
            ),
        ),
    )


def _chart(found: Mechanisms) -> Chart:
    series = [Series(name=_SAID[name], x=EPSILONS, y=found.sigmas[name], style=style) for name, style in NAMES.items()]
    series.append(Series(name="lower bound", x=EPSILONS, y=found.bound, style=5))
    return line(
        title="Noise by mechanism",
        series=series,
        x_title="epsilon (log scale)",
        y_title="sigma (log scale)",
        log_x=True,
        log_y=True,
        caption=(
            f"The classical line crosses the optimal one at epsilon {found.classical_until:.2f}: beyond, it is false."
        ),
        height=420,
    )


_SAID = {
    "classical": "classical",
    "extended": "extended (3rd paper)",
    "zhao-2": "mechanism 2 (2nd paper)",
    "zhao-1": "mechanism 1 (2nd paper)",
    "analytic": "analytic (1st) = DP-OPT (2nd)",
}
