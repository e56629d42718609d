from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tacit.report import comparison as report
from tacit.report import comparison_charts as charts
from tacit.report.page import Bars, Chart, Lines, Note, Part, Points, Row, Series, Table, Text, terminal
from tacit.studies.results import Comparison, Entry
from tests.report.browser import drawn, look, needs_browser
from tests.runs.results import CENTRAL, LOCAL, entry, result

PUBLIC = replace(CENTRAL, epsilon=315.0)
PLAIN = entry("plain", result((0.5, 0.8)), result((0.6, 0.9), seed=2))
DP = entry("dp", result((0.4, 0.7), privacy=CENTRAL), result((0.3, 0.6), privacy=CENTRAL, seed=2))
SIGNS = entry("signds", result((0.2, 0.3), privacy=PUBLIC))
BOTH = entry("both", result((0.2, 0.5), privacy=CENTRAL, example_privacy=LOCAL))
ENDLESS = entry("endless", result((0.2, 0.5), privacy=replace(CENTRAL, epsilon=math.inf)))


def together(*entries: Entry, **more: Any) -> Comparison:
    return Comparison(entries=entries, shared={"data": "digits", "model": "logistic (650 parameters)"}, **more)


def parts(comparison: Comparison) -> list[Part]:
    flat: list[Part] = []
    for section in report.page(comparison).sections:
        for part in section.parts:
            flat += part.parts if isinstance(part, Row) else [part]
    return flat


def tables(comparison: Comparison) -> list[Table]:
    return [part for part in parts(comparison) if isinstance(part, Table)]


def frontier(*entries: Entry) -> Chart:
    chart = charts.frontier(entries)
    assert isinstance(chart, Chart)
    return chart


def marks(chart: Chart, panel: int = 0) -> Points:
    drawing = chart.panels[panel].drawing
    assert isinstance(drawing, Points)
    return drawing


def named(chart: Chart, name: str, panel: int = 0) -> Series:
    (found,) = [one for one in marks(chart, panel).series if one.name == name]
    return found


def test_the_summary_has_a_row_an_entry() -> None:
    summary = tables(together(PLAIN, DP, SIGNS, BOTH))[0]
    assert [row[:3] for row in summary.rows] == [
        ("plain", "85.00% ± 7.07", "none"),
        ("dp", "65.00% ± 7.07", "8"),
        ("signds", "30.00%", "315, no guarantee"),
        ("both", "50.00%", "8 (client), 3 (example)"),
    ]
    assert summary.tones == {(2, 2): "bad"}
    assert summary.rows[0][3:] == ("100 B", "200 B", "1.0 s")


def test_curves_are_means_with_bands_where_there_are_seeds() -> None:
    drawing = charts.curves([PLAIN, SIGNS]).panels[0].drawing
    assert isinstance(drawing, Lines)
    plain, signs = drawing.series
    assert (plain.name, signs.name) == ("plain", "signds")
    assert plain.y == pytest.approx([0.55, 0.85])
    assert (plain.low, plain.high) == ([0.5, 0.8], [0.6, 0.9])
    assert (signs.low, signs.high) == (None, None)  # it ran once


def test_different_claims_have_different_symbols_and_the_legend_says_which() -> None:
    chart = frontier(DP, SIGNS, BOTH)
    assert named(chart, "dp").symbol == named(chart, "signds").symbol
    assert named(chart, "both (client)").symbol == named(chart, "dp").symbol
    assert named(chart, "both (example)").symbol != named(chart, "dp").symbol
    assert [key.name for key in marks(chart).keys] == [
        "unit client, add-remove, against the public",
        "unit example, add-remove, against everyone but the client itself",
    ]
    assert "not comparable" in chart.caption


def test_those_without_an_epsilon_stand_apart() -> None:
    chart = frontier(PLAIN, DP, ENDLESS)
    assert named(chart, "dp").x == [8.0]
    for name in ("plain", "endless (∞)"):
        assert named(chart, name, panel=1).x == [name]  # a name, no number
        assert named(chart, name, panel=1).hollow
    assert chart.shared
    assert (chart.panels[1].x.title, chart.panels[1].x.names) == ("none or ∞", True)
    assert frontier(PLAIN, DP).panels[1].x.title == "no epsilon"
    assert len(frontier(DP).panels) == 1
    assert not chart.panels[0].references
    assert [(line.at, line.upright) for line in frontier(DP, SIGNS).panels[0].references] == [(20, True)]


def test_without_any_epsilon_there_is_no_frontier() -> None:
    assert not isinstance(charts.frontier([PLAIN, ENDLESS]), Chart)


def test_privacy_says_what_against_whom_and_what_is_none() -> None:
    nominal = replace(CENTRAL, nominal_epsilon=100.0, nominal_delta=1e-3)
    comparison = together(PLAIN, BOTH, entry("nbafl", result(privacy=nominal)))
    (table_,) = [one for one in tables(comparison) if "against whom" in one.columns]
    assert table_.rows[0] == ("plain", "none", None, None, None, None, "no differential privacy is claimed")
    assert [row[:5] for row in table_.rows[1:3]] == [
        ("both", "8", "1e-5", "client", "add-remove"),
        ("both", "3", "1e-5", "example", "add-remove"),
    ]
    assert "own claim would be epsilon 100 at delta 0.001" in str(table_.rows[3][6])


def test_bytes_are_spaced_by_factors_only_where_they_are_far_apart() -> None:
    assert not charts.traffic([PLAIN, DP]).panels[0].y.log
    few = entry("few", result(rounds=tuple(replace(one, bytes_up=10) for one in result().rounds)))
    axis = charts.traffic([PLAIN, few]).panels[0].y
    assert axis.log
    assert axis.ends is not None
    assert axis.ends[0] == 1  # the bar of 5 bytes stands on 1


def test_labels_of_points_side_by_side_go_apart() -> None:
    near = entry("near", result(privacy=CENTRAL, example_privacy=replace(LOCAL, epsilon=6.0)))
    chart = frontier(near)
    assert named(chart, "near (example)").side == "left"  # at 6, and the other at 8, as high
    assert named(chart, "near (client)").side == "right"


def test_stages_are_stacked_and_those_without_time_left_out() -> None:
    drawing = charts.stages([PLAIN, DP]).panels[0].drawing
    assert isinstance(drawing, Bars)
    assert [one.name.split(" ")[0] for one in drawing.series] == ["train", "protect", "evaluate", "other"]
    assert drawing.stacked


def test_the_files_are_written_and_names_are_escaped(tmp_path: Path) -> None:
    evil = entry("<script>alert(1)</script>", result(privacy=CENTRAL), failed=1)
    paths = report.write(together(PLAIN, evil, warnings=("Not of like <i>",)), tmp_path)
    assert [path.name for path in paths] == ["compare.html", "compare.csv", "compare.json"]
    html = paths[0].read_text()
    assert "<script>alert" not in html
    assert "Not of like <i>" not in html
    assert "it broke <b>" not in html
    assert "it broke &lt;b&gt;" in html
    assert len(html) < 5_000_000
    assert json.loads(paths[2].read_text())["entries"][0]["name"] == "plain"


def test_the_page_of_runs_that_all_failed_can_be_drawn() -> None:
    assert "it broke" in report.page(together(entry("plain", failed=1))).html()


def test_the_terminal_has_the_table_the_adversaries_and_the_warnings() -> None:
    console = Console(width=160, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        comparison = together(PLAIN, BOTH, entry("broken", failed=1), warnings=("careful",), notes=("noted",))
        console.print(terminal.parts(report.overview(comparison)))
    text = capture.get()
    assert "85.00% ± 7.07" in text
    assert "8 (client), 3 (example)" in text
    assert "unit: example, neighbours: add-remove, against everyone but the client itself" in text
    for words in ("failed: broken-broken-0: it broke <b>", "careful", "noted"):
        assert words in text


@needs_browser
def test_a_browser_draws_all_five_charts(tmp_path: Path) -> None:
    page, *_ = report.write(together(PLAIN, DP, SIGNS, BOTH, ENDLESS), tmp_path)
    seen = look(page)
    assert 'data-charts="drawn"' in seen.root
    assert seen.console == ()
    assert drawn(seen) == 5


CHANCE: dict[str, Any] = {"chance": 0.1, "test_examples": 1_000}
CLEAR = entry("plain", result((0.5, 0.8), **CHANCE))
NOISY = entry("dp", result((0.3, 0.6), privacy=replace(CENTRAL, right_guesses=0.797), **CHANCE))
LOST = entry("local-dp", result((0.1, 0.11), privacy=CENTRAL, **CHANCE))


def test_every_chart_of_accuracies_has_chance_and_the_plain_run() -> None:
    page = report.page(together(CLEAR, NOISY, LOST))
    lines = {chart.title: [line.name for line in chart.panels[0].references] for chart in page.charts}
    assert lines["Test accuracy by round"] == ["chance (10.0%)"]  # the plain run is a curve of its own
    assert lines["Test accuracy after the last round"] == ["chance (10.0%)", "plain (80.0%)"]
    assert lines["Accuracy against epsilon"] == ["chance (10.0%)", "plain (80.0%)"]


def test_the_verdict_is_in_words_and_what_is_at_chance_is_marked() -> None:
    comparison = together(CLEAR, NOISY, LOST, differing={"server.lr": {"plain": "1.5", "dp": "1", "local-dp": "1"}})
    notes = [part.text for part in report.overview(comparison) if isinstance(part, Note)]
    assert notes[0].startswith("**At chance: local-dp.** Naming the most frequent class every time gives 10.00%")
    assert notes[1] == (
        "**Verdict.** Without protection (plain) 80.00% of the test data are right. dp reaches 60.00%, 20.0 points "
        "less; the best attacker on one client is right at most 79.7% of the time where a coin is right half of "
        "it. The entries also differ in settings of training, so not all of a gap is the protection's."
    )
    summary = tables(comparison)[0]
    assert summary.rows[2][1] == "11.00%, at chance"
    assert summary.tones[2, 1] == "bad"
    assert "Settings of training differ: server.lr." in summary.caption


def test_there_is_no_verdict_where_the_plain_run_learned_nothing() -> None:
    comparison = together(entry("plain", result((0.1, 0.11), **CHANCE)), NOISY)
    notes = [part.text for part in report.overview(comparison) if isinstance(part, Note)]
    assert notes[0].startswith("**At chance: plain.**")
    assert notes[1].startswith("**No verdict.** Without protection (plain) the model learned nothing either")
    assert not any("**Verdict.**" in note for note in notes)


def test_results_come_first_and_settings_after() -> None:
    comparison = together(CLEAR, NOISY, differing={"server.lr": {"plain": "1.5", "dp": "1"}})
    titles = [section.title for section in report.page(comparison).sections]
    assert titles.index("Summary") < titles.index("Accuracy") < titles.index("Settings")
    (found,) = [table for table in tables(comparison) if "Where settings of training differ" in table.caption]
    assert list(found.rows) == [("server.lr", "1.5", "1")]
    alike = [part.text for part in parts(together(CLEAR, NOISY)) if isinstance(part, Text)]
    assert "Nothing else about training differs between the entries." in alike
