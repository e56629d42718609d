"""The record of a comparison's folder: which runs it holds, and with which settings they were begun."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.errors import RunError, WireError
from tacit.modes.scope import flat
from tacit.runs.folder import CONFIG, JOURNAL
from tacit.storage import cannot_read, cannot_write, is_there, write_atomically
from tacit.studies.plan import Plan
from tacit.studies.sweep import RECORD as SWEEP

RECORD = "asked.json"

_LARGEST = 1 << 27  # bytes
_ADVICE = "Free some space, or choose another folder with --out; the same command goes on with what has begun."


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a comparison's folder tells of itself."""

    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> the settings it was begun with
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # mode -> dotted keys over the shared settings
    notes: tuple[str, ...] = ()
    together: int = 1  # how many runs went on at a time, at the most


def held(out: Path) -> Asked | None:
    """Return what a comparison's folder tells of itself; None where it is no such folder."""
    path = out / RECORD
    if not is_there(path):
        return None
    try:
        told = foreign.json_value(foreign.read_plain(path, largest=_LARGEST), largest=_LARGEST, finite=False)
        return Asked(
            runs={str(name): dict(settings) for name, settings in told["runs"].items()},
            own={str(mode): dict(settings) for mode, settings in told.get("own", {}).items()},
            notes=tuple(map(str, told.get("notes", ()))),
            together=int(told.get("together", 1)),
        )
    except OSError as error:
        raise cannot_read(path, error) from error
    except (WireError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(
            f"{path} is damaged, so nothing tells which comparison {out} holds. Choose another folder with --out, or "
            "begin anew with --force."
        ) from error


def claim(out: Path, plan: Plan, *, force: bool) -> None:
    """Write down which runs the folder holds; what does not fit those it holds already is refused."""
    runs = plan.runs
    if is_there(out / JOURNAL) or is_there(out / SWEEP):
        kind = "run" if is_there(out / JOURNAL) else "sweep"
        raise RunError(f"{out} is the folder of a {kind}, not of a comparison. Choose another with --out.")
    ours = {run.name: {key: value for key, value in run.settings.items() if key != "out"} for run in runs}
    if force:
        _clear(out, ours)
        before = Asked()
    else:
        before = held(out) or Asked()
        for run in runs:
            if run.name not in before.runs and is_there(run.folder):
                raise RunError(
                    f"{run.folder} is there, though {out / RECORD} does not tell of it. Choose another folder with "
                    "--out, or begin anew with --force."
                )
            _refuse_changes(out, run.name, before.runs.get(run.name), ours[run.name])
    now = replace(before, runs={**before.runs, **ours}, own={**before.own, **plan.own}, notes=plan.notes)
    if now != before:
        _write(out, now)


def most_together(out: Path, now: int) -> int:
    """Return how many runs of the folder went on at a time, at the most, if this session has ``now``."""
    before = held(out) or Asked()
    if now > before.together:
        _write(out, replace(before, together=now))
    return max(now, before.together)


def _write(out: Path, record: Asked) -> None:
    write_atomically(out / RECORD, json.dumps(asdict(record), indent=2).encode() + b"\n", advice=_ADVICE)


def _refuse_changes(out: Path, name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    if before is None:
        return
    then, today = dict(flat(before)), dict(flat(now))
    changed = [
        f"{key} was {_shown(then.get(key))} and is now {_shown(today.get(key))}"
        for key in dict.fromkeys([*then, *today])
        if then.get(key) != today.get(key)
    ]
    if changed:
        raise RunError(
            f"{out} holds another comparison: in {name}, {'; '.join(changed)}. Give the same settings to go on with "
            "it, choose another folder with --out, or begin anew with --force."
        )


def _shown(value: Any) -> str:
    return "not given" if value is None else str(value)


def _clear(out: Path, ours: Mapping[str, Any]) -> None:
    """Take away the runs that the folder tells of, and those of ours; nothing else."""
    try:
        before = held(out) or Asked()
    except RunError:
        before = Asked()
    for name in {*before.runs, *ours}:
        folder = out / name
        if is_there(folder / JOURNAL) or is_there(folder / CONFIG):
            try:
                shutil.rmtree(folder)
            except OSError as error:
                raise cannot_write(folder, error, _ADVICE) from error
