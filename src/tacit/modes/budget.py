"""The budget of a mode that needs one, where neither a budget nor a noise was given: stated, never silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tacit.config.run_config import RunConfig

EPSILON = 8.0
_SECTIONS = {"dp": ("dp",), "local-dp": ("dp",), "dp-sgd": ("dp", "dpsgd")}


def lacks_budget(mode: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a mode needs a noise or a budget that the nested settings do not have.

    >>> lacks_budget("dp", {}), lacks_budget("dp", {"dp": {"noise": 1.0}}), lacks_budget("plain", {})
    (True, False, False)
    """
    sections = _SECTIONS.get(mode, ())
    if mode == "paillier" and (settings.get("paillier") or {}).get("dp"):
        sections = ("dp",)
    given = [(settings.get(section) or {}).get(key) for section in sections for key in ("noise", "epsilon")]
    return bool(sections) and all(value is None for value in given)


def note(modes: Iterable[str]) -> str:
    """Return the sentence on modes that were given the usual budget."""
    return (
        f"{', '.join(modes)}: dp.epsilon={EPSILON:g}, because neither a budget (--epsilon) nor a noise (--sigma) was "
        "given."
    )


def budgeted(config: RunConfig) -> tuple[RunConfig, str | None]:
    """Return the configuration with a budget, and the sentence that says so where it was given one."""
    if not lacks_budget(config.mode, config.model_dump()):
        return config, None
    with_budget = config.dp.model_copy(update={"epsilon": EPSILON})
    return config.model_copy(update={"dp": with_budget}), note([config.mode])
