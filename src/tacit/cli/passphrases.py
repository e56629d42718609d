"""Where a passphrase comes from: a file, the environment, or the person at the terminal; never the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import ConfigError, KeysError

VARIABLE = "TACIT_PASSPHRASE"
_LONGEST = 4096  # bytes of a passphrase file

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help=f"Read the passphrase from the first line of this file (or set {VARIABLE}).",
        metavar="FILE",
        show_default=False,
    ),
]


def for_new_key(file: Path | None, *, prompt: bool) -> str | None:
    """Return the passphrase that seals a new key, or None where none was asked for."""
    if prompt and file is not None:
        raise ConfigError("Expected --passphrase (asks for it) or --passphrase-file, got both. Leave one out.")
    if not prompt:
        return _given(file)
    words = _ask("Passphrase for the private key: ")
    if words != _ask("Once more: "):
        raise ConfigError("The two passphrases differ. No key was made; try again.")
    return words


def for_loading(file: Path | None) -> Callable[[Path], str]:
    """Return a function that finds the passphrase of a sealed key, and asks for it where nothing else has it."""

    def passphrase(path: Path) -> str:
        given = _given(file)
        return _ask(f"Passphrase of {path}: ") if given is None else given

    return passphrase


def _given(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(VARIABLE)
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LONGEST)
        return raw.splitlines()[0].decode() if raw else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise KeysError(f"Can't read the passphrase file {file}: {reason}. Mend the path or its contents.") from error


def _ask(question: str) -> str:
    from getpass import getpass

    if not sys.stdin.isatty():
        raise KeysError(
            f"A passphrase is needed and there is no terminal to ask at. Give --passphrase-file, or set {VARIABLE}."
        )
    return getpass(question)
