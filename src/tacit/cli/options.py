"""The flags of a run, declared once: a flag names its key of the configuration, which has its help and its default.

A command gets what was asked of it by :func:`configured`, and is registered with ``cls=Configured``::

    @configured(*RUN)
    def run(asked: Asked, *, force: bool = False) -> None:
        config = asked.config()
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import click
import typer
from typer.core import TyperCommand

from tacit.cli import completion
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tacit.config.run_config import RunConfig

_KEY = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+|device")
_BELOW_ZERO = re.compile(r"-[0-9.]+(e[+-]?[0-9]+)?")
_FEDERATION, _TRAINING, _OUTPUT, _PRIVACY = "Federation", "Training", "Output", "Privacy"

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB.yaml] [KEY=VALUE]...",
        help="A job file, and settings over it such as federate.rounds=20. `tacit config` prints every key.",
        show_default=False,
        autocompletion=completion.of_words,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A flag that sets one key of the configuration."""

    key: str
    kind: Any = str  # what its word is turned into; the configuration checks the rest
    names: tuple[str, ...] = ()  # how it is written; by default as the last part of its key
    panel: str | None = None

    @property
    def name(self) -> str:
        """The name that messages have.

        >>> Flag(key="federate.per_round").name
        '--per-round'
        """
        return self.names[0] if self.names else f"--{self.key.rpartition('.')[2].replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Its name among the parameters of a command."""
        return self.key.replace(".", "_")

    def written(self) -> set[str]:
        """Return every way to write it."""
        return {part for name in self.names or (self.name,) for part in name.split("/")}


MODE = Flag(key="mode", panel=_PRIVACY)
EPSILON = Flag(key="dp.epsilon", kind=float, panel=_PRIVACY)
DELTA = Flag(key="dp.delta", kind=float, panel=_PRIVACY)
CLIENTS_NOISE = Flag(key="paillier.dp", kind=bool, names=("--dp/--no-dp",), panel=_PRIVACY)
AUDIT = Flag(key="audit.canaries", kind=int, names=("--audit",), panel=_PRIVACY)
ROUNDS = Flag(key="federate.rounds", kind=int, panel=_FEDERATION)
DATA_FOLDER = Flag(key="data.folder", kind=Path, names=("--data-dir",))
GPU = Flag(key="gpu", kind=int)
OUT = Flag(key="out", kind=Path, panel=_OUTPUT)

_TASK = (
    Flag(key="data.name", names=("--data",)),
    Flag(key="data.label"),
    Flag(key="model.name", names=("--model",)),
)
_BUDGET = (
    Flag(key="dp.noise", kind=float, names=("--sigma",), panel=_PRIVACY),
    EPSILON,
    DELTA,
    Flag(key="dp.max_epsilon", kind=float, panel=_PRIVACY),
)
_MACHINE = (
    Flag(key="optimizer.lr", kind=float, panel=_TRAINING),
    GPU,
    Flag(key="seed", kind=int),
    DATA_FOLDER,
    Flag(key="log", kind=list[str], panel=_OUTPUT),
    OUT,
)
RUN = (  # what federations have
    MODE,
    *_TASK,
    Flag(key="data.client", panel=_FEDERATION),
    Flag(key="data.split", panel=_FEDERATION),
    Flag(key="federate.clients", kind=int, panel=_FEDERATION),
    Flag(key="federate.per_round", kind=int, panel=_FEDERATION),
    Flag(key="federate.sampling", panel=_FEDERATION),
    ROUNDS,
    Flag(key="federate.drop", kind=float, panel=_FEDERATION),
    Flag(key="train.local_epochs", kind=int, panel=_TRAINING),
    Flag(key="train.batch_size", kind=int, panel=_TRAINING),
    Flag(key="dp.clip", names=("--C", "--clip"), panel=_PRIVACY),
    *_BUDGET,
    CLIENTS_NOISE,
    AUDIT,
    Flag(key="engine"),
    *_MACHINE,
)
TRAIN = (  # what a data holder alone has
    *_TASK,
    Flag(key="dpsgd.clip", kind=float, names=("--C", "--clip"), panel=_PRIVACY),
    *_BUDGET,
    Flag(key="dpsgd.clipping", panel=_PRIVACY),
    Flag(key="dpsgd.budget_by", panel=_PRIVACY),
    AUDIT,
    Flag(key="dpsgd.steps", kind=int, names=("--iterations",), panel=_TRAINING),
    Flag(key="train.local_epochs", kind=int, names=("--epochs",), panel=_TRAINING),
    Flag(key="dpsgd.batch_size", kind=int, panel=_TRAINING),
    Flag(key="dpsgd.micro_batch", kind=int, panel=_TRAINING),
    *_MACHINE,
)


def without(flags: Sequence[Flag], *keys: str) -> tuple[Flag, ...]:
    """Return flags but those of some keys."""
    return tuple(flag for flag in flags if flag.key not in keys)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command line asks for: a job file and dotted settings, then flags, the later winning."""

    words: tuple[str, ...] = ()
    flags: Mapping[Flag, Any] = field(default_factory=dict)  # those that were given
    told: set[str] = field(default_factory=set, compare=False)  # what was said of them already

    def settings(self, *, modes: Sequence[str] = ()) -> dict[str, Any]:
        """Return nested settings, as a job file has them.

        Args:
            modes: those that flags are for, where a command runs several.
        """
        from tacit.config import overrides
        from tacit.modes.catalogue import MODES

        read = overrides.read(self.words)
        for remark in read.remarks:
            if remark not in self.told:
                self.told.add(remark)
                typer.echo(remark, err=True)
        parsed = read.settings
        for flag, value in self.flags.items():
            overrides.put(parsed, flag.key, value)
        mode = MODES.get(str(parsed.get("mode")).lower())
        if mode is not None and any(flag.key == "train.batch_size" for flag in self.flags):
            overrides.put(parsed, mode.batch_size, parsed["train"].pop("batch_size"))  # with DP-SGD it is a mean
        named = modes or parsed.get("modes")
        several = [MODES[str(name)] for name in named if str(name) in MODES] if isinstance(named, Iterable) else []
        several = several or ([] if mode is None else [mode])
        switches = {one.noise_if for one in several if one.noise_if is not None}
        if switches and CLIENTS_NOISE in self.flags:
            section, _, name = CLIENTS_NOISE.key.partition(".")
            chosen = parsed[section].pop(name)
            for switch in switches:  # each such mode has its own
                overrides.put(parsed, switch, chosen)
        return parsed

    def config(self) -> RunConfig:
        """Return the configuration."""
        from tacit.config.run_config import from_mapping

        return from_mapping(self.settings())

    def but(self, words: Sequence[str]) -> Asked:
        """Return the same with other words, where some of them are no settings."""
        return replace(self, words=tuple(words))


Command = Callable[..., None]


def configured(
    *flags: Flag, words: Any = Words, refused: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Give a command flags; what was asked by them comes as its parameter ``asked``.

    Args:
        flags: the flags, in the order of the help.
        words: the annotation of the positional words, or None where the command has none.
        refused: keys that mean nothing to the command, or sections such as ``federate.``, and why not.
    """
    no = dict(refused or {})

    def decorate(function: Command) -> Command:
        hints = get_type_hints(function, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name != "asked":
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters.append(parameter.replace(annotation=hints[parameter.name], kind=kind))
                continue
            if words is not None:
                parameters.append(_parameter("words", words))
            parameters += [_parameter(flag.parameter, _annotation(flag)) for flag in flags]

        @functools.wraps(function)
        def command(**given: Any) -> None:
            said = tuple(given.pop("words", None) or ())
            _refuse_words(said, no)
            found = {flag: given.pop(flag.parameter) for flag in flags}
            kept = {flag: value for flag, value in found.items() if value not in (None, [])}
            function(asked=Asked(words=said, flags=kept), **given)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # a function carries what typer and the tests read
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.flags = flags  # type: ignore[attr-defined]  # a function carries what typer and the tests read
        command.refused = no  # type: ignore[attr-defined]  # a function carries what typer and the tests read
        return command

    return decorate


class Configured(TyperCommand):
    """A command whose flags are explained by the configuration, once somebody asks for help."""

    @property
    def flags(self) -> dict[str, Flag]:
        """Return the flags that name a key, by their parameters."""
        return {flag.parameter: flag for flag in getattr(self.callback, "flags", ())}

    def explain(self) -> None:
        """Take help and defaults from the configuration."""
        from tacit.config.run_config import fields

        known = fields()
        for parameter in self.params:
            flag = self.flags.get(parameter.name or "")
            if flag is not None and isinstance(parameter, click.Option):
                told = known[flag.key]
                parameter.help = explained(flag.key).replace("[", r"\[")
                parameter.show_default = _shown(told.default)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help."""
        self.explain()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of flags, with their help."""
        if incomplete.startswith("-"):
            self.explain()
        return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and say of another command's flag why it is none of this one's."""
        takes_words = any(parameter.name == "words" for parameter in self.params)
        try:
            return super().parse_args(ctx, _as_we_write(args) if takes_words else args)
        except click.NoSuchOption as error:
            flag = next((flag for flag in (*RUN, *TRAIN) if error.option_name in flag.written()), None)
            if flag is None:
                raise
            why = _why_not(flag.key, getattr(self.callback, "refused", {}))
            if why is not None:
                raise ConfigError(f"{error.option_name} means nothing here: {why}") from error
            advice = f"Write {flag.key}=VALUE." if takes_words else "Leave it out."
            raise ConfigError(f"`{ctx.command_path}` has no flag {error.option_name}. {advice}") from error


def explained(key: str) -> str:
    """Return what a setting is, and the words it may be where its description does not say them."""
    from tacit.config.run_config import choices, fields

    said = fields()[key].description or ""
    words = [word for word in choices(key) if word not in ("false", "true")]
    words += completion.modes() if key == "mode" else ()
    return said if all(word in said for word in words) else f"{said} One of {', '.join(words)}."


def _as_we_write(args: Sequence[str]) -> list[str]:
    """Return a command line in which a job file needs no ``--cfg``, and a number below zero is no flag.

    >>> _as_we_write(["--cfg", "job.yaml", "grad.grad_clip", "-1.0"])
    ['job.yaml', 'grad.grad_clip=-1.0']
    """
    written: list[str] = []
    for word in (word for word in args if word != "--cfg"):
        if _BELOW_ZERO.fullmatch(word) and written and _KEY.fullmatch(written[-1]):
            written[-1] += f"={word}"
        else:
            written.append(word.removeprefix("--cfg="))
    return written


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _annotation(flag: Flag) -> Any:
    option = typer.Option(
        *(flag.names or (flag.name,)), rich_help_panel=flag.panel, autocompletion=completion.of_flag(flag)
    )
    return Annotated[flag.kind | None, option]


def _refuse_words(words: Sequence[str], refused: Mapping[str, str]) -> None:
    for word in words:
        key, _, value = word.partition("=")
        for ours in _in_our_words(key.strip(), value or None):
            why = _why_not(ours, refused)
            if why is not None:
                raise ConfigError(f"{word} means nothing here: {why}")


def _in_our_words(key: str, value: str | None) -> Iterable[str]:
    """Return the key, or ours where it is another framework's; what is wrong with its value is said elsewhere."""
    from tacit.config import federatedscope

    try:
        return federatedscope.translated({key: value}).settings or (key,)
    except ConfigError:
        return (key,)


def _why_not(key: str, refused: Mapping[str, str]) -> str | None:
    section = key.partition(".")[0] + "."
    return refused.get(key, refused.get(section))


def _shown(default: Any) -> str | bool:
    """Return a default for people; where there is none, the description says what happens."""
    if default is None or default is False or default == ():
        return False
    return f"{default:g}" if isinstance(default, float) else str(default)
