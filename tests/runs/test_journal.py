from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.accounting.events import GaussianEvent
from tacit.accounting.ledger import Charge
from tacit.errors import RunError, StorageError
from tacit.federated.examples import ExampleCharge
from tacit.runs import history
from tacit.runs.folder import RunFolder
from tacit.runs.journal import (
    Attempt,
    End,
    Environment,
    Failed,
    Journal,
    Note,
    Record,
    Resume,
    Round,
    Secret,
    Split,
    Start,
    Stopped,
    lock_of,
    read,
)

ONE = b'{"type": "end", "rounds": 1}\n'


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(Failed(round=1, attempt=0, reason="a"))
        assert list(read(path)) == [Failed(round=1, attempt=0, reason="a")]  # on disk at once
        journal.append(Note(round=1, text="é\n"))
    with Journal(path) as journal:
        journal.append(End(rounds=3))
    assert [record.kind for record in read(path)] == ["failed", "note", "end"]
    assert list(read(path))[1] == Note(round=1, text="é\n")


@pytest.mark.parametrize("cut", range(1, 15))
def test_a_torn_last_line_is_as_if_it_had_not_been_begun(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(End(rounds=1))
        journal.append(End(rounds=22222222))
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read(path)) == [End(rounds=1)]
    with Journal(path) as journal:
        journal.append(End(rounds=3))
    assert list(read(path)) == [End(rounds=1), End(rounds=3)]


def test_an_empty_journal_and_one_torn_line_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"")
    assert list(read(path)) == []
    path.write_bytes(b'{"n": ')
    assert list(read(path)) == []


@pytest.mark.parametrize("damage", [b'{"n": \n', b"\x00\x00\x00\n", b"\xff\n", b"\n"])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(ONE + damage + ONE)
    with pytest.raises(RunError, match="damaged in line 2"):
        list(read(path))


def test_a_missing_journal_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Is .* the folder of a run"):
        list(read(tmp_path / "j"))


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal, pytest.raises(ValueError, match="not JSON compliant"):
        journal.append(Round(round=1, figures={"loss": float("nan")}))
    assert list(read(tmp_path / "j")) == []


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_write_that_fails_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(End(rounds=1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", _full)
            with pytest.raises(StorageError, match=r"No space left.*Free some space"):
                journal.append(End(rounds=2))
        assert list(read(path)) == [End(rounds=1)]
        journal.append(End(rounds=3))
    assert list(read(path)) == [End(rounds=1), End(rounds=3)]


def test_after_a_failed_fsync_nothing_more_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have dropped the bytes and report success at the next fsync."""
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(End(rounds=1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _full)
            with pytest.raises(StorageError, match="No space left"):
                journal.append(End(rounds=2))
        for _ in range(2):
            with pytest.raises(StorageError, match=r"an earlier fsync failed.*nothing more is written"):
                journal.append(End(rounds=3))
    before = path.stat().st_ino
    with Journal(path) as journal:
        journal.renew()  # to new pages, which an fsync of today says the truth about
        assert path.stat().st_ino != before
        journal.append(End(rounds=4))
    assert list(read(path)) == [End(rounds=1), End(rounds=2), End(rounds=4)]


def test_after_a_line_that_could_not_be_taken_back_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) <= 4:
            _full()
        return write(descriptor, data[:4])

    with Journal(path) as journal:
        journal.append(End(rounds=1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            patch.setattr(os, "ftruncate", _full)
            with pytest.raises(StorageError, match="No space left"):
                journal.append(End(rounds=2))
        with pytest.raises(StorageError, match="could not be taken back"):
            journal.append(End(rounds=3))
    assert path.read_bytes() != ONE
    with Journal(path) as journal:
        journal.append(End(rounds=4))
    assert list(read(path)) == [End(rounds=1), End(rounds=4)]


@pytest.mark.parametrize("length", [0, 5, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_long_lines_are_taken_over_whole(tmp_path: Path, length: int) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(Stopped(reason="x" * length))
        journal.append(End(rounds=2))
    path.write_bytes(path.read_bytes() + b'{"torn": "' + b"y" * length)
    with Journal(path) as journal:
        journal.renew()
    assert list(read(path)) == [Stopped(reason="x" * length), End(rounds=2)]
    assert path.read_bytes().endswith(b'{"type": "end", "rounds": 2}\n')


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.touch(mode=0o644)
    for step in (Journal.renew, Journal.clear, lambda _: None):
        with Journal(path) as journal:
            step(journal)
            journal.append(Secret(round=1, text="key"))
            assert path.stat().st_mode & 0o777 == 0o600
            assert lock_of(path).stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_really_full_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of files fails a write half-way, as a full disk does; nothing may come later either."""
    path = tmp_path / "j"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        journal.append(End(rounds=1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(ONE) + 3, limits[1]))
        try:
            with pytest.raises(StorageError, match="File too large"):
                journal.append(Stopped(reason="x" * 100))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == ONE
    assert path.read_bytes() == ONE


OPENING = (
    "import sys; from pathlib import Path; from tacit.runs.journal import Journal\n"
    "try: Journal(Path(sys.argv[1]))\nexcept Exception as error: print(type(error).__name__, error)"
)
HOLDING = (
    "import sys, time; from pathlib import Path; from tacit.runs.journal import Journal\n"
    "journal = Journal(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
)


def test_a_second_process_is_locked_out_and_told_by_whom(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"):
        done = subprocess.run(
            [sys.executable, "-c", OPENING, str(tmp_path / "j")], capture_output=True, text=True, check=True
        )
        who = rf"in use by another process \(process {os.getpid()} on {re.escape(socket.gethostname())}, since \d{{4}}-"
        assert done.stdout.startswith("RunError")
        assert re.search(who, done.stdout)
        with pytest.raises(RunError, match=who):
            Journal(tmp_path / "j")
    assert not lock_of(tmp_path / "j").exists()
    Journal(tmp_path / "j").close()


def test_a_killed_process_keeps_nobody_out(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path / "j")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match=rf"process {holder.pid} on "):
        Journal(tmp_path / "j")
    holder.kill()
    holder.communicate()
    assert lock_of(tmp_path / "j").exists()  # it names the dead process until the next comes
    Journal(tmp_path / "j").close()
    assert not lock_of(tmp_path / "j").exists()


def test_a_lock_file_that_says_nothing_yet_still_locks(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"):
        for text in (b"", b"{", b"[]", b'{"process": "x"}'):
            lock_of(tmp_path / "j").write_bytes(text)
            with pytest.raises(RunError, match=r"in use by another process\. Wait"):
                Journal(tmp_path / "j")


def test_a_lock_that_was_taken_away_between_two_calls_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removes the file after the next has opened it: that one would hold a file nobody else sees."""
    path = tmp_path / "j"
    first: list[Journal] = [Journal(path)]
    flock = fcntl.flock

    def let_go(descriptor: int, operation: int) -> None:
        if first:
            first.pop().close()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", let_go)
    with Journal(path):
        assert lock_of(path).exists()
        with pytest.raises(RunError, match="in use"):
            Journal(path)


def test_a_folder_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        Journal(tmp_path / "no" / "j")


@pytest.mark.parametrize("name", ["j", ".j.lock"])
def test_a_pipe_or_a_link_in_the_way_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """A pipe would wait for somebody at its other end; a link of another user would have a file of ours emptied."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(StorageError, match=r"Can't (read|write)"):
        Journal(tmp_path / "j").append(End(rounds=1))
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match="Too many levels of symbolic links"):
        Journal(tmp_path / "j")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_pipe_for_a_journal_is_no_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal.jsonl")
    for look in (RunFolder.open, lambda path: RunFolder.create(path, config="", force=False), history.read):
        with pytest.raises(StorageError, match="pipe or a device"):
            look(tmp_path)


RELEASE = GaussianEvent(noise_multiplier=1.5)
RECORDS: list[Record] = [
    Start(key="0f" * 16, simulation=True, dataset="digits", examples=9),
    Start(
        key="0f" * 16,
        simulation=False,
        dataset="given",
        examples=9,
        time="2026-01-01T00:00:00+00:00",
        title="nine",
        model="logistic",
        parameters=650,
        device="cpu",
        form="lanes",
        split=Split(sizes=(4, 5), counts=((1, 3), (5, 0))),
        environment=Environment(tacit="0.2.0", cores=2),
        deployed=True,
        told={"0": 4, "1": 5},
    ),
    Attempt(round=1, attempt=0, charge=None, clients=2, asked="all"),
    Attempt(
        round=1,
        attempt=1,
        charge=Charge(round_number=1, event=RELEASE, note="try 2", clients=(0, 1)),
        asked=(0, 1),
        example_charges=(ExampleCharge(clients=(0,), event=RELEASE), ExampleCharge(clients=(1,), event=RELEASE)),
    ),
    Round(round=1, epsilon=1.5, dropped=(1,), figures={"round": 1, "clients_asked": 2, "epsilon": 1.5}),
    Round(round=2, epsilon=math.inf, figures={"round": 2, "epsilon": "infinite"}),
    Failed(round=1, attempt=0, reason="too few"),
    Note(round=1, text="a note"),
    Secret(round=1, text="client 1 sent nothing"),
    Resume(time="2026-01-01T00:00:01+00:00", environment=Environment(tacit="0.2.0")),
    Stopped(reason="It was interrupted."),
    End(rounds=2),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_every_record_comes_back_as_it_was(tmp_path: Path, record: Record) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append(record)
    assert list(read(tmp_path / "j")) == [record]
    assert json.loads((tmp_path / "j").read_bytes(), parse_constant=pytest.fail)["type"] == record.kind


def test_what_a_later_version_writes_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"type": "weather", "sun": 3}\n{"type": "end", "rounds": 2, "mood": "fine"}\n')
    assert list(read(tmp_path / "j")) == [End(rounds=2)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"type": "attempt", "round": 1, "attempt": 0}', "charge of a 'attempt' record: field required"),
        ('{"type": "attempt", "round": 1, "attempt": 0, "charge": {"round": 1}}', "Not a charge of a ledger"),
        (
            '{"type": "attempt", "round": 1, "attempt": 0, "charge": null, "example_charges": [{"clients": [-1]}]}',
            "Not a charge of clients' examples",
        ),
        ('{"type": "round", "round": -1}', "round of a 'round' record: input should be greater than or equal to 0"),
        ('{"type": "round", "round": 1, "epsilon": "much"}', "epsilon of a 'round' record: input should be a valid"),
        ('{"type": "start", "key": "0"}', "key of a 'start' record: string should match pattern"),
        ('{"type": "stopped"}', "reason of a 'stopped' record: field required"),
    ],
)
def test_a_record_of_another_form_is_named_with_its_field(tmp_path: Path, line: str, why: str) -> None:
    (tmp_path / "j").write_text(f'{{"type": "end"}}\n{line}\n')
    with pytest.raises(RunError, match=f"(?i)j is damaged in line 2: .*{why}"):
        list(read(tmp_path / "j"))
