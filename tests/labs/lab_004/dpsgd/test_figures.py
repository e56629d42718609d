from __future__ import annotations

import io
from pathlib import Path

import pytest

from tacit.report.page import Lines, terminal
from tacit_labs.lab_004.dpsgd import figures as report
from tacit_labs.lab_004.dpsgd.sweeps import Lab, Point, run


@pytest.fixture(scope="module")
def points() -> tuple[Point, ...]:
    return run(Lab(seeds=2, iterations=10, sweeps={"epsilon": (0.1, 10.0), "iterations": (10, 20)}))


def test_a_figure_for_each_sweep_on_logarithmic_axes(points: tuple[Point, ...], tmp_path: Path) -> None:
    paths = report.draw(points, tmp_path)
    assert [path.name for path in paths] == ["lab-epsilon.png", "lab-iterations.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    chart = report.figure([point for point in points if point.sweep == "epsilon"])
    accuracy, noise = chart.panels
    assert (accuracy.x.log, noise.x.log, noise.y.log) == (True, True, True)
    assert isinstance(accuracy.drawing, Lines)
    assert isinstance(noise.drawing, Lines)
    assert [one.name for one in accuracy.drawing.series] == ["without privacy", "the lab's noise", "tight noise"]
    tight = {point.value: point for point in points if point.sweep == "epsilon" and point.way == "tight"}
    assert accuracy.drawing.series[2].y == [tight[0.1].mean, tight[10.0].mean]
    assert noise.drawing.series[1].y == [tight[0.1].noise_multiplier, tight[10.0].noise_multiplier]
    assert "delta 0.001, 10 iterations, 2 seeds" in chart.title


def test_the_table_has_a_line_per_setting(points: tuple[Point, ...]) -> None:
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=120).print(terminal.table(report.table(points)))
    lines = text.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[1].split()[:2] == ["epsilon", "0.1"]
