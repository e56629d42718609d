"""The parts of a page: plain values that know nothing of HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tacit.errors import ConfigError
from tacit.report.page.charts import Chart

Tone = Literal["plain", "warn", "good", "bad"]
Cell = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph; `` `code` `` and ``**bold**`` are understood."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Note:
    """A paragraph that stands out."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Text as it is, such as a configuration file."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """One figure with its name."""

    label: str
    value: str
    detail: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Cards:
    """Cards side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column whose numbers have a unit that is said once: in its heading, or below the table."""

    name: str
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text and numbers.

    Attributes:
        columns: the headings, bare or with a unit; without any, the first column names the rows.
        rows: the cells; numbers are rounded for people, strings stay as they are, None is a dash.
        caption: what the table shows.
        align: a letter per column, ``l`` or ``r``; without it columns of numbers stand on the right.
        tones: (row, column) to the colour of a cell, which also says it in words.
    """

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    align: str = ""
    tones: Mapping[tuple[int, int], Tone] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != self.width:
                raise ConfigError(f"Row {number} of a table has {len(row)} cells, expected {self.width}: {row!r}.")
        if self.align and (len(self.align) != self.width or set(self.align) - {"l", "r"}):
            raise ConfigError(f"align is {self.align!r}, expected {self.width} letters of l and r.")

    @property
    def heads(self) -> tuple[Column, ...]:
        """The headings, each with its unit."""
        return tuple(Column(name=column) if isinstance(column, str) else column for column in self.columns)

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.columns) or (len(self.rows[0]) if self.rows else 0)

    @property
    def sides(self) -> str:
        """Return the letter of each column."""
        return self.align or "".join("r" if self._numbers(column) else "l" for column in range(self.width))

    def _numbers(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column] is not None]
        return bool(cells) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in cells)

    def csv(self) -> str:
        """Return the table as CSV, numbers not rounded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        if self.columns:
            writer.writerow(column.name for column in self.heads)
        writer.writerows(self.rows)
        return out.getvalue()


@dataclass(frozen=True, kw_only=True)
class Party:
    """Somebody in a drawing, and what they see."""

    name: str
    sees: str
    icon: Literal["clients", "server", "eye", "key"]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Who sees what: two parties, what travels between them, and who stands beside the line.

    Attributes:
        title: stands above it.
        left: who sends, and
        right: who receives.
        forth: what travels to the right, and
        back: what travels to the left.
        beside: who else there is: whoever listens on the line, holds a key or reads what comes out.
        caption: stands below.
    """

    title: str
    left: Party
    right: Party
    forth: str
    back: str
    beside: Sequence[Party] = ()
    caption: str = ""

    @property
    def parties(self) -> tuple[Party, ...]:
        """Everybody."""
        return (self.left, self.right, *self.beside)


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Small grey images in rows, each row with its name.

    Attributes:
        rows: by their names, images of one size as lines of numbers from 0 (black) to 1 (white).
        caption: stands below.
    """

    rows: Mapping[str, Sequence[Sequence[Sequence[float]]]]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A link that saves a text as a file; the text is inside the page."""

    label: str
    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Parts behind a line that opens them; on paper they are open."""

    summary: str
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Parts side by side where the window is wide enough."""

    parts: Sequence[Part]


Part = Text | Note | Code | Cards | Table | Chart | Drawing | Pictures | Download | Fold | Row


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    title: str
    parts: Sequence[Part]
    lead: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page; a ``sheet`` has no contents, and its print fits one page of paper."""

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    foot: str = ""
    banner: str = ""  # what has to be known before anything else is read
    sheet: bool = False  # whether it is made for one sheet of paper

    @property
    def charts(self) -> tuple[Chart, ...]:
        """All charts, those inside folds and rows too, in the order in which they are read."""
        return tuple(part for section in self.sections for part in _flat(section.parts) if isinstance(part, Chart))

    def html(self) -> str:
        """Return the page as one file that needs nothing else: no network, no other file.

        Equal pages give equal text, byte for byte.
        """
        from tacit.report.page.html import render

        return render(self)


def _flat(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, Fold | Row):
            yield from _flat(part.parts)


def cell(value: Cell) -> str:
    """Return a table's cell as text, numbers rounded for people.

    >>> cell(12345), cell(0.123456), cell(None), cell("dp"), cell(True)
    ('12,345', '0.1235', '–', 'dp', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "–" if math.isnan(value) else "infinite" if value > 0 else "minus infinite"
        return f"{value:.4g}" if abs(value) < 9_999.5 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    return str(value)
