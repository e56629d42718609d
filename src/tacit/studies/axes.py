"""The axes of a grid, as they stand on the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit import foreign
from tacit.config import run_config as configuration
from tacit.errors import ConfigError, WireError

MOST = 10_000  # points of a grid

FORMS = "a:b:n (n values from a to b), log:a:b:n (by equal factors) or a,b,c (a list)"


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
