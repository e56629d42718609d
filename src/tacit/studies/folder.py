"""The folder of a study: ``study.json`` tells which runs it has, ``runs/`` holds them.

Runs can be added later; those that are there can't change. What is on disk decides what is left to do: a run with a
result is done, one that has begun goes on from its last round.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from tacit import foreign
from tacit.config.overrides import flat
from tacit.errors import ConfigError, RunError, WireError
from tacit.runs.folder import CONFIG, JOURNAL
from tacit.storage import cannot_read, cannot_write, is_there, write_atomically
from tacit.studies.plan import Kind, PlannedRun, Study

RECORD, RUNS = "study.json", "runs"

_LARGEST = 1 << 27  # bytes
_EARLIER = {"sweep.json": "sweep", "asked.json": "comparison"}  # records that versions before this one wrote
_ADVICE = "Free some space, or choose another folder with --out; the same command goes on with what has begun."
_WAYS_OUT = "Give the same settings to go on with it, choose another folder with --out, or begin anew with --force."


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a folder tells of itself: all runs that were ever asked of it."""

    study: Study
    together: int = 1  # how many runs went on at a time, at the most


def place_of(out: Path, run: PlannedRun) -> Path:
    """Return the folder of one run."""
    return out / RUNS / run.name


def held(out: Path) -> Held | None:
    """Return what the folder of a study tells of itself; None where it is no such folder."""
    path = out / RECORD
    if not is_there(path):
        for name, kind in _EARLIER.items():
            if is_there(out / name):
                raise RunError(
                    f"{out} holds a {kind} that an earlier version wrote ({name}), which this one can't go on with. "
                    "Choose another folder with --out; its runs can still be compared, each by its own folder."
                )
        return None
    try:
        told = foreign.json_value(foreign.read_plain(path, largest=_LARGEST), largest=_LARGEST, finite=False)
        return _read(told)
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ConfigError, WireError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(
            f"{path} is damaged, so nothing tells which runs {out} holds. Choose another folder with --out, or begin "
            "anew with --force."
        ) from error


def claim(out: Path, study: Study, *, force: bool) -> None:
    """Write down which runs the folder holds; what does not fit those it holds already is refused."""
    if is_there(out / JOURNAL):
        raise RunError(f"{out} is the folder of a run, not of a {study.kind}. Choose another with --out.")
    if force:
        _clear(out, study)
    before = None if force else held(out)
    if before is not None:
        _refuse_another(out, before.study, study)
    known = {} if before is None else {run.name: run for run in before.study.runs}
    for run in study.runs:
        if run.name not in known and is_there(place_of(out, run)):
            raise RunError(
                f"{place_of(out, run)} is there, though {out / RECORD} does not tell of it. Choose another folder with "
                "--out, or begin anew with --force."
            )
    runs = tuple((known | {run.name: run for run in study.runs}).values())
    now = Held(study=replace(study, runs=runs), together=1 if before is None else before.together)
    if now != before:
        _write(out, now)


def most_together(out: Path, now: int) -> int:
    """Return how many runs of the folder went on at a time, at the most, if this session has ``now``."""
    before = held(out)
    if before is None:
        return now
    if now > before.together:
        _write(out, replace(before, together=now))
    return max(now, before.together)


def _read(told: Mapping[str, Any]) -> Held:
    if told["kind"] not in get_args(Kind):
        raise ValueError(told["kind"])
    runs = tuple(
        PlannedRun(
            name=str(run["name"]),
            values=dict(run["values"]),
            seed=None if run["seed"] is None else int(run["seed"]),
            settings=dict(run["settings"]),
            rounds=int(run["rounds"]),
        )
        for run in told["runs"]
    )
    if any(Path(run.name).name != run.name or run.name in ("", "..") for run in runs):
        raise ValueError("a run's name is no folder's")
    by = tuple(map(str, told["by"]))
    if any(key not in run.values for run in runs for key in by):
        raise ValueError("a run does not say where it stands")
    study = Study(kind=told["kind"], by=by, runs=runs, notes=tuple(map(str, told.get("notes", ()))))
    return Held(study=study, together=int(told.get("together", 1)))


def _write(out: Path, now: Held) -> None:
    told = asdict(now.study) | {"together": now.together}
    write_atomically(out / RECORD, json.dumps(told, indent=2).encode() + b"\n", advice=_ADVICE)


def _refuse_another(out: Path, before: Study, now: Study) -> None:
    """Refuse a study whose runs can't stand beside those that the folder holds."""
    if before.kind != now.kind:
        raise RunError(f"{out} is the folder of a {before.kind}, not of a {now.kind}. Choose another with --out.")
    if before.by != now.by:
        raise RunError(
            f"{out} holds another {now.kind}: it is over {', '.join(before.by)}, and this one over "
            f"{', '.join(now.by)}. {_WAYS_OUT}"
        )
    namesakes = {run.name: run for run in before.runs}
    alike = {before.label(run): run for run in before.runs}
    for run in now.runs:
        free: set[str] = set()
        other = namesakes.get(run.name)
        if other is None:  # a new run: as those at its point, but for the seed, and in a grid as those at other points
            free = {"seed", *now.by}
            other = alike.get(now.label(run)) or (before.runs[0] if now.kind == "sweep" else None)
        if other is not None:
            _refuse_changes(out, now.kind, run, other, free)


def _refuse_changes(out: Path, kind: Kind, now: PlannedRun, before: PlannedRun, free: set[str]) -> None:
    then, today = dict(flat(before.settings)), dict(flat(now.settings))
    changed = [
        f"{key} was {_shown(then.get(key))} and is now {_shown(today.get(key))}"
        for key in dict.fromkeys([*then, *today])
        if key not in free and then.get(key) != today.get(key)
    ]
    if changed:
        raise RunError(f"{out} holds another {kind}: in {before.name}, {'; '.join(changed)}. {_WAYS_OUT}")


def _shown(value: Any) -> str:
    return "not given" if value is None else str(value)


def _clear(out: Path, study: Study) -> None:
    """Take away the runs that the folder tells of, and those of ours; nothing else."""
    told: tuple[PlannedRun, ...] = ()
    if is_there(out / RECORD):
        try:
            before = held(out)
        except RunError:  # damaged
            before = None
        if before is not None:
            if before.study.kind != study.kind:
                _refuse_another(out, before.study, study)
            told = before.study.runs
    else:
        held(out)  # an earlier version's is left alone
    for run in (*told, *study.runs):
        folder = place_of(out, run)
        if is_there(folder / JOURNAL) or is_there(folder / CONFIG):
            try:
                shutil.rmtree(folder)
            except OSError as error:
                raise cannot_write(folder, error, _ADVICE) from error
