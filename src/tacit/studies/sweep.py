"""A grid of runs: every combination of some settings' values, each a run in a folder of its own.

A sweep can be stopped at any moment. What is on disk decides what is left to do: a point with a result is done, a point
that has begun goes on from its last round.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.config import overrides
from tacit.config import run_config as configuration
from tacit.errors import ConfigError, RunError, WireError
from tacit.runs.folder import JOURNAL
from tacit.runs.result import Result
from tacit.storage import cannot_read, cannot_write, is_there, write_atomically
from tacit.studies.axes import FORMS, MOST, Axis
from tacit.studies.pool import Planned, finished, run_all, with_values, workers_for

RECORD, TABLE, POINTS = "sweep.json", "sweep.csv", "points"
MEASURES = ("test_accuracy", "train_accuracy", "test_loss", "epsilon", "delta", "seconds", "error")

_LARGEST = 1 << 27  # bytes of the record
_ADVICE = "Free some space, or choose another folder with --out; the same command goes on with a sweep that has begun."


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
        return asdict(self) | {"epsilon": "infinite" if self.epsilon == math.inf else self.epsilon}


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
        return asdict(self) | {"epsilon": "infinite" if self.epsilon == math.inf else self.epsilon}


@dataclass(frozen=True, kw_only=True)
class _Point(Planned):
    """One run that is to be made, and where it is in the grid."""

    values: dict[str, Any]
    seed: int | None


def count(axes: Sequence[Axis], *, seeds: int = 1) -> int:
    """Return how many runs a sweep has."""
    return math.prod(len(axis.values) for axis in axes) * seeds


def sweep(
    base: Mapping[str, Any],
    axes: Sequence[Axis],
    *,
    out: Path,
    seeds: int = 1,
    workers: int | None = None,
    force: bool = False,
    on_done: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Run every point of a grid and return what came of each, in the order of the grid (the last axis fastest).

    Points that ``out`` holds already are not run again. A point that fails is a row with its error; the others go on.

    Args:
        base: the settings that all points share; an axis goes before them.
        axes: what varies.
        out: the folder of the sweep: ``sweep.csv``, ``sweep.json`` and a folder for each point.
        seeds: how often each point is run: with the seed of ``base`` (0 where it has none) and those that follow it.
        workers: processes; by default one a core, or a single one on a GPU.
        force: begin anew in a folder that holds a sweep, this one or another.
        on_done: is told of every row as it comes, those of an earlier session first.
    """
    settings = _settings(base)
    points = _points(settings, axes, seeds=seeds, out=out)
    workers = workers_for(workers, settings, len(points))
    _claim(out, settings, axes, seeds=seeds, force=force)
    rows: dict[int, Row] = {}
    table = _Table(out / TABLE, axes)
    left = []
    for point in points:
        result = finished(point.folder)
        if result is None:
            left.append(point)
            continue
        rows[point.index] = _row(point, result)
        if on_done is not None:
            on_done(rows[point.index])
    try:
        with closing(run_all(left, workers=workers)) as done:
            for outcome in done:
                row = rows[outcome.index] = _row(points[outcome.index], outcome.result, outcome.error)
                table.update(rows)
                if on_done is not None:
                    on_done(row)
    finally:
        table.write(rows)
    return [rows[point.index] for point in points]


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


def _settings(base: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the shared settings as JSON keeps them, without a folder."""
    settings: dict[str, Any] = {}
    overrides.merge(settings, json.loads(json.dumps(dict(base), default=str)))
    settings.pop("out", None)
    return settings


def _points(settings: dict[str, Any], axes: Sequence[Axis], *, seeds: int, out: Path) -> list[_Point]:
    """Return every run of the grid; a setting that can't be is refused here, before anything runs."""
    keys = [axis.key for axis in axes]
    if not axes:
        raise ConfigError(f"A sweep needs an axis, such as dp.clip=0.1:0.9:5. An axis is {FORMS}.")
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"The axis {key} was given more than once. Write its values as one list.")
        if key == "out":
            raise ConfigError("out can't be an axis: every point has a folder of its own below --out.")
    if seeds < 1:
        raise ConfigError(f"Expected one seed or more, got {seeds}.")
    if seeds > 1 and "seed" in keys:
        raise ConfigError(f"Give seeds as an axis or as a number ({seeds}), not both.")
    number = count(axes, seeds=seeds)
    if number > MOST:
        raise ConfigError(f"The grid has {number:,} points; a sweep has at most {MOST:,}. Take fewer values an axis.")
    start = {axis.key: axis.values[0] for axis in axes}
    for axis in axes:
        for value in axis.values:  # settings are checked one by one, so the combinations need no check of their own
            configuration.from_mapping(with_values(settings, start | {axis.key: value}))
    seed = configuration.from_mapping(settings).seed
    repeats = [seed] if seeds == 1 else [(seed or 0) + step for step in range(seeds)]
    points = []
    for index, (*chosen, again) in enumerate(itertools.product(*(axis.values for axis in axes), repeats)):
        values = dict(zip(keys, chosen, strict=True))
        drawn = values.get("seed", again)
        folder = out / POINTS / _name(index, values | ({} if drawn is None else {"seed": drawn}))
        full = with_values(settings, values | {"seed": drawn, "out": str(folder)})
        points.append(_Point(index=index, values=values, seed=drawn, settings=full, folder=folder))
    return points


def _name(index: int, values: Mapping[str, Any]) -> str:
    """Return a point's folder: its number, which makes it unique, and its values for people."""
    words = "_".join(f"{key}={value}" for key, value in values.items())
    return f"{index:04d}_" + "".join(c if c.isascii() and (c.isalnum() or c in "._=+-") else "-" for c in words)[:120]


def _claim(out: Path, settings: dict[str, Any], axes: Sequence[Axis], *, seeds: int, force: bool) -> None:
    """Write down which sweep the folder holds; another one's folder is refused unless ``force`` is given."""
    ours = {"settings": settings, "axes": [{"key": a.key, "values": list(a.values)} for a in axes], "seeds": seeds}
    if is_there(out / JOURNAL):
        raise RunError(f"{out} is the folder of a run, not of a sweep. Choose another with --out.")
    held = _held(out)
    if held == ours and not force:
        return
    if (held is not None or is_there(out / POINTS)) and not force:
        differs = [name for name in ours if not isinstance(held, dict) or held.get(name) != ours[name]]
        raise RunError(
            f"{out} holds another sweep: its {', '.join(differs)} differ. Give the same command to go on with it, "
            "choose another folder with --out, or begin anew with --force."
        )
    try:
        if is_there(out / POINTS):
            shutil.rmtree(out / POINTS)
    except OSError as error:
        raise cannot_write(out / POINTS, error, _ADVICE) from error
    write_atomically(out / RECORD, json.dumps(ours, indent=2).encode() + b"\n", advice=_ADVICE)


def _held(out: Path) -> Any:
    """Return what ``sweep.json`` holds: None where there is none, its text where it is damaged."""
    path = out / RECORD
    if not is_there(path):
        return None
    try:
        text = foreign.read_plain(path, largest=_LARGEST)
    except OSError as error:
        raise cannot_read(path, error, "Choose another folder with --out.") from error
    try:
        return foreign.json_value(text, largest=_LARGEST, finite=False)
    except WireError:
        return text


def _row(point: _Point, result: Result | None, error: str | None = None) -> Row:
    if result is None:
        return Row(values=point.values, seed=point.seed, error=error, folder=str(point.folder))
    privacy = result.privacy
    return Row(
        values=point.values,
        seed=point.seed,
        test_accuracy=result.test_accuracy,
        train_accuracy=result.train_accuracy,
        test_loss=result.test_loss,
        epsilon=math.inf if privacy.epsilon is None and privacy.delta is not None else privacy.epsilon,
        delta=privacy.delta,
        seconds=result.seconds,
        notes=result.notes,
        folder=str(point.folder),
    )


class _Table:
    """Keeps ``sweep.csv`` up to date, at the cost of at most a tenth of the time."""

    def __init__(self, path: Path, axes: Sequence[Axis]) -> None:
        self._path = path
        self._keys = [axis.key for axis in axes]
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
