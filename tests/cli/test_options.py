"""Flags are declared once: what names a key of the configuration has that key's help, default and type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from tacit.cli import main as command_line
from tacit.cli.options import CLIENTS_NOISE, RUN, TRAIN, Asked, Configured, Flag, explained
from tacit.config.run_config import RunConfig, choices, fields
from tacit.errors import ConfigError
from tests.cli.test_run import Tacit

OTHERS = {  # options that are written like a flag and are none, because they mean something else there
    ("estimate", "--clients"),  # of one round
    ("sweep", "--out"),
    ("compare", "--out"),  # of the study
    ("reproduce", "--out"),
    ("reproduce", "--seed"),  # of an experiment, which always has one
}
SAMPLES: dict[Any, Any] = {int: 1, float: 0.5, bool: True, Path: Path("a"), list[str]: ["mlflow"]}


def _commands() -> Iterator[tuple[str, Configured]]:
    root = typer.main.get_command(command_line.app)
    assert isinstance(root, click.Group)
    root.list_commands(click.Context(root))  # loads those of the labs

    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, Configured]]:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield from below(inner, (*path, name))
        elif isinstance(command, Configured):
            yield " ".join(path), command

    yield from below(root, ())


COMMANDS = dict(_commands())


def test_every_command_that_makes_runs_takes_its_flags_from_here() -> None:
    assert set(COMMANDS) == {
        *("run", "train", "sweep", "compare", "deploy new", "deploy local", "estimate", "reproduce", "config"),
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_have_the_help_and_the_default_of_their_key(name: str) -> None:
    command = COMMANDS[name]
    command.explain()
    options = {parameter.name: parameter for parameter in command.params}
    assert command.flags.keys() <= options.keys()
    for parameter, flag in command.flags.items():
        option, told = options[parameter], fields()[flag.key]
        assert isinstance(option, click.Option)
        assert told.description
        assert option.help == explained(flag.key)
        assert option.help.startswith(told.description)
        assert option.default is None  # so that what was not given does not go before a job file
        shown = None if option.show_default is False else option.show_default
        assert (shown is None) == (told.default is None or told.default is False or told.default == ())
        if isinstance(told.default, float):
            assert float(str(shown)) == told.default
        elif shown is not None:
            assert shown == str(told.default)
        assert set(option.opts) | set(option.secondary_opts) == flag.written()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_declares_a_flag_of_its_own_again(name: str) -> None:
    command = COMMANDS[name]
    written = set().union(*(flag.written() for flag in (*RUN, *TRAIN)))
    own = [option for option in command.params if option.name not in command.flags and option.name != "words"]
    assert {(name, text) for option in own for text in option.opts if text in written} <= OTHERS


@pytest.mark.parametrize("flag", [*RUN, *TRAIN], ids=lambda flag: f"{flag.name} {flag.key}")
def test_a_flags_type_is_one_that_its_key_takes(flag: Flag) -> None:
    words = choices(flag.key)
    sample = SAMPLES.get(flag.kind, words[0] if words else "plain")
    config: Any = Asked(flags={flag: sample}).config()
    for part in flag.key.split("."):
        config = getattr(config, part)
    assert config == (("mlflow",) if flag.key == "log" else sample)


def test_flags_go_before_words() -> None:
    rounds = next(flag for flag in RUN if flag.key == "federate.rounds")
    asked = Asked(words=("federate.rounds=3", "federate.clients", "7"), flags={rounds: 5})
    assert asked.settings() == {"federate": {"rounds": 5, "clients": 7}}
    assert asked.config() == RunConfig(federate={"rounds": 5, "clients": 7})
    assert asked.but(["seed=1"]).settings() == {"seed": 1, "federate": {"rounds": 5}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--clients", "5"], "--clients means nothing here: there is one data holder and no federation"),
        (["train", "--mode", "dp"], "For other modes: `tacit run --mode ...`"),
        (["train", "server.lr=1"], "server.lr=1 means nothing here: there is one data holder"),
        (["train", "federate.client_num", "5"], "federate.client_num means nothing here: there is one data holder"),
        (["train", "train.batch_size=5"], "their mean size is dpsgd.batch_size (--batch-size)"),
        (["compare", "--modes", "plain", "--mode", "dp"], "Name them with --modes"),
        (["deploy", "local", "--drop", "0.5"], "a deployment's clients are real"),
        (["deploy", "new", "app", "engine=in-process"], "a deployment's engine is Flower"),
        (["run", "--iterations", "5"], "`tacit run` has no flag --iterations. Write dpsgd.steps=VALUE."),
        (["estimate", "--gpu", "0"], "`tacit estimate` has no flag --gpu. Write gpu=VALUE."),
        (["reproduce", "report-000", "--rounds", "3"], "`tacit reproduce` has no flag --rounds. Leave it out."),
    ],
)
def test_what_means_nothing_to_a_command_is_refused_with_a_reason(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in Tacit(monkeypatch, capfd).refused(*words)


def test_a_flag_that_nobody_knows_is_the_shells_kind_of_mistake() -> None:
    done = CliRunner().invoke(command_line.app, ["train", "--frobnicate"])
    assert done.exit_code == 2
    with pytest.raises(ConfigError, match="means nothing here"):
        command_line.app(["train", "--per-round", "3"], standalone_mode=False)


def test_the_help_shows_them(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = Tacit(monkeypatch, capfd)("run", "--help")
    assert status == 0
    for key in ("federate.rounds", "federate.sampling", "dp.noise"):
        assert explained(key) in out
    assert "One of all, fixed, poisson." in out
    assert "[default: (6)]" in out


@pytest.mark.parametrize(
    ("words", "modes", "switched"),
    [
        (["mode=paillier"], (), {"paillier"}),
        (["mode=masks"], (), {"masks"}),
        ([], ("plain", "paillier", "masks"), {"paillier", "masks"}),
        ([], ("dp", "masks"), {"masks"}),
        (["modes=[masks, paillier]"], (), {"paillier", "masks"}),
        (["modes=3"], (), {"paillier"}),  # refused later, by the setting's own name
    ],
)
def test_clients_noise_is_turned_on_in_every_mode_that_has_the_choice(
    words: list[str], modes: tuple[str, ...], switched: set[str]
) -> None:
    settings = Asked(words=tuple(words), flags={CLIENTS_NOISE: True}).settings(modes=modes)
    assert {name for name in ("paillier", "masks") if settings.get(name, {}).get("dp")} == switched
