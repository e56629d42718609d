from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit.errors import RunError
from tacit.report.page import Bars, Chart, Drawing, Fold, Heatmap, Lines, Page, Row, Table
from tacit.report.page.html import json_block
from tacit.report.page.plotly import figure
from tacit.report.run import baseline, risk, summary
from tacit.report.run.curves import rounds_csv
from tacit.report.run.page import run_page
from tacit.report.run.statement import statement_page
from tacit.runs.chance import Chance
from tacit.runs.federation import Federation
from tacit.runs.folder import JOURNAL
from tacit.runs.history import History, Participation, read
from tacit.runs.journal import Split, Start
from tacit.runs.run import run
from tests.report.browser import drawn, look, needs_browser, sheets
from tests.runs.common import digits

OWN_SIZES = (6_113, 7_237, 8_371)  # no duration in milliseconds is that long
UNKNOWN = Start(key="", simulation=False, dataset="", examples=0)  # of a journal without the record


def _made(tmp_path_factory: pytest.TempPathFactory, name: str, **changes: Any) -> History:
    out = tmp_path_factory.mktemp("runs") / name
    run(digits(out=out, **changes))
    return read(out)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> History:
    return _made(tmp_path_factory, "plain", federate={"drop": 0.3, "minimum_clients": 1, "rounds": 4})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return a run with two levels and a cohort that must stay secret."""
    federate = {"clients": 8, "per_round": 5, "rounds": 3}
    levels = {"dp": {"noise": 2.0, "max_epsilon": 30.0}, "dpsgd": {"noise": 1.0, "max_epsilon": 500.0}}
    return _made(tmp_path_factory, "both", mode="dp", federate=federate, **levels)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return a private run on data that are the user's own."""
    out = tmp_path_factory.mktemp("runs") / "own"
    generator = np.random.Generator(np.random.PCG64(1))
    clients = [(generator.normal(size=(n, 3)), generator.integers(0, 4, n)) for n in OWN_SIZES]
    settings: dict[str, Any] = {"mode": "local-dp", "dp": {"noise": 3.0}, "evaluate": {"train": True}}
    federation = Federation(model=nn.Linear(3, 4), clients=clients, seed=1, **settings)
    federation.fit(rounds=2, out=out)
    return read(out)


def test_curves_on_the_training_data_are_drawn_where_they_were_asked_for_and_kept_where_they_are_the_users_own(
    tmp_path: Path, own: History
) -> None:
    run(digits(out=tmp_path / "run", evaluate={"train": True}))
    charts = _charts(run_page(read(tmp_path / "run")))
    accuracy, loss = (charts[title].panels[0].drawing for title in ("Accuracy", "Loss"))
    assert isinstance(accuracy, Lines)
    assert isinstance(loss, Lines)
    assert [one.name for one in accuracy.series] == ["test accuracy", "on the training data"]
    assert "loss on the training data" in [one.name for one in loss.series]
    kept = _charts(run_page(own))
    assert "Accuracy" not in kept


def _parts(page: Page) -> list[Any]:
    """Return all parts, those inside others too."""

    def inside(parts: Any) -> list[Any]:
        return [
            found for part in parts for found in (part, *(inside(part.parts) if isinstance(part, Fold | Row) else ()))
        ]

    return [part for section in page.sections for part in inside(section.parts)]


def _charts(page: Page) -> dict[str, Chart]:
    return {part.title: part for part in _parts(page) if isinstance(part, Chart)}


def _words(page: Page) -> str:
    """Return the page's text without tags, script and style, and the data of its charts."""
    html = re.sub(r"<(script|style)[^>]*>.*?</\1>", " ", page.html(), flags=re.DOTALL)
    charts = json_block([figure(chart) for chart in _charts(page).values()])
    return " ".join((re.sub(r"<[^>]*>", " ", html) + charts).split())


def _lines(chart: Chart) -> Lines:
    drawing = chart.panels[0].drawing
    assert isinstance(drawing, Lines)
    return drawing


def _bars(chart: Chart) -> Bars:
    drawing = chart.panels[0].drawing
    assert isinstance(drawing, Bars)
    return drawing


def test_all_that_was_asked_for_is_there(plain: History) -> None:
    page = run_page(plain)
    assert [section.title for section in page.sections] == [
        "Summary",
        "Learning",
        "Privacy",
        "Time and traffic",
        "Clients",
        "Configuration",
        "Environment",
        "Ledger",
    ]
    assert _charts(page).keys() >= {
        "Test accuracy",
        "Loss",
        "Time by stage",
        "Traffic",
        "Clients in each round",
        "Who took part",
        "How the data are split",
    }
    words = _words(page)
    assert plain.result is not None
    assert f"{plain.result.test_accuracy:.2%}" in words
    assert "none claimed" in words
    assert "every client's update in the clear" in words.replace("&#x27;", "'")


def test_curves_are_the_rounds(plain: History) -> None:
    charts = _charts(run_page(plain))
    assert _lines(charts["Test accuracy"]).series[0].y == [record.test_accuracy for record in plain.rounds]
    train, test = _lines(charts["Loss"]).series
    assert train.y == [record.train_loss for record in plain.rounds]
    assert test.y == [record.test_loss for record in plain.rounds]


def test_seconds_are_stacked_by_stage_and_bytes_have_a_unit(plain: History) -> None:
    charts = _charts(run_page(plain))
    seconds = charts["Time by stage"]
    assert _bars(seconds).stacked
    scale = 1 if seconds.panels[0].y.title == "seconds per round" else 1_000
    for one in _bars(seconds).series:
        assert one.values == pytest.approx([record.seconds[one.name] * scale for record in plain.rounds])
    assert charts["Traffic"].panels[0].y.title == "kB per round"
    up = _bars(charts["Traffic"]).series[0]
    assert up.values == pytest.approx([record.bytes_up / 1_000 for record in plain.rounds])


def test_drop_outs_are_in_the_map(plain: History) -> None:
    drawing = _charts(run_page(plain))["Who took part"].panels[0].drawing
    assert isinstance(drawing, Heatmap)
    grid = drawing.z
    assert drawing.states[1].name == "dropped out"
    for column, told in enumerate(plain.participation):
        assert {client for client, row in enumerate(grid) if row[column] == 1} == set(told.dropped or ())
    assert any(1 in row for row in grid)


def test_each_level_has_its_curve_its_budget_and_all_that_belongs_to_epsilon(both: History) -> None:
    page = run_page(both)
    for level, budget in zip(both.levels, (30.0, 500.0), strict=True):
        chart = _charts(page)[f"Epsilon spent, for one {level.privacy.unit}"]
        assert _lines(chart).series[0].y == level.epsilons
        assert [line.at for line in chart.panels[0].references] == [budget]
        assert chart.panels[0].y.title == "epsilon at delta 1e-5"
    words = _words(page)
    for level in both.levels:
        told = level.privacy
        assert f"delta 1e-5, unit: {told.unit}, neighbours: {told.neighbours}, against {told.against}" in words
    assert "neither stands for the other" in words


def test_a_secret_cohort_changes_nothing_in_the_page(both: History) -> None:
    """Two runs that differ in who took part, and in nothing else, give the same page."""
    other = replace(
        both,
        participation=tuple(
            Participation(round_number=told.round_number, asked=(0, 1), dropped=(1,)) for told in both.participation
        ),
    )
    assert both.secret_cohort
    assert run_page(both) == run_page(other)
    words = _words(run_page(both))
    assert "epsilon counts on nobody knowing" in words
    assert "each planned for about 5 clients" in words
    assert "Those of a single round are not told" in words
    assert not {"Time by stage", "Traffic", "Who took part"} & _charts(run_page(both)).keys()
    assert any("(client " in note for note in both.levels[1].privacy.notes)  # whose epsilon is the worst
    assert "(client " not in words


def test_the_key_of_the_randomness_is_never_told(plain: History, both: History) -> None:
    for history in (plain, both):
        assert history.config.out is not None
        first = json.loads((history.config.out / JOURNAL).read_text().splitlines()[0])
        assert first["key"] not in run_page(history, full=True).html()


def test_counts_of_own_data_stay_out_unless_asked_for(own: History) -> None:
    words, everything = _words(run_page(own)), _words(run_page(own, full=True))
    assert "How the data are split is kept nowhere" in words
    for size in OWN_SIZES:  # as a whole number: seconds may have any digits
        assert not re.search(rf"(?<![\d.])({size}|{size:,})(?!\d|\.\d)", everything)
    assert "training data" not in words
    assert "which no noise protects" in everything
    assert "eyes only" not in everything
    assert "may not be passed on" in everything


def test_paths_are_cut_to_their_names(plain: History) -> None:
    assert plain.config.out is not None
    folder = str(plain.config.out.parent)
    assert folder not in run_page(plain).html()
    assert folder in run_page(plain, full=True).html()


def test_settings_that_differ_are_listed(plain: History) -> None:
    tables = [part for part in _parts(run_page(plain)) if isinstance(part, Table)]
    (changed,) = [table for table in tables if tuple(table.columns) == ("setting", "value", "default")]
    rows = {row[0]: tuple(row[1:]) for row in changed.rows}
    assert rows["federate.drop"] == ("0.3", "0.0")
    assert rows["federate.rounds"] == ("4", "6")
    assert "optimizer.lr" not in rows


@pytest.mark.parametrize("finished", [True, False])
def test_the_ledger_has_every_try_with_the_total_last(both: History, finished: bool) -> None:
    """Also where the last try did not end: it is charged."""
    history = both
    if not finished:
        cut = [(*level.releases[:-1], replace(level.releases[-1], epsilon=None)) for level in both.levels]
        levels = [replace(level, releases=releases) for level, releases in zip(both.levels, cut, strict=True)]
        history = replace(both, levels=tuple(levels))
    tables = [part for part in _parts(run_page(history)) if isinstance(part, Table)]
    ledgers = [table for table in tables if "epsilon so far" in table.columns]
    assert len(ledgers) == 2
    for table, level in zip(ledgers, both.levels, strict=True):
        assert len(table.rows) == len(level.releases)
        assert float(str(table.rows[-1][-1])) == pytest.approx(level.privacy.epsilon, rel=1e-3)


def test_an_old_journal_says_what_is_missing(plain: History) -> None:
    told = plain.start
    start = Start(key=told.key, simulation=told.simulation, dataset=told.dataset, examples=told.examples)
    unknown = tuple(replace(told, asked=None, dropped=None) for told in plain.participation)
    words = _words(run_page(replace(plain, start=start, participation=unknown)))
    for sentence in ("does not say who took part", "how the data are split: it is", "where the run was made"):
        assert sentence in words


@pytest.mark.parametrize("rounds", [0, 2])
def test_an_unfinished_run_is_told_as_far_as_it_got(both: History, rounds: int) -> None:
    levels = tuple(replace(level, epsilons=level.epsilons[:rounds]) for level in both.levels)
    history = replace(
        both,
        status="stopped",
        reason="Client 3 failed. `tacit resume` goes on with it.",
        result=None,
        rounds=both.rounds[:rounds],
        participation=both.participation[:rounds],
        levels=levels,
    )
    words = _words(run_page(history))
    assert f"The run stopped after {rounds} of 3 rounds." in words
    assert "a client failed" in words
    assert ("No round was finished" in words) == (rounds == 0)


def test_a_run_that_stopped_before_its_first_record_has_a_page(plain: History) -> None:
    empty = replace(
        plain, status="unfinished", result=None, start=UNKNOWN, rounds=(), participation=(), failures=(), notes=()
    )
    assert "The run has done 0 of 4 rounds" in _words(run_page(empty))


def test_infinite_epsilon_is_a_word(both: History) -> None:
    level = both.levels[0]
    endless = replace(level, privacy=replace(level.privacy, epsilon=math.inf), epsilons=(math.inf,) * 3)
    words = _words(run_page(replace(both, levels=(endless,))))
    assert "it is infinite" in words


def test_a_long_run_with_many_clients_stays_small(plain: History) -> None:
    count = 5_000
    rounds = tuple(replace(plain.rounds[0], round=number) for number in range(1, count + 1))
    told = tuple(
        Participation(round_number=n, asked=tuple(range(n % 7, 400, 7)), dropped=(n % 7,)) for n in range(1, count + 1)
    )
    federate = plain.config.federate.model_copy(update={"clients": 400})
    start = replace(plain.start, split=Split(sizes=tuple(range(400))))
    history = replace(
        plain,
        rounds=rounds,
        participation=told,
        config=plain.config.model_copy(update={"federate": federate}),
        start=start,
    )
    page = run_page(history)
    assert len(page.html().encode()) < 5_000_000
    assert _lines(_charts(page)["Time by stage"]).stacked
    assert "of 5,000 rows" in _words(page)
    assert "three quarters" in _words(page)


def test_a_hostile_name_is_text(plain: History) -> None:
    name = "<img src=x onerror=boom()>"
    html = run_page(replace(plain, name=name, notes=(name,))).html()
    assert "<img" not in html


def test_the_same_run_gives_the_same_bytes(both: History) -> None:
    assert run_page(both).html() == run_page(both).html()


@needs_browser
def test_a_browser_draws_the_report_and_its_console_is_clean(both: History, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    page = run_page(both)
    path.write_text(page.html())
    assert path.stat().st_size < 5_000_000
    seen = look(path, "--blink-settings=preferredColorScheme=0")
    assert seen.console == ()
    assert 'data-charts="drawn"' in seen.root
    assert "data-errors" not in seen.root
    assert seen.trouble == ""
    assert drawn(seen) == len(_charts(page)) >= 5  # what a secret cohort leaves


def test_a_banner_says_that_it_was_a_simulation_unless_it_was_none(plain: History) -> None:
    assert "A simulation of a federation" in run_page(plain).banner
    deployed = replace(plain, start=replace(plain.start, deployed=True))
    assert run_page(deployed).banner == ""
    assert "simulation of a federation" not in _words(run_page(deployed))


def test_clients_have_their_names(plain: History) -> None:
    names = tuple(f"Hospital {letter}" for letter in "ABCDEFGHIJ"[: plain.clients])
    named = _words(run_page(replace(plain, start=replace(plain.start, client_names=names))))
    assert all(name in named for name in names)


def test_who_sees_what_is_drawn(both: History) -> None:
    (found,) = [part for part in _parts(run_page(both)) if isinstance(part, Drawing)]
    assert [party.name for party in found.parties][:2] == ["8 clients", "The server"]
    assert found.forth == "an update, clipped"
    assert "is right at most" in found.parties[-1].sees


def test_the_level_of_chance_and_the_verdict(plain: History) -> None:
    page = run_page(plain)
    (line,) = _charts(page)["Test accuracy"].panels[0].references
    assert line.name.startswith("chance (10.")
    assert "It learned" in _words(page) or "At chance" in _words(page)
    lost = tuple(replace(record, test_accuracy=0.1) for record in plain.rounds)
    words = _words(run_page(replace(plain, rounds=lost)))
    assert "A test accuracy of 10.00% is what naming the most frequent class every time would give" in words
    near = tuple(replace(record, test_accuracy=0.14) for record in plain.rounds)
    words = _words(run_page(replace(plain, rounds=near)))
    assert "With 355 test examples, an accuracy of 14.00% is too near to what naming" in words


def test_a_plain_run_stands_beside_a_protected_one(tmp_path: Path) -> None:
    federate = {"clients": 4, "rounds": 2}
    run(digits(out=tmp_path / "clear", federate=federate))
    run(digits(out=tmp_path / "other", federate=federate | {"clients": 5}))
    run(digits(out=tmp_path / "noisy", mode="dp", dp={"noise": 1.0}, federate=federate))
    history = read(tmp_path / "noisy")
    found = baseline.beside(tmp_path / "noisy", history)
    assert found is not None
    assert found.name == "clear"
    page = run_page(history, baseline=found)
    assert [one.name for one in _lines(_charts(page)["Test accuracy"]).series][-1] == "without protection (clear)"
    assert "Without protection the run clear reached" in _words(page)
    for accuracy, words in (
        (0.88, "2.0 points, no more than 355 test examples tell apart"),
        (0.8, "costs 10.0 points"),
    ):
        outcome = replace(summary.RunOutcome.read(history, full=False, baseline=None), test_accuracy=accuracy)
        plain = replace(found, result=replace(found.result, test_accuracy=0.9))
        said = summary.verdict(replace(outcome, baseline=plain, chance=Chance(share=0.1, examples=355)))
        assert said is not None
        assert words in said.text
    assert baseline.beside(tmp_path / "clear", read(tmp_path / "clear")) is None  # it is plain itself
    with pytest.raises(RunError, match="not the folder of a finished run"):
        baseline.named(tmp_path / "none")


def test_epsilon_is_told_as_a_risk(both: History) -> None:
    words = _words(run_page(both))
    for part in (
        "What epsilon",
        "is right at most",
        "takes both for equally likely",
        "What it does not mean",
        "finds at most",
        "A coin is right 50%",
    ):
        assert part in words
    privacy = both.levels[0].privacy
    assert privacy.right_guesses is not None
    assert risk.percentage(privacy.right_guesses) in words
    endless = replace(privacy, epsilon=math.inf)
    assert "no bound" in risk.sentence(endless)


def test_rounds_as_csv_say_all_that_may_be_told(plain: History, own: History) -> None:
    rows = list(csv.DictReader(io.StringIO(rounds_csv(plain, full=False))))
    assert [int(row["round"]) for row in rows] == [1, 2, 3, 4]
    assert float(rows[0]["test_accuracy"]) == plain.rounds[0].test_accuracy
    assert float(rows[0]["seconds_train"]) == plain.rounds[0].seconds["train"]
    hidden = next(csv.DictReader(io.StringIO(rounds_csv(own, full=False))))
    assert (hidden["train_loss"], hidden["train_accuracy"]) == ("", "")
    assert "All rounds as CSV" in run_page(plain).html()


@pytest.mark.parametrize("kind", ["plain", "both", "own"])
def test_a_statement_says_what_is_promised_and_what_is_not(kind: str, request: pytest.FixtureRequest) -> None:
    history: History = request.getfixturevalue(kind)
    words = _words(statement_page(history))
    for part in (
        "Privacy statement",
        "What is promised",
        "What is not promised",
        "Signed",
        "A simulation of a federation",
    ):
        assert part in words
    if history.levels:
        assert all(f"for one {level.privacy.unit}" in words for level in history.levels)
    else:
        assert "No differential privacy is claimed" in words


@needs_browser
def test_a_statement_fits_one_sheet_of_paper(both: History, tmp_path: Path) -> None:
    """The run with two levels says most."""
    page = tmp_path / "statement.html"
    page.write_text(statement_page(both).html())
    assert sheets(page) == 1
