from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tacit.errors import ConfigError, StorageError
from tacit.report.holdings import Blocks, Holdings, figure, summary, summary_table, table

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
    facts = summary(HELD)
    assert facts["examples"] == 6
    assert facts["examples_per_client"] == {
        "smallest": 1,
        "quarter": 1.5,
        "median": 2,
        "three quarters": 2.5,
        "largest": 3,
    }
    # Overall 1/2, 1/3, 1/6; distances 1/2, 2/3 and 1/2.
    assert facts["skew"] == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3, abs=1e-4)
    alike = Holdings(counts=np.array([[2, 4], [1, 2]]), names=("a", "b"))
    assert summary(alike)["skew"] == 0


def test_the_table_shows_everybody_or_the_first() -> None:
    text = _render(table(HELD))
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["0", "3", "3", "-", "-"],
        ["1", "1", "-", "1", "-"],
        ["2", "2", "-", "1", "1"],
    ]
    short = _render(table(HELD, clients=2))
    assert "The first 2 of 3 clients" in short
    assert len(short.splitlines()) == 4
    assert "0 (3 times)" in _render(table(HELD, classes=2))
    assert "6 examples over 3 clients" in _render(summary_table(HELD))


def test_blocks_tell_more_from_less_without_colour() -> None:
    lines = _render(Blocks(holdings=HELD)).splitlines()
    assert lines[0].split("|")[1] == "001122"
    cells = [line.split("|")[1] for line in lines[1:4]]
    assert cells == ["██    ", "  ██  ", "  ▓▓▓▓"]
    bars = [line.count("█", line.rindex("|")) for line in lines[1:4]]
    assert bars == [20, 7, 13]


def test_an_even_split_is_one_shade() -> None:
    even = Holdings(counts=np.full((3, 10), 7), names=("a", "b", "c"))
    cells = {line.split("|")[1] for line in _render(Blocks(holdings=even)).splitlines()[1:4]}
    assert cells == {"▒" * 20}


def test_blocks_fit_the_terminal_and_its_encoding() -> None:
    wide = Holdings(counts=np.arange(30 * 62).reshape(30, 62), names=tuple(f"f0000_{i:02}" for i in range(30)))
    lines = _render(Blocks(holdings=wide)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "the first 20 of 30" in lines[-1]
    assert _render(Blocks(holdings=HELD), encoding="ascii").splitlines()[1].split("|")[1] == "##    "


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_a_figure_is_written(tmp_path: Path, name: str, magic: bytes) -> None:
    figure(HELD, tmp_path / name, title="Three clients")
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_figure_of_many_clients(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (1_000, 10))
    figure(Holdings(counts=counts, names=tuple(map(str, range(1_000)))), tmp_path / "many.png", title="Many")
    assert (tmp_path / "many.png").stat().st_size > 10_000


def test_a_figure_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"\*\.png"):
        figure(HELD, tmp_path / "a.jpeg", title="")
    with pytest.raises(StorageError, match="nowhere"):
        figure(HELD, tmp_path / "nowhere" / "a.png", title="")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[plot\]'"):
        figure(HELD, tmp_path / "a.png", title="")
