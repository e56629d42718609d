"""What ``001_52447155210e6a81.txt`` says besides its experiment: example, options and formulas, each tried here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.config.dialects import translated
from tacit.config.run_config import from_mapping
from tacit.config.sections import Signds
from tacit.errors import TacitError
from tacit.mechanisms import selection
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.mechanisms.selection import Selection
from tacit.mechanisms.signds import SignDS
from tacit.randomness import Randomness
from tacit.report.page import Cell, Table, Tone

DIMENSIONS = 66_404  # LeNet for three channels of 32 x 32 and 62 classes, convolutions without bias

# the worked example, d = 8 and three clients: "index" (from 1) and "sign"
REPORTS: Mapping[int, tuple[tuple[int, ...], int]] = {1: ((1, 5, 8), 1), 2: ((2, 3, 4), -1), 3: ((3, 6, 7), 1)}
AVERAGE = tuple(Fraction(votes, 3) for votes in (1, -1, 0, -1, 1, 1, 1, 1))
UPDATES = (
    (0.4, 0.1, -0.2, 0.3, 0.5, 0.1, -0.2, -0.3),
    (0.5, 0.2, 0.0, 0.1, 0.3, 0.2, -0.1, -0.2),
    (0.3, 0.1, -0.1, 0.5, 0.2, 0.3, 0.0, 0.1),
)
PLAIN_AVERAGE = (0.4, 0.13, -0.1, 0.3, 0.33, 0.2, -0.1, -0.13)


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: its domain and default in the document, values inside and outside, and the one of its experiment."""

    name: str
    domain: str
    default: float
    experiment: float
    yaml: float  # in its example of a configuration file, "taking LeNet task as an example"
    inside: tuple[float, ...]
    outside: tuple[float, ...]


OPTIONS = (
    Option(
        name="sign_k",
        domain="(0,0.25]",
        default=0.01,
        experiment=0.2,
        yaml=0.2,
        inside=(0.001, 0.25),
        outside=(0.0, 0.2501),
    ),
    Option(
        name="sign_eps",
        domain="(0,100]",
        default=100,
        experiment=100,
        yaml=100,
        inside=(0.5, 100),
        outside=(0.0, 100.5),
    ),
    Option(
        name="sign_thr_ratio",
        domain="[0.5,1]",
        default=0.6,
        experiment=0.6,
        yaml=0.6,
        inside=(0.5, 1.0),
        outside=(0.49, 1.01),
    ),
    Option(
        name="sign_global_lr",
        domain="(0,)",
        default=1,
        experiment=4,
        yaml=0.1,
        inside=(0.001, 100.0),
        outside=(0.0, -1.0),
    ),
    Option(name="sign_dim_out", domain="[0,50]", default=0, experiment=0, yaml=0, inside=(0, 50), outside=(-1, 51)),
)


def accepted(option: Option, value: float) -> bool:
    """Return whether a run's configuration takes a value, written as the document writes it."""
    settings = {"encrypt": {"encrypt_train_type": "SIGNDS", "signds": {option.name: value}}}
    try:
        from_mapping(translated(settings))
    except TacitError:
        return False
    return True


def options() -> Table:
    """Return the document's options beside Tacit's."""
    defaults: Mapping[str, Any] = {name: field.default for name, field in Signds.model_fields.items()}
    rows: list[tuple[Cell, ...]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for place, option in enumerate(OPTIONS):
        same = (
            all(accepted(option, value) for value in option.inside)
            and not any(accepted(option, value) for value in option.outside)
            and float(defaults[option.name]) == option.default
        )
        tones[place, 5] = "good" if same else "bad"
        rows.append(
            (
                option.name,
                option.domain,
                f"{option.default:g}",
                f"{option.experiment:g}",
                f"{option.yaml:g}",
                "the same" if same else f"another: default {defaults[option.name]:g}",
            )
        )
    return Table(
        columns=("Option", "Domain", "Default", "LeNet experiment", "Its YAML", "Domain and default in Tacit"),
        rows=rows,
        align="lrrrrl",
        tones=tones,
        caption="The document's options; values at both ends were tried with Tacit, which reads its YAML as it is. For "
        "sign_global_lr the YAML “Taking LeNet task as an example” and the experiment differ.",
    )


@dataclass(frozen=True, kw_only=True)
class Said:
    """A sentence of the document about its options, what comes out, and whether it holds."""

    words: str
    here: str
    holds: bool


def said() -> tuple[Said, ...]:
    """Return what the document says happens when one option changes, computed at the experiment's size."""

    def plan(**changes: Any) -> Selection:
        settings: dict[str, Any] = {"share": 0.2, "epsilon": 100.0, "ratio": 0.6}
        return selection.plan(dimensions=DIMENSIONS, **(settings | changes))

    shares = {share: plan(share=share) for share in (0.2, 0.1, 0.05, 0.01)}
    budgets = {epsilon: plan(epsilon=epsilon) for epsilon in (100.0, 50.0, 20.0, 10.0)}
    ratios = {ratio: plan(ratio=ratio) for ratio in (0.5, 0.6, 0.8, 1.0)}
    named = {chosen: plan(epsilon=20.0, chosen=chosen) for chosen in (5, 10, 20, 50)}

    def of(plans: Mapping[float, Selection] | Mapping[int, Selection]) -> str:
        return "; ".join(
            f"{value:g}: {one.chosen} named, {100 * hits(one):.0f}% of the largest" for value, one in plans.items()
        )

    few = list(budgets.values())
    return (
        Said(
            words="sign_k: decreasing it, “The output will have fewer dimensions”",
            here=of(shares),
            holds=_falls([one.chosen for one in shares.values()]),
        ),
        Said(
            words="sign_eps: decreasing it, “output dimensions decrease, the percentage remains the same”",
            here=of(budgets),
            holds=_falls([one.chosen for one in few]) and max(map(hits, few)) - min(map(hits, few)) < 0.1,
        ),
        Said(
            words="sign_thr_ratio: “Increasing will reduce the output dimension”, and raise the share from topk",
            here=of(ratios),
            holds=_falls(
                [one.chosen for one in ratios.values()], strictly=False
            )  # 0.5 names no more than 0.6: see plan
            and _falls([-hits(one) for one in ratios.values()], strictly=False),
        ),
        Said(
            words="sign_dim_out: increasing it, “the proportion of dimensions from `topk` will decrease” (at eps 20)",
            here=of(named),
            holds=_falls([hits(one) for one in named.values()]),
        ),
    )


def hits(plan: Selection) -> float:
    """Return the share of the named coordinates that are among the largest, in the mean."""
    return plan.expected_hits / plan.chosen


def _falls(values: Sequence[float], *, strictly: bool = True) -> bool:
    return all(b < a if strictly else b <= a + 1e-9 for a, b in itertools.pairwise(values))


def claims() -> Table:
    """Return all that the document says of options and formulas, with what comes out."""
    rows = [*said(), *_formulas(), *_steps()]
    tones: dict[tuple[int, int], Tone] = {(place, 2): "good" if row.holds else "bad" for place, row in enumerate(rows)}
    return Table(
        columns=("The document", "Here", ""),
        rows=[(row.words, row.here, "as it says" if row.holds else "not so") for row in rows],
        align="lll",
        tones=tones,
        caption=f"Plans are computed for {DIMENSIONS:,} coordinates, k 0.2, eps 100, ratio 0.6, one option changed.",
    )


def _formulas() -> tuple[Said, ...]:
    ratio = worst_ratio(dimensions=8, largest=3, chosen=3, threshold=2, epsilon=1.2)
    response = RandomizedResponse(epsilon=1.5)
    kept = math.exp(1.5) / (1 + math.exp(1.5))
    true, total = 70, 100
    collected = true * response.keep + (total - true) * response.flip
    again = response.count(collected, reports=total)
    votes = aggregated()
    means = np.mean(UPDATES, axis=0)
    return (
        Said(
            words="The odds of a set change by exp(eps) at most between any two updates",
            here=f"d = 8, k = 3, h = 3, threshold 2, eps 1.2, all sets enumerated: {ratio:.6f}, exp(1.2) = "
            f"{math.exp(1.2):.6f}",
            holds=math.isclose(ratio, math.exp(1.2), rel_tol=1e-12),
        ),
        Said(
            words="Random response keeps a bit with P = e^eps / (1 + e^eps)",
            here=f"eps 1.5: {response.keep:.6f}",
            holds=math.isclose(response.keep, kept, rel_tol=1e-12),
        ),
        Said(
            words="The true number of ones is (N_C - N + N P) / (2P - 1)",
            here=f"{true} of {total} become {collected:.2f} in the mean, and {again:.2f} again",
            holds=math.isclose(again, true),
        ),
        Said(
            words="Three clients' updates of 8 dimensions average to 0.4, 0.13, -0.1, 0.3, 0.33, 0.2, -0.1, -0.13",
            here=", ".join(f"{value:.2f}" for value in means),
            holds=bool(np.allclose(np.round(means, 2), PLAIN_AVERAGE, atol=0.006)),
        ),
        Said(
            words="Their indexes and signs average to 1/3, -1/3, 0, -1/3, 1/3, 1/3, 1/3, 1/3",
            here=", ".join(map(str, votes)),
            holds=votes == AVERAGE,
        ),
    )


def _steps() -> tuple[Said, ...]:
    """Return what the document says of signs and of the step's size, by Tacit's own mechanism."""
    chooser = Selection(dimensions=8, largest=3, chosen=3, threshold=2, epsilon=1.0)
    named = [sorted(1 + int(place) for place in chooser.split(np.array(UPDATES[0]), sign)[0]) for sign in (1, -1)]
    growing = MagnitudeEstimate(response=RandomizedResponse(epsilon=5.0), estimate=0.25, patience=1)
    settled = growing.after(ones=10, reports=10)  # the phase ends where clients are within the bound
    grown, halved, kept = (
        one.estimate
        for one in (
            growing.after(ones=0, reports=10),
            settled.after(ones=10, reports=10),
            settled.after(ones=0, reports=10),
        )
    )
    fixed, estimated = (_step_of(growing, reports=reports) for reports in (4, 5))
    return (
        Said(
            words="With sign 1 the k largest of an update are `topk`, with sign -1 the k smallest",
            here=f"client 1 of the example, k = 3: d_{', d_'.join(map(str, named[0]))} and "
            f"d_{', d_'.join(map(str, named[1]))}",
            holds=named == [[1, 4, 5], [3, 7, 8]],
        ),
        Said(
            words="Fast growth: b = 1 for r below 2 r_est; if B = 0, r_est is increased, if B = 1 kept",
            here=f"r_est {growing.estimate:g}: compared with {growing.bound:g}, then {grown:g} or {settled.estimate:g}",
            holds=growing.bound == 2 * growing.estimate < 2 * grown and settled.estimate == growing.estimate,
        ),
        Said(
            words="Contraction: b = 1 for r below r_est; if B = 1, r_est is halved, if B = 0 kept",
            here=f"r_est {settled.estimate:g}: compared with {settled.bound:g}, then {halved:g} or {kept:g}",
            holds=settled.bound == settled.estimate == 2 * halved == kept,
        ),
        Said(
            words="lr_global = 2 r_est num_clients; below 5% of the participants it is sign_global_lr",
            here=f"r_est {growing.estimate:g}, sign_global_lr 4, 100 clients: {estimated:g} with 5 of them, "
            f"{fixed:g} with 4",
            holds=(fixed, estimated) == (4.0, 2 * growing.estimate * 5),
        ),
    )


def _step_of(magnitude: MagnitudeEstimate, *, reports: int) -> float:
    """Return the step of a round with so many reports of 100 clients, as the server takes it."""
    mechanism = SignDS(
        share=0.25,
        epsilon=1.0,
        ratio=0.6,
        fixed_step=4.0,
        population=100,
        expected_clients=float(reports),
        magnitude=magnitude,
    )
    votes = np.array([1.0, 0.0, 0.0, 0.0, 0.0, float(reports)])  # one vote for the first of four coordinates
    released = mechanism.on_server(votes, Randomness.of(seed=1), clients=reports)
    return float(released.update[0]) * reports


def worst_ratio(*, dimensions: int, largest: int, chosen: int, threshold: int, epsilon: float) -> float:
    """Return the largest ratio of a set's probabilities under two sets of largest coordinates, by enumeration."""
    plan = Selection(dimensions=dimensions, largest=largest, chosen=chosen, threshold=threshold, epsilon=epsilon)
    law = plan.probabilities
    others = dimensions - largest
    ways = [math.comb(largest, v) * math.comb(others, chosen - v) for v in range(chosen + 1)]
    each = [float(law[v]) / ways[v] for v in range(chosen + 1) if ways[v]]  # all sets with v hits are alike
    return max(each) / min(each)


def aggregated() -> tuple[Fraction, ...]:
    """Return what Tacit's server makes of the example's reports, with a step of one."""
    width = len(AVERAGE)
    mechanism = SignDS(
        share=0.25,
        epsilon=1.0,
        ratio=0.6,
        fixed_step=1.0,
        population=len(REPORTS),
        expected_clients=len(REPORTS),
        magnitude=None,
    )
    total = np.zeros(mechanism.length(width))
    for places, sign in REPORTS.values():
        total[[place - 1 for place in places]] += sign
        total[-1] += 1
    update = mechanism.on_server(total, Randomness.of(seed=1), clients=len(REPORTS)).update
    return tuple(Fraction(round(3 * float(value)), 3) for value in update)
