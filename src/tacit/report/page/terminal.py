"""A page in the terminal: text and tables as they are, charts as sparklines, small tables and blocks.

What is folded in a page is left out here. Everything that a renderable needs to know of the terminal, its width and
whether it has more than ASCII, it learns when it is printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text as Words

from tacit.report.page.charts import Axis, Bars, Chart, Heatmap, Lines, Numbers, Panel, Points, Surface
from tacit.report.page.parts import (
    Cards,
    Code,
    Download,
    Drawing,
    Fold,
    Note,
    Page,
    Part,
    Pictures,
    Row,
    Section,
    Table,
    Text,
    Tone,
    cell,
)

_TONES: dict[Tone, str] = {"plain": "", "good": "bold green", "warn": "yellow", "bad": "red"}
_NOTES: dict[Tone, str] = {"plain": "yellow", "good": "green", "warn": "bold yellow", "bad": "red"}
_LINES = 20  # clients, series or categories that a chart shows
_WORD = 20  # letters of a word that is not broken
_WIDE = 12  # columns of numbers that fit
_SPARKS, _ASCII_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_SPARK = 30  # letters of a sparkline
_SHADES, _ASCII_SHADES = " ·░▒▓█", " .:+x#"  # from none to the most; told apart without colour
_NAMED = 40  # letters of a heat map whose columns have names
_BAR = 20  # letters of the longest bar


def page(shown: Page) -> Group:
    """Return a whole page."""
    head = [Words(shown.title, style="bold")] + ([marked(shown.subtitle, "dim")] if shown.subtitle else [])
    if shown.banner:
        head.append(marked(shown.banner, _NOTES["warn"]))
    return Group(*head, *(section(one) for one in shown.sections))


def section(shown: Section) -> Group:
    """Return a section under its heading."""
    lead = [marked(shown.lead, "dim")] if shown.lead else []
    return Group(Words(""), Words(shown.title, style="bold underline"), *lead, parts(shown.parts))


def parts(shown: Iterable[Part]) -> Group:
    """Return parts one below the other; cards and facts that follow each other share their columns."""
    made: list[RenderableType] = []
    facts: Grid | None = None
    for part in shown:
        if not isinstance(part, Cards) and not (isinstance(part, Table) and _is_facts(part)):
            facts = None
            made += _part(part)
            continue
        if facts is None:
            facts = Grid.grid(padding=(0, 2))
            facts.add_column(style="dim")
            facts.add_column(overflow="fold")
            made.append(facts)
        _add_facts(facts, part)
    return Group(*made)


def table(shown: Table, *, most: int | None = None) -> Group:
    """Return a table, its first ``most`` rows where that is given; the units of its columns stand below."""
    lines: list[RenderableType] = [marked(shown.caption, "dim")] if shown.caption else []
    lines.append(_grid(shown, most))
    units: dict[str, list[str]] = {}
    for column in shown.heads:
        if column.unit:
            units.setdefault(column.unit, []).append(column.name)
    if units:
        lines.append(Words("; ".join(f"{', '.join(names)}: {unit}" for unit, names in units.items()), style="dim"))
    if most is not None and len(shown.rows) > most:
        lines.append(Words(f"{len(shown.rows) - most:,} more lines are not shown.", style="dim"))
    return Group(*lines)


def marked(text: str, style: str = "") -> Words:
    """Return text in which `` `code` `` and ``**bold**`` are set as such.

    >>> marked("**Two** of `a`").plain
    'Two of a'
    """
    words = Words(style=style)
    for piece in re.split(r"(`[^`]+`|\*\*.+?\*\*)", text):
        if len(piece) > 2 and piece[0] == piece[-1] == "`":
            words.append(piece[1:-1], style="cyan")
        elif len(piece) > 4 and piece.startswith("**") and piece.endswith("**"):
            words.append(piece[2:-2], style="bold")
        else:
            words.append(piece)
    return words


def _part(part: Part) -> Iterator[RenderableType]:
    match part:
        case Text():
            yield marked(part.text)
        case Note():
            yield marked(part.text, _NOTES[part.tone])
        case Code():
            yield Words(part.text)
        case Table():
            yield table(part)
        case Chart():
            yield from chart(part)
        case Row():
            yield parts(part.parts)
        case Drawing():
            rows = [(party.name, party.sees) for party in part.parties]
            yield table(Table(columns=("who", "sees"), rows=rows, caption=part.title))
        case Fold() | Cards() | Pictures() | Download():
            return


def _is_facts(part: Table) -> bool:
    return not part.columns and not part.caption and part.width == 2


def _add_facts(grid: Grid, part: Cards | Table) -> None:
    if isinstance(part, Table):
        for name, value in part.rows:
            grid.add_row(cell(name), Words(cell(value)))
        return
    for card in part.cards:
        words = Words(card.value, style=_TONES[card.tone] or "bold")
        grid.add_row(card.label, Words.assemble(words, "  ", marked(card.detail)) if card.detail else words)


def _grid(shown: Table, most: int | None) -> Grid:
    if shown.columns:
        grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for place, column in enumerate(shown.heads):
            right = shown.sides[place] == "r"
            words = [word for row in shown.rows[:most] for word in cell(row[place]).split()]
            grid.add_column(
                Words(column.name, style="dim"),
                justify="right" if right else "left",
                no_wrap=right,
                overflow="fold",
                min_width=min(_WORD, max(map(len, words), default=0)),
            )
    else:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="dim")
        for _ in range(shown.width - 1):
            grid.add_column(overflow="fold")
    for number, row in enumerate(shown.rows[:most]):
        tones = [shown.tones.get((number, place), "plain") for place in range(len(row))]
        grid.add_row(*(Words(cell(value), style=_TONES[tone]) for value, tone in zip(row, tones, strict=True)))
    return grid


def chart(shown: Chart) -> Iterator[RenderableType]:
    """Yield what a terminal can show of a chart."""
    yield Words(shown.title, style="bold")
    first, *rest = shown.panels
    if isinstance(first.drawing, Heatmap) and shown.shared and len(rest) == 1 and isinstance(rest[0].drawing, Bars):
        yield _Blocks(heat=first.drawing, panel=first, beside=rest[0])
    else:
        for panel in shown.panels:
            if panel.title:
                yield Words(panel.title, style="dim")
            yield _panel(panel)
    if shown.caption:
        yield marked(shown.caption, "dim")


def _panel(panel: Panel) -> RenderableType:
    drawing = panel.drawing
    match drawing:
        case Lines():
            return _sparklines([(one.name, one.y) for one in drawing.series], panel.y, panel)
        case Points():
            return _points(drawing, panel)
        case Bars():
            return _bars(drawing, panel)
        case Heatmap():
            return _Blocks(heat=drawing, panel=panel)
        case Surface():
            return _surface(drawing, panel)


def _points(drawing: Points, panel: Panel) -> Group:
    rows = [
        ((one.labels or [one.name] * len(one.x))[place], panel.x.text(one.x[place]), panel.y.text(one.y[place]))
        for one in drawing.series
        for place in range(len(one.x))
    ]
    return Group(_numbers(("", panel.x.title, panel.y.title), rows), *_levels(panel, panel.y))


def _bars(drawing: Bars, panel: Panel) -> Group:
    across, along = (panel.y, panel.x) if drawing.horizontal else (panel.x, panel.y)
    if len(drawing.categories) > _LINES:
        return _sparklines([(one.name, one.values) for one in drawing.series], along, panel)
    rows = [
        (str(name), *(along.text(one.values[place]) for one in drawing.series))
        for place, name in enumerate(drawing.categories)
    ]
    head = (across.title, *(one.name for one in drawing.series))
    return Group(_numbers(head, rows, title=along.title), *_levels(panel, along))


def _surface(drawing: Surface, panel: Panel) -> RenderableType:
    if len(drawing.x) > _WIDE or len(drawing.y) > _LINES:
        return Words(f"{len(drawing.y)} by {len(drawing.x)} numbers, which do not fit here.", style="dim")
    head = (f"{panel.y.title} \\ {panel.x.title}", *(panel.x.text(x) for x in drawing.x))
    rows = [(panel.y.text(y), *(panel.z.text(z) for z in row)) for y, row in zip(drawing.y, drawing.z, strict=True)]
    return _numbers(head, rows, title=panel.z.title)


def _numbers(head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> Group:
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(head):
        grid.add_column(Words(name, style="dim"), justify="right" if place else "left")
    for row in rows:
        grid.add_row(*map(Words, row))
    return Group(*([Words(title, style="dim")] if title else []), grid)


def _sparklines(series: Sequence[tuple[str, Numbers]], axis: Axis, panel: Panel) -> Group:
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in (axis.title, f"by {panel.x.title or panel.y.title}", "first", "last"):
        grid.add_column(Words(name, style="dim"), justify="right" if name in ("first", "last") else "left")
    for name, values in series[:_LINES]:
        known = [value for value in values if value is not None and math.isfinite(value)]
        ends = (axis.text(known[0]), axis.text(known[-1])) if known else ("–", "–")
        grid.add_row(Words(name), _Spark(values=known), *ends)
    return Group(grid, *_levels(panel, axis))


def _levels(panel: Panel, axis: Axis) -> list[Words]:
    lines = [line for line in panel.references if not line.upright]
    return [Words(f"{line.name}: {axis.text(line.at)}", style="dim") for line in lines]


@dataclass(frozen=True, kw_only=True)
class _Spark:
    """Numbers as a row of letters, low to high."""

    values: Sequence[float]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        levels = _ASCII_SPARKS if options.ascii_only else _SPARKS
        step = max(1, -(-len(self.values) // _SPARK))
        shown = self.values[::step]
        low, high = min(shown, default=0.0), max(shown, default=0.0)
        share = [(value - low) / (high - low) if high > low else 0.5 for value in shown]
        yield Words("".join(levels[round(value * (len(levels) - 1))] for value in share), no_wrap=True)

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(1, min(_SPARK, max(1, len(self.values))))


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """A heat map as shades: a line for each row, and the bars beside it where there are any."""

    heat: Heatmap
    panel: Panel
    beside: Panel | None = None

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        levels, full = (_ASCII_SHADES, "#") if options.ascii_only else (_SHADES, "█")
        names = [name[:16] for name in self.heat.y[:_LINES]]
        margin = max(map(len, (*names, self.panel.y.title)))
        width, heading = self._heading()
        sizes, title = self._sizes()
        texts = [f"{size:,.0f}" for size in sizes]
        number = max(map(len, (*texts, title))) + 1 if sizes else 0
        longest = max(0, min(_BAR, options.max_width - margin - number - len(heading) - 4))
        yield _line(f"{self.panel.y.title:>{margin}}{title:>{number}} |{heading}|")
        edges = self._edges()
        for place, name in enumerate(names):
            cells = "".join(self._letter(value, edges, levels) * width for value in self.heat.z[place])
            told = bar = ""
            if sizes:
                told = f"{texts[place]:>{number}}"
                if sizes[place] and longest >= 4:
                    bar = full * max(1, round(sizes[place] / max(sizes) * longest))
            yield _line(f"{name:>{margin}}{told} |{cells}| {bar}".rstrip())
        yield from (Words(f"{'':>{margin}}  {words}") for words in self._explained(edges, levels, width))

    def _heading(self) -> tuple[int, str]:
        """Return how many letters wide a cell is, and what stands above the cells: last digits, or names cut short."""
        names = [str(name) for name in self.heat.x]
        if all(name.isdigit() for name in names):
            width = 2 if len(names) <= 20 else 1
            return width, "".join(name[-1:] * width for name in names)
        width = max(1, min(6, max(map(len, names)) + 1, _NAMED // len(names)))
        return width, "".join(f"{name[: max(1, width - 1)]:<{width}}" for name in names)

    def _sizes(self) -> tuple[list[float], str]:
        if self.beside is None or not isinstance(self.beside.drawing, Bars):
            return [], ""
        one = self.beside.drawing.series[0]
        return [value or 0.0 for value in one.values[:_LINES]], one.name

    def _edges(self) -> list[float]:
        """Return at which numbers a shade gets darker."""
        if self.heat.edges:
            return list(self.heat.edges)
        known = [value for row in self.heat.z for value in row if value is not None and math.isfinite(value)]
        low, high = self.panel.z.ends or (min(known, default=0.0), max(known, default=1.0))
        return [low + (high - low) * share for share in (0.2, 0.4, 0.6, 0.8)]

    def _letter(self, value: float | None, edges: Sequence[float], levels: str) -> str:
        if self.heat.states:
            return " " if value is None else levels[_spread(int(value), len(self.heat.states), len(levels))]
        if value is None or not value:
            return levels[0]
        return levels[1 + sum(value >= edge for edge in edges)]

    def _explained(self, edges: Sequence[float], levels: str, width: int) -> Iterator[str]:
        if self.heat.states:
            count = len(self.heat.states)
            kinds = enumerate(self.heat.states)
            yield "  ".join(f"{levels[_spread(at, count, len(levels))] * width} {state.name}" for at, state in kinds)
        else:
            bounds = [f"{levels[level] * width} from {self.panel.z.text(edge)}" for level, edge in enumerate(edges, 2)]
            yield f"Shade: {self.panel.z.title}."
            yield f"{levels[1] * width} less  {'  '.join(bounds)}"
        if len(self.heat.y) > _LINES:
            yield f"These are the first {_LINES} of {len(self.heat.y):,}."


def _spread(place: int, count: int, levels: int) -> int:
    """Return the shade of a state: the first is the lightest, the last the darkest."""
    return round(place * (levels - 1) / max(1, count - 1))


def _line(text: str) -> Words:
    return Words(text, no_wrap=True, overflow="crop")
