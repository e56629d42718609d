from __future__ import annotations

import pytest

from tacit.report.page.charts import Lines, Series, line
from tacit.report.page.thinning import MOST_POINTS, places


@pytest.mark.parametrize("count", [0, 1, 5, MOST_POINTS])
def test_what_is_short_is_drawn_whole(count: int) -> None:
    assert places([[float(n) for n in range(count)]]) == list(range(count))


@pytest.mark.parametrize("count", [MOST_POINTS + 1, 9_999, 100_000])
@pytest.mark.parametrize("lines", [1, 3])
def test_long_lines_keep_their_ends_and_every_peak(count: int, lines: int) -> None:
    heights = [[float((n * (7 + which)) % 101) for n in range(count)] for which in range(lines)]
    peaks = [count // 3 + which for which in range(lines)]
    for which, peak in enumerate(peaks):
        heights[which][peak] = 1e6
        heights[which][peak + 50] = -1e6
    kept = places(heights)
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert kept == sorted(set(kept))
    assert {*peaks, *(peak + 50 for peak in peaks)} <= set(kept)
    assert len(kept) <= MOST_POINTS + 2 * lines + 2


def test_gaps_stay() -> None:
    heights: list[float | None] = [None if 2000 <= n < 8000 else 1.0 for n in range(10_000)]
    kept = places([heights])
    assert any(2000 <= place < 8000 for place in kept)
    assert places([[None] * 10_000])[:2] == [0, 10]


def _drawn(*series: Series) -> list[Series]:
    chart = line(title="t", series=series, x_title="round", y_title="y")
    drawing = chart.panels[0].drawing
    assert isinstance(drawing, Lines)
    return list(drawing.series)


def test_lines_of_one_length_keep_the_same_points_with_their_bands() -> None:
    x = list(range(10_000))
    one = Series(name="a", x=x, y=[v % 7 for v in x], low=[-v for v in x], high=x)
    two = Series(name="b", x=x, y=[v % 11 for v in x])
    first, second = _drawn(one, two)
    assert list(first.x) == list(second.x)
    assert len(first.x) < 2 * MOST_POINTS
    assert [first.low[i] for i in range(5)] == [-float(v or 0) for v in first.x[:5]]  # type: ignore[index]


def test_lines_of_two_lengths_are_thinned_by_themselves() -> None:
    long, short = _drawn(
        Series(name="a", x=range(10_000), y=range(10_000)), Series(name="b", x=[1, 2, 3], y=[1.0, 2.0, 3.0])
    )
    assert len(long.x) <= MOST_POINTS + 4
    assert list(short.x) == [1, 2, 3]
