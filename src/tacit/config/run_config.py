"""The configuration of a run: frozen, every default in one place, unknown keys refused with the nearest known one."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BeforeValidator, ValidationError
from pydantic.fields import FieldInfo

from tacit import foreign, limits
from tacit.config import federatedscope
from tacit.config.dialects import in_full, translated
from tacit.config.domains import Between
from tacit.config.sections import (
    Audit,
    Data,
    Dp,
    DpSgd,
    Evaluate,
    Federate,
    File,
    Flower,
    Lower,
    Masks,
    Model,
    Nbafl,
    Optimizer,
    Paillier,
    Section,
    Seed,
    Server,
    Signds,
    Text,
    Train,
    words,
)
from tacit.errors import ConfigError, WireError

_LONGEST = 100  # characters of a value in a message
_WIDTH = 100  # of a comment


def _names(value: Any) -> Any:
    """Return a list of names, also from ``a,b``; none twice."""
    names = words(value)
    return (
        tuple(name.lower() if isinstance(name, str) else name for name in names) if isinstance(names, tuple) else names
    )


class RunConfig(Section):
    """Everything a run needs to know.

    >>> RunConfig(federate={"rounds": 3}).federate.rounds
    3
    """

    mode: Annotated[Text, Lower] = "plain"
    """Which protection."""
    engine: Annotated[Literal["in-process", "flower"], Lower] = "in-process"
    """What moves the bytes: this process, or Flower."""
    single_holder: bool = False
    """One data holder without a federation (`tacit train`): a stretch of DP-SGD steps takes the place of a round."""
    seed: Seed | None = None
    """Marks the run a simulation that can be repeated; without it randomness comes from the system."""
    gpu: Annotated[int, Between(-1, limits.GPUS)] = -1
    """Number of the GPU; -1 is the CPU."""
    out: File | None = None
    """Folder of the run; a new one below runs/ by default."""
    log: Annotated[tuple[Literal["tensorboard", "mlflow"], ...], BeforeValidator(_names)] = ()
    """Where rounds are also written: tensorboard (in the run's folder), mlflow, or both, separated by a comma."""
    data: Data = Data()
    model: Model = Model()
    federate: Federate = Federate()
    train: Train = Train()
    optimizer: Optimizer = Optimizer()
    server: Server = Server()
    evaluate: Evaluate = Evaluate()
    dp: Dp = Dp()
    dpsgd: DpSgd = DpSgd()
    paillier: Paillier = Paillier()
    masks: Masks = Masks()
    signds: Signds = Signds()
    nbafl: Nbafl = Nbafl()
    audit: Audit = Audit()
    flower: Flower = Flower()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**{key: in_full(key, value) for key, value in values.items()})
        except ValidationError as error:
            raise ConfigError(_explain(error)) from None

    def to_yaml(self) -> str:
        """Return the whole configuration as YAML."""
        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))

    def explained(self, comments: Mapping[str, str]) -> str:
        """Return some settings as YAML, each under its comment: a job file.

        >>> print(RunConfig(mode="dp").explained({"mode": "Which protection.", "federate.rounds": "How many."}))
        # Which protection.
        mode: dp
        <BLANKLINE>
        # The federation.
        federate:
          # How many.
          rounds: 6
        <BLANKLINE>
        """
        values = self.model_dump(mode="json")
        sections = _sections()
        parts = [
            _comment(comments[name]) + _line(name, value)
            for name, value in values.items()
            if name in comments and name not in sections
        ]
        for name, kind in sections.items():
            entries = [
                _comment(comments[f"{name}.{key}"]) + _line(key, value)
                for key, value in values[name].items()
                if f"{name}.{key}" in comments
            ]
            if entries:
                parts.append(f"\n{_comment(kind.__doc__ or '')}{name}:\n{textwrap.indent(''.join(entries), '  ')}")
        return "".join(parts)


def from_mapping(values: Mapping[str, Any]) -> RunConfig:
    """Build a configuration from nested mappings, as YAML gives them, in other frameworks' words too."""
    settings = translated(values)
    return RunConfig(
        **{str(key): {} if value is None and key in _sections() else value for key, value in settings.items()}
    )


def from_yaml(path: Path) -> dict[str, Any]:
    """Read a job file as nested mappings."""
    try:
        values = foreign.yaml_value(foreign.read_plain(path, largest=foreign.LARGEST))
    except OSError as error:
        raise ConfigError(f"Can't read {path}: {error.strerror}.") from error
    except WireError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"Expected {path} to hold a mapping such as `federate: {{rounds: 20}}`, got {values!r}.")
    return values


def fields() -> dict[str, FieldInfo]:
    """Return every setting by its dotted key: its type, its default, and what it is in words."""
    found: dict[str, FieldInfo] = {}
    sections = _sections()
    for name, told in RunConfig.model_fields.items():
        if name in sections:
            found |= {f"{name}.{key}": inner for key, inner in sections[name].model_fields.items()}
        else:
            found[name] = told
    return found


def choices(key: str) -> tuple[str, ...]:
    """Return the words that a setting may be, where there are only so many.

    >>> choices("federate.sampling"), choices("dp.per_layer"), choices("federate.rounds")
    (('all', 'fixed', 'poisson'), ('false', 'true'), ())
    """

    def within(kind: Any) -> Iterator[str]:
        if get_origin(kind) is Literal:
            yield from get_args(kind)
        elif kind is bool:
            yield from ("false", "true")
        else:
            for inner in get_args(kind):
                yield from within(inner)

    return tuple(within(fields()[key].annotation))


def known_keys() -> list[str]:
    """Return every dotted key."""
    return list(fields())


def _sections() -> dict[str, type[Section]]:
    """Return the sections by name, in their order."""
    kinds = {name: told.annotation for name, told in RunConfig.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}


def _line(name: str, value: Any) -> str:
    return str(yaml.safe_dump({name: value}))


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(" ".join(text.split()), _WIDTH, break_on_hyphens=False))


def _explain(error: ValidationError) -> str:
    """Turn pydantic's findings into sentences: the key, the value, what was expected, what to do."""
    lines = []
    for finding in error.errors():
        key = _key_of(finding["loc"])
        if finding["type"] == "extra_forbidden":
            inner = finding["input"] if isinstance(finding["input"], dict) else {}
            lines += [unknown_key(f"{key}.{name}") for name in inner] or [unknown_key(key)]
        elif finding["type"] == "model_type" and key in _sections():
            first = next(iter(_sections()[key].model_fields))
            lines.append(
                f"{key}={_shown(finding['input'])} does not work: {key} is a section, written as in "
                f"`{key}: {{{first}: VALUE}}` or {key}.{first}=VALUE."
            )
        else:
            message = finding["msg"].removeprefix("Value error, ")
            expected = message[0].lower() + message[1:]
            lines.append(f"{key}={_shown(finding['input'])} does not work: {expected}.")
    return " ".join(dict.fromkeys(lines))


def _key_of(place: tuple[int | str, ...]) -> str:
    """Return the dotted key of a finding; what pydantic adds on the forms that a value may have is left out."""
    names = [str(part) for part in place]
    known = known_keys()
    return next((key for end in (2, 1) if (key := ".".join(names[:end])) in known), ".".join(names))


def _shown(value: Any) -> str:
    """Return a value for a message, in short where it is long."""
    try:
        text = repr(value)
    except ValueError:  # a whole number that Python does not write out
        return "(a number of very many digits)"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def unknown_key(key: str) -> str:
    """Return the sentence on a key that does not exist."""
    keys = [*known_keys(), *federatedscope.KEYS]
    key = key if len(key) <= _LONGEST else f"{key[:_LONGEST]}..."
    by_last = {known.split(".")[-1]: known for known in reversed(known_keys())}
    close = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    last = key.rsplit(".", maxsplit=1)[-1]
    if not close and (near := difflib.get_close_matches(last, by_last, n=1, cutoff=0.7)):
        close = [by_last[near[0]]]
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"Unknown key {key!r}.{hint} `tacit config` prints every key."
