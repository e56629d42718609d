"""The account of long runs, read back: the work grows with the journal, and nothing is believed blindly."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Ledger
from tacit.config.run_config import RunConfig
from tacit.errors import RunError
from tacit.runs import history
from tacit.runs.folder import JOURNAL, RESULT
from tacit.runs.ledger import LedgerView, ledger_of
from tacit.runs.run import resume, run

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


@functools.cache
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
            epsilon = told(number) if told is not None else spent(rounds * tries) * number / rounds
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
    assert [line.epsilon for line in told.lines[:-1]] == [spent(40) * number / 40 for number in range(1, 40)]
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
    whole = spent(600)
    folder = longer(template, tmp_path / "many", 200, tries=3, told=lambda number: whole * number / 200)
    counted = _Counted(monkeypatch)
    many = ledger_of(folder)
    assert len(counted.charges) <= 66
    assert [line.attempt for line in many.lines[:3]] == [0, 1, 2]
    epsilons = [line.epsilon for line in many.lines[300:-1]]
    assert epsilons == [whole * (101 + place // 3) / 200 for place in range(297)] + epsilons[297:]


Records = list[dict[str, Any]]
_ROUNDS = 3


def _attempts(records: Records) -> Records:
    return [record for record in records if record["type"] == "attempt"]


def _set(name: str, value: Any) -> Callable[[Records], None]:
    return lambda records: _attempts(records)[1]["charge"].update({name: value})


def _other_noise(noise: Any) -> Callable[[Records], None]:
    return lambda records: _attempts(records)[1]["charge"]["event"]["event"].update(noise_multiplier=noise)


TAMPERED: dict[str, Callable[[Records], Any]] = {
    "a try is lost": lambda records: records.remove(_attempts(records)[1]),
    "the first round is lost": lambda records: records.__delitem__(slice(1, 3)),
    "a try has a kind that nobody knows": lambda records: _attempts(records)[1].update(type="attempt2"),
    "a try comes after its round": lambda records: records.insert(2, records.pop(1)),
    "a try is said to be another's": lambda records: _attempts(records)[1].update(round=7),
    "a round took more tries than there are": lambda records: records[4].update(attempts=2),
    "a charge is gone": lambda records: _attempts(records)[1].update(charge=None),
    "a charge is empty": lambda records: _attempts(records)[1].update(charge={}),
    "a charge is to examples": lambda records: _attempts(records)[1].update(charge=None, example_charges=[]),
    "a charge is to nobody": _set("clients", []),
    "a charge is for nothing": _set("event", {"kind": "composed", "events": []}),
    "a charge is for much noise": _other_noise(50.0),
    "a charge is for endless noise": _other_noise("infinity"),
    "a charge is for as much noise as floats hold": _other_noise(1e308),
    "more was told than charged": lambda records: records[-1].update(epsilon="infinite"),
}


@pytest.mark.parametrize("damage", TAMPERED.values(), ids=TAMPERED)
@pytest.mark.parametrize("read", [ledger_of, history.read, resume], ids=["ledger", "report", "resume"])
def test_a_journal_that_would_count_less_than_was_released_is_refused(
    read: Any, damage: Callable[[Records], Any], template: Path, tmp_path: Path
) -> None:
    folder = longer(template, tmp_path / "a", _ROUNDS)
    read_back = [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]
    damage(read_back)
    (folder / JOURNAL).write_text("".join(json.dumps(record) + "\n" for record in read_back))
    with pytest.raises(RunError, match=r"damaged|lost or changed|lacks round"):
        read(folder)


def test_a_try_that_is_there_twice_is_charged_twice(template: Path, tmp_path: Path) -> None:
    """As after a crash in a round: nobody knows how far it went."""
    folder = longer(template, tmp_path / "a", _ROUNDS)
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    (folder / JOURNAL).write_text("".join([*lines[:2], lines[1], *lines[2:]]))
    assert ledger_of(folder).lines[-1].epsilon == pytest.approx(spent(_ROUNDS + 1))


def test_a_journal_cut_short_does_not_pass_for_that_of_the_result(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(template, folder)
    assert ledger_of(folder).lines[-1].epsilon == pytest.approx(spent(1))
    (folder / JOURNAL).write_text((folder / JOURNAL).read_text().partition("\n")[0] + "\n")
    with pytest.raises(RunError, match="come to epsilon 0, and it told"):
        ledger_of(folder)


def test_a_journal_of_another_run_does_not_go_with_the_checkpoint(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(template, folder)
    (folder / RESULT).unlink()
    records = [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()][:-1]
    records[2]["test_loss"] += 1.0
    (folder / JOURNAL).write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(RunError, match="has another round 1 than its checkpoint"):
        resume(folder)


def test_a_checkpoint_whose_try_is_not_in_the_journal_adds_nothing_to_it(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(template, folder)
    (folder / RESULT).unlink()
    (folder / JOURNAL).write_text((folder / JOURNAL).read_text().partition("\n")[0] + "\n")
    before = (folder / JOURNAL).read_bytes()
    with pytest.raises(RunError, match="of its tries, which say what they cost, 0 are there"):
        resume(folder)
    assert (folder / JOURNAL).read_bytes() == before
