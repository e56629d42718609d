"""Where a passphrase comes from: a file, a descriptor, a command, the environment, or the person at the terminal.

Never the command line, which other users can read. Of several keys each has a passphrase of its own: a file and a
descriptor have a line for each, and a command is run for each, with the key's file in ``TACIT_KEY_FILE``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tacit import limits
from tacit.errors import ConfigError, KeysError

VARIABLE, KEY_FILE = "TACIT_PASSPHRASE", "TACIT_KEY_FILE"
_LONGEST = 4096  # bytes of a line
_PATIENCE = 300.0  # seconds for a command, which may ask a person

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help=f"Read the passphrase from the first line of this file (or set {VARIABLE}).",
        metavar="FILE",
        show_default=False,
    ),
]
PassphraseDescriptor = Annotated[
    int | None,
    typer.Option(
        "--passphrase-fd",
        min=0,
        max=limits.DESCRIPTOR,
        help="Read the passphrase from the first line of this open file descriptor.",
        metavar="NUMBER",
        show_default=False,
    ),
]
PassphraseCommand = Annotated[
    str | None,
    typer.Option(
        help=f"Run this command, which prints the passphrase; it finds the key's file in {KEY_FILE}.",
        metavar="COMMAND",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where passphrases come from, at most one of them given; else the environment or a question.

    Attributes:
        file: has a line for each key.
        descriptor: an open file that has.
        command: prints one.
    """

    file: Path | None = None
    descriptor: int | None = None
    command: str | None = None

    def __post_init__(self) -> None:
        names = {
            "--passphrase-file": self.file,
            "--passphrase-fd": self.descriptor,
            "--passphrase-command": self.command,
        }
        given = [name for name, value in names.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(f"Expected one source of the passphrase, got {' and '.join(given)}. Leave one out.")

    def given(self, paths: Sequence[Path], *, own: bool) -> list[str] | None:
        """Return the passphrases of some key files, or None where a person has to be asked.

        Args:
            paths: the files.
            own: whether each has to have words of its own; else a single line serves them all.
        """
        if self.command is not None:
            return [_printed(self.command, path) for path in paths]
        if self.descriptor is not None:
            lines = _lines(_read(self.descriptor, f"descriptor {self.descriptor}"))
        elif self.file is not None:
            lines = _lines(_read(self.file, f"file {self.file}"))
        elif (words := os.environ.get(VARIABLE)) is not None:
            lines = [words]
        else:
            return None
        if len(lines) == 1 and not own:
            return lines * len(paths)
        if len(set(lines[: len(paths)])) < len(paths):
            raise KeysError(
                f"Expected {len(paths)} different passphrases, one per line, so that the words of one holder open no "
                f"other's share; got {len(set(lines))}. Write more lines, or give a --passphrase-command."
            )
        return lines[: len(paths)]


def for_new_keys(paths: Sequence[Path], source: Source, *, prompt: bool) -> list[str | None]:
    """Return the passphrases that seal new keys, one for each file; None where none was asked for."""
    if not prompt:
        given = source.given(paths, own=True)
        return [None] * len(paths) if given is None else [*given]
    if source != Source():
        raise ConfigError("Expected --passphrase (asks for it) or another source of it, got both. Leave one out.")
    words: list[str | None] = []
    for path in paths:
        words.append(_ask(f"Passphrase for {path}: "))
        if words[-1] != _ask("Once more: "):
            raise ConfigError("The two passphrases differ. No key was made; try again.")
    return words


def for_loading(source: Source, paths: Sequence[Path]) -> Callable[[Path], str]:
    """Return a function that finds the passphrases of sealed keys, and asks where nothing else has them."""
    known: dict[Path, str] = {}

    def passphrase(path: Path) -> str:
        if not known and (given := source.given(paths, own=False)) is not None:
            known.update(zip(paths, given, strict=True))  # a descriptor is read once
        return known[path] if path in known else _ask(f"Passphrase of {path}: ")

    return passphrase


def _read(place: Path | int, name: str) -> bytes:
    try:
        with open(place, "rb") as stream:  # noqa: PTH123 - a descriptor too
            return stream.read(100 * _LONGEST)
    except OSError as error:
        raise KeysError(
            f"Can't read the passphrase {name}: {error.strerror or error}. Mend the path or its contents."
        ) from error


def _lines(raw: bytes) -> list[str]:
    try:
        return [line.decode() for line in raw.splitlines()] or [""]
    except UnicodeDecodeError as error:
        raise KeysError(f"Can't read the passphrase: {error}. Mend its contents.") from error


def _printed(command: str, path: Path) -> str:
    """Return what the operator's command prints: from a key management service, an agent, a hardware token."""
    try:
        done = subprocess.run(
            shlex.split(command),
            env={**os.environ, KEY_FILE: str(path)},
            stdout=subprocess.PIPE,
            timeout=_PATIENCE,
            check=True,
        )
        return _lines(done.stdout)[0]
    except (OSError, ValueError, subprocess.SubprocessError) as error:  # whose words have no output in them
        raise KeysError(f"The passphrase command {command!r} failed: {error}. No key was opened.") from error


def _ask(question: str) -> str:
    from getpass import getpass

    if not sys.stdin.isatty():
        raise KeysError(
            "A passphrase is needed and there is no terminal to ask at. Give --passphrase-file, --passphrase-fd or "
            f"--passphrase-command, or set {VARIABLE}."
        )
    return getpass(question)
