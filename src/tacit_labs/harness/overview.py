"""All sources on one page: their headline numbers beside ours, from the JSON files that reproductions leave.

A finding stands here if it says ``headline=True``; nothing else has to be done for it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.errors import ConfigError
from tacit.report.page import Note, Page, Section, Table, Text
from tacit.report.page.parts import cell
from tacit.storage import write_atomically
from tacit_labs.harness import catalogue
from tacit_labs.harness.record import duration_words

NAME = "overview"
_LARGEST = 1 << 28  # bytes of a reproduction's JSON
BEGIN, END = "<!-- headlines: python benchmarks/overview.py -->", "<!-- end of headlines -->"
_TABLE_END = "<!-- end of table -->"
_TABLE = re.compile(rf"(<!-- table: (\S+) -->)\n.*?({_TABLE_END})", re.DOTALL)
_FLOAT = re.compile(r"-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)")
_COLUMNS = ("What", "The source", "Ours", "Why")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the overview needs of one reproduction."""

    name: str
    title: str
    document: str
    parts: tuple[str, ...]
    circumstances: str
    rows: tuple[tuple[str, str, str, str], ...]  # what, the source's, ours, why

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Source:
        """Read a reproduction's JSON."""
        record = kept["record"]
        quick = "quick run, smaller than the source's; " if record["quick"] else ""
        return cls(
            name=kept["name"],
            title=kept["title"],
            document=kept.get("document", ""),
            parts=tuple(kept.get("parts", ())),
            circumstances=f"{quick}{record['device']} ({record['machine']}), {duration_words(record)}",
            rows=tuple(
                (found["what"], found["original"], found["ours"], found["why"])
                for found in kept["findings"]
                if found.get("headline")
            ),
        )


def sources(folder: Path) -> list[Source]:
    """Return the reproductions of a folder that have headlines, in the catalogue's order."""
    found = []
    for name in catalogue.MODULES:
        path = folder / f"{name}.json"
        if path.exists():
            source = Source.of(foreign.json_object(foreign.read_plain(path, largest=_LARGEST), largest=_LARGEST))
            found += [source] if source.rows else []
    return found


def page(found: Sequence[Source]) -> Page:
    """Return the page."""
    missing = [name for name in catalogue.MODULES if name not in {source.name for source in found}]
    sections = [_section(source) for source in found]
    if missing:
        note = Note(text=f"Not in this folder: {', '.join(f'`{name}`' for name in missing)}. `tacit reproduce NAME`.")
        sections.append(Section(title="What is missing here", parts=(note,)))
    return Page(
        title="The sources' numbers beside ours",
        subtitle="tacit reproduce all",
        sections=sections,
        foot="What stands in quotation marks is quoted from the document that is named; all of ours was computed.",
    )


def _section(source: Source) -> Section:
    named = f" (`{source.document}`)" if source.document else ""
    return Section(
        title=source.title,
        lead=f"`{source.name}`{named}: {', '.join(source.parts)}.",
        parts=(
            Table(columns=_COLUMNS, rows=source.rows, align="llll"),
            Text(text=f"Ours: {source.circumstances}. All of it is in `{source.name}.html`."),
        ),
    )


def markdown(found: Sequence[Source]) -> str:
    """Return the same as tables for the documentation."""
    lines = []
    for source in found:
        lines += [f"**{source.title}** (`{source.document}`, page `{source.name}`). Ours: {source.circumstances}.", ""]
        lines += ["| what | the source | ours |", "|---|---|---|"]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row[:3])} |" for row in source.rows]
        lines += [""]
    return "\n".join(lines)


def filled(text: str, folder: Path) -> str:
    """Return a documentation page with a folder's headlines between their marks, and its tables between theirs.

    A table stands between ``<!-- table: report-000-learning -->``, the name of its CSV file, and
    ``<!-- end of table -->``.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ConfigError(f"Expected the page to have the lines {BEGIN} and {END} once each.")
    if text.count("<!-- table: ") != text.count(_TABLE_END):
        raise ConfigError(f"Expected every `<!-- table: NAME -->` of the page to have a {_TABLE_END} below it.")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = f"{before}{BEGIN}\n\n{markdown(sources(folder))}\n{END}{after}"
    return _TABLE.sub(lambda mark: f"{mark[1]}\n{_rows(folder / f'{mark[2]}.csv')}\n{mark[3]}", made)


def _rows(path: Path) -> str:
    if not path.exists():
        raise ConfigError(f"There is no {path}: a reproduction writes its tables as CSV; check the mark's name.")
    head, *rows = csv.reader(io.StringIO(path.read_text()))
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: str) -> str:
    """Return a CSV file's cell as its page has it: numbers in full precision are rounded.

    >>> _cell("0.37764795326590467"), _cell("75529.0"), _cell("1024"), _cell("5.07 s")
    ('0.3776', '75,529', '1024', '5.07 s')
    """
    if _FLOAT.fullmatch(value):
        return cell(float(value))
    return value.replace("|", "\\|")


def rewrite(page_path: Path, folder: Path) -> None:
    """Put a folder's headlines and tables into a documentation page."""
    made = filled(page_path.read_text(), folder)
    write_atomically(page_path, made.encode(), advice="Name a page that you may write to.")


def write(folder: Path, *, advice: str) -> Path | None:
    """Write ``overview.html`` from what lies in a folder, and return its place; without headlines there is none."""
    found = sources(folder)
    if not found:
        return None
    path = folder / f"{NAME}.html"
    write_atomically(path, page(found).html().encode(), advice=advice)
    return path
