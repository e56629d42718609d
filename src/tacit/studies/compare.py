"""Several modes on the same data, split, model and seeds: every (mode, seed) an ordinary run in a folder of its own.

A comparison can be stopped at any moment, and modes and seeds can be added later. What is on disk decides what is left
to do: a run with a result is kept, one that has begun goes on from its last round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tacit.runs.remarks import ON_CHOICE
from tacit.studies.comparison import Comparison, Entry, Repeat
from tacit.studies.folder import claim, most_together
from tacit.studies.likeness import alike
from tacit.studies.plan import Order, PlannedRun, plan
from tacit.studies.pool import OnRound, finished, run_all, workers_for


def compare(
    order: Order,
    *,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    on_done: Callable[[int, Repeat], None] | None = None,
    on_round: OnRound | None = None,
) -> Comparison:
    """Make every run of ``order`` that ``out`` does not hold yet, and return them side by side.

    A run that fails is reported in its place; the others go on.

    Args:
        order: what to compare.
        out: the folder of the comparison, with a folder for each run.
        workers: processes; by default one a core, or a single one on a GPU.
        force: begin anew in a folder that holds a comparison.
        on_done: is told of every run that has come to its end, by its place in the plan; those of an earlier session
            come first.
        on_round: is told how many rounds a run has done, by its place in the plan.
    """
    planned = plan(order, out=out)
    workers = workers_for(workers, order.shared, len(planned.runs))
    claim(out, planned, force=force)
    done: dict[int, Repeat] = {}

    def keep(run: PlannedRun, **came: Any) -> None:
        done[run.index] = Repeat(name=run.name, folder=str(run.folder), seed=run.seed, **came)
        if on_done is not None:
            on_done(run.index, done[run.index])

    left = []
    for run in planned.runs:
        result = finished(run.folder)
        if result is None:
            left.append(run)
        else:
            keep(run, result=result)
    at_a_time = most_together(out, min(workers, len(left)))
    with closing(run_all(left, workers=workers, on_round=on_round)) as outcomes:
        for outcome in outcomes:
            keep(planned.runs[outcome.index], result=outcome.result, error=outcome.error)
    entries = tuple(
        Entry(
            name=mode,
            mode=mode,
            settings=planned.own[mode],
            runs=tuple(done[run.index] for run in planned.runs if run.mode == mode),
        )
        for mode in order.modes
    )
    return together(entries, notes=[*planned.notes, *on_timing(at_a_time)])


def on_timing(at_a_time: int) -> list[str]:
    """Return what has to be said of seconds that were measured while other runs went on."""
    if at_a_time < 2:
        return []
    return [
        f"Up to {at_a_time} runs went on at a time, with one training thread each: compare their seconds with each "
        "other, not with those of a run alone."
    ]


def together(entries: Sequence[Entry], *, notes: Sequence[str] = ()) -> Comparison:
    """Return entries side by side, with what they share and where they differ."""
    shared, warnings = alike(entries)
    if any(entry.claims for entry in entries):
        notes = [*notes, ON_CHOICE]
    return Comparison(entries=tuple(entries), shared=shared, warnings=warnings, notes=tuple(notes))
