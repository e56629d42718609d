from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tacit_labs.lab_dpsgd import figures as report
from tacit_labs.lab_dpsgd.sweeps import Lab, Point, run


@pytest.fixture(scope="module")
def points() -> tuple[Point, ...]:
    return run(Lab(seeds=2, iterations=10, sweeps={"epsilon": (0.1, 10.0), "iterations": (10, 20)}))


def test_a_figure_for_each_sweep_on_logarithmic_axes(points: tuple[Point, ...], tmp_path: Path) -> None:
    paths = report.draw(points, tmp_path)
    assert [path.name for path in paths] == ["lab-epsilon.png", "lab-iterations.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    drawing = report.figure([point for point in points if point.sweep == "epsilon"])
    accuracy, noise = drawing.axes
    assert (accuracy.get_xscale(), noise.get_xscale(), noise.get_yscale()) == ("log", "log", "log")
    legend = accuracy.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "normal: no privacy",
        "the lab's advanced composition",
        "tight accounting",
    ]
    tight = {point.value: point for point in points if point.sweep == "epsilon" and point.way == "tight"}
    assert np.asarray(accuracy.lines[2].get_ydata()).tolist() == [100 * tight[0.1].mean, 100 * tight[10.0].mean]
    assert np.asarray(noise.lines[1].get_ydata()).tolist() == [
        tight[0.1].noise_multiplier,
        tight[10.0].noise_multiplier,
    ]
    assert "delta 0.001, 10 iterations, 2 seeds" in drawing.get_suptitle()


def test_the_table_has_a_line_a_setting(points: tuple[Point, ...]) -> None:
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=120).print(report.table(points))
    lines = text.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[1].split()[:2] == ["epsilon", "0.1"]
