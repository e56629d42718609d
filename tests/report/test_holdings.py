from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tacit.errors import ConfigError
from tacit.report.holdings import Holdings, Summary, chart, parts
from tacit.report.page import Bars, Heatmap, png, terminal

LABELS = np.array([0, 0, 0, 1, 1, 2], dtype=np.int64)
HELD = Holdings.of([np.array([0, 1, 2]), np.array([3]), np.array([4, 5])], LABELS, classes=3)


def _render(thing: object, *, encoding: str = "utf-8", width: int = 80) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=stream, width=width, no_color=True).print(thing)
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode(encoding)


def test_counts() -> None:
    assert HELD.counts.tolist() == [[3, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert HELD.sizes.tolist() == [3, 1, 2]
    assert HELD.names == ("0", "1", "2")
    with pytest.raises(ConfigError, match="3 clients, got 1"):
        Holdings.of([np.array([0]), np.array([1]), np.array([2])], LABELS, classes=3, names=["x"])


def test_summary_measures_the_spread() -> None:
    facts = Summary.of(HELD)
    assert facts.examples == 6
    assert facts.to_dict()["examples_per_client"] == {
        "smallest": 1,
        "quarter": 1.5,
        "median": 2,
        "three quarters": 2.5,
        "largest": 3,
    }
    # Overall 1/2, 1/3, 1/6; distances 1/2, 2/3 and 1/2.
    assert facts.skew == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3, abs=1e-4)
    alike = Holdings(counts=np.array([[2, 4], [1, 2]]), names=("a", "b"), labels=("0", "1"))
    assert Summary.of(alike).skew == 0


def _table(holdings: Holdings) -> str:
    return _render(terminal.parts(parts(holdings, title="t")[2:3]))


def _blocks(holdings: Holdings, *, encoding: str = "utf-8") -> list[str]:
    """Return the chart in the terminal, without its title."""
    return _render(terminal.parts([chart(holdings, title="t")]), encoding=encoding).splitlines()[1:]


def test_the_table_shows_everybody_or_the_first() -> None:
    text = _table(HELD)
    assert "The first 3 of 3 clients" in text
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["0", "3", "3", "-", "-"],
        ["1", "1", "-", "1", "-"],
        ["2", "2", "-", "1", "1"],
    ]
    many = Holdings(counts=np.full((30, 3), 2), names=tuple(map(str, range(30))), labels=("0", "1", "2"))
    assert "The first 20 of 30 clients" in _table(many)
    assert len(_table(many).splitlines()) == 22
    wide = Holdings(counts=np.eye(3, 12, dtype=np.int64) * 3, names=("a", "b", "c"), labels=tuple(map(str, range(12))))
    assert "0 (3 times)" in _table(wide)
    assert "6 examples over 3 clients" in _render(terminal.parts(parts(HELD, title="t")))


def test_blocks_tell_more_from_less_without_colour() -> None:
    lines = _blocks(HELD)
    assert lines[0].split("|")[1] == "001122"
    cells = [line.split("|")[1] for line in lines[1:4]]
    assert cells == ["██    ", "  ██  ", "  ▓▓▓▓"]
    bars = [line.count("█", line.rindex("|")) for line in lines[1:4]]
    assert bars == [20, 7, 13]


def test_an_even_split_is_one_shade() -> None:
    even = Holdings(counts=np.full((3, 10), 7), names=("a", "b", "c"), labels=tuple("0123456789"))
    cells = {line.split("|")[1] for line in _blocks(even)[1:4]}
    assert cells == {"▒" * 20}


def test_blocks_fit_the_terminal_and_its_encoding() -> None:
    names, labels = tuple(f"f0000_{i:02}" for i in range(30)), tuple(map(str, range(62)))
    wide = Holdings(counts=np.arange(30 * 62).reshape(30, 62), names=names, labels=labels)
    lines = _blocks(wide)
    assert max(map(len, lines)) <= 80
    assert "the first 20 of 30" in lines[-1]
    assert _blocks(HELD, encoding="ascii")[1].split("|")[1] == "##    "


def test_the_chart_has_shares_beside_sizes() -> None:
    heat, beside = chart(HELD, title="Three clients").panels
    assert isinstance(heat.drawing, Heatmap)
    assert isinstance(beside.drawing, Bars)
    assert heat.drawing.z[2] == [0.0, 0.5, 0.5]
    assert beside.drawing.series[0].values == [3, 1, 2]
    assert (heat.drawing.y, beside.drawing.categories) == (["0", "1", "2"], ["0", "1", "2"])
    assert not beside.x.log
    apart = Holdings(counts=np.array([[1], [1_000]]), names=("a", "b"), labels=("0",))
    assert chart(apart, title="").panels[1].x.log


def test_a_figure_of_many_clients(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (1_000, 10))
    held = Holdings(counts=counts, names=tuple(map(str, range(1_000))), labels=tuple(map(str, range(counts.shape[1]))))
    png.write(chart(held, title="Many"), tmp_path / "many.png")
    assert (tmp_path / "many.png").stat().st_size > 10_000
