from __future__ import annotations

import io

from rich.console import Console

from tacit.report.page import (
    Axis,
    Card,
    Cards,
    Chart,
    Code,
    Column,
    Fold,
    Note,
    Page,
    Panel,
    Part,
    Points,
    Row,
    Section,
    Series,
    State,
    Table,
    Text,
    bars,
    heatmap,
    line,
    surface,
    terminal,
)


def _shown(*parts: Part, encoding: str = "utf-8", width: int = 80) -> list[str]:
    return _print(terminal.parts(parts), encoding=encoding, width=width)


def _print(thing: object, *, encoding: str = "utf-8", width: int = 80) -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=stream, width=width, no_color=True).print(thing)
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return [text.rstrip() for text in raw.getvalue().decode(encoding).splitlines()]


def test_words_are_shown_without_their_marks_and_are_never_markup() -> None:
    parts = (Text(text="**Two** of `a` [red]"), Note(text="[/b]", tone="bad"), Code(text="x: [1]\ny: **2**"))
    assert _shown(*parts) == ["Two of a [red]", "[/b]", "x: [1]", "y: **2**"]


def test_a_table_has_its_units_below_and_says_what_it_leaves_out() -> None:
    table = Table(
        columns=("", Column(name="up", unit="per round"), Column(name="down", unit="per round"), "n"),
        rows=(("a", "1 kB", None, 12345), ("[b]", "2 kB", "3 kB", 1)),
        caption="What `it` costs",
    )
    assert _shown(table) == [
        "What it costs",
        "     up    down       n",
        "a    1 kB  –     12,345",
        "[b]  2 kB  3 kB       1",
        "up, down: per round",
    ]
    assert _print(terminal.table(table, most=1))[-1] == "1 more lines are not shown."


def test_facts_and_cards_stand_in_two_columns() -> None:
    facts = Table(columns=(), rows=(("mode", "dp"), ("clients", 10)))
    assert _shown(facts) == ["mode     dp", "clients  10"]
    cards = Cards(cards=(Card(label="time", value="3 s", detail="`2` rounds"), Card(label="epsilon", value="8")))
    assert _shown(cards) == ["time     3 s  2 rounds", "epsilon  8"]


def test_no_word_is_broken_to_make_room_for_numbers() -> None:
    table = Table(columns=("name", "n"), rows=(("epsilon again", "9" * 25),), align="lr")
    assert [text.split()[0] for text in _shown(table, width=35)] == ["name", "epsilon", "again"]


def test_a_page_is_its_sections_and_what_is_folded_is_left_out() -> None:
    page = Page(
        title="Run",
        subtitle="of today",
        sections=(
            Section(title="One", lead="first", parts=(Row(parts=(Text(text="a"), Text(text="b"))),)),
            Section(title="Two", parts=(Fold(summary="more", parts=(Text(text="hidden"),)),)),
        ),
    )
    assert _print(terminal.page(page)) == ["Run", "of today", "", "One", "first", "a", "b", "", "Two"]


def test_lines_are_sparks_with_their_ends_and_levels() -> None:
    series = [Series(name="a", x=[1, 2, 3], y=[0.0, None, 1.0]), Series(name="none", x=[1], y=[None])]
    chart = line(title="Rise", series=series, x_title="round", y_title="share", y_format=".0%", levels={"top": 0.9})
    assert _shown(chart) == [
        "Rise",
        "share  by round  first  last",
        "a      ▁█           0%  100%",
        "none" + " " * 17 + "–     –",
        "top: 90%",
    ]


def test_many_points_are_a_spark_that_fits() -> None:
    chart = line(title="t", series=[Series(name="a", x=range(1000), y=range(1000))], x_title="x", y_title="y")
    assert max(map(len, _shown(chart))) <= 80
    flat = line(title="t", series=[Series(name="a", x=[1, 2], y=[3, 3])], x_title="x", y_title="y")
    assert "3     3" in _shown(flat)[2]


def test_bars_and_points_and_small_surfaces_are_tables() -> None:
    chart = bars(title="Cost", categories=["x", "y"], series={"up": [1, 2], "down": [3, None]}, y_title="bytes")
    assert [text.split() for text in _shown(chart)[2:]] == [["up", "down"], ["x", "1", "3"], ["y", "2", "–"]]
    dots = Points(series=[Series(name="dp", x=[8.0], y=[0.7], labels=["dp (client)"])])
    spread = Chart(title="t", panels=[Panel(drawing=dots, x=Axis(title="epsilon"), y=Axis(title="accuracy"))])
    assert [text.split() for text in _shown(spread)[1:]] == [["epsilon", "accuracy"], ["dp", "(client)", "8", "0.7"]]
    small = surface(title="t", x=[1, 2], y=[5], z=[[10, None]], x_title="C", y_title="s", z_title="z")
    assert [text.split() for text in _shown(small)[2:]] == [["s", "\\", "C", "1", "2"], ["5", "10", "–"]]
    large = surface(title="t", x=range(50), y=[5], z=[list(range(50))], x_title="C", y_title="s")
    assert "do not fit" in _shown(large)[1]


def test_a_heat_map_is_shades_and_states_are_explained() -> None:
    chart = heatmap(title="t", x=[1, 2, 3], y=["a", "b"], z=[[0, 1, 2], [4, None, 5]], x_title="x", y_title="y",
                    z_title="amount")  # fmt: skip
    lines = _shown(chart)
    assert [text.split("|")[1] for text in lines[1:4]] == ["112233", "  ░░▒▒", "██  ██"]
    assert lines[4].strip() == "Shade: amount."
    states = (State(name="out", colour="grid"), State(name="lost", colour="series-2"), State(name="in", colour="ink"))
    told = heatmap(title="t", x=[1, 2], y=["a"], z=[[2, 1]], x_title="x", y_title="y", states=states)
    lines = _shown(told)
    assert lines[2].split("|")[1] == "██" + "░░"
    assert "░░ lost" in lines[3]
    assert _shown(told, encoding="ascii")[2].split("|")[1] == "##::"


def test_many_rows_are_cut_and_the_rest_counted() -> None:
    chart = heatmap(title="t", x=[1], y=list(range(50)), z=[[1]] * 50, x_title="x", y_title="client")
    assert _shown(chart)[-1].strip() == "These are the first 20 of 50."
