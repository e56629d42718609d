"""The disk fails at each call of a small run in turn: a sentence, nothing half-written, the same weights after."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.config.run_config import RunConfig
from tacit.errors import RunError, StorageError
from tacit.runs.folder import JOURNAL
from tacit.runs.result import Result
from tacit.runs.run import resume, run
from tests.runs.common import digits, lines, weights
from tests.runs.disk import FAULTS, Disk, failing

HARMLESS = {"unlink .journal.jsonl.lock"}  # a lock's file that stays locks nobody out
LONG = "TACIT_LONG" in os.environ
CALLS = 100  # more than any of these sessions has


def _config(out: Path) -> RunConfig:
    return digits(out=out, federate={"clients": 3}, evaluate={"train": False})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the run, never disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(_config(out))
    return out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the same run, stopped in its second round."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    checkpoints: list[str] = []

    def third_checkpoint(_number: int, call: str) -> None:  # the first is that of round 0
        checkpoints.extend([call] if call.startswith("open .checkpoint") else [])
        if len(checkpoints) >= 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(StorageError), Disk(out, third_checkpoint).watched():
        run(_config(out))
    assert [record["type"] for record in lines(out / JOURNAL)] == ["start", "attempt", "round", "attempt"]
    return out


def _go_on(out: Path) -> Result:
    """Do what the messages say: resume, or give the command again where nothing had begun."""
    try:
        return resume(out)
    except RunError as error:
        told = str(error)
    assert "nothing is lost: give its `tacit run` command again" in told or not list(out.glob("*"))
    return run(_config(out))


def _parts(out: Path) -> list[Path]:
    return list(out.glob(".*.part"))


def _disturb(
    session: Callable[[], Result], out: Path, whole: Path, number: int, code: int, *, ever_after: bool
) -> bool:
    """Run a session whose call of that number fails; return whether it has so many calls."""
    disk = Disk(out, failing(number, code, ever_after=ever_after))
    told = None
    try:
        with disk.watched():
            session()
    except StorageError as error:
        told = str(error)
    called = len(disk.calls) >= number
    if told is None:
        assert not called or disk.calls[number - 1] in HARMLESS, f"unnoticed: {disk.calls[number - 1]}"
    else:
        assert os.strerror(code) in told
        assert ever_after or not _parts(out)
    if called:
        assert len(_go_on(out).rounds) == 2
        assert weights(out) == weights(whole)
        assert not _parts(out)
        assert [record["type"] for record in lines(out / JOURNAL)][-1] == "end"
    return called


def _faults(number: int) -> list[tuple[int, bool]]:
    """Return how a call fails: in all ways in the long form, in one of them in turn otherwise."""
    return FAULTS if LONG else [FAULTS[number % len(FAULTS)]]


def _through(
    session: Callable[[Path], Result], prepare: Callable[[Path], object], place: Path, whole: Path, *, step: int = 1
) -> int:
    """Disturb a session at each of its calls, or in the short form at each so-manieth; return how many it has."""
    for number in range(1, CALLS, 1 if LONG else step):
        for code, ever_after in _faults(number):
            out = place / f"{number}-{code}-{ever_after}"
            prepare(out)
            if not _disturb(lambda out=out: session(out), out, whole, number, code, ever_after=ever_after):  # type: ignore[misc]
                return number - 1
    raise AssertionError("a session with more calls than it should have")


def test_a_run_survives_a_failure_at_each_of_its_calls(tmp_path: Path, whole: Path) -> None:
    assert _through(lambda out: run(_config(out)), lambda _: None, tmp_path, whole) > 70


def test_a_resumed_run_survives_a_failure_at_each_of_its_calls(tmp_path: Path, whole: Path, stopped: Path) -> None:
    assert _through(resume, lambda out: shutil.copytree(stopped, out), tmp_path, whole, step=3) > 40


def test_a_run_that_replaces_another_survives_a_failure_at_each_of_its_calls(
    tmp_path: Path, whole: Path, stopped: Path
) -> None:
    def session(out: Path) -> Result:
        return run(_config(out), force=True)

    assert _through(session, lambda out: shutil.copytree(stopped, out), tmp_path, whole, step=5) > 70


def test_a_close_that_fails_after_all_is_on_disk_is_passed_over(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def fail(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", fail)
        run(_config(tmp_path / "run"))
    assert weights(tmp_path / "run") == weights(whole)
    assert not _parts(tmp_path / "run")
