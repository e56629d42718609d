from __future__ import annotations

import math
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, StorageError
from tacit.report.page import (
    Axis,
    Chart,
    Fold,
    Heatmap,
    Key,
    Page,
    Panel,
    Points,
    Reference,
    Row,
    Section,
    Series,
    State,
    Tick,
    bars,
    decades,
    heatmap,
    line,
    png,
    points,
    surface,
)

BAND = Series(name="a", x=[1, 2, 3], y=[0.5, None, 0.7], low=[0.4, 0.4, 0.6], high=[0.6, 0.6, 0.8])
NAMED = Series(name="b", x=["one", "two", None], y=[1, 2, None], labels=["p", "q", ""], side="left", hollow=True)
STATES = (State(name="out", colour="grid"), State(name="in", colour="series-1", mark="×"))
CHARTS = {
    "line": line(
        title="t", series=[BAND], x_title="x", y_title="y", levels={"budget": 0.9}, y_format=".1%", caption="**So**."
    ),
    "line of names": line(title="t", series=[Series(name="b", x=["l", "r"], y=[1, 2])], x_title="x", y_title="y"),
    "stacked": line(
        title="t",
        series=[Series(name="a", x=range(200), y=range(200)), Series(name="b", x=range(200), y=[None] * 200)],
        x_title="x",
        y_title="y",
        stacked=True,
        from_zero=True,
    ),
    "nothing": line(title="t", series=[Series(name="a", x=[], y=[])], x_title="x", y_title="y", log_y=True),
    "points": points(title="t", series=[Series(name="a", x=[1, 10], y=[1, 2], labels=["p", "q"])], x_title="x",
                     y_title="y", log_x=True),
    "bars": bars(title="t", categories=["c", "d"], series={"a": [1, None], "b": [2, 3]}, y_title="y",
                 low={"a": [0.5, None]}, high={"a": [2, None]}),
    "stacked bars": bars(title="t", categories=[1, 2], series={"a": [1, 2], "b": [2, 1]}, y_title="y", stacked=True),
    "horizontal": decades(
        bars(title="t", categories=["c", "d"], series={"a": [0.02, 30]}, y_title="y", horizontal=True),
        [0.02, 30],
        axis="x",
    ),
    "many bars": bars(title="t", categories=list(range(500)), series={"a": [1.0] * 500}, y_title="y"),
    "heat": heatmap(title="t", x=[1, 2], y=["a", "b"], z=[[1, 2], [3, None]], x_title="x", y_title="y", z_title="z",
                    z_format=",d"),
    "states": heatmap(title="t", x=[1, 2], y=["a"], z=[[0, 1]], x_title="x", y_title="y", states=STATES),
    "surface": surface(title="t", x=[1, 2], y=[0.1, 1], z=[[1, 10], [100, None]], x_title="C", y_title="s", log_y=True,
                       log_z=True, z_ends=(1, 1000)),
    "level surface": surface(title="t", x=[1, 2], y=[1, 2], z=[[1, 1], [1, 1]], x_title="C", y_title="s"),
    "panels": Chart(
        title="t",
        across=2,
        widths=(2, 1),
        shared=True,
        panels=[
            Panel(
                drawing=Points(series=[BAND], keys=[Key(name="kind", symbol=3)]),
                x=Axis(log=True, ends=(0.5, 5), title="x"),
                references=[Reference(name="edge", at=2, upright=True)],
            ),
            Panel(drawing=Points(series=[NAMED]), x=Axis(names=True)),
            Panel(drawing=Heatmap(x=["1"], y=["1"], z=[[None]]), z=Axis(root=True)),
        ],
    ),
    "ticks": Chart(
        title="t",
        panels=[Panel(drawing=Points(series=[BAND]), x=Axis(ticks=[Tick(at=2, text="two")]), y=Axis(step=0.25))],
    ),
}  # fmt: skip


def _size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize("name", list(CHARTS))
def test_every_kind_of_chart_can_be_drawn(name: str, tmp_path: Path) -> None:
    png.write(CHARTS[name], tmp_path / "a.png")
    width, height = _size(tmp_path / "a.png")
    assert 500 < width < 2500
    assert 300 < height < 1500


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_equal_charts_give_equal_files_of_any_kind(name: str, magic: bytes, tmp_path: Path) -> None:
    found = []
    for folder in ("one", "two"):
        png.write(CHARTS["bars"], tmp_path / folder / name)
        found.append((tmp_path / folder / name).read_bytes())
    assert found[0].startswith(magic)
    assert found[0] == found[1]


def test_what_is_drawn_is_what_the_chart_says() -> None:
    (axes,) = png.draw(CHARTS["line"]).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [0.5, 0.7]  # a gap is drawn through, as in a page
    assert np.asarray(axes.lines[1].get_ydata()).tolist() == [0.9, 0.9]
    assert "%" in axes.yaxis.get_major_formatter()(0.5, 0)
    heat, _bar = png.draw(CHARTS["heat"]).axes
    assert np.ma.asarray(heat.images[0].get_array()).tolist() == [[1, 2], [3, None]]
    (rows,) = png.draw(CHARTS["horizontal"]).axes
    assert rows.get_xscale() == "log"
    assert rows.yaxis_inverted()


ODD: dict[str, list[float | None]] = {
    "infinite": [1, math.inf, 3],
    "no number": [math.nan] * 3,
    "not measured": [None] * 3,
    "nought": [0, 0, 0],
    "below nought": [-1, 0, 5],
}


@pytest.mark.parametrize("name", list(ODD))
@pytest.mark.parametrize("log", [False, True])
def test_what_an_axis_has_no_place_for_is_left_out(name: str, log: bool, tmp_path: Path) -> None:
    """Warnings are errors here, so a chart that matplotlib only complains of fails too."""
    odd = ODD[name]
    series = [Series(name="a", x=[1, 2, 3], y=odd, low=odd, high=odd)]
    titles: dict[str, Any] = {"title": "t", "x_title": "x", "y_title": "y"}
    charts = (
        line(series=series, log_x=log, log_y=log, from_zero=True, **titles),
        points(series=series, log_y=log, **titles),
        bars(categories=["a", "b", "c"], series={"s": odd}, low={"s": odd}, high={"s": odd}, log_y=log, **titles),
        surface(x=[1, 2, 3], y=[1, 2], z=[odd, odd], log_z=log, **titles),
        Chart(title="t", panels=[Panel(drawing=Heatmap(x=["1", "2", "3"], y=["1"], z=[odd]), z=Axis(log=log))]),
    )
    for chart in charts:
        png.write(chart, tmp_path / "a.png")


def test_a_dollar_in_a_name_begins_no_formula(tmp_path: Path) -> None:
    evil = "$\\frac{$ x_1$"
    series = [Series(name=evil, x=[evil, "b"], y=[1, 2], labels=[evil, "b"]), Series(name="b", x=["b"], y=[1])]
    chart = points(title=evil, series=series, x_title=evil, y_title=evil, caption=evil)
    png.write(chart, tmp_path / "a.svg")
    grid = heatmap(title=evil, x=[evil], y=[evil], z=[[1]], x_title=evil, y_title=evil, z_title=evil)
    png.write(grid, tmp_path / "b.png")


def test_series_of_all_panels_are_named_once() -> None:
    from tacit_labs.harness.tiles import tiles

    series = [Series(name="a", x=[1, 10], y=[1, 2]), Series(name="b", x=[1, 10], y=[2, 3])]
    chart = tiles(title="t", panels={"p": series, "q": series}, across=2, x_title="x", y_title="y", x_ticks=(1, 10))
    drawing = png.draw(chart)
    (legend,) = drawing.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert legend.get_title().get_text() == "t"
    first, second = drawing.axes
    assert (first.get_ylabel(), second.get_ylabel()) == ("y", "")
    assert first.get_ylim() == second.get_ylim()


def test_charts_of_a_page_are_written_each_under_a_name_of_its_own(tmp_path: Path) -> None:
    same, named = CHARTS["line"], Chart(title="T & t!", panels=CHARTS["bars"].panels, name="mine")
    page = Page(title="p", sections=(Section(title="s", parts=(same, Fold(summary="f", parts=(Row(parts=(same,)),)),
                                                               named)),))  # fmt: skip
    assert page.charts == (same, same, named)
    paths = png.write_all(page.charts, tmp_path / "new")
    assert [path.name for path in paths] == ["t.png", "t-2.png", "mine.png"]
    assert [path.suffix for path in png.write_all([named], tmp_path, suffix=".svg")] == [".svg"]


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    png.write(CHARTS["surface"], tmp_path / "a.svg")
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"\*\.png"):
        png.write(CHARTS["line"], tmp_path / "a.jpeg")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        png.write(CHARTS["line"], tmp_path / "file" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[plot\]'"):
        png.check()
