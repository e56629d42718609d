"""The DP-SGD lab: private logistic regression on breast cancer over epsilon, delta and iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tacit.accounting.composition import advanced_total, two_step_share
from tacit.accounting.profile import epsilon_at
from tacit.errors import RunError
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.lab_004.dpsgd.measured import Measured, Normalised
from tacit_labs.lab_004.dpsgd.page import accuracy_table, findings, points_sheet, sections
from tacit_labs.lab_004.dpsgd.sweeps import NORMALISE, SWEEPS, Lab, Point
from tacit_labs.lab_004.dpsgd.sweeps import run as run_lab

_BUDGETS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of the two substitutions, which cost nothing to compute
_STEPS = (100, 1000, 10_000)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    seeds: int = 10
    sweeps: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: dict(SWEEPS))
    epsilon: float = 1.0
    delta: float = 1e-3
    iterations: int = 1000
    lr: float = 0.01
    clip: float = 1.0
    normalised: tuple[float, ...] = (0.1, 1.0, 10.0)  # epsilons at which ways of scaling the features are compared


FULL = Sizes()
QUICK = Sizes(
    seeds=5,
    sweeps={
        "epsilon": (0.1, 0.3, 1.0, 3.0, 10.0),
        "delta": (1e-7, 1e-5, 1e-3, 1e-1),
        "iterations": (10, 100, 1000, 10_000),
    },
    normalised=(0.1, 1.0),
)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the lab as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Run the lab and compare."""
    lab = Lab(
        epsilon=sizes.epsilon,
        delta=sizes.delta,
        iterations=sizes.iterations,
        lr=sizes.lr,
        clip=sizes.clip,
        seeds=sizes.seeds,
        first_seed=settings.seed,
        sweeps=sizes.sweeps,
    )
    parts = len(sizes.sweeps) + len(NORMALISE)
    points: list[Point] = []
    for number, (name, values) in enumerate(sizes.sweeps.items()):
        progress(f"sweep over {name}", done=number, total=parts)
        points += run_lab(replace(lab, sweeps={name: values}))
    scaled = []
    for number, how in enumerate(NORMALISE, start=len(sizes.sweeps)):
        progress(f"features scaled by {how} statistics", done=number, total=parts)
        found = run_lab(replace(lab, normalise=how, sweeps={"epsilon": sizes.normalised}))
        scaled.append(Normalised(how=how, points=found))
    measured = Measured(
        lab=lab,
        points=tuple(points),
        scaled=tuple(scaled),
        spent=_spent(points),
        waste={steps: [_waste(epsilon, sizes.delta, steps) for epsilon in _BUDGETS] for steps in _STEPS},
        budgets=_BUDGETS,
    )
    return Reproduction(
        settings=_said(lab),
        smaller=_smaller(sizes),
        findings=findings(measured),
        sections=sections(measured),
        tables={"accuracy": accuracy_table(measured)},
        sheets={"accuracy": points_sheet(measured)},
        data=measured.to_dict(),
    )


def _spent(points: Sequence[Point]) -> dict[tuple[str, float], float]:
    """Return what the lab's noise costs at each of its points, by the exact profile of full-batch steps."""
    found = {}
    for point in points:
        if point.way == "lab":
            if point.noise_multiplier is None:
                raise RunError(f"The lab's way has no noise at {point.sweep} {point.value:g}; expected some.")
            found[point.sweep, point.value] = epsilon_at(point.delta, point.iterations**0.5 / point.noise_multiplier)
    return found


def _waste(epsilon: float, delta: float, steps: int) -> float:
    """Return the share of a budget that the lab's two substitutions leave unspent by their own theorem."""
    share = two_step_share(epsilon=epsilon, delta=delta, count=steps)
    return 1.0 - advanced_total(epsilon=share.epsilon, count=steps, slack=share.delta) / epsilon


def _said(lab: Lab) -> str:
    return (
        "Breast cancer (Wisconsin, 569 patients, 30 features), logistic regression, full-batch gradient steps with "
        f"each example's gradient clipped to {lab.clip:g}, rate {lab.lr:g}, {lab.seeds} seeds (splits and noise), "
        "one patient in five held out. Each point is trained three ways on the same splits: without privacy, with "
        f"the lab's noise, and with the least noise that the same budget asks for. Where it is not swept, epsilon "
        f"is {lab.epsilon:g}, delta {lab.delta:g}, and there are {lab.iterations:,} iterations. The unit is a "
        "patient, add-remove. Features are scaled by public bounds."
    )


def _smaller(sizes: Sizes) -> str:
    if sizes == FULL:
        return ""
    counts = {name: (len(values), len(FULL.sweeps[name])) for name, values in sizes.sweeps.items()}
    fewer = ", ".join(f"{few} values of {name} instead of {many}" for name, (few, many) in counts.items())
    return f"{sizes.seeds} seeds instead of {FULL.seeds}; {fewer}."


EXPERIMENT = Experiment(
    name="lab-dpsgd",
    title="The DP-SGD lab: three sweeps of private logistic regression",
    source=(
        "A teaching lab trained logistic regression on breast cancer with noisy gradients and swept epsilon, delta "
        "and the number of iterations. It gave each step a share of the budget by advanced composition, solved in "
        "two substitutions said to be within 0.2%, and the classical noise for that share. It saw accuracy fall "
        "with more iterations. Its accuracies are not known to us; its method is, and runs here beside ours."
    ),
    run=run,
)
