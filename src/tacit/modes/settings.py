"""Which of the settings that several modes share each is meant to have, and the budget of one that was given none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tacit.config import overrides, run_config
from tacit.config.run_config import RunConfig
from tacit.modes.catalogue import MODES, mode_of
from tacit.modes.mode import Settings

EPSILON = 8.0


def meant_for(mode: str, settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """Return those of the shared settings that mean something to ``mode``, and the dotted keys of the others.

    >>> meant_for("plain", {"dp": {"epsilon": 8}, "optimizer": {"lr": 0.1}})
    ({'optimizer': {'lr': 0.1}}, ['dp.epsilon'])
    """
    meant = _meaning(mode, settings)
    kept: dict[str, Any] = {}
    left: list[str] = []
    for key, value in overrides.flat(settings):
        if meant(key):
            overrides.put(kept, key, value)
        else:
            left.append(key)
    return kept, left


def known_keys(config: RunConfig) -> list[str]:
    """Return the dotted keys that mean something to the configuration's mode.

    >>> known = known_keys(RunConfig(mode="dp"))
    >>> "dp.clip" in known, "dp.mechanism" in known, "paillier.bits" in known
    (True, False, False)
    """
    return list(filter(_meaning(config.mode, config), run_config.known_keys()))


def _meaning(name: str, settings: Settings | RunConfig) -> Callable[[str], bool]:
    """Return what says whether a key means something to a mode."""
    mode = mode_of(name)
    known = {f"dp.{key}" for key in mode.known_dp(settings)}
    others = {one.section for one in MODES.values()} - {mode.section}
    batches = {one.batch_size for one in MODES.values()} - {mode.batch_size}

    def meant(key: str) -> bool:
        section = key.partition(".")[0]
        if section == "dp":
            return key in known
        if key == "federate.minimum_clients":
            return not mode.central  # which releases every round
        return section not in others and key not in batches

    return meant


def note(modes: Iterable[str]) -> str:
    """Return the sentence on modes that were given the usual budget."""
    return (
        f"{', '.join(modes)}: dp.epsilon={EPSILON:g}, because neither a budget (--epsilon) nor a noise (--sigma) was "
        "given."
    )


def suited(config: RunConfig, *, but: Sequence[str] = ()) -> tuple[RunConfig, tuple[str, ...]]:
    """Return the configuration with what suits its mode where little was said, and what it says of that.

    A mode that needs a budget and was given none has epsilon 8, and on images a private mode that was given neither a
    model nor features has those it learns with, all of them ``but`` some. For runs on Tacit's own data sets: who brings
    data or a model has chosen.

    >>> config, said = suited(RunConfig(mode="dp"))
    >>> config.model.name, config.federate.clients, config.dp.epsilon
    ('scatter-linear', 100, 8.0)
    """
    mode = mode_of(config.mode)
    chosen = {key: value for key, value in recipe(config).items() if key not in but and not _is_set(config, key)}
    if mode.lacks_budget(config):
        chosen["dp.epsilon"] = EPSILON
    if not chosen:
        return config, ()
    settings = config.model_dump(exclude_unset=True)
    for key, value in chosen.items():
        overrides.put(settings, key, value)
    full = RunConfig(**settings)
    return full, (_said(full, chosen),)


def recipe(config: RunConfig) -> Mapping[str, Any]:
    """Return the settings of its mode for images, or none where they would not be what was asked."""
    mode = mode_of(config.mode)
    open_choice = config.model.name is None and "features" not in config.data.model_fields_set
    applies = open_choice and not config.single_holder and mode.private(config)
    return mode.images.get(config.data.name, {}) if applies else {}


def _is_set(config: RunConfig, key: str) -> bool:
    section, _, name = key.partition(".")
    return name in getattr(config, section).model_fields_set


def _said(config: RunConfig, chosen: Mapping[str, Any]) -> str:
    """Return what was chosen, and why."""
    parts = []
    if "data.features" in chosen:
        parts.append(
            "a linear model on scattering features (noise is paid per parameter; the features cost no privacy)"
        )
    elif "model.name" in chosen:
        parts.append("a linear model (noise is paid per parameter)")
    words = {"federate.clients": "{:,} clients", "federate.rounds": "{} rounds", "dp.clip": "clip {:g}"}
    parts += [text.format(chosen[key]) for key, text in words.items() if key in chosen]
    if "dp.epsilon" in chosen:
        parts.append(f"epsilon {EPSILON:g} at delta {config.dp.delta:g}")
    rest = [key for key in chosen if key not in {"model.name", "data.features", "dp.epsilon", *words}]
    settings = f"; also {', '.join(f'{key}={chosen[key]}' for key in rest)}" if rest else ""
    return (
        f"Mode {config.mode} was told little, so it chose: {', '.join(parts)}{settings}. Set any of them to change it."
    )
