from __future__ import annotations

import base64
import gzip
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.report.page import (
    Card,
    Cards,
    Code,
    Fold,
    Note,
    Page,
    Row,
    Section,
    Series,
    Table,
    Text,
    bars,
    heatmap,
    line,
    points,
    surface,
)
from tacit.report.page.html import json_block, marked
from tests.report.browser import drawn, look, needs_browser

# What a person does: press the button once the charts are there.
PRESS = """<script>const wait = setInterval(() => {
  if (document.documentElement.dataset.charts) { clearInterval(wait); document.getElementById("theme").click(); }
}, 50);</script></body>"""
HOSTILE = "</script><img src=x onerror=boom()>"
VOID = {"meta", "img", "br", "input", "link"}


def _page(word: str = "word", *, charts: bool = True) -> Page:
    """Return a page with every part, ``word`` wherever a word can be."""
    series = [Series(name=word, x=[1, 2, 3], y=[0.5, None, 0.7], low=[0.4, 0.4, 0.6], high=[0.6, 0.6, 0.8])]
    titles: dict[str, Any] = {"title": word, "x_title": word, "y_title": word, "caption": word}
    drawings = (
        line(series=series, levels={word: 0.6}, y_format=".1%", **titles),
        points(series=[Series(name=word, x=[1, 10], y=[1, 2], labels=[word, word])], log_x=True, **titles),
        bars(categories=[word, "other"], series={word: [1, 2], "b": [2, 1]}, stacked=True, **titles),
        heatmap(x=[1, 2], y=["a", word], z=[[1, 2], [3, None]], z_title=word, **titles),
        surface(x=[1, 2], y=[1, 2], z=[[1, 2], [3, 4]], z_title=word, **titles),
    )
    parts = (
        Text(text=word),
        Note(text=word, tone="warn"),
        Code(text=word),
        Cards(cards=(Card(label=word, value=word, detail=word),)),
        Table(columns=(word, "n"), rows=((word, 1),), caption=word, tones={(0, 0): "bad"}),
        Table(columns=(), rows=((word, word),)),
        Fold(summary=word, parts=(Text(text=word), *drawings[:1])) if charts else Text(text=word),
        Row(parts=drawings[1:]) if charts else Text(text=word),
    )
    sections = [Section(title=word, parts=parts, lead=word), *(Section(title=word, parts=()) for _ in range(3))]
    return Page(title=word, subtitle=word, foot=word, sections=sections)


class _Tags(HTMLParser):
    """Collects the tags of a page and checks that they close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(html)
    assert parser.open == []
    return parser.seen


def test_no_word_becomes_a_tag() -> None:
    plain, hostile = _tags(_page().html()), _tags(_page(HOSTILE).html())
    assert [tag for tag, _ in hostile] == [tag for tag, _ in plain]
    assert not any(name.startswith("on") for _, attributes in hostile for name in attributes)


def test_nothing_is_fetched() -> None:
    html = _page().html()
    for tag, attributes in _tags(html):
        assert tag not in {"link", "img", "iframe", "object", "base"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy.group(1).startswith("default-src 'none'")
    assert "http" not in policy.group(1)
    own = re.sub(r'<script id="library".*?</script>', "", html, flags=re.DOTALL)
    assert "://" not in own


def test_the_library_is_inside_and_the_page_is_small() -> None:
    html = _page().html()
    assert len(html.encode()) < 5_000_000
    inside = re.search(r'<script id="library" type="text/plain">([^<]*)</script>', html)
    assert inside is not None
    packed = base64.b64decode(inside.group(1))
    assert packed[4:8] == bytes(4)  # no time of packing: the same bytes every time
    assert "Plotly" in gzip.decompress(packed).decode()
    assert "showSendToCloud: false" in html


def test_equal_pages_are_equal_to_the_byte() -> None:
    assert _page().html() == _page().html()


def test_a_page_without_charts_has_no_library() -> None:
    html = _page(charts=False).html()
    assert len(html) < 40_000
    assert 'id="library"' not in html


def test_sections_have_names_of_their_own_and_links_to_them() -> None:
    tags = _tags(_page("A b").html())
    names = [attributes["id"] for tag, attributes in tags if tag == "section"]
    assert names == ["a-b", "a-b-2", "a-b-3", "a-b-4"]
    assert [attributes["href"] for tag, attributes in tags if tag == "a"] == [f"#{name}" for name in names]


@pytest.mark.parametrize("title", ["Charts", "Library", "Theme", "Trouble", "Chart 0"])
def test_no_section_takes_a_name_that_the_script_looks_for(title: str) -> None:
    parts = (line(title="t", series=[Series(name="a", x=[1], y=[1])], x_title="x", y_title="y"),)
    tags = _tags(Page(title="t", sections=(Section(title=title, parts=parts),)).html())
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))


def test_tones_are_colours_beside_words() -> None:
    table = Table(columns=("check",), rows=(("PASS",), ("FAIL",)), tones={(0, 0): "good", (1, 0): "bad"})
    html = Page(title="t", sections=(Section(title="s", parts=(table,)),)).html()
    assert '<td class="l good">PASS</td>' in html
    assert '<td class="l bad">FAIL</td>' in html


@needs_browser
def test_a_browser_draws_every_chart_and_runs_no_word(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(_page(HOSTILE).html().replace("</body>", PRESS))
    seen = look(path)
    assert 'data-charts="drawn"' in seen.root
    assert "data-errors" not in seen.root
    assert seen.dom.count("js-plotly-plot") >= 5
    assert drawn(seen) >= 4  # the surface is drawn by WebGL, where there is one
    assert "<img" not in seen.dom
    assert seen.trouble == ""
    assert 'data-theme="dark"' in seen.root
    assert "rgb(24, 29, 37)" in seen.dom  # the charts followed into the dark
    assert "rgb(105, 160, 254)" in seen.dom
    harmless = ("Canvas2D", "GL Driver Message", "WebGL")  # a slow machine's 3-D
    assert [line for line in seen.console if not any(word in line for word in harmless)] == []


@needs_browser
def test_a_browser_says_what_went_wrong(tmp_path: Path) -> None:
    """A test that could not see an error would prove nothing."""
    path = tmp_path / "page.html"
    path.write_text(_page().html().replace("await Plotly.react(", "await Plotly.nothing("))
    seen = look(path)
    assert 'data-errors="1"' in seen.root
    assert "The charts could not be drawn: TypeError" in seen.trouble


@needs_browser
def test_an_old_browser_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(_page().html().replace('typeof DecompressionStream === "undefined"', "true"))
    seen = look(path)
    assert "it lacks DecompressionStream" in seen.trouble


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a & b", "a &amp; b"),
        ("**b** and `c`", "<strong>b</strong> and <code>c</code>"),
        ("`**not bold**`", "<code>**not bold**</code>"),
        ("**<i>**", "<strong>&lt;i&gt;</strong>"),
        ("`<script>`", "<code>&lt;script&gt;</code>"),
        ("2 ** 3 and `", "2 ** 3 and `"),
    ],
)
def test_marks_are_set_and_all_else_is_escaped(text: str, html: str) -> None:
    assert marked(text) == html


def test_no_text_ends_the_script_element_and_json_survives() -> None:
    value = {"name": "</script><!--<script>&\u2028"}
    block = json_block(value)
    assert "<" not in block
    assert ">" not in block
    assert "\u2028" not in block
    assert json.loads(block) == value


def test_arrays_become_lists_and_gaps_become_null() -> None:
    block = json_block({"y": np.array([[1.0, math.nan], [math.inf, 2.0]]), "n": np.int64(3), "t": (1, -math.inf)})
    assert json.loads(block) == {"y": [[1.0, None], [None, 2.0]], "n": 3, "t": [1, None]}
