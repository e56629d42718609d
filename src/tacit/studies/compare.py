"""A study as a comparison: modes, or finished runs, side by side on the same data, split, model and seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.config import run_config as configuration
from tacit.config.overrides import flat
from tacit.errors import ConfigError, RunError, TacitError
from tacit.runs.folder import CONFIG, RESULT, config_of, must_have_begun, records_of
from tacit.runs.journal import Round
from tacit.runs.remarks import ON_CHOICE
from tacit.runs.result import Result
from tacit.runs.run import GIVEN
from tacit.storage import is_folder, is_there
from tacit.studies.folder import Held, held, place_of
from tacit.studies.plan import Study
from tacit.studies.pool import OnDone, OnRound, finished, perform
from tacit.studies.results import Comparison, Entry, Repeat

_UNSEEN = (
    "Some runs were trained on data that were given in memory: whether they are the same data can't be told from their "
    "folders."
)
_SEEDED = re.compile(r"[-_. ]?seed[-_=. ]?[0-9]+$")
_TRAINING = ("data", "model", "train", "optimizer", "server", "federate")  # sections that say how a model is trained
_NO_MATTER = {"seed", "out", "train.workers", "log"}  # two runs that differ in these alone repeat each other


def compare(
    study: Study,
    *,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    on_done: OnDone | None = None,
    on_round: OnRound | None = None,
) -> Comparison:
    """Make the runs of ``study`` that are not made yet, and return all of them side by side; see :func:`perform`."""
    made = perform(study, out=out, workers=workers, force=force, on_done=on_done, on_round=on_round)
    return _side_by_side(study, made.runs, at_a_time=made.together)


def _side_by_side(study: Study, runs: Sequence[Repeat], *, at_a_time: int) -> Comparison:
    """Return a study's runs, those of one mode or one point of a grid as an entry."""
    entries = []
    for name, places in study.entries().items():
        first = study.runs[places[0]]
        mode = configuration.from_mapping(first.settings).mode
        settings = {key: value for key, value in first.values.items() if key != "mode"}
        entries.append(Entry(name=name, mode=mode, settings=settings, runs=tuple(runs[place] for place in places)))
    return together(entries, notes=[*study.notes, *on_timing(at_a_time)])


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
    return Comparison(
        entries=tuple(entries), shared=shared, warnings=warnings, notes=tuple(notes), differing=differing(entries)
    )


def differing(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """Return the settings of training in which entries differ: each key with every entry's value.

    What a mode chooses for itself counts: a better rate of learning is no merit of a protection.
    """
    told: dict[str, dict[str, Any]] = {}
    for entry in entries:
        for run in entry.runs:
            with suppress(TacitError, OSError):
                values = flat(config_of(Path(run.folder)).model_dump(mode="json"))
                told[entry.name] = {key: value for key, value in values if key.partition(".")[0] in _TRAINING}
                break
    keys = dict.fromkeys(key for values in told.values() for key in values if key not in _NO_MATTER)
    return {
        key: {name: _value(values.get(key)) for name, values in told.items()}
        for key in keys
        if len({repr(values.get(key)) for values in told.values()}) > 1
    }


def _value(value: Any) -> str:
    return "not set" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def alike(entries: Sequence[Entry]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what all runs share, in words, and a warning for each thing they should share but do not."""
    shared: dict[str, str] = {}
    warnings: list[str] = []
    measured = [entry for entry in entries if entry.results]
    traits = {entry.name: _traits(entry) for entry in measured}
    for what in next(iter(traits.values()), {}):
        holders: dict[str, list[str]] = {}
        for name, own in traits.items():
            holders.setdefault(own[what], []).append(name)
        if len(holders) == 1:
            shared[what] = next(iter(holders))
        else:
            told = "; ".join(f"{value} in {', '.join(names)}" for value, names in holders.items())
            warnings.append(f"Not like for like: {what} differ: {told}.")
    if any(result.dataset == GIVEN for entry in measured for result in entry.results):
        warnings.append(_UNSEEN)
    for entry in measured:
        seeds = [result.seed for result in entry.results if result.seed is not None]
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if twice:
            warnings.append(
                f"{entry.name} has the seed {twice[0]} more than once: runs that repeat each other make its spread too "
                "small."
            )
    return shared, tuple(warnings)


def _traits(entry: Entry) -> dict[str, str]:
    """Return what has to be the same, in words; runs of one entry that differ show all their values."""

    def every(values: Sequence[object]) -> str:
        return " and ".join(dict.fromkeys(str(value) for value in values))

    results: Sequence[Result] = entry.results
    return {
        "data": every([result.dataset for result in results]),
        "split": every([result.split for result in results]),
        "clients": every([result.clients for result in results]),
        "clients per round": every([result.per_round for result in results]),
        "model": every([f"{result.model} ({result.parameters:,} parameters)" for result in results]),
        "rounds": every([len(result.rounds) for result in results]),
        "seeds": ", ".join(
            map(str, sorted({"random" if result.seed is None else str(result.seed) for result in results}, key=_order))
        ),
    }


def _order(seed: str) -> tuple[int, str]:
    return len(seed), seed


def compare_finished(folders: Sequence[Path]) -> Comparison:
    """Return finished runs side by side; runs with the same settings and other seeds are one entry.

    The folder of a study stands for all its runs; alone, it is the comparison that its command made, or could make.
    """
    if len(folders) == 1 and is_folder(folders[0]) and (told := held(folders[0])) is not None:
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
    told = held(folder)
    if told is None:
        return [folder]
    places = [place_of(folder, run) for run in told.study.runs]
    complete = [place for place in places if finished(place) is not None]
    if not complete:
        raise RunError(
            f"{folder} is a {told.study.kind}, none of whose runs is finished. Give its command again to go on."
        )
    return complete


def _again(folder: Path, told: Held) -> Comparison:
    """Return a study as its folder has it; runs that are not finished are shown as such."""
    _runs_in(folder)  # refuses one without any result
    runs = []
    for run in told.study.runs:
        place = place_of(folder, run)
        result = finished(place)
        error = None
        if result is None:
            error = f"It is not finished. Give the {told.study.kind}'s command again to go on."
        runs.append(Repeat(name=run.name, folder=str(place), seed=run.seed, result=result, error=error))
    return _side_by_side(told.study, runs, at_a_time=told.together)


def _result(folder: Path) -> Result:
    result = finished(folder)
    if result is not None:
        return result
    must_have_begun(folder)
    if is_there(folder / RESULT):
        raise RunError(f"{folder / RESULT} is damaged. Mend it by `tacit resume {folder}`.")
    done = sum(isinstance(record, Round) for record in records_of(folder))
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
