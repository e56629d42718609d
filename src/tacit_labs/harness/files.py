"""What a reproduction leaves on disk: a page, its data as JSON, and its tables as CSV."""

from __future__ import annotations

import json
from pathlib import Path

from tacit.errors import RunError
from tacit.storage import write_atomically
from tacit_labs.harness.page import page
from tacit_labs.harness.record import Outcome

ADVICE = "Free some space, or choose another folder with --out."


def write(outcome: Outcome, out: Path) -> list[Path]:
    """Write NAME.html, NAME.json and NAME-TABLE.csv for each table into ``out``, each whole or not at all.

    All texts are made before the first is written, so that a page that can't be made leaves no half of the files.
    """
    name = outcome.experiment.name
    texts = {f"{name}.html": page(outcome).html(), f"{name}.json": _json(outcome)}
    reproduction = outcome.reproduction
    for key, sheet in (dict(reproduction.tables) | dict(reproduction.sheets)).items():
        texts[f"{name}-{key}.csv"] = sheet.csv()
    paths = []
    for file, text in texts.items():
        write_atomically(out / file, text.encode(), advice=ADVICE)
        paths.append(out / file)
    return paths


def _json(outcome: Outcome) -> str:
    try:
        return json.dumps(outcome.to_dict(), indent=2, allow_nan=False) + "\n"
    except ValueError as error:
        raise RunError(
            f"The data of {outcome.experiment.name} hold a number that is not finite, which JSON can't: {error}."
        ) from error
