"""A page as HTML: one file that holds all it shows, its style, its script and plotly.js included."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from tacit.report.page.charts import Chart
from tacit.report.page.parts import (
    Cards,
    Code,
    Column,
    Download,
    Drawing,
    Fold,
    Note,
    Page,
    Part,
    Party,
    Pictures,
    Row,
    Section,
    Table,
    Text,
    cell,
)
from tacit.report.page.plotly import figure, template

_CONTENTS = 4  # with fewer sections a page needs no contents
# Nothing may be fetched: what a page shows is inside it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
_TAKEN = (
    *("charts", "library", "theme", "trouble", "print", "title", "subtitle"),
    *("contents", "live", "banner", "main", "foot"),
)  # names by which the script knows parts of the page
_NO_SCRIPT = "The charts of this page are drawn by its own script, which is switched off here. The tables work without."

_SVG = '<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.6">{}</svg>'
_ICONS = {
    "clients": _SVG.format('<path d="M3 20V9l5-4 5 4v11M8 20v-5M13 20h8v-8l-4-3-4 3M17 20v-4M2 20h20"/>'),
    "server": _SVG.format('<path d="M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01M12 7h5M12 17h5"/>'),
    "eye": _SVG.format('<path d="M2 12s4-7 10-7 10 7 10 7-4 7-10 7S2 12 2 12z"/><circle cx="12" cy="12" r="3"/>'),
    "key": _SVG.format('<circle cx="7" cy="12" r="4"/><path d="M11 12h10M18 12v4M21 12v3"/>'),
}


def render(page: Page, *, live: Mapping[str, str] | None = None) -> str:
    """Return the whole file; a page that is served may follow what it shows, and ``live`` says how far that is."""
    told = content(page)
    policy = _POLICY if live is None else f"{_POLICY}; connect-src 'self'"
    kind = ' class="sheet"' if page.sheet else ""
    state = "" if live is None else f' data-live="{escaped(live["state"])}"'
    words = "" if live is None else marked(live["words"])
    return f"""<!doctype html>
<html lang="en"{state}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(page.title)}</title>
<style>
{style()}</style>
</head>
<body{kind}>
<header>
<div class="tools">
<button id="print" type="button" hidden>Print</button>
<button id="theme" type="button" hidden aria-label="Switch between light and dark">Light / dark</button>
</div>
<h1 id="title">{escaped(page.title)}</h1>
<p class="subtitle" id="subtitle">{told["subtitle"]}</p>
<div id="contents">{told["contents"]}</div>
</header>
<p id="live" class="note live" role="status"{"" if live else " hidden"}>{words}</p>
<noscript><p class="note warn">{_NO_SCRIPT}</p></noscript>
<p id="trouble" class="note warn" hidden></p>
<div id="banner">{told["banner"]}</div>
<main id="main">
{told["main"]}
</main>
<footer id="foot">{told["foot"]}</footer>
{_scripts(told["charts"], live)}
</body>
</html>
"""


def content(page: Page) -> dict[str, Any]:
    """Return what changes when a page is followed: its words as HTML by their places, and its charts as plotly's."""
    charts: list[Chart] = []
    names = _anchors(section.title for section in page.sections)
    body = "\n".join(_section(section, name, charts) for section, name in zip(page.sections, names, strict=True))
    return {
        "title": page.title,
        "subtitle": marked(page.subtitle),
        "contents": "" if page.sheet else _contents(page.sections, names),
        "banner": f'<p class="note warn">{marked(page.banner)}</p>' if page.banner else "",
        "main": body,
        "foot": marked(page.foot),
        "charts": _data([figure(chart) for chart in charts]),
    }


def _scripts(charts: list[Any], live: Mapping[str, str] | None) -> str:
    """Return the charts as data, the library, and the script that joins them."""
    data = json_block({"template": template(), "charts": charts} | ({} if live is None else {"tag": live["tag"]}))
    wanted = charts or live is not None  # what is followed may have charts later
    library = f'<script id="library" type="text/plain">{_library()}</script>\n' if wanted else ""
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
        case Drawing():
            told = _drawing(part)
        case Pictures():
            told = _pictures(part)
        case Download():
            told = _download(part)
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


def _pictures(part: Pictures) -> str:
    rows = []
    for name, images in part.rows.items():
        shown = "".join(
            f'<img alt="{escaped(name)}, {place} of {len(images)}" src="data:image/png;base64,{_png(image)}">'
            for place, image in enumerate(images, 1)
        )
        rows.append(f"<tr><th>{escaped(name)}</th><td>{shown}</td></tr>")
    caption = f"<figcaption>{marked(part.caption)}</figcaption>" if part.caption else ""
    return f'<figure class="pictures"><table>{"".join(rows)}</table>{caption}</figure>'


def _png(image: Sequence[Sequence[float]]) -> str:
    """Return a grey image as a PNG in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = [bytes(round(255 * min(1.0, max(0.0, pixel))) for pixel in line) for line in image]
    head = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def _download(part: Download) -> str:
    data = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(part.text.encode()).decode()}"
    return f'<p><a class="download" download="{escaped(part.name)}" href="{data}">{escaped(part.label)}</a></p>'


def _drawing(part: Drawing) -> str:
    caption = f"<figcaption>{marked(part.caption)}</figcaption>" if part.caption else ""
    beside = "".join(map(_party, part.beside))
    forth, back = f"<span>{escaped(part.forth)}</span><i></i>", f'<span>{escaped(part.back)}</span><i class="back"></i>'
    return (
        f'<figure class="parties"><h3>{escaped(part.title)}</h3><div class="line">{_party(part.left)}'
        f'<div class="wire">{forth}{back}</div>'
        f'{_party(part.right)}</div><div class="beside">{beside}</div>{caption}</figure>'
    )


def _party(party: Party) -> str:
    return (
        f'<div class="party">{_ICONS[party.icon]}<strong>{escaped(party.name)}</strong>'
        f"<span>{escaped(party.sees)}</span></div>"
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
