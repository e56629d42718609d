"""A study as a sweep: every combination of some settings' values, a row for each run and a cell for each point."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.accounting.events import to_json
from tacit.storage import write_atomically
from tacit.studies.plan import PlannedRun, Study
from tacit.studies.pool import OnDone, OnRound, perform
from tacit.studies.results import Repeat

TABLE = "sweep.csv"
_ADVICE = "Free some space, or choose another folder with --out; the same command goes on."
MEASURES = ("test_accuracy", "train_accuracy", "test_loss", "epsilon", "delta", "seconds", "error")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one run of a sweep gave; the measures are None where it failed or did not measure."""

    values: Mapping[str, Any]  # the axes' keys -> this point's values
    seed: int | None
    test_accuracy: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    epsilon: float | None = None  # infinite where privacy is claimed without noise
    delta: float | None = None
    seconds: float | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()
    folder: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers; an infinite epsilon is the text "infinite", which JSON can hold."""
        return asdict(self) | {"epsilon": to_json(self.epsilon)}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A point of the grid over its seeds: means of what was measured, and the largest epsilon."""

    values: Mapping[str, Any]
    runs: int  # that have a result
    failed: int
    test_accuracy: float | None
    train_accuracy: float | None
    test_loss: float | None
    epsilon: float | None
    delta: float | None
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, as :meth:`Row.to_dict` does."""
        return asdict(self) | {"epsilon": to_json(self.epsilon)}


def sweep(
    study: Study,
    *,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    on_done: OnDone | None = None,
    on_round: OnRound | None = None,
) -> list[Row]:
    """Make the runs of ``study`` that are not made yet, and return a row for each; see :func:`perform`.

    ``sweep.csv`` in the folder is kept up to date meanwhile.
    """
    rows: dict[int, Row] = {}
    table = _Table(out / TABLE, study.by)

    def told(place: int, run: Repeat) -> None:
        rows[place] = _row(study.runs[place], run)
        table.update(rows)
        if on_done is not None:
            on_done(place, run)

    try:
        perform(study, out=out, workers=workers, force=force, on_done=told, on_round=on_round)
    finally:
        if rows:
            table.write(rows)
    return [rows[place] for place in range(len(study.runs))]


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Return the points of the grid, each over its seeds. Epsilon is the largest: the one that holds for all."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr(tuple(row.values.values())), []).append(row)
    found = []
    for group in groups.values():
        done = [row for row in group if row.error is None]
        epsilons = [row.epsilon for row in done if row.epsilon is not None]
        found.append(
            Cell(
                values=group[0].values,
                runs=len(done),
                failed=len(group) - len(done),
                test_accuracy=_mean([row.test_accuracy for row in done]),
                train_accuracy=_mean([row.train_accuracy for row in done]),
                test_loss=_mean([row.test_loss for row in done]),
                epsilon=max(epsilons, default=None),
                delta=max((row.delta for row in done if row.delta is not None), default=None),
                seconds=_mean([row.seconds for row in done]),
            )
        )
    return found


def best(points: Sequence[Cell]) -> Cell | None:
    """Return the point of the highest test accuracy, of several the one with the least epsilon; None without any."""
    measured = [cell for cell in points if cell.test_accuracy is not None]
    return min(measured, key=lambda cell: (-(cell.test_accuracy or 0.0), cell.epsilon or 0.0), default=None)


def _row(planned: PlannedRun, run: Repeat) -> Row:
    result = run.result
    if result is None:
        return Row(values=planned.values, seed=run.seed, error=run.error, folder=run.folder)
    privacy = result.privacy
    return Row(
        values=planned.values,
        seed=run.seed,
        test_accuracy=result.test_accuracy,
        train_accuracy=result.train_accuracy,
        test_loss=result.test_loss,
        epsilon=None if privacy is None else privacy.epsilon,
        delta=None if privacy is None else privacy.delta,
        seconds=result.seconds,
        notes=result.notes,
        folder=run.folder,
    )


class _Table:
    """Keeps ``sweep.csv`` up to date, at the cost of at most a tenth of the time."""

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self._path = path
        self._keys = keys
        self._due = 0.0

    def update(self, rows: Mapping[int, Row]) -> None:
        """Write the rows, unless the last writing was a moment ago."""
        start = time.monotonic()
        if start >= self._due:
            self.write(rows)
            now = time.monotonic()
            self._due = now + 10 * (now - start)

    def write(self, rows: Mapping[int, Row]) -> None:
        """Write the rows in the order of the grid."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        seed = [] if "seed" in self._keys else ["seed"]
        writer.writerow([*self._keys, *seed, *MEASURES])
        for _, row in sorted(rows.items()):
            fixed = [row.seed] if seed else []
            writer.writerow([*row.values.values(), *fixed, *(getattr(row, name) for name in MEASURES)])
        write_atomically(self._path, text.getvalue().encode(), advice=_ADVICE)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
