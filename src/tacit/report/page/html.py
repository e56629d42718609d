"""A page as HTML: one file that holds all it shows, its style, its script and plotly.js included."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from tacit.report.page.charts import Chart
from tacit.report.page.parts import Cards, Code, Column, Fold, Note, Page, Part, Row, Section, Table, Text, cell
from tacit.report.page.plotly import figure, template

_CONTENTS = 4  # with fewer sections a page needs no contents
# Nothing may be fetched: what a page shows is inside it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
_TAKEN = ("charts", "library", "theme", "trouble")  # names by which the script knows parts of the page
_NO_SCRIPT = "The charts of this page are drawn by its own script, which is switched off here. The tables work without."


def render(page: Page) -> str:
    """Return the whole file."""
    charts: list[Chart] = []
    names = _anchors(section.title for section in page.sections)
    body = "\n".join(_section(section, name, charts) for section, name in zip(page.sections, names, strict=True))
    subtitle = f'<p class="subtitle">{marked(page.subtitle)}</p>' if page.subtitle else ""
    foot = f"<footer>{marked(page.foot)}</footer>" if page.foot else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(page.title)}</title>
<style>
{style()}</style>
</head>
<body>
<header>
<button id="theme" type="button" hidden aria-label="Switch between light and dark">Light / dark</button>
<h1>{escaped(page.title)}</h1>
{subtitle}
{_contents(page.sections, names)}
</header>
<noscript><p class="note warn">{_NO_SCRIPT}</p></noscript>
<p id="trouble" class="note warn" hidden></p>
<main>
{body}
</main>
{foot}
{_scripts(charts)}
</body>
</html>
"""


def _scripts(charts: list[Chart]) -> str:
    """Return the charts as data, the library, and the script that joins them."""
    data = json_block({"template": template(), "charts": [figure(chart) for chart in charts]})
    library = f'<script id="library" type="text/plain">{_library()}</script>\n' if charts else ""
    return (
        f'<script id="charts" type="application/json">{data}</script>\n{library}<script>\n{_read("script.js")}</script>'
    )


def _contents(sections: Iterable[Section], names: list[str]) -> str:
    if len(names) < _CONTENTS:
        return ""
    links = "".join(
        f'<a href="#{name}">{escaped(section.title)}</a>' for section, name in zip(sections, names, strict=True)
    )
    return f'<nav aria-label="Contents">{links}</nav>'


def _anchors(titles: Iterable[str]) -> list[str]:
    """Return a name for each section's heading, each once.

    >>> _anchors(["What it cost", "What it cost", "?"])
    ['what-it-cost', 'what-it-cost-2', 'section']
    """
    names: list[str] = []
    for title in titles:
        name = stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        number = 1
        while name in names or name in _TAKEN or re.fullmatch(r"chart-\d+", name):
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def _section(section: Section, name: str, charts: list[Chart]) -> str:
    lead = f'<p class="lead">{marked(section.lead)}</p>\n' if section.lead else ""
    return (
        f'<section id="{name}">\n<h2>{escaped(section.title)}</h2>\n{lead}{_parts(section.parts, charts)}\n</section>'
    )


def _parts(parts: Iterable[Part], charts: list[Chart]) -> str:
    return "\n".join(_part(part, charts) for part in parts)


def _part(part: Part, charts: list[Chart]) -> str:
    match part:
        case Text():
            told = f"<p>{marked(part.text)}</p>"
        case Note():
            told = f'<p class="note {part.tone}">{marked(part.text)}</p>'
        case Code():
            told = f"<pre>{escaped(part.text)}</pre>"
        case Cards():
            told = _cards(part)
        case Table():
            told = _table(part)
        case Chart():
            charts.append(part)
            told = _chart(part, len(charts) - 1)
        case Fold():
            told = f"<details><summary>{marked(part.summary)}</summary>\n{_parts(part.parts, charts)}\n</details>"
        case Row():
            told = f'<div class="row">\n{_parts(part.parts, charts)}\n</div>'
    return told


def _cards(part: Cards) -> str:
    cards = []
    for card in part.cards:
        detail = f'<span class="detail">{marked(card.detail)}</span>' if card.detail else ""
        cards.append(
            f'<div class="card {card.tone}"><dt>{escaped(card.label)}</dt><dd>{escaped(card.value)}{detail}</dd></div>'
        )
    return f'<dl class="cards">{"".join(cards)}</dl>'


def _table(table: Table) -> str:
    caption = f"<caption>{marked(table.caption)}</caption>" if table.caption else ""
    sides = table.sides
    head = "".join(
        f'<th scope="col" class="{side}">{escaped(_headed(column))}</th>'
        for column, side in zip(table.heads, sides, strict=False)
    )
    rows = []
    for number, row in enumerate(table.rows):
        cells = []
        for column, (value, side) in enumerate(zip(row, sides, strict=True)):
            tone = table.tones.get((number, column), "plain")
            kind = side if tone == "plain" else f"{side} {tone}"
            name = column == 0 and not table.columns
            tag, scope = ("th", ' scope="row"') if name else ("td", "")
            cells.append(f'<{tag}{scope} class="{kind}">{escaped(cell(value))}</{tag}>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    thead = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="scroll" tabindex="0"><table>{caption}{thead}<tbody>{"".join(rows)}</tbody></table></div>'


def _headed(column: Column) -> str:
    return f"{column.name}, {column.unit}" if column.unit else column.name


def _chart(chart: Chart, number: int) -> str:
    caption = f"<figcaption>{marked(chart.caption)}</figcaption>" if chart.caption else ""
    return (
        f'<figure><h3>{escaped(chart.title)}</h3><div class="chart" id="chart-{number}" role="img" '
        f'aria-label="{escaped(chart.title)}" style="height:{chart.height}px"></div>{caption}</figure>'
    )


def escaped(text: str) -> str:
    """Return text for HTML, also between quotation marks.

    >>> escaped('<a href="x">')
    '&lt;a href=&quot;x&quot;&gt;'
    """
    return html.escape(text)


def marked(text: str) -> str:
    """Return text for HTML in which `` `code` `` and ``**bold**`` are set as such.

    >>> marked("**Two** of `a<b`")
    '<strong>Two</strong> of <code>a&lt;b</code>'
    """
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"<code>{escaped(piece[1:-1])}</code>"
        if len(piece) > 2 and piece[0] == piece[-1] == "`"
        else re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped(piece))
        for piece in pieces
    )


def json_block(value: object) -> str:
    r"""Return JSON that can stand inside a ``<script>`` element: no text in it can end the element.

    >>> json_block({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(_data(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(value: Any) -> Any:
    """Return plain data: arrays as lists, and numbers that JSON has no word for as null."""
    if isinstance(value, Mapping):
        return {str(key): _data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_data(inner) for inner in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return _data(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def style() -> str:
    """Return the style sheet."""
    return _read("style.css")


@cache
def _library() -> str:
    """Return plotly.js, compressed, as base64: 2 MB instead of 5. The same bytes every time."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)).decode()


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
