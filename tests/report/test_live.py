from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tacit.federated.plan import Privacy
from tacit.report.live import TerminalObserver
from tacit.report.page import terminal
from tacit.report.run.summary import ending
from tacit.runs.result import Result, RoundRecord

SECONDS = {"train": 1.25, "protect": 0.0, "aggregate": 0.01, "recover": 0.002, "evaluate": 0.5}


def _record(number: int) -> RoundRecord:
    return RoundRecord(
        round=number,
        attempts=1,
        train_loss=0.5 / number,
        test_loss=None if number % 2 else 0.25,
        test_accuracy=None if number % 2 else 0.9,
        clients_expected=10.0,
        clients_asked=10,
        clients_replied=9,
        bytes_up=873_870,
        bytes_down=874_000,
        epsilon=None,
        seconds=SECONDS,
        wall_seconds=1.8,
    )


RESULT = Result(
    version="0",
    mode="plain",
    engine="in-process",
    device="cpu",
    dataset="digits",
    split="iid",
    model="cnn",
    parameters=21_840,
    clients=10,
    per_round=10,
    seed=7,
    simulation=True,
    form="loop",
    form_reason="hooks see [one] client [/at] a time",
    rounds=(_record(1), _record(2)),
    test_accuracy=0.9787,
    train_accuracy=0.99,
    test_loss=0.1,
    seconds=75.0,
    setup_seconds=0.25,
    stage_seconds={"train": 3.0, "evaluate": 0.4, "other": 0.2},
    bytes_up=2_000_000,
    bytes_down=3_000_000,
    privacy=None,
    sees={"server": "every client's update in the clear", "clients": "", "outsider": ""},
    notes=(),
    folder="runs/[a]",
)


def _console(*, terminal: bool, width: int = 160) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None, highlight=False)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _words(renderable: object) -> str:
    console = _console(terminal=False)
    console.print(renderable)
    return _text(console)


def summary(result: Result) -> object:
    return terminal.parts(ending(result))


def _show(console: Console, *, quiet: bool = False) -> str:
    observer = TerminalObserver(console, quiet=quiet)
    observer.note("MNIST can't be had [at all]")
    observer.started(title="Digits [iid]", rounds=2, done=())
    for number in (1, 2):
        observer.progress(replied=5, asked=10)
        observer.round_done(_record(number))
    observer.finished(RESULT)
    observer.stop()
    return _text(console)


def test_lines_where_there_is_no_terminal() -> None:
    lines = _show(_console(terminal=False)).splitlines()
    assert lines[:2] == ["MNIST can't be had [at all]", "Digits [iid]"]
    assert lines[2].split("  ")[:5] == ["round 1/2", "clients 9/10", "train loss 0.5000", "test loss -", "accuracy -"]
    assert "accuracy 90.00%  epsilon -  up 874 kB  1.8 s" in lines[3]


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()]


def test_rows_stay_on_a_terminal() -> None:
    text = _show(_console(terminal=True))
    assert "Digits [iid]" in text
    rows = _rows(text)
    assert ["round", "clients", "train", "loss", "test", "loss", "accuracy", "epsilon", "up", "time"] in rows
    assert ["1", "9/10", "0.5000", "-", "-", "-", "874", "kB", "1.8", "s"] in rows
    assert ["2", "9/10", "0.2500", "0.2500", "90.00%", "-", "874", "kB", "1.8", "s"] in rows
    assert "97.87%" in text


def test_metrics_that_were_asked_for_are_columns_and_all_of_them_are_at_the_end() -> None:
    metrics = {"auc": 0.91, "accuracy of ill": 0.5}
    tested = replace(_record(2), metrics=metrics)
    console = _console(terminal=True, width=80)
    observer = TerminalObserver(console)
    observer.started(title="Digits", rounds=2, done=())
    observer.round_done(_record(1))  # which was not tested
    observer.round_done(tested)
    scores = {"north": {"loss": 0.25}, "south": {"loss": 0.75}}
    observer.finished(replace(RESULT, rounds=(_record(1), tested), client_names=tuple(scores), client_scores=scores))
    text = _text(console)
    rows = _rows(text)
    assert ["round", "clients", "train", "loss", "test", "loss", "accuracy", "epsilon", "time", "auc"] in rows
    assert ["2", "9/10", "0.2500", "0.2500", "90.00%", "-", "1.8", "s", "0.9100"] in rows
    assert "auc 0.9100, accuracy of ill 0.5000" in text
    assert ["on", "south", "loss", "0.7500"] in rows
    assert ["clients", "north,", "south"] in rows
    many = {str(client): {"loss": client / 100} for client in range(41)}
    spread = _words(summary(replace(RESULT, client_scores=many)))
    assert "loss 0.0000 to 0.4000, median 0.2000" in spread


def test_every_round_of_a_long_run_stays_visible() -> None:
    console = _console(terminal=True)
    observer = TerminalObserver(console)
    observer.started(title="Digits", rounds=60, done=tuple(map(_record, range(1, 6))))
    for number in range(6, 61):
        observer.round_done(_record(number))
    observer.stop()
    rows = _rows(_text(console))
    assert [number for number in range(1, 61) if any(row[:2] == [str(number), "9/10"] for row in rows)] == list(
        range(1, 61)
    )


def test_the_columns_are_the_same_in_all_modes_and_fit_80_characters() -> None:
    private = replace(_record(1), epsilon=7.125, clients_asked=None, clients_expected=200.0, wall_seconds=None)
    encrypted = replace(_record(1), seconds=SECONDS | {"protect": 4.0, "recover": 2.0}, wall_seconds=75.2)
    headings = set()
    for record in (_record(1), private, encrypted):
        console = _console(terminal=True, width=80)
        observer = TerminalObserver(console)
        observer.started(title="", rounds=2, done=(record,))
        observer.stop()
        text = _text(console)
        headings.add(next(line for line in text.splitlines() if "accuracy" in line))
        assert "…" not in text
    assert len(headings) == 1
    assert ["1", "about", "200", "0.5000", "-", "-", "7.13", "874", "kB", "-"] in _rows(_shown(private))


def _shown(record: RoundRecord, *, width: int = 80) -> str:
    console = _console(terminal=True, width=width)
    observer = TerminalObserver(console)
    observer.started(title="", rounds=2, done=(record,))
    observer.stop()
    return _text(console)


def test_a_narrow_window_keeps_what_matters() -> None:
    (heading,) = [line for line in _shown(_record(2), width=40).splitlines() if "accuracy" in line]
    assert heading.split() == ["round", "clients", "accuracy", "epsilon"]


def test_steps_of_one_data_holder_have_the_same_columns_but_those_of_clients() -> None:
    rows = _rows(_shown(replace(_record(2), steps=1200, epsilon=2.5)))
    assert ["step", "train", "loss", "test", "loss", "accuracy", "epsilon", "time"] in rows
    assert ["1,200", "0.2500", "0.2500", "90.00%", "2.5", "1.8", "s"] in rows


def test_the_bar_moves_within_a_round_by_replies_and_by_the_clock() -> None:
    now = [0.0]
    observer = TerminalObserver(_console(terminal=True), clock=lambda: now[0])

    def share(at: float) -> float:
        now[0] = at
        return observer._share()[0]

    observer.started(title="", rounds=4, done=())
    assert observer._share() == (0.0, False)  # nothing is known of the first round: the bar pulses
    observer.progress(replied=5, asked=10)
    assert observer._share() == (0.5, True)
    now[0] = 10.0
    observer.round_done(_record(1))
    assert [share(at) for at in (10.0, 12.5, 15.0, 30.0)] == [0.0, 0.25, 0.5, 0.97]
    observer.stop()


def test_what_takes_a_while_is_named() -> None:
    console = _console(terminal=True)
    observer = TerminalObserver(console)
    observer.doing("loading mnist")
    observer.started(title="", rounds=1, done=())
    observer.doing("training")
    observer.round_done(_record(1))
    observer.doing("testing on the training data")
    observer.stop()
    for words in ("loading mnist ...", "testing on the training data ..."):
        assert words in _text(console)
    lines = _console(terminal=False)
    TerminalObserver(lines).doing("loading mnist")
    assert _text(lines) == ""


def test_a_long_computation_has_a_bar_of_its_own_until_it_ends() -> None:
    console = _console(terminal=True)
    observer = TerminalObserver(console)
    observer.started(title="", rounds=2, done=())
    observer.doing("training")

    def shown() -> str:
        paper = _console(terminal=False)
        paper.print(observer._bar())
        return _text(paper)

    observer.progress(replied=1, asked=5)
    observer.doing("encrypting", 0.25)
    first, second = shown().splitlines()
    assert "round 1/2  1/5 clients" in first
    assert "encrypting  25%" in second
    observer.doing("encrypting", 1.0)
    assert len(shown().splitlines()) == 1
    observer.doing("decrypting", 0.5)
    observer.doing("testing")
    assert len(shown().splitlines()) == 1
    observer.stop()


def test_scores_on_the_training_data_have_a_column_from_where_they_begin() -> None:
    console = _console(terminal=True, width=80)
    observer = TerminalObserver(console)
    observer.started(title="Digits", rounds=2, done=())
    observer.round_done(_record(1))
    observer.round_done(replace(_record(2), train_accuracy=0.9876, train_data_loss=0.5))
    observer.stop()
    text = _text(console)
    assert text.count("accuracy") == 2  # the heading again, with the new column
    assert text.index("on train") > text.index("accuracy")
    assert "98.76%" in text
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80


def test_a_private_round_has_the_models_loss_on_the_training_data() -> None:
    console = _console(terminal=False)
    observer = TerminalObserver(console)
    observer.started(title="Digits", rounds=1, done=())
    observer.round_done(replace(_record(1), train_loss=None, train_accuracy=0.9876, train_data_loss=0.125))
    assert "train loss 0.1250" in _text(console)
    assert "on train 98.76%" in _text(console)


def test_quiet_is_silent() -> None:
    for live in (False, True):
        assert _show(_console(terminal=live), quiet=True) == ""


def test_an_error_leaves_the_table_as_it_stands() -> None:
    console = _console(terminal=True)
    observer = TerminalObserver(console)
    observer.started(title="Digits", rounds=3, done=(_record(1),))
    observer.progress(replied=4, asked=10)
    observer.stop()
    text = _text(console)
    assert "round 2/3" in text
    assert "4/10 clients" in text
    before = len(text)
    observer.stop()
    assert len(_text(console)) == before


def test_a_resumed_run_says_what_was_done_before() -> None:
    console = _console(terminal=False)
    TerminalObserver(console).started(title="Digits", rounds=3, done=(_record(1), _record(2)))
    assert "2 rounds done before" in _text(console)


def test_the_summary_has_what_a_user_wants_to_know() -> None:
    text = _words(summary(RESULT))
    for part in (
        "97.87%  training data 99.00%",
        "1 min 15 s  2 rounds, and 250 ms set-up",
        "1.75 MB up, 1.75 MB down; 97.1 kB up per answer",
        "none claimed  nothing bounds what the models tell about a client",
        "every client's update in the clear",
        "seed 7, a simulation: whoever has the seed can repeat every draw",
        "loop, because hooks see [one] client [/at] a time",
        "runs/[a]",
        "tacit run --mode plain --data digits --split dirichlet:0.3",
    ):
        assert part in text


def test_the_summary_without_what_there_is_not() -> None:
    bare = replace(RESULT, folder=None, form_reason="", simulation=False, train_accuracy=None, split="shards:2")
    text = _words(summary(bare))
    assert "written to" not in text
    assert "trained by" not in text
    assert "from the operating system" in text
    assert "training data" not in text
    assert "many small clients" in text


@pytest.mark.parametrize(
    ("run", "following"),
    [
        ({"mode": "paillier"}, "tacit run --mode paillier --dp --data digits --split dirichlet:0.3"),
        ({"mode": "dp"}, "tacit run --mode dp --data digits --split dirichlet:0.3"),
        (
            {"mode": "dp", "at_chance": True, "dataset": "breast-cancer"},
            "tacit run --mode dp --data breast-cancer --model logistic --clients 100 --lr 0.5",
        ),
        (
            {"mode": "dp", "at_chance": True, "dataset": "mnist"},
            "tacit run --mode dp --data mnist    # with the mode's",
        ),
    ],
)
def test_what_to_try_next_keeps_the_protection_and_helps_where_nothing_was_learned(
    run: dict[str, Any], following: str
) -> None:
    claim = Privacy(
        epsilon=1.0, delta=1e-5, unit="client", neighbours="add-remove", accountant="pld", against="the clients"
    )
    assert following in _words(summary(replace(RESULT, privacy=claim, **run)))


def test_a_claim_is_printed_with_all_it_depends_on() -> None:
    claim = Privacy(
        epsilon=1.234, delta=1e-5, unit="client", neighbours="add-remove", accountant="pld", against="the clients"
    )
    text = _words(summary(replace(RESULT, privacy=claim)))
    assert "1.234  delta 1e-5, unit: client, neighbours: add-remove, against the clients (pld)" in text
    assert "epsilon for one client" in text


def test_the_summary_says_where_the_time_of_encrypted_rounds_went() -> None:
    seconds = {"train": 2.0, "protect": 0.51, "aggregate": 0.31, "recover": 0.62, "evaluate": 0.1}
    record = replace(RESULT.rounds[0], seconds=seconds, wall_seconds=3.6, clipped=12)
    text = _words(summary(replace(RESULT, mode="paillier", rounds=(record,), stage_seconds=seconds)))
    assert "of it protect 510 ms, aggregate 310 ms, recover 620 ms" in text
    assert "12 coordinates of updates: raise paillier.clip" in text
