"""Options and sentences that the encrypting commands share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tacit.crypto.keyfile import Public

InsecureKeySize = Annotated[
    bool, typer.Option("--insecure-key-size", help="Allow keys of less than 2048 bits, for experiments.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write.", metavar="FILE", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace the output where it is there already.")]

INSECURE = "INSECURE: a key of {bits} bits can be broken. For experiments only."


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Print what the key files warn of as a sentence on stderr."""
    from tacit.crypto.keyfile import KeyFileWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KeyFileWarning)
        try:
            yield
        finally:
            for warning in caught:
                say(str(warning.message))


def say(text: str) -> None:
    """Print a warning on stderr."""
    from rich.text import Text

    from tacit.cli.output import console

    console(stderr=True).print(Text("warning: ", style="bold yellow") + Text(text), soft_wrap=True)


def mark_insecure(public: Public) -> None:
    """Say so on stderr where a key is too short."""
    from tacit.crypto.keyfile import length_of

    if public.insecure:
        say(INSECURE.format(bits=length_of(public)))


def fingerprint_lines(fingerprint: str) -> str:
    """Return a fingerprint in two lines, as people compare it.

    >>> fingerprint_lines("ab:" * 31 + "cd").count(":")
    30
    """
    middle = 3 * 16
    return f"{fingerprint[: middle - 1]}\n{fingerprint[middle:]}"


def plural(count: int, word: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "vector"), plural(2000, "vector")
    ('1 vector', '2,000 vectors')
    """
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
