"""A process is really killed, at several moments, and the run goes on to the same weights bit for bit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tacit
from tacit.errors import ConfigError, RunError
from tacit.runs import journal
from tacit.runs.folder import CHECKPOINT, CONFIG, JOURNAL, MODEL, RESULT, Checkpoint
from tacit.runs.run import resume, run
from tests.runs.common import Watching, digits, lines, weights

ARGUMENTS = [
    "run",
    "--data",
    "digits",
    "--model",
    "mlp",
    "--rounds",
    "30",
    "--clients",
    "8",
    "--per-round",
    "4",
    "--seed",
    "3",
    "--drop",
    "0.1",
    "--quiet",
    "server.name=fedadam",
    "server.lr=0.02",
    "train.workers=1",
    "optimizer.decay=0.95",
]
COMMAND = [sys.executable, "-c", "from tacit.cli.main import main; main()"]


def _lines(out: Path) -> int:
    path = out / JOURNAL
    return path.read_bytes().count(b"\n") if path.exists() else 0


DYING = """
import os, signal, sys
from tacit.runs.journal import Journal
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs are born deaf
append, number, left = Journal.append, int(sys.argv.pop(1)), int(sys.argv.pop(1))
def dies(self, record):
    global left
    append(self, record)
    left -= 1
    if not left:
        os.kill(os.getpid(), number)
Journal.append = dies
from tacit.cli.main import main
main()
"""


def _signalled(number: signal.Signals, records: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Give a command that gets a signal when it has written so many records."""
    command = [sys.executable, "-c", DYING, str(int(number)), str(records), *arguments]
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)


def _killed(records: int, *arguments: str) -> None:
    """Give a command that is killed, as kill -9 does, when it has written so many records."""
    done = _signalled(signal.SIGKILL, records, *arguments)
    assert done.returncode == -signal.SIGKILL, f"the run was over before it could be killed: {done.stderr}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the same run, never interrupted, in a process of its own."""
    out = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run([*COMMAND, *ARGUMENTS, "--out", str(out)], check=True)
    return out


def _same(out: Path, whole: Path) -> None:
    assert weights(out) == weights(whole)
    mine, theirs = (json.loads((folder / RESULT).read_text()) for folder in (out, whole))
    assert [r["round"] for r in mine["rounds"]] == list(range(1, 31))
    for key in ("train_loss", "test_loss", "test_accuracy", "clients_replied", "bytes_up", "attempts"):
        assert [r[key] for r in mine["rounds"]] == [r[key] for r in theirs["rounds"]], key
    assert mine["test_accuracy"] == theirs["test_accuracy"]
    assert mine["bytes_up"] == theirs["bytes_up"]


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_weights(tmp_path: Path, whole: Path) -> None:
    """At its first record, in the middle and near its end; test_deaths.py has the moments in between."""
    out = tmp_path / "run"
    command = [*ARGUMENTS, "--out", str(out)]
    for more, total in ((1, 1), (13, 14), (37, 51)):
        _killed(more, *command)
        command = ["resume", str(out), "--quiet"]
        assert _lines(out) == total
        assert not (out / RESULT).exists()
        before = Checkpoint.read(out / CHECKPOINT).round_number if (out / CHECKPOINT).exists() else 0
        recorded = sum(record["type"] == "round" for record in lines(out / JOURNAL))
        assert recorded <= before <= recorded + 1  # at most the round in flight is lost
        shutil.copytree(out, tmp_path / str(total))
    for total in (1, 14, 51):
        watching = Watching()
        resume(tmp_path / str(total), observer=watching)
        assert [record.round for record in watching.records][-1] == 30
        _same(tmp_path / str(total), whole)
    assert len(watching.done) == before


def test_ctrl_c_is_kept_and_says_how_to_go_on(tmp_path: Path, whole: Path) -> None:
    out = tmp_path / "run"
    done = _signalled(signal.SIGINT, 12, *ARGUMENTS, "--out", str(out))
    assert done.returncode == 130
    assert f"tacit resume {out}" in done.stderr
    assert "Traceback" not in done.stderr
    assert (out / MODEL).exists()
    resume(out)
    _same(out, whole)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run of four rounds that stopped after its second."""
    out = tmp_path / "stopped"
    append = journal.Journal.append

    def stop(self: journal.Journal, record: journal.Record) -> None:
        if isinstance(record, journal.Attempt) and record.round == 3:
            raise KeyboardInterrupt
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            run(digits(out=out, federate={"rounds": 4}))
    return out


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    run(digits(out=tmp_path / "complete", federate={"rounds": 4}))
    return tmp_path / "complete"


def _rounds(out: Path) -> list[int]:
    return [record["round"] for record in lines(out / JOURNAL) if record["type"] == "round"]


def test_a_crash_between_checkpoint_and_journal_is_mended(stopped: Path, complete: Path) -> None:
    path = stopped / JOURNAL
    rounds, _, _ = path.read_bytes().partition(b'{"type": "stopped"')
    path.write_bytes(rounds[:-5])  # the record of round 2 was cut short
    assert _rounds(stopped) == [1]
    result = resume(stopped)
    assert _rounds(stopped) == [1, 2, 3, 4]
    assert [record.round for record in result.rounds] == [1, 2, 3, 4]
    assert weights(stopped) == weights(complete)


def test_a_checkpoint_older_than_the_journal_is_gone_back_to(stopped: Path, complete: Path) -> None:
    """As after a power cut on a file system that lost the last rename."""
    (stopped / CHECKPOINT).unlink()
    result = resume(stopped)
    assert [record.round for record in result.rounds] == [1, 2, 3, 4]
    assert weights(stopped) == weights(complete)


def test_a_journal_that_lost_rounds_is_refused(stopped: Path) -> None:
    records = lines(stopped / JOURNAL)
    kept = [r for r in records if not (r["type"] == "round" and r["round"] == 1)]
    (stopped / JOURNAL).write_text("".join(json.dumps(record) + "\n" for record in kept))
    with pytest.raises(RunError, match="lacks round 1, though the checkpoint is of round 2"):
        resume(stopped)


def test_a_crash_after_the_last_round_only_ends(complete: Path) -> None:
    before = weights(complete)
    for name in (RESULT, MODEL):
        (complete / name).unlink()
    lines = (complete / JOURNAL).read_text().splitlines(keepends=True)
    (complete / JOURNAL).write_text("".join(lines[:-1]))
    watching = Watching()
    result = resume(complete, observer=watching)
    assert watching.records == []
    assert len(result.rounds) == 4
    assert weights(complete) == before


def test_a_finished_run_is_returned_as_it_is(complete: Path) -> None:
    files = {path.name: path.read_bytes() for path in complete.iterdir()}
    watching = Watching()
    result = resume(complete, observer=watching)
    assert len(result.rounds) == 4
    assert "is complete" in watching.notes[0]
    assert watching.result == result
    assert {path.name: path.read_bytes() for path in complete.iterdir()} == files


def test_the_public_name_works(stopped: Path, complete: Path) -> None:
    assert len(tacit.resume(stopped).rounds) == 4
    assert weights(stopped) == weights(complete)


def test_a_run_without_a_seed_keeps_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr("tacit.runs.runner.Runner._keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(digits(out=out, seed=None))
    monkeypatch.undo()
    result = resume(out)
    assert (result.simulation, result.seed, len(result.rounds)) == (False, None, 2)


def _edit(out: Path, section: str, **changes: object) -> None:
    values = yaml.safe_load((out / CONFIG).read_text())
    values[section] |= changes
    (out / CONFIG).write_text(yaml.safe_dump(values))


def test_another_model_is_refused(stopped: Path) -> None:
    _edit(stopped, "model", name="mlp")
    with pytest.raises(RunError, match=r"The checkpoint holds 650 parameters, the model has \d+"):
        resume(stopped)
    assert Checkpoint.read(stopped / CHECKPOINT).round_number == 2


def test_other_data_are_refused(stopped: Path) -> None:
    _edit(stopped, "data", name="breast-cancer")
    with pytest.raises(RunError, match=r"began on digits with \d+ examples; now it is breast-cancer"):
        resume(stopped)


def test_another_server_optimiser_is_refused(stopped: Path) -> None:
    _edit(stopped, "server", name="fedadam")
    with pytest.raises(RunError, match=r"server.name=fedadam keeps something else"):
        resume(stopped)


def test_more_rounds_may_be_asked_for(stopped: Path, complete: Path) -> None:
    _edit(stopped, "federate", rounds=3)
    assert len(resume(stopped).rounds) == 3
    assert weights(stopped) != weights(complete)


def test_a_damaged_configuration_is_a_sentence(stopped: Path) -> None:
    (stopped / CONFIG).write_text("federate: {roundz: 3}")
    with pytest.raises(ConfigError, match=r"Did you mean 'federate.rounds'"):
        resume(stopped)


def test_a_journal_that_lost_its_beginning_is_refused(stopped: Path) -> None:
    (stopped / JOURNAL).write_text("")
    with pytest.raises(RunError, match=r"does not begin with the record of the start. Restore it"):
        resume(stopped)


@pytest.mark.parametrize(
    "damage",
    [
        b"[1]\n",
        b"null\n",
        b'{"n": 1}\n',
        b'{"type": ["start"]}\n',
        b'{"type": "round"}\n',
        b'{"type": "round", "round": "two"}\n',
        b'{"type": "round", "round": 1}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_damaged_record_is_a_sentence(stopped: Path, damage: bytes) -> None:
    path = stopped / JOURNAL
    before = path.read_bytes()
    path.write_bytes(before + damage)
    with pytest.raises(RunError, match="is damaged"):
        resume(stopped)
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rounds": 3}', "[" * 100_000])
def test_a_damaged_result_is_a_sentence(complete: Path, text: str) -> None:
    (complete / RESULT).write_text(text)
    with pytest.raises(RunError, match=r"result.json is damaged.*Remove it; `tacit resume"):
        resume(complete)


def test_a_finished_run_is_read_without_a_lock_and_without_writing(complete: Path) -> None:
    with journal.Journal(complete / JOURNAL):
        assert len(resume(complete).rounds) == 4


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not the folder of a run"):
        resume(tmp_path)


def test_a_run_in_use_is_refused(stopped: Path) -> None:
    with journal.Journal(stopped / JOURNAL), pytest.raises(RunError, match="in use by another process"):
        resume(stopped)
