from __future__ import annotations

from typing import Any

import pytest

from tacit.report.page import Chart, Panel, Series, State, bars, heatmap, line, points, surface
from tacit.report.page.plotly import figure, plain

HOSTILE = "<b>x</b>"
SAFE = "&lt;b&gt;x&lt;/b&gt;"


def test_lines_differ_in_more_than_colour() -> None:
    chart = line(
        title="t", series=[Series(name=str(n), x=[1, 2], y=[n, n]) for n in range(8)], x_title="x", y_title="y"
    )
    assert len({trace["line"]["dash"] for trace in figure(chart)["data"]}) == 8
    assert len({trace["marker"]["symbol"] for trace in figure(chart)["data"]}) == 8


def test_a_style_is_kept_where_a_series_is_missing() -> None:
    first, second = Series(name="a", x=[1], y=[1], style=0), Series(name="b", x=[1], y=[1], style=5)
    both = line(title="t", series=[first, second], x_title="x", y_title="y")
    alone = line(title="t", series=[second], x_title="x", y_title="y")
    assert figure(both)["data"][1]["line"] == figure(alone)["data"][0]["line"]


def test_a_level_spans_all_series_and_is_named() -> None:
    series = [Series(name="a", x=[3, 4], y=[1, 2]), Series(name="b", x=[1, 9], y=[1, 2])]
    chart = line(title="t", series=series, x_title="x", y_title="y", levels={"budget 5": 5.0})
    level = figure(chart)["data"][-1]
    assert (level["name"], level["x"], level["y"]) == (
        "budget 5",
        [1, 9],
        [5.0, 5.0],
    )


def test_a_band_lies_between_low_and_high() -> None:
    series = Series(name="a", x=[1, 2], y=[2, 3], low=[1, 2], high=[4, 5])
    low, high, middle = figure(line(title="t", series=[series], x_title="x", y_title="y"))["data"]
    assert (low["y"], high["y"], middle["y"]) == ([1, 2], [4, 5], [2, 3])
    assert high["fill"] == "tonexty"
    assert not low["showlegend"]


@pytest.mark.parametrize(("x", "tick"), [([1, 2, 3], 1), ([1, 50], None), ([0.5, 1.5], None)])
def test_few_rounds_have_a_tick_each(x: list[float], tick: int | None) -> None:
    chart = line(title="t", series=[Series(name="a", x=x, y=x)], x_title="x", y_title="y")
    assert figure(chart)["layout"]["xaxis"].get("dtick") == tick


def test_error_bars_are_distances() -> None:
    series = Series(name="a", x=[1], y=[2.0], low=[1.5], high=[4.0])
    error = figure(points(title="t", series=[series], x_title="x", y_title="y"))["data"][0]["error_y"]
    assert (error["array"], error["arrayminus"]) == ([2.0], [0.5])
    chart = bars(title="t", categories=["c"], series={"a": [2.0]}, low={"a": [1.5]}, high={"a": [4.0]}, y_title="y")
    assert figure(chart)["data"][0]["error_y"]["arrayminus"] == [0.5]


def test_horizontal_bars_swap_the_axes() -> None:
    chart = bars(title="t", categories=["c"], series={"a": [2.0]}, y_title="seconds", x_title="mode", horizontal=True)
    bar = figure(chart)["data"][0]
    assert (bar["x"], bar["y"], bar["orientation"]) == (
        [2.0],
        ["c"],
        "h",
    )
    assert figure(chart)["layout"]["xaxis"]["title"]["text"] == "seconds"
    assert figure(chart)["layout"]["yaxis"]["autorange"] == "reversed"


def test_the_legend_is_gone_where_labels_say_the_same() -> None:
    named = [Series(name="dp", x=[1], y=[1], labels=["dp"])]
    assert figure(points(title="t", series=named, x_title="x", y_title="y"))["layout"]["showlegend"] is False
    other = [Series(name="dp", x=[1], y=[1], labels=["seed 1"])]
    assert figure(points(title="t", series=other, x_title="x", y_title="y"))["layout"]["showlegend"] is True


def test_no_name_is_markup() -> None:
    series = [Series(name=HOSTILE, x=[1], y=[1], labels=[HOSTILE])]
    titles: dict[str, Any] = {"title": "t", "x_title": HOSTILE, "y_title": HOSTILE}
    charts = [
        line(series=series, levels={HOSTILE: 1.0}, **titles),
        points(series=series, **titles),
        bars(categories=[HOSTILE], series={HOSTILE: [1]}, **titles),
        heatmap(x=[HOSTILE], y=[HOSTILE], z=[[1]], z_title=HOSTILE, **titles),
        surface(x=[1], y=[1], z=[[1]], z_title=HOSTILE, **titles),
    ]
    for chart in charts:
        told = repr(figure(chart))
        assert "<b>" not in told
        assert SAFE in told


def test_panels_side_by_side_have_places_of_their_own_and_one_legend() -> None:
    """A series without points in the first panel is named in the second."""
    panels = [
        Panel(drawing=line(title="", series=series, x_title="", y_title="").panels[0].drawing, title=name)
        for name, series in {
            "left": [Series(name="a", x=[1], y=[1]), Series(name="b", x=[], y=[])],
            "right": [Series(name="a", x=[1], y=[1]), Series(name="b", x=[1], y=[2])],
        }.items()
    ]
    drawn = figure(Chart(title="t", panels=panels, across=2, shared=True))
    layout = drawn["layout"]
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]
    assert layout["yaxis2"]["matches"] == "y"
    assert [note["text"] for note in layout["annotations"]] == ["left", "right"]
    named = [(trace["name"], trace["xaxis"]) for trace in drawn["data"] if trace.get("showlegend") is not False]
    assert named == [("a", "x"), ("b", "x2")]


def test_states_are_named_where_one_points_at_them() -> None:
    states = (State(name="out", colour="grid"), State(name="in", colour="series-1", mark="+"))
    chart = heatmap(title="t", x=[1, 2], y=["a"], z=[[0, 1]], x_title="x", y_title="y", states=states)
    (trace,) = figure(chart)["data"]
    assert (trace["customdata"], trace["text"]) == ([["out", "in"]], [["", "+"]])
    assert trace["colorscale"] == [
        [0.0, "var(--grid)"],
        [0.5, "var(--grid)"],
        [0.5, "var(--series-1)"],
        [1.0, "var(--series-1)"],
    ]


def test_a_surface_on_logarithms_has_ticks_of_its_own_and_says_the_numbers() -> None:
    chart = surface(title="t", x=[1, 2], y=[0.1, 1], z=[[1, 10], [100, None]], x_title="C", y_title="s", log_z=True)
    drawn = figure(chart)
    (trace,) = drawn["data"]
    assert trace["z"] == [[0.0, 1.0], [2.0, None]]
    assert trace["text"][1] == ["C 1, s 1: 100", "C 2, s 1: –"]
    assert drawn["layout"]["scene"]["zaxis"]["ticktext"] == ["", "10", "100"]


def test_a_label_is_no_markup() -> None:
    assert plain("<a href='https://x'>&amp;</a>") == "&lt;a href='https://x'&gt;&amp;amp;&lt;/a&gt;"
