"""``tacit calibrate``: how much noise a budget needs, by every mechanism and for a whole run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit import limits
from tacit.cli.epsilon import (
    Accountant,
    Bands,
    Buffers,
    Correlation,
    Delta,
    Neighbours,
    Sampling,
    Schedule,
    Separation,
    schedule_of,
    sentence,
)
from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from tacit.accounting.calibration import Calibrated
    from tacit.mechanisms.calibration import Calibration


def calibrate(
    *,
    epsilon: Annotated[float, typer.Option(max=limits.EPSILON, help="The budget.")],
    delta: Delta = 1e-5,
    sensitivity: Annotated[float, typer.Option(max=limits.HUGE, help="L2 sensitivity of what is released.")] = 1.0,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=limits.ROUNDS, help="Calibrate a whole run of so many rounds too.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Share of the clients in a round of that run.", show_default=False)
    ] = None,
    sampling: Sampling = "poisson",
    neighbours: Neighbours = None,
    separation: Separation = None,
    correlation: Correlation = None,
    bands: Bands = None,
    buffers: Buffers = None,
    accountant: Accountant = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the noise that a budget needs: one release by every mechanism, and a whole run with --rounds or --rate.

    Examples:
      tacit calibrate --epsilon 2 --delta 1e-5
      tacit calibrate --epsilon 8 --rounds 100 --rate 0.1
      tacit calibrate --epsilon 8 --rounds 100 --separation 10 --correlation banded
    """
    from tacit.mechanisms.calibration import table

    rows = table(epsilon, delta, sensitivity)
    whole = None
    asked = 1.0 if rate is None else rate
    schedule = schedule_of(rounds or 1, separation, correlation, bands, buffers, rate=asked, sampling=sampling)
    if rounds is not None or rate is not None or schedule is not None:
        from tacit.accounting import calibration

        whole = calibration.calibrate(
            epsilon=epsilon,
            delta=delta,
            rounds=1 if rounds is None or schedule is not None else rounds,
            rate=asked,
            sampling=sampling,  # type: ignore[arg-type]  # checked there, with a sentence for people
            neighbours=neighbours if schedule is None else schedule.neighbours(neighbours),  # type: ignore[arg-type]  # checked there
            accountant=accountant,  # type: ignore[arg-type]  # checked there
        )
        if schedule is not None:  # all that a client is in costs as much as one release with less noise
            whole = replace(whole, noise_multiplier=whole.noise_multiplier * math.sqrt(schedule.releases))
    if as_json:
        plain = _plain(rows, whole, epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        emit_json(plain if schedule is None else plain | schedule.to_dict())
    else:
        _show(rows, whole, schedule, epsilon=epsilon, delta=delta, sensitivity=sensitivity)


def _plain(rows: list[Calibration], whole: Calibrated | None, **asked: float) -> dict[str, Any]:
    plain: dict[str, Any] = {
        **asked,
        "sigma": {row.name: row.sigma for row in rows},
        "valid": {row.name: row.valid for row in rows},
        "true_delta": {row.name: row.true_delta for row in rows},
        "reason": {row.name: row.reason for row in rows},
    }
    if whole is not None:
        plain["noise_multiplier"] = whole.noise_multiplier
        plain["run"] = whole.cost.to_dict()
    return plain


def _show(
    rows: list[Calibration],
    whole: Calibrated | None,
    schedule: Schedule | None,
    *,
    epsilon: float,
    delta: float,
    sensitivity: float,
) -> None:
    from rich.table import Table

    out = console()
    out.print(f"One release, epsilon {epsilon:g}, delta {delta:g}, sensitivity {sensitivity:g}", markup=False)
    table = Table("mechanism", "sigma", "valid", "true delta", "why", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        sigma, true = (f"{value:.10g}" if value is not None else "-" for value in (row.sigma, row.true_delta))
        table.add_row(row.name, sigma, "yes" if row.valid else "no", true, row.reason)
    out.print(table, markup=False)
    if whole is not None:
        out.print(f"\nWhole run: noise multiplier {whole.noise_multiplier:.10g}", markup=False)
        out.print(sentence(whole.cost), markup=False)
        if schedule is not None:
            out.print(schedule.sentence(whole.noise_multiplier), markup=False)
