"""Settings that do nothing in a mode are refused, so that nobody believes in a protection that is not there."""

from __future__ import annotations

from tacit.config.run_config import RunConfig
from tacit.config.sections import Dp, Nbafl, Section, Signds
from tacit.errors import ConfigError

_OWNERS: dict[str, type[Section]] = {"signds": Signds, "nbafl": Nbafl}  # a section -> its type; the mode has its name


def refuse_foreign(config: RunConfig) -> None:
    """Refuse settings of SignDS or NbAFL in another mode."""
    for section, kind in _OWNERS.items():
        if config.mode != section and (given := _given(getattr(config, section), kind())):
            keys = ", ".join(f"{section}.{key}" for key in given)
            raise ConfigError(f"{keys} has no effect in mode {config.mode!r}. Remove it, or add --mode {section}.")


def refuse_dp(config: RunConfig, *, advice: str) -> None:
    """Refuse settings of the section dp other than delta and max_epsilon."""
    given = [key for key in _given(config.dp, Dp()) if key not in ("delta", "max_epsilon")]
    if given:
        keys = ", ".join(f"dp.{key}" for key in given)
        raise ConfigError(f"{keys} has no effect in mode {config.mode!r}. {advice}")


def _given(section: Section, defaults: Section) -> list[str]:
    return [key for key, value in section if value != getattr(defaults, key)]
