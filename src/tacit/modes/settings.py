"""Which of the settings that several modes share each is meant to have, and the budget of one that was given none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tacit.config import overrides
from tacit.config.run_config import RunConfig
from tacit.modes.catalogue import MODES, mode_of
from tacit.modes.mode import Settings

EPSILON = 8.0


def meant_for(mode: str, settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """Return those of the shared settings that mean something to ``mode``, and the dotted keys of the others.

    >>> meant_for("plain", {"dp": {"epsilon": 8}, "optimizer": {"lr": 0.1}})
    ({'optimizer': {'lr': 0.1}}, ['dp.epsilon'])
    """
    asked = mode_of(mode)
    known = {f"dp.{key}" for key in asked.known_dp(settings)}
    others = {one.section for one in MODES.values()} - {asked.section}
    batches = {one.batch_size for one in MODES.values()} - {asked.batch_size}
    kept: dict[str, Any] = {}
    left: list[str] = []
    for key, value in overrides.flat(settings):
        section = key.partition(".")[0]
        if section == "dp":
            meant = key in known
        elif key == "federate.minimum_clients":
            meant = not asked.central  # which releases every round
        else:
            meant = section not in others and key not in batches
        if meant:
            overrides.put(kept, key, value)
        else:
            left.append(key)
    return kept, left


def note(modes: Iterable[str]) -> str:
    """Return the sentence on modes that were given the usual budget."""
    return (
        f"{', '.join(modes)}: dp.epsilon={EPSILON:g}, because neither a budget (--epsilon) nor a noise (--sigma) was "
        "given."
    )


def budgeted(config: RunConfig) -> tuple[RunConfig, str | None]:
    """Return the configuration with a budget, and the sentence that says so where it was given one."""
    if not mode_of(config.mode).lacks_budget(config):
        return config, None
    with_budget = config.dp.model_copy(update={"epsilon": EPSILON})
    return config.model_copy(update={"dp": with_budget}), note([config.mode])
