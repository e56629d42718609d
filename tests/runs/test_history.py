from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import DropoutError, RunError, TacitError
from tacit.runs.folder import CONFIG, JOURNAL, RESULT
from tacit.runs.history import read
from tacit.runs.ledger import ledger_of
from tacit.runs.run import resume, run
from tests.runs.common import Watching, digits, lines

BOTH: dict[str, Any] = {
    "mode": "dp",
    "dp": {"noise": 2.0, "max_epsilon": 30.0},
    "dpsgd": {"noise": 1.0},
    "federate": {"clients": 8, "per_round": 5, "rounds": 3},
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run with two levels and a secret cohort."""
    out = tmp_path_factory.mktemp("runs") / "both"
    run(digits(out=out, **BOTH))
    return out


@pytest.fixture
def copy(both: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(both, tmp_path / "copy"))


def _rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Pass every record of a journal through ``change``; None takes it away."""
    changed = [change(record) for record in lines(folder / JOURNAL)]
    (folder / JOURNAL).write_text("".join(json.dumps(record) + "\n" for record in changed if record is not None))


def test_a_finished_run_has_its_levels_with_their_budgets(both: Path) -> None:
    history = read(both)
    assert (history.status, len(history.rounds), history.secret_cohort) == ("finished", 3, True)
    clients, examples = history.levels
    assert (clients.privacy.unit, clients.budget) == ("client", 30.0)
    assert (examples.privacy.unit, examples.budget) == ("example", None)
    told = ledger_of(both)
    assert [release.epsilon for release in clients.releases] == pytest.approx([line.epsilon for line in told.lines])
    assert [release.epsilon for release in examples.releases] == pytest.approx(
        [line.epsilon for line in told.example_lines]
    )
    assert [release.release for release in clients.releases] == [line.release for line in told.lines]


def test_the_journal_says_where_a_run_was_made_and_not_who_took_part_where_nobody_may_know(both: Path) -> None:
    history = read(both)
    assert [(told.asked, told.dropped) for told in history.participation] == [(None, None)] * 3
    assert history.start.environment is not None
    assert all(astuple(history.start.environment))
    assert history.start.split is not None
    counts = history.start.split.counts
    assert counts is not None
    assert tuple(sum(row) for row in counts) == history.start.split.sizes
    assert sum(map(sum, counts)) == history.start.examples


def test_drop_outs_are_named(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(digits(out=out, federate={"drop": 0.4, "minimum_clients": 1, "rounds": 4}))
    history = read(out)
    assert any(told.dropped for told in history.participation)
    for told, record in zip(history.participation, history.rounds, strict=True):
        assert told.asked == (0, 1, 2, 3, 4)
        assert told.dropped is not None
        assert len(told.dropped) == record.receivers - record.senders
        assert set(told.dropped) <= set(told.asked)


def test_a_killed_run_is_unfinished_and_its_last_try_is_charged(copy: Path) -> None:
    whole = read(copy)
    (copy / RESULT).unlink()
    _rewrite(copy, lambda r: None if r["type"] == "end" or (r["type"] == "round" and r["round"] == 3) else r)
    history = read(copy)
    assert (history.status, len(history.rounds)) == ("unfinished", 2)
    assert "still running" in history.reason
    for level, full in zip(history.levels, whole.levels, strict=True):
        assert level.privacy.epsilon == pytest.approx(full.privacy.epsilon)  # all three tries were made
        assert level.epsilons == full.epsilons[:2]
        assert [release.epsilon is None for release in level.releases] == [False, False, True]


def test_an_unfinished_run_under_gaussian_noise_has_the_risk_that_its_end_will_have(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(digits(out=out, mode="dp", dp={"noise": 2.0}, federate={"clients": 3, "rounds": 2}))
    (whole,) = read(out).levels
    (out / RESULT).unlink()
    _rewrite(out, lambda record: None if record["type"] == "end" else record)
    (level,) = read(out).levels
    assert level.privacy.right_guesses is not None
    assert level.privacy.right_guesses == whole.privacy.right_guesses
    assert level.privacy.right_guesses < 0.9


def test_a_try_that_a_crash_lost_is_a_charge_without_an_epsilon_of_its_own(copy: Path) -> None:
    """After a resume the journal has the same try of the same round twice."""
    lines = (copy / JOURNAL).read_text().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if '"attempt", "round": 2' in line)
    (copy / JOURNAL).write_text("".join([*lines[: place + 1], *lines[place:]]))
    for level in read(copy).levels:
        assert [release.round_number for release in level.releases] == [1, 2, 2, 3]
        assert [release.epsilon is None for release in level.releases] == [False, True, False, False]


def test_an_older_journal_gives_the_same_levels(copy: Path) -> None:
    """Without sizes an unfinished run's examples are accounted from the charges alone."""
    whole = read(copy)
    (copy / RESULT).unlink()
    news = {"time", "model", "parameters", "device", "form", "split", "environment", "asked", "dropped"}
    _rewrite(copy, lambda r: None if r["type"] == "end" else {key: r[key] for key in r if key not in news})
    history = read(copy)
    assert history.participation[0].asked is None
    assert history.participation[0].dropped is None
    assert history.start.split is None
    for level, full in zip(history.levels, whole.levels, strict=True):
        assert level.privacy.epsilon == pytest.approx(full.privacy.epsilon)
        assert level.privacy.accountant == full.privacy.accountant


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(DropoutError):
        run(digits(out=out, federate={"drop": 0.9, "minimum_clients": 5, "retries": 1}))
    history = read(out)
    assert (history.status, history.rounds) == ("stopped", ())
    assert "Tried 2 times" in history.reason
    assert [(failure.round, failure.attempt) for failure in history.failures] == [(1, 0), (1, 1)]


class _Impatient(Watching):
    def round_done(self, record: Any) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_run_says_so_and_a_resumed_one_no_longer(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(digits(out=out), observer=_Impatient())
    history = read(out)
    assert (history.status, len(history.rounds)) == ("stopped", 1)
    assert history.reason.startswith("It was interrupted.")
    resume(out)
    history = read(out)
    assert (history.status, history.reason, len(history.resumes)) == ("finished", "", 1)
    assert history.resumes[0].environment == history.start.environment


def test_releases_without_noise_have_an_infinite_epsilon(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(digits(out=out, mode="dp", dp={"noise": 0.0}))
    (level,) = read(out).levels
    assert level.privacy.epsilon == math.inf
    assert level.epsilons == (math.inf, math.inf)
    (out / RESULT).unlink()  # read from the journal alone
    (level,) = read(out).levels
    assert (level.privacy.epsilon, level.epsilons) == (math.inf, (math.inf, math.inf))
    assert [line["epsilon"] for line in ledger_of(out).to_dict()["lines"]] == ["infinite", "infinite"]


def test_a_model_that_overflowed_has_its_reason_in_the_journal(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(TacitError, match="Lower"):
        run(digits(out=out, model={"name": "mlp"}, server={"lr": 1e6}, federate={"rounds": 20}))
    assert "Lower" in read(out).reason


@pytest.mark.parametrize("missing", [CONFIG, JOURNAL])
def test_a_folder_that_is_no_run_is_named(copy: Path, missing: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(RunError, match=f"is not the folder of a run: it has no {missing}"):
        read(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rounds": 3}', "null"])
def test_a_damaged_result_is_named_with_what_to_do(copy: Path, text: str) -> None:
    (copy / RESULT).write_text(text)
    with pytest.raises(RunError, match=r"result.json is damaged .*Remove it; `tacit resume .*` then makes a new one"):
        read(copy)


@pytest.mark.parametrize("level", ["privacy", "example_privacy"])
def test_a_result_that_claims_less_than_the_journal_told_is_refused(copy: Path, level: str) -> None:
    result = json.loads((copy / RESULT).read_text())
    for share, refused in ((0.9995, False), (0.99, True)):
        changed = result | {level: result[level] | {"epsilon": share * result[level]["epsilon"]}}
        (copy / RESULT).write_text(json.dumps(changed))
        with pytest.raises(RunError, match="the claim is false, or a file was changed") if refused else nullcontext():
            read(copy)


@pytest.mark.parametrize(
    ("line", "message"), [("[]", "expected a record"), ("{}", "expected a record"), ("{", "not JSON")]
)
def test_a_damaged_journal_is_named_with_its_line(copy: Path, line: str, message: str) -> None:
    first, *rest = (copy / JOURNAL).read_text().splitlines()
    (copy / JOURNAL).write_text("\n".join([first, line, *rest]) + "\n")
    with pytest.raises(RunError, match=f"journal.jsonl is damaged in line 2.*{message}"):
        read(copy)


def test_a_round_that_lacks_fields_is_named(copy: Path) -> None:
    (copy / RESULT).unlink()
    _rewrite(copy, lambda r: {"type": "round", "round": 1} if r["type"] == "round" else r)
    with pytest.raises(RunError, match="the record of a round lacks fields"):
        read(copy)


def test_epsilons_of_a_finished_run_are_finite_numbers(both: Path) -> None:
    for level in read(both).levels:
        assert all(epsilon is not None and math.isfinite(epsilon) for epsilon in level.epsilons)
