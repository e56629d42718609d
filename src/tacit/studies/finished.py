"""Finished runs side by side, from their folders."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.config import run_config as configuration
from tacit.errors import ConfigError, RunError
from tacit.modes.scope import flat
from tacit.runs.folder import CONFIG, RESULT, must_have_begun, records_of
from tacit.runs.result import Result
from tacit.storage import is_folder, is_there
from tacit.studies import folder as asked
from tacit.studies.compare import on_timing, together
from tacit.studies.comparison import Comparison, Entry, Repeat
from tacit.studies.pool import finished

_SEEDED = re.compile(r"[-_. ]?seed[-_=. ]?[0-9]+$")
_NO_MATTER = {"seed", "out", "train.workers", "log"}  # two runs that differ in these alone repeat each other


def compare_finished(folders: Sequence[Path]) -> Comparison:
    """Return finished runs side by side; runs with the same settings and other seeds are one entry.

    The folder of a comparison stands for all its runs; alone, it is the comparison as its command made it.
    """
    if len(folders) == 1 and is_folder(folders[0]) and (told := asked.held(folders[0])) is not None:
        return _again(folders[0], told)
    places = [place for folder in folders for place in _runs_in(folder)]
    whole = [place.resolve() for place in places]
    for place, there in zip(places, whole, strict=True):
        if whole.count(there) > 1:
            raise ConfigError(f"{place} was given more than once.")
    names = _names(places)
    groups: dict[str, list[Repeat]] = {}
    modes: dict[str, str] = {}
    for place in places:
        result = _result(place)
        key = _settings(place)
        modes[key] = result.mode
        groups.setdefault(key, []).append(Repeat(name=names[place], folder=str(place), seed=result.seed, result=result))
    entries = []
    for key, runs in groups.items():
        alone = list(modes.values()).count(modes[key]) == 1
        entries.append(Entry(name=modes[key] if alone else _common(runs), mode=modes[key], runs=tuple(runs)))
    return together(entries)


def _runs_in(folder: Path) -> list[Path]:
    if not is_folder(folder):
        raise RunError(f"There is no folder {folder}. Expected the folder of a finished run.")
    named = asked.held(folder)
    if named is None:
        return [folder]
    complete = [folder / name for name in named.runs if finished(folder / name) is not None]
    if not complete:
        raise RunError(f"{folder} is a comparison, none of whose runs is finished. Give its command again to go on.")
    return complete


def _again(folder: Path, told: asked.Asked) -> Comparison:
    """Return a comparison as its folder has it; runs that are not finished are shown as such."""
    _runs_in(folder)  # refuses one without any result
    groups: dict[str, list[Repeat]] = {}
    for name, settings in told.runs.items():
        result = finished(folder / name)
        error = None if result is not None else "It is not finished. Give the comparison's command again to go on."
        groups.setdefault(str(settings.get("mode")), []).append(
            Repeat(name=name, folder=str(folder / name), seed=settings.get("seed"), result=result, error=error)
        )
    entries = [
        Entry(name=mode, mode=mode, runs=tuple(runs), settings=told.own.get(mode, {})) for mode, runs in groups.items()
    ]
    return together(entries, notes=[*told.notes, *on_timing(told.together)])


def _result(folder: Path) -> Result:
    result = finished(folder)
    if result is not None:
        return result
    must_have_begun(folder)
    if is_there(folder / RESULT):
        raise RunError(f"{folder / RESULT} is damaged. Mend it by `tacit resume {folder}`.")
    done = sum(record["type"] == "round" for record in records_of(folder))
    raise RunError(f"{folder} is not finished: {done} rounds are done. Finish it first: tacit resume {folder}")


def _settings(folder: Path) -> str:
    """Return what has to be the same in two runs that repeat each other."""
    path = folder / CONFIG
    if not is_there(path):
        return str(folder.resolve())  # nothing is known of it, so it repeats no other
    values: dict[str, Any] = dict(flat(configuration.from_yaml(path)))
    return json.dumps({key: value for key, value in sorted(values.items()) if key not in _NO_MATTER}, default=str)


def _names(places: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each folder: its last part, and as much of what is before as it takes to tell them apart."""
    parts = {place: place.resolve().parts for place in places}
    names = {}
    for place in places:
        length = 1
        while any(other != place and parts[other][-length:] == parts[place][-length:] for other in places):
            length += 1
        names[place] = "/".join(parts[place][-length:])
    return names


def _common(runs: Sequence[Repeat]) -> str:
    """Return the name of a group: that of its only run, or what their names have in common beside the seed."""
    if len(runs) == 1:
        return runs[0].name
    stems = {_SEEDED.sub("", run.name) for run in runs}
    return stems.pop() if len(stems) == 1 else ", ".join(run.name for run in runs)
