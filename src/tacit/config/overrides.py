"""A job file and dotted overrides, as they stand on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.config import federatedscope
from tacit.config import run_config as config
from tacit.config.dialects import in_full
from tacit.errors import ConfigError, WireError


@dataclass(frozen=True, kw_only=True)
class Read:
    """Settings, and what has to be said of those that were in another framework's words."""

    settings: dict[str, Any]
    remarks: tuple[str, ...] = ()


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings that ``words`` give, later ones winning.

    A word is a YAML file, ``key=value``, or a key followed by its value.

    >>> parse(["federate.rounds=20", "optimizer.lr", "0.1"])
    {'federate': {'rounds': 20}, 'optimizer': {'lr': 0.1}}
    """
    return read(words).settings


def read(words: Sequence[str]) -> Read:
    """Return the settings that ``words`` give, FederatedScope's keys among them in ours.

    >>> print(read(["federate.total_round_num", "20"]).remarks[0])
    In FederatedScope's words: federate.total_round_num is federate.rounds=20.
    """
    settings: dict[str, Any] = {}
    found = []
    for part in _parts(words):
        translation = federatedscope.translated(dict(flat(part)))
        found.append(translation)
        if not translation.theirs:
            merge(settings, part)
        for key, value in translation.settings.items() if translation.theirs else ():
            put(settings, key, value)
    whole = federatedscope.joined(found)
    return Read(settings=settings, remarks=federatedscope.remarks(whole) + federatedscope.chosen(settings, whole))


def _parts(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what each file says, and what all words between two files say."""
    settings: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        key, equals, text = word.partition("=")
        if equals:
            put(settings, key.strip(), _value(key, text))
        elif word.endswith((".yaml", ".yml")) or _is_file(word):
            yield settings
            settings = {}
            yield config.from_yaml(Path(word))
        elif waiting and _is_key(word):
            put(settings, word, _value(word, waiting.pop(0)))
        elif _is_key(word):
            raise ConfigError(f"{word} has no value. Write {word}=VALUE.")
        else:
            raise ConfigError(
                f"Can't make sense of {word!r}: expected a job file (.yaml) or key=value. {config.unknown_key(word)}"
            )
    yield settings


def put(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key."""
    *sections, last = key.split(".")
    if not all(sections) or not last:
        raise ConfigError(f"Expected a key such as federate.rounds, got {key!r}.")
    for section in sections:
        inner = settings[section] = {} if settings.get(section) is None else settings[section]
        if not isinstance(inner, dict):
            raise ConfigError(f"{key} can't be set: {section} is {inner!r}, not a section.")
        settings = inner
    if not sections and isinstance(full := in_full(last, value), dict):
        merge(settings, {last: full})
    else:
        settings[last] = value


def merge(settings: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Lay ``more`` over ``settings``, section by section."""
    for key, short in more.items():
        value = in_full(key, short)
        if isinstance(value, Mapping) and isinstance(settings.get(key), dict):
            merge(settings[key], value)
        elif "." in str(key):
            put(settings, str(key), value)
        else:
            settings[key] = dict(value) if isinstance(value, Mapping) else value


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values.

    >>> list(flat({"seed": 1, "dp": {"clip": 0.5}}))
    [('seed', 1), ('dp.clip', 0.5)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # too long to be the name of a file, or where nobody may look
        return False


def _is_key(word: str) -> bool:
    return (
        word in config.known_keys()
        or ("." in word and word.split(".", maxsplit=1)[0] in {k.split(".")[0] for k in config.known_keys()})
        or word in federatedscope.KEYS
    )


def _value(key: str, text: str) -> Any:
    try:
        return foreign.yaml_value(text)
    except WireError as error:
        raise ConfigError(f"{key}={text} is not a value YAML understands: {error}") from error
