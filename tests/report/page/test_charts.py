from __future__ import annotations

from typing import Any

import pytest

from tacit.report.page import Series, bars, heatmap, line, points, surface

HOSTILE = "<b>x</b>"
SAFE = "&lt;b&gt;x&lt;/b&gt;"


def test_lines_differ_in_more_than_colour() -> None:
    chart = line(
        title="t", series=[Series(name=str(n), x=[1, 2], y=[n, n]) for n in range(8)], x_title="x", y_title="y"
    )
    assert len({trace["line"]["dash"] for trace in chart.data}) == 8
    assert len({trace["marker"]["symbol"] for trace in chart.data}) == 8


def test_a_style_is_kept_where_a_series_is_missing() -> None:
    first, second = Series(name="a", x=[1], y=[1], style=0), Series(name="b", x=[1], y=[1], style=5)
    both = line(title="t", series=[first, second], x_title="x", y_title="y")
    alone = line(title="t", series=[second], x_title="x", y_title="y")
    assert both.data[1]["line"] == alone.data[0]["line"]


def test_a_level_spans_all_series_and_is_named() -> None:
    series = [Series(name="a", x=[3, 4], y=[1, 2]), Series(name="b", x=[1, 9], y=[1, 2])]
    chart = line(title="t", series=series, x_title="x", y_title="y", levels={"budget 5": 5.0})
    assert (chart.data[-1]["name"], chart.data[-1]["x"], chart.data[-1]["y"]) == ("budget 5", [1, 9], [5.0, 5.0])


def test_a_band_lies_between_low_and_high() -> None:
    series = Series(name="a", x=[1, 2], y=[2, 3], low=[1, 2], high=[4, 5])
    low, high, middle = line(title="t", series=[series], x_title="x", y_title="y").data
    assert (low["y"], high["y"], middle["y"]) == ([1, 2], [4, 5], [2, 3])
    assert high["fill"] == "tonexty"
    assert not low["showlegend"]


@pytest.mark.parametrize(("x", "tick"), [([1, 2, 3], 1), ([1, 50], None), ([0.5, 1.5], None)])
def test_few_rounds_have_a_tick_each(x: list[float], tick: int | None) -> None:
    chart = line(title="t", series=[Series(name="a", x=x, y=x)], x_title="x", y_title="y")
    assert chart.layout["xaxis"].get("dtick") == tick


def test_error_bars_are_distances() -> None:
    series = Series(name="a", x=[1], y=[2.0], low=[1.5], high=[4.0])
    error = points(title="t", series=[series], x_title="x", y_title="y").data[0]["error_y"]
    assert (error["array"], error["arrayminus"]) == ([2.0], [0.5])
    chart = bars(title="t", categories=["c"], series={"a": [2.0]}, low={"a": [1.5]}, high={"a": [4.0]}, y_title="y")
    assert chart.data[0]["error_y"]["arrayminus"] == [0.5]


def test_horizontal_bars_swap_the_axes() -> None:
    chart = bars(title="t", categories=["c"], series={"a": [2.0]}, y_title="seconds", x_title="mode", horizontal=True)
    assert (chart.data[0]["x"], chart.data[0]["y"], chart.data[0]["orientation"]) == ([2.0], ["c"], "h")
    assert chart.layout["xaxis"]["title"]["text"] == "seconds"
    assert chart.layout["yaxis"]["autorange"] == "reversed"


def test_the_legend_is_gone_where_labels_say_the_same() -> None:
    named = [Series(name="dp", x=[1], y=[1], labels=["dp"])]
    assert points(title="t", series=named, x_title="x", y_title="y").layout["showlegend"] is False
    other = [Series(name="dp", x=[1], y=[1], labels=["seed 1"])]
    assert points(title="t", series=other, x_title="x", y_title="y").layout["showlegend"] is True


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
        told = repr((chart.data, chart.layout))
        assert "<b>" not in told
        assert SAFE in told
