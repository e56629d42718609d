from __future__ import annotations

import math
import struct
import sys
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from tacit.errors import ConfigError
from tacit.report import surfaces, sweep_table
from tacit.runs.grid import Axis, parse_axes
from tacit.runs.sweep import Row, cells


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
        console.print(sweep_table.table(rows, axes))
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
    drawn = surfaces.draw(rows_of(axes, failing=failing), axes, tmp_path)
    assert [path.name for path in drawn.paths] == [f"{name}.png" for name in names]
    for path in drawn.paths:
        width, height = size(path)
        assert 500 < width < 3000
        assert 400 < height < 2500


def test_no_epsilon_no_figure_of_it(tmp_path: Path) -> None:
    axes, _ = parse_axes(["optimizer.lr=0.1,0.2"])
    drawn = surfaces.draw(rows_of(axes, private=False), axes, tmp_path)
    assert [path.name for path in drawn.paths] == ["accuracy-line.png"]
    assert shown(rows_of(axes, private=False), axes).splitlines()[-1] == (
        "* best: optimizer.lr=0.1, test accuracy 90.00%"
    )


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2", "federate.rounds=1:5:5"])
    assert "the first 4 of 5 values of federate.rounds" in surfaces.draw(rows_of(axes), axes, tmp_path).notes[0]
    one = [Axis(key="dp.clip", values=(0.1,))]
    drawn = surfaces.draw(rows_of(one), one, tmp_path)
    assert (drawn.paths, "one point" in drawn.notes[0]) == ((), True)
    words, _ = parse_axes(["dp.clip=adaptive,0.5", "dp.noise=0,0.1"])
    notes = surfaces.draw(rows_of(words), words, tmp_path).notes
    assert "No 3-D surface" in notes[0]
    assert "infinite, is grey" in notes[1]


def test_numbers_stand_in_the_cells_and_axes_have_their_names() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2"])
    points = cells(rows_of(axes, failing=3))
    drawing = surfaces.heat_maps(points, axes, [surfaces.TEST])
    panel = drawing.axes[0]
    assert [text.get_text() for text in panel.texts] == ["90.0", "45.0", "30.0", "failed"]
    assert panel.get_xlabel() == "noise multiplier z (dp.noise)"
    assert panel.get_ylabel() == "clip bound C (dp.clip)"


def test_epsilon_is_on_a_log_scale_where_it_spans_decades() -> None:
    for word, name in (("dp.noise=0.01,1", "LogNorm"), ("dp.noise=0.9,1", "Normalize")):
        axes, _ = parse_axes(["dp.clip=0.1,0.5", word])
        points = cells(rows_of(axes))
        drawing = surfaces.heat_maps(points, axes, [surfaces.epsilon_measure(points), surfaces.TEST])
        norms = [type(panel.images[0].norm).__name__ for panel in drawing.axes if panel.images]
        assert norms == [name, "Normalize"]


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0.1,0.2"])
    surfaces.draw(rows_of(axes), axes, tmp_path)
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[plot\]'"):
        surfaces.check()


def test_the_terminals_grid_marks_the_best() -> None:
    axes, _ = parse_axes(["dp.clip=0.1,0.5", "dp.noise=0,0.2"])
    text = shown(rows_of(axes, failing=3), axes)
    assert "90.00%*" in text
    assert text.count("*") == 2
    assert "failed" in text
    assert "ε infinite" in text
    assert "* best: dp.clip=0.1, dp.noise=0, test accuracy 90.00%, epsilon infinite at delta 1e-05" in text


def test_a_long_list_shows_the_best() -> None:
    axes, _ = parse_axes(["dp.clip=0.01:0.5:50"])
    text = shown(rows_of(axes, failing=0), axes)
    assert "The best 20 of 50 points" in text
    assert "45.00%*" in text
    assert "failed" not in text
