"""Numbers that no machine word holds, and numbers that are none, are refused by every option of every command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tacit.cli import main as command_line

WHOLE = ("9223372036854775808", "9" * 5000)
REAL = ("nan",)
NEEDED = {
    "calibrate": ["--epsilon", "1"],
    "encrypt": ["vector.npy", "--key", "public.key", "-o", "out"],
    "epsilon": ["--noise", "1"],
    "signds plan": ["--dim", "1000"],
    "signds suggest": ["--dim", "1000"],
    "compare": ["--modes", "plain"],
    "sweep": ["federate.rounds=1"],
    "deploy certificates": ["localhost"],
    "deploy local": [],
    "deploy new": ["app"],
    "keys new": ["paillier"],
    "data show": ["digits"],
    "reproduce": ["report-000"],
}


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
    else:
        for name, below in inner.items():
            yield from _commands(below, (*path, name))


def _cases() -> Iterator[tuple[str, str, str]]:
    for name, command in _commands(typer.main.get_command(command_line.app)):
        for parameter in command.params:
            kind = parameter.type.name
            values = {"integer": WHOLE, "integer range": WHOLE, "float": REAL, "float range": REAL}.get(kind, ())
            yield from ((name, parameter.opts[0], value) for value in values)


CASES = list(_cases())


def test_the_commands_have_numbers() -> None:
    assert len({(name, option) for name, option, _ in CASES}) > 60


@pytest.mark.parametrize(("name", "option", "value"), CASES, ids=lambda text: text[:24])
def test_a_number_beyond_all_bounds_is_a_sentence(
    name: str,
    option: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needed = [word for word in NEEDED.get(name, []) if word != option]
    monkeypatch.setattr(sys, "argv", ["tacit", *name.split(), *needed, option, value])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code in (1, 2)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert len(said) < 12_000
