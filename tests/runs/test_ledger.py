"""The account of long runs, read back: the work grows with the journal, and nothing is believed blindly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Ledger
from tacit.config.run_config import RunConfig
from tacit.runs import history
from tacit.runs.folder import JOURNAL, RESULT
from tacit.runs.ledger import LedgerView, ledger_of
from tacit.runs.run import run

NOISE, RATE = 5.0, 0.25


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "short"
    run(
        RunConfig(
            mode="dp",
            seed=1,
            data={"name": "digits"},
            model={"name": "logistic"},
            federate={"clients": 20, "rounds": 1, "per_round": 5},
            dp={"noise": NOISE},
            out=folder,
        )
    )
    return folder


def spent(releases: int) -> float:
    release = SampledEvent(event=GaussianEvent(noise_multiplier=NOISE), rate=RATE)
    made = Ledger().charged(RepeatedEvent(event=release, count=releases), round_number=1)
    return accountant.epsilon(made, 1e-5).epsilon


def longer(template: Path, path: Path, rounds: int, *, tries: int = 1, told: Any = None) -> Path:
    """Write the journal of a run of so many rounds, each tried so often, that told ``told(round)`` after each."""
    path.mkdir()
    (path / "config.yaml").write_text((template / "config.yaml").read_text())
    records = [json.loads(line) for line in (template / JOURNAL).read_text().splitlines()]
    (start,), (attempt,), (done,) = (
        [record for record in records if record["type"] == kind] for kind in ("start", "attempt", "round")
    )
    with (path / JOURNAL).open("w") as file:
        file.write(json.dumps(start) + "\n")
        for number in range(1, rounds + 1):
            for again in range(tries):
                charge = attempt["charge"] | {"round": number}
                file.write(json.dumps(attempt | {"round": number, "attempt": again, "charge": charge}) + "\n")
            epsilon = told(number) if told is not None else 100.0 + number
            file.write(json.dumps(done | {"round": number, "epsilon": epsilon}) + "\n")
    assert not (path / RESULT).exists()
    return path


class _Counted:
    """Counts how often an epsilon is asked for, and over how many charges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.charges: list[int] = []
        asked = accountant.epsilon

        def epsilon(ledger: Ledger, delta: float, **more: Any) -> Any:
            self.charges.append(len(ledger.charges))
            return asked(ledger, delta, **more)

        monkeypatch.setattr(accountant, "epsilon", epsilon)


@pytest.mark.parametrize("read", [ledger_of, history.read])
def test_a_long_journal_asks_for_no_more_epsilons_than_a_short_one(
    read: Any, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [longer(template, tmp_path / str(rounds), rounds) for rounds in (30, 3_000)]
    counted = _Counted(monkeypatch)
    asked = []
    for folder in folders:
        before = len(counted.charges)
        read(folder)
        asked.append(len(counted.charges) - before)
    assert asked[0] == asked[1] <= 2
    assert max(counted.charges) == 1  # all releases are alike


def test_what_was_told_is_shown_and_the_last_line_is_computed(template: Path, tmp_path: Path) -> None:
    told = ledger_of(longer(template, tmp_path / "a", 40))
    assert [line.epsilon for line in told.lines[:-1]] == [100.0 + number for number in range(1, 40)]
    assert told.lines[-1].epsilon == spent(40)
    assert told.lines[0].event is told.lines[-1].event  # kept once
    assert told.accountant == "pld"


def test_a_journal_that_tells_less_than_the_truth_is_not_believed(template: Path, tmp_path: Path) -> None:
    told: LedgerView = ledger_of(longer(template, tmp_path / "a", 6, told=lambda number: 0.01 * number))
    assert [line.epsilon for line in told.lines] == pytest.approx([spent(number) for number in range(1, 7)])


def test_tries_have_what_was_spent_up_to_them_or_to_the_next_line_that_is_known(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ledger_of(longer(template, tmp_path / "few", 2, tries=2, told=lambda number: spent(2 * number)))
    assert [line.epsilon for line in few.lines] == pytest.approx([spent(number) for number in (1, 2, 3, 4)])
    folder = longer(template, tmp_path / "many", 200, tries=3, told=lambda number: 10.0 * number)
    counted = _Counted(monkeypatch)
    many = ledger_of(folder)
    assert len(counted.charges) <= 66
    assert [line.attempt for line in many.lines[:3]] == [0, 1, 2]
    epsilons = [line.epsilon for line in many.lines[300:-1]]
    assert epsilons == [10.0 * (101 + place // 3) for place in range(297)] + epsilons[297:]
