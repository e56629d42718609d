"""Real clients, which are of unequal size: Shakespeare's speakers, and the trades of the Adult table."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tacit.errors import DataError
from tacit_labs.bench.documented.models.rounds import Cohort
from tacit_labs.bench.documented.models.zoo import CATEGORIES, CHARACTERS, LENGTH

SPOKEN = ("lstm", "gru", "encoder", "decoder")  # models of speakers' lines, and of trades
WORKED = ("adult",)
_BATCH = 10
_FEWEST = 2  # examples of a client
_SPEAKERS_ON_A_CPU = 60
_WORDS = (1, 3, 5, 6, 7, 8, 9, 13)  # Adult's columns of categories, in the order of the model's tables
_NUMBERS = (0, 2, 4, 10, 11, 12)
_TRADE, _SCHOOL = 6, 3


def cohorts(*, text: Path | None, table: Path | None, quick: bool) -> Iterator[tuple[str, Cohort]]:
    """Yield models' names with their clients, as far as there are files.

    Args:
        text: plays as char-rnn has them: a name and a colon, then what is said, then an empty line.
        table: UCI's ``adult.data``, as it is or as ``.gz``.
        quick: fewer speakers.
    """
    if text is not None:
        own = speakers(text, most=_SPEAKERS_ON_A_CPU if quick else None)
        yield from ((name, own) for name in SPOKEN)
    if table is not None:
        own = trades(table)
        yield from ((name, own) for name in WORKED)


def speakers(path: Path, *, most: int | None = None) -> Cohort:
    """Return each speaker's lines, cut into windows: the characters before one, and it."""
    try:
        plays = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text ({error.reason}). Expected plays, such as tinyshakespeare.") from error
    lines: dict[str, str] = {}
    for block in plays.split("\n\n"):
        said = re.match(r"([A-Z][A-Za-z ']+):\n", block)
        if said is not None:
            lines[said[1]] = lines.get(said[1], "") + block[said.end() :] + "\n"
    alphabet = {character: number for number, character in enumerate(sorted(set(plays)))}
    kept = [own for _, own in sorted(lines.items()) if len(own) >= _FEWEST * (LENGTH + 1)][:most]
    if len(alphabet) > CHARACTERS:
        raise DataError(f"{path} has {len(alphabet)} different characters, expected {CHARACTERS} at most.")
    if not kept:
        raise DataError(f"Nobody speaks in {path}. Expected names with a colon, each on a line of its own, then words.")
    windows = []
    for own in kept:
        numbers = torch.tensor([alphabet[character] for character in own])
        windows.append(numbers[: len(numbers) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1))
    whole = torch.cat(windows)
    return _cohort("speakers", whole[:, :-1].contiguous(), whole[:, -1].contiguous(), [len(own) for own in windows])


def trades(path: Path) -> Cohort:
    """Return Adult's rows by trade and schooling."""
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            rows = [row for row in csv.reader(lines, skipinitialspace=True) if len(row) == 15]
        numbers = torch.tensor([[float(row[place]) for place in _NUMBERS] for row in rows])
    except (gzip.BadGzipFile, EOFError, ValueError) as error:  # bytes that are no text are a ValueError too
        raise DataError(f"{path} can't be read ({error}). Expected UCI's adult.data.") from error
    if not rows:
        raise DataError(f"No line of {path} has Adult's 15 columns. Expected UCI's adult.data.")
    order = sorted(range(len(rows)), key=lambda place: (rows[place][_TRADE], rows[place][_SCHOOL]))
    rows, numbers = [rows[place] for place in order], numbers[order]
    columns = []
    for place, (most, _) in zip(_WORDS, CATEGORIES, strict=True):
        known = {word: number for number, word in enumerate(sorted({row[place] for row in rows}))}
        if len(known) > most:
            raise DataError(f"Column {place + 1} of {path} has {len(known)} different words, expected {most} at most.")
        columns.append([known[row[place]] for row in rows])
    features = torch.cat([torch.tensor(columns).t().float(), (numbers - numbers.mean(0)) / numbers.std(0)], 1)
    labels = torch.tensor([int(row[14].startswith(">")) for row in rows])
    _, starts = np.unique([f"{row[_TRADE]}, {row[_SCHOOL]}" for row in rows], return_index=True)
    ends = np.sort(starts)[1:]
    return _cohort("trades", features, labels, np.diff([0, *ends, len(rows)]).tolist())


def _cohort(who: str, features: torch.Tensor, labels: torch.Tensor, sizes: list[int]) -> Cohort:
    rows = [own for own in np.split(np.arange(len(labels)), np.cumsum(sizes)[:-1]) if len(own) >= _FEWEST]
    held = [len(own) for own in rows]
    words = f"{len(rows)} {who} of {min(held)} to {max(held)}, batch {_BATCH}"
    return Cohort(words=words, features=features, labels=labels, rows=rows, batch=_BATCH, timed=len(rows))
