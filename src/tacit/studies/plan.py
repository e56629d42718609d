"""Many runs as one value: a study, planned from the axes of a grid or from modes that are compared."""

from __future__ import annotations

import itertools
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tacit import foreign, limits
from tacit.config import overrides
from tacit.config import run_config as configuration
from tacit.errors import ConfigError, WireError
from tacit.modes import images
from tacit.modes.catalogue import MODES, mode_of, plan_of, resolve
from tacit.modes.settings import EPSILON, meant_for, note, recipe

Kind = Literal["sweep", "comparison"]

FIRST_SEED = 1
MOST = 10_000  # runs of a grid

FORMS = "a:b:n (n values from a to b), log:a:b:n (by equal factors) or a,b,c (a list)"

_LONGEST = 100  # characters of a folder's name
_SOME = 1000  # clients, where the data will tell how many there are


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a study."""

    name: str  # its folder below `runs/`
    values: Mapping[
        str, Any
    ]  # dotted keys that set it apart: its point of the grid, or its mode and what that alone has
    seed: int | None
    settings: Mapping[str, Any]  # all of them, nested; every run has a folder of its own, so there is no `out`
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Study:
    """Runs that are made together and read together; make one with :func:`of_grid` or :func:`of_modes`."""

    kind: Kind
    by: tuple[str, ...]  # the keys that tell its runs apart, beside the seed
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()  # what people should know of how the settings came about

    def __post_init__(self) -> None:
        names = [run.name for run in self.runs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"Two runs of a study would share the folder {twice}. Give every value once.")

    def entries(self) -> dict[str, list[int]]:
        """Return the places of the runs that differ by their seed alone, by what people call them."""
        found: dict[str, list[int]] = {}
        for place, run in enumerate(self.runs):
            found.setdefault(self.label(run), []).append(place)
        return found

    def label(self, run: PlannedRun) -> str:
        """Return what people call a run and its repeats: its mode, or its point of the grid."""
        if self.by == ("mode",):
            return str(run.values["mode"])
        return ", ".join(f"{key}={run.values[key]}" for key in self.by)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A setting and the values it takes, in order."""

    key: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError(f"The axis {self.key} has no values. Expected {FORMS}.")
        for value in self.values:
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"The axis {self.key} has the value {value}; expected finite numbers.")
        if len(set(map(repr, self.values))) < len(self.values):
            raise ConfigError(f"The axis {self.key} has a value more than once: {', '.join(map(str, self.values))}.")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be compared: the modes, the settings they share, and those of one mode alone."""

    modes: tuple[str, ...]
    seeds: int = 1
    shared: Mapping[str, Any] = field(default_factory=dict)  # nested, as a job file has them
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # mode -> nested settings over the shared ones

    def __post_init__(self) -> None:
        if not self.modes:
            raise ConfigError(f"Expected modes to compare, such as --modes plain,dp. There are: {', '.join(MODES)}.")
        for mode in (*self.modes, *self.own):
            mode_of(mode)  # refuses one that does not exist
        twice = [mode for mode in dict.fromkeys(self.modes) if self.modes.count(mode) > 1]
        if twice:
            raise ConfigError(
                f"The mode {twice[0]} was given more than once. To compare one mode with itself under other settings, "
                "make the runs with `tacit run` and give their folders to `tacit compare`."
            )
        if not 1 <= self.seeds <= limits.SEEDS:
            raise ConfigError(f"Expected seeds from 1 to {limits.SEEDS:,}, got {self.seeds}.")


def with_values(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with some dotted keys set; ``settings`` stay as they are."""
    full = {key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    for key, value in values.items():
        overrides.put(full, key, value)
    return full


def of_grid(base: Mapping[str, Any], axes: Sequence[Axis], *, seeds: int = 1) -> Study:
    """Plan every combination of the axes' values, the last axis fastest; what can't be is refused here.

    Args:
        base: the settings that all points share; an axis goes before them.
        axes: what varies.
        seeds: how often each point is run: with the seed of ``base`` (0 where it has none) and those that follow it.
    """
    settings = _plain(base)
    _check_axes(axes, seeds)
    keys = tuple(axis.key for axis in axes)
    start = {axis.key: axis.values[0] for axis in axes}
    for axis in axes:
        for value in axis.values:  # settings are checked one by one, so the combinations need no check of their own
            configuration.from_mapping(with_values(settings, start | {axis.key: value}))
    seed = configuration.from_mapping(settings).seed
    repeats = [seed] if seeds == 1 else [(seed or 0) + step for step in range(seeds)]
    lengths: dict[str, int] = {}
    runs = []
    for *chosen, again in itertools.product(*(axis.values for axis in axes), repeats):
        values = dict(zip(keys, chosen, strict=True))
        drawn = values.get("seed", again)
        full = with_values(settings, values | {"seed": drawn})
        deciding = repr((full.get("mode"), full.get("single_holder"), (full.get("federate") or {}).get("rounds")))
        if deciding not in lengths:
            lengths[deciding] = resolve(configuration.from_mapping(full)).federate.rounds
        name = _name(values | ({} if drawn is None else {"seed": drawn}))
        runs.append(PlannedRun(name=name, values=values, seed=drawn, settings=full, rounds=lengths[deciding]))
    return Study(kind="sweep", by=keys, runs=tuple(runs))


def _check_axes(axes: Sequence[Axis], seeds: int) -> None:
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
    number = math.prod(len(axis.values) for axis in axes) * seeds
    if number > MOST:
        raise ConfigError(
            f"The grid has {number:,} points; a sweep has at most {MOST:,}. Take fewer values for each axis."
        )


def _name(values: Mapping[str, Any]) -> str:
    """Return a point's folder: its values, and a checksum of them where a file's name can't hold them as they are.

    >>> _name({"dp.clip": 0.5, "seed": 1}), _name({"model.name": "my.models:Net"})
    ('dp.clip=0.5_seed=1', 'model.name=my.models-Net-bc4e8f6c')
    """
    words = "_".join(f"{key}={value}" for key, value in values.items())
    plain = re.sub(r"[^A-Za-z0-9.=+_-]", "-", words)
    if plain == words and len(words) <= _LONGEST:
        return words
    return f"{plain[:_LONGEST]}-{zlib.crc32(words.encode()):08x}"


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of shared settings as JSON keeps them, without a folder."""
    copied: dict[str, Any] = {}
    overrides.merge(copied, json.loads(json.dumps(dict(settings), default=str)))
    copied.pop("out", None)
    return copied


def order_of(
    settings: Mapping[str, Any],
    *,
    modes: Sequence[str] | None = None,
    seeds: int | None = None,
    words: Sequence[str] = (),
) -> Order:
    """Return the order that nested settings give, as a job file has them.

    Beside the settings of a run a job file may have ``seeds`` and ``modes``: a list, or a mapping from each mode to
    settings of its own.

    >>> order = order_of({"modes": {"plain": None, "dp": {"optimizer": {"lr": 0.1}}}, "seeds": 3})
    >>> order.modes, order.own["dp"]
    (('plain', 'dp'), {'optimizer': {'lr': 0.1}})

    Args:
        settings: what all modes share, and perhaps ``modes`` and ``seeds``.
        modes: the modes; before those of the settings.
        seeds: how many seeds; before that of the settings.
        words: settings of one mode each, such as ``dp:optimizer.lr=0.1``.
    """
    shared = dict(settings)
    named = shared.pop("modes", None)
    asked_seeds = shared.pop("seeds", None) if seeds is None else seeds
    shared.pop("seeds", None)
    if isinstance(named, str):
        named = [name.strip() for name in named.split(",") if name.strip()]
    if not (named is None or isinstance(named, list | tuple | Mapping)):
        raise ConfigError(f"Expected modes as a list or as a mapping from modes to settings, got {named!r}.")
    if not (asked_seeds is None or (isinstance(asked_seeds, int) and not isinstance(asked_seeds, bool))):
        raise ConfigError(f"seeds={asked_seeds!r} does not work: expected a whole number.")
    own: dict[str, dict[str, Any]] = {}
    for name, values in named.items() if isinstance(named, Mapping) else ():
        if not (values is None or isinstance(values, Mapping)):
            raise ConfigError(f"Expected settings such as {{optimizer: {{lr: 0.1}}}} for modes.{name}, got {values!r}.")
        overrides.merge(own.setdefault(str(name), {}), values or {})
    for word in words:
        name, _, setting = word.partition(":")
        overrides.merge(own.setdefault(name.strip(), {}), overrides.parse([setting]))
    chosen = tuple(map(str, named or ())) if modes is None else tuple(modes)
    for name in own:
        if name in MODES and name not in chosen and modes is None:
            raise ConfigError(f"{name} has settings of its own, but is not among the modes {', '.join(chosen)}.")
    return Order(modes=chosen, seeds=1 if asked_seeds is None else asked_seeds, shared=shared, own=own)


def of_modes(order: Order) -> Study:
    """Plan the runs that ``order`` asks for; settings that can't be are refused here, before anything runs."""
    shared = _plain(order.shared)
    shared.pop("mode", None)
    seed = configuration.from_mapping(shared).seed  # a key that does not exist is refused here
    first = FIRST_SEED if seed is None else seed
    everyones = _for_images(order.modes, shared)
    if (shared.get("federate") or {}).get("rounds") is None:
        # modes differ in theirs by default; here all have the same
        usual = [resolve(configuration.from_mapping({"mode": mode})).federate.rounds for mode in order.modes]
        overrides.put(shared, "federate.rounds", max(usual))
    runs: list[PlannedRun] = []
    budgeted: list[str] = []
    steadied: list[str] = []
    unused: set[str] | None = None
    for mode in order.modes:
        settings, left = meant_for(mode, shared)
        unused = set(left) if unused is None else unused & set(left)
        own = _plain(order.own.get(mode, {}))
        _displace(settings, own)
        overrides.merge(settings, own)
        asked = mode_of(mode)
        if asked.lacks_budget(settings):
            overrides.put(settings, "dp.epsilon", EPSILON)
            budgeted.append(mode)
        if asked.grad_clip is not None and (settings.get("optimizer") or {}).get("grad_clip") is None:
            overrides.put(settings, "optimizer.grad_clip", asked.grad_clip)
            setting = f"optimizer.grad_clip={asked.grad_clip:g}"
            steadied.append(f"{mode}: {setting}, so that clients can train under its noise.")
        if everyones and asked.private(settings):
            data = configuration.from_mapping(settings).data.name
            _complete(settings, asked.images.get(data, {}), but=images.SHARED)
        rounds = _check(mode, settings)
        runs += [
            PlannedRun(
                name=f"{mode}-seed-{first + step}",
                values={"mode": mode, **dict(overrides.flat(own))},
                seed=first + step,
                settings=with_values(settings, {"mode": mode, "seed": first + step}),
                rounds=rounds,
            )
            for step in range(order.seeds)
        ]
    notes = everyones + _notes(order.modes, budgeted, sorted(unused or ())) + steadied
    return Study(kind="comparison", by=("mode",), runs=tuple(runs), notes=tuple(notes))


def _for_images(modes: Sequence[str], shared: dict[str, Any]) -> list[str]:
    """Give all modes the data, model and clients that suit the first private one where nothing was said of them."""
    for mode in modes:
        asked = recipe(configuration.from_mapping(with_values(shared, {"mode": mode})))
        if asked:
            _complete(shared, {key: asked[key] for key in images.SHARED if key in asked}, but=())
            return [
                f"All modes have the features, model, clients and rounds that suit {mode} on images: noise is paid per "
                "parameter. How far each mode moves per round is its own."
            ]
    return []


def _complete(settings: dict[str, Any], suits: Mapping[str, Any], but: Sequence[str]) -> None:
    """Put in what suits, where nothing was set."""
    there = dict(overrides.flat(settings))
    for key, value in suits.items():
        if key not in there and key not in but:
            overrides.put(settings, key, value)


def _displace(shared: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Take a shared budget away where the mode has a noise of its own, and the other way round: only one can be set."""
    for section in ("dp", "dpsgd"):
        mine = own.get(section) or {}
        for key, other in (("noise", "epsilon"), ("epsilon", "noise")):
            if mine.get(key) is not None and mine.get(other) is None:
                (shared.get(section) or {}).pop(other, None)


def _check(mode: str, settings: dict[str, Any]) -> int:
    """Refuse settings that the mode can't have, and return its rounds."""
    try:
        config = resolve(configuration.from_mapping(with_values(settings, {"mode": mode})))
        plan_of(config, config.federate.clients or _SOME)
    except ConfigError as error:
        raise ConfigError(f"Mode {mode}: {error} A setting of one mode alone is written {mode}:KEY=VALUE.") from error
    return config.federate.rounds


def _notes(modes: Sequence[str], budgeted: Sequence[str], unused: Sequence[str]) -> list[str]:
    notes = []
    if budgeted:
        notes.append(note(budgeted))
    notes += [
        f"{mode}: epsilon follows from {source}; no budget sets them."
        for mode in modes
        if (source := mode_of(mode).epsilon_from) is not None
    ]
    if unused:
        notes.append(f"{', '.join(unused)}: no effect in any of these modes.")
    return notes


def parse_axes(words: Sequence[str]) -> tuple[list[Axis], list[str]]:
    """Return the axes among the words of a command line, and the other words.

    >>> axes, rest = parse_axes(["job.yaml", "dp.clip=0.1:0.5:3", "dp.noise=log:0.1:10:3", "mode=dp,local-dp"])
    >>> for axis in axes:
    ...     print(axis.key, axis.values)
    dp.clip (0.1, 0.3, 0.5)
    dp.noise (0.1, 1.0, 10.0)
    mode ('dp', 'local-dp')
    >>> rest
    ['job.yaml']
    """
    axes: list[Axis] = []
    others: list[str] = []
    known = set(configuration.known_keys())
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        key, equals, text = word.partition("=")
        taken = [word]
        if not equals and word in known and waiting:
            text = waiting.pop(0)
            taken.append(text)
        values = _values(key.strip(), text)
        if values is None:
            others += taken
        else:
            axes.append(Axis(key=key.strip(), values=values))
    return axes, others


def _values(key: str, text: str) -> tuple[Any, ...] | None:
    """Return the values of an axis, or None where the text is a plain value such as ``dirichlet:0.3``."""
    if "," in text and text.lstrip()[0] not in "[{'\"":
        return tuple(_scalar(key, part) for part in text.split(","))
    first, *rest = text.split(":")
    if first.strip() == "log" and rest:
        return _range(key, text, rest, logarithmic=True)
    if len(rest) == 2 or (rest and _is_number(first)):
        return _range(key, text, [first, *rest], logarithmic=False)
    return None


def _range(key: str, text: str, parts: list[str], *, logarithmic: bool) -> tuple[Any, ...]:
    """Return values at equal distances, or at equal factors."""
    wrong = f"{key}={text} is no range: expected {FORMS}"
    try:
        first, last, number = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        raise ConfigError(f"{wrong}.") from None
    if len(parts) != 3 or not (math.isfinite(first) and math.isfinite(last)):
        raise ConfigError(f"{wrong}, with finite numbers.")
    if not 1 <= number <= MOST:
        raise ConfigError(f"{wrong}, with n from 1 to {MOST:,}; got n = {number}.")
    if logarithmic and min(first, last) <= 0:
        raise ConfigError(f"{wrong}, and above 0 where it is logarithmic.")
    shares = [step / max(number - 1, 1) for step in range(number)]
    if logarithmic:
        found = [math.exp(math.log(first) * (1 - share) + math.log(last) * share) for share in shares]
    else:
        found = [first * (1 - share) + last * share for share in shares]
    values = [float(f"{value:.12g}") for value in found]  # 0.3, not 0.30000000000000004
    written_whole = not logarithmic and all(part.strip().lstrip("+-").isdecimal() for part in parts[:2])
    if written_whole and all(value.is_integer() for value in values):
        return tuple(int(value) for value in values)
    return tuple(values)


def _scalar(key: str, text: str) -> Any:
    """Return one value of a list; 1e-5 is a number, unlike in YAML."""
    text = text.strip()
    if not text:
        raise ConfigError(f"The axis {key} has an empty value. Expected {FORMS}.")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    try:
        value = foreign.yaml_value(text)
    except WireError as error:
        raise ConfigError(f"The axis {key} has the value {text!r}, which YAML does not understand: {error}") from error
    if not (value is None or isinstance(value, str | bool)):
        raise ConfigError(f"The axis {key} has the value {text!r}; expected a number or a word.")
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
