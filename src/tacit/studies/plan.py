"""What is to be compared, and which runs that takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit import limits
from tacit.config import overrides
from tacit.config import run_config as configuration
from tacit.config.defaults import resolve
from tacit.errors import ConfigError
from tacit.modes.budget import EPSILON, lacks_budget, note
from tacit.modes.plans import MODES, plan_of, unknown_mode
from tacit.modes.scope import flat, meant_for
from tacit.studies.pool import Planned, with_values

FIRST_SEED = 1

_NOISIEST, _GRADIENT = "local-dp", 1.0  # under the noise of few clients' messages steps grow beyond what floats hold
_OWN_BUDGET = {"signds": "signds.sign_eps and signds.rr_eps", "nbafl": "nbafl.epsilon, nbafl.w_clip and nbafl.constant"}


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
            if mode not in MODES:
                raise unknown_mode(mode)
        twice = [mode for mode in dict.fromkeys(self.modes) if self.modes.count(mode) > 1]
        if twice:
            raise ConfigError(
                f"The mode {twice[0]} was given more than once. To compare one mode with itself under other settings, "
                "make the runs with `tacit run` and give their folders to `tacit compare`."
            )
        if not 1 <= self.seeds <= limits.SEEDS:
            raise ConfigError(f"Expected seeds from 1 to {limits.SEEDS:,}, got {self.seeds}.")


@dataclass(frozen=True, kw_only=True)
class PlannedRun(Planned):
    """One run of a comparison."""

    name: str
    mode: str
    seed: int
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every run of a comparison, and what people should know of how its settings came about."""

    runs: tuple[PlannedRun, ...]
    own: Mapping[str, Mapping[str, Any]]  # mode -> dotted keys it has over the shared settings
    notes: tuple[str, ...]


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


def plan(order: Order, *, out: Path) -> Plan:
    """Return the runs that ``order`` asks for; settings that can't be are refused here, before anything runs."""
    shared: dict[str, Any] = {}
    overrides.merge(shared, json.loads(json.dumps(dict(order.shared), default=str)))
    for key in ("mode", "out"):
        shared.pop(key, None)
    seed = configuration.from_mapping(shared).seed  # a key that does not exist is refused here
    first = FIRST_SEED if seed is None else seed
    if (shared.get("federate") or {}).get(
        "rounds"
    ) is None:  # modes differ in theirs by default; here all have the same
        usual = [resolve(configuration.from_mapping({"mode": mode})).federate.rounds for mode in order.modes]
        overrides.put(shared, "federate.rounds", max(usual))
    runs: list[PlannedRun] = []
    budgeted: list[str] = []
    steadied = False
    unused: set[str] | None = None
    own: dict[str, dict[str, Any]] = {}
    for mode in order.modes:
        settings, left = meant_for(mode, shared)
        unused = set(left) if unused is None else unused & set(left)
        mine: dict[str, Any] = {}
        overrides.merge(mine, json.loads(json.dumps(dict(order.own.get(mode, {})), default=str)))
        _displace(settings, mine)
        overrides.merge(settings, mine)
        if lacks_budget(mode, settings):
            overrides.put(settings, "dp.epsilon", EPSILON)
            budgeted.append(mode)
        if mode == _NOISIEST and (settings.get("optimizer") or {}).get("grad_clip") is None:
            overrides.put(settings, "optimizer.grad_clip", _GRADIENT)
            steadied = True
        own[mode] = dict(flat(mine))
        rounds = _check(mode, settings)
        for step in range(order.seeds):
            name = f"{mode}-seed-{first + step}"
            runs.append(
                PlannedRun(
                    index=len(runs),
                    settings=with_values(settings, {"mode": mode, "seed": first + step, "out": str(out / name)}),
                    folder=out / name,
                    name=name,
                    mode=mode,
                    seed=first + step,
                    rounds=rounds,
                )
            )
    notes = _notes(order.modes, budgeted, sorted(unused or ()))
    if steadied:
        notes.append(f"{_NOISIEST}: optimizer.grad_clip={_GRADIENT:g}, so that clients can train under its noise.")
    return Plan(runs=tuple(runs), own=own, notes=tuple(notes))


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
        plan_of(config, config.federate.clients or 1)
    except ConfigError as error:
        raise ConfigError(f"Mode {mode}: {error} A setting of one mode alone is written {mode}:KEY=VALUE.") from error
    return config.federate.rounds


def _notes(modes: Sequence[str], budgeted: Sequence[str], unused: Sequence[str]) -> list[str]:
    notes = []
    if budgeted:
        notes.append(note(budgeted))
    notes += [
        f"{mode}: epsilon follows from {_OWN_BUDGET[mode]}; no budget sets them."
        for mode in modes
        if mode in _OWN_BUDGET
    ]
    if unused:
        notes.append(f"{', '.join(unused)}: no effect in any of these modes.")
    return notes
