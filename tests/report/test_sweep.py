from __future__ import annotations

import math
import struct
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from tacit.report import sweep as report
from tacit.report.page import Heatmap, Lines, Surface, png, terminal
from tacit.studies.plan import Axis, parse_axes
from tacit.studies.sweep import Row, cells
from tests.report.browser import drawn, look, needs_browser


def rows_of(axes: list[Axis], *, failing: int | None = None, private: bool = True) -> list[Row]:
    """Return made-up rows; the first point is the best."""
    rows = []
    for number, values in enumerate(product(*(axis.values for axis in axes))):
        point = dict(zip((axis.key for axis in axes), values, strict=True))
        noise = point.get("dp.noise", 0.1)
        if number == failing:
            rows.append(Row(values=point, seed=1, error="It failed.", folder="f"))
            continue
        rows.append(
            Row(
                values=point,
                seed=1,
                test_accuracy=0.9 / (1 + number),
                train_accuracy=0.95 / (1 + number),
                epsilon=None if not private else 5 / noise**2 if noise else math.inf,
                delta=1e-5 if private else None,
                seconds=0.1,
                folder="f",
            )
        )
    return rows


def size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def shown(rows: list[Row], axes: list[Axis]) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(terminal.parts(report.parts(rows, axes)))
    return capture.get()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["dp.clip=0.1:0.9:3"], ["accuracy-line", "epsilon-line"]),
        (["dp.noise=log:0.01:1:3"], ["accuracy-line", "epsilon-line"]),
        (["dp.clip=adaptive,0.5"], ["accuracy-line", "epsilon-line"]),
        (
            ["dp.clip=0.1:0.9:3", "dp.noise=0.01:0.4:3"],
            ["accuracy-heat", "accuracy-surface", "epsilon-heat", "epsilon-surface"],
        ),
        (["dp.clip=adaptive,0.5", "dp.noise=0,0.1"], ["accuracy-heat", "epsilon-heat"]),
        (["dp.clip=0.1,0.5", "dp.noise=0.1,0.2", "mode=dp,local-dp"], ["accuracy-heat", "epsilon-heat"]),
        (["dp.clip=0.1,0.5", "federate.rounds=2:2:1"], ["accuracy-line", "epsilon-line"]),
    ],
)
@pytest.mark.parametrize("failing", [None, 1])
def test_the_figures_suit_the_axes(tmp_path: Path, words: list[str], names: list[str], failing: int | None) -> None:
    axes, _ = parse_axes(words)
    made = report.charts(rows_of(axes, failing=failing), axes)
    assert [chart.name for chart in made.charts] == names
    for path in png.write_all(made.charts, tmp_path):
        width, height = size(path)
        assert 500 < width < 3000
        assert 400 < height < 2500


def test_no_epsilon_no_chart_of_it() -> None:
    axes, _ = parse_axes(["optimizer.lr=0.1,0.2"])
    made = report.charts(rows_of(axes, private=False), axes)
    assert [chart.name for chart in made.charts] == ["accuracy-line"]
    assert shown(rows_of(axes, private=False), axes).splitlines()[-1] == (
        "* best: optimizer.lr=0.1, test accuracy 90.00%"
    )


def test_what_is_left_out_is_said() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2", "federate.rounds=1:5:5"])
    assert "the first 4 of 5 values of federate.rounds" in report.charts(rows_of(axes), axes).notes[0]
    one = [Axis(key="dp.clip", values=(0.1,))]
    made = report.charts(rows_of(one), one)
    assert (made.charts, "one point" in made.notes[0]) == ((), True)
    words, _ = parse_axes(["dp.clip=adaptive,0.5", "dp.noise=0,0.1"])
    notes = report.charts(rows_of(words), words).notes
    assert "No 3-D surface" in notes[0]
    assert "infinite, is grey" in notes[1]


def test_numbers_stand_in_the_cells_and_axes_have_their_names() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2"])
    points = cells(rows_of(axes, failing=3))
    (panel,) = report.heat_maps(points, axes, [report.TEST]).panels
    assert isinstance(panel.drawing, Heatmap)
    assert panel.drawing.texts == [["90.0%", "45.0%"], ["30.0%", "failed"]]
    assert panel.drawing.z[1][1] is None
    assert panel.x.title == "noise multiplier z (dp.noise)"
    assert panel.y.title == "clip bound C (dp.clip)"


def test_epsilon_is_on_a_log_scale_where_it_spans_decades() -> None:
    for word, log in (("dp.noise=0.01,1", True), ("dp.noise=0.9,1", False)):
        axes, _ = parse_axes(["dp.clip=0.1,0.5", word])
        points = cells(rows_of(axes))
        epsilon, accuracy = report.heat_maps(points, axes, [report.epsilon_measure(points), report.TEST]).panels
        assert (epsilon.z.log, accuracy.z.log) == (log, False)


def test_an_axis_is_spaced_as_its_values_are() -> None:
    for words, log in (
        (["dp.clip=0.1,1,10", "dp.noise=0.1:0.3:3"], True),
        (["dp.clip=1,2,3", "dp.noise=1:3:3"], False),
    ):
        axes, _ = parse_axes(words)
        panel = report.surfaces(cells(rows_of(axes)), axes, [report.TEST]).panels[0]
        assert isinstance(panel.drawing, Surface)
        assert (panel.y.log, panel.x.log) == (log, False)


def test_a_point_that_failed_is_a_gap_in_a_line_and_names_stay_names() -> None:
    axes, _ = parse_axes(["dp.clip=adaptive,0.5"])
    (panel,) = report.lines(cells(rows_of(axes, failing=1)), axes[0], [report.TEST]).panels
    assert isinstance(panel.drawing, Lines)
    (series,) = panel.drawing.series
    assert (list(series.x), list(series.y), panel.x.names) == (["adaptive", "0.5"], [0.9, None], True)


def test_the_slices_of_a_sweep_share_a_scale() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2", "federate.rounds=1,2"])
    chart = report.slices(cells(rows_of(axes)), axes, report.TEST)
    assert [panel.title for panel in chart.panels] == ["federate.rounds=1", "federate.rounds=2"]
    assert len({panel.z.ends for panel in chart.panels}) == 1


def test_the_page_says_what_failed_and_what_has_to_be_known() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2"])
    html = report.page(rows_of(axes, failing=3), axes, notes=["Known <b>."]).html()
    assert "failed: dp.clip=0.5, dp.noise=0.2: It failed." in html
    assert "Known &lt;b&gt;." in html
    assert "is grey in a heat map" in html


@needs_browser
def test_a_browser_draws_the_charts_of_a_sweep(tmp_path: Path) -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.01,0.2"])
    path = tmp_path / "sweep.html"
    path.write_text(report.page(rows_of(axes), axes).html())
    seen = look(path)
    assert 'data-charts="drawn"' in seen.root
    assert seen.trouble == ""
    assert drawn(seen) >= 2  # and two surfaces, where there is WebGL


def test_the_terminals_grid_marks_the_best() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0,0.2"])
    text = shown(rows_of(axes, failing=3), axes)
    assert "90.00%*" in text
    assert text.count("*") == 2
    assert "failed" in text
    assert "ε infinite" in text
    assert "* best: dp.clip=0.1, dp.noise=0, test accuracy 90.00%, epsilon infinite at delta 1e-5" in text


def test_a_long_list_shows_the_best() -> None:
    axes, _ = parse_axes(["dp.clip=0.01:0.5:50"])
    text = shown(rows_of(axes, failing=0), axes)
    assert "The best 20 of 50 points" in text
    assert "45.00%*" in text
    assert "failed" not in text
