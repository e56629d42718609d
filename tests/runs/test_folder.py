from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tacit.errors import RunError, StorageError
from tacit.runs import history
from tacit.runs.folder import CHECKPOINT, CONFIG, JOURNAL, MODEL, RESULT, Checkpoint, RunFolder
from tacit.runs.journal import End, Round
from tacit.runs.ledger import ledger_of
from tacit.runs.run import resume, run
from tests.runs.common import digits


def _checkpoint(round_number: int = 3) -> Checkpoint:
    return Checkpoint(
        round_number=round_number,
        model=np.arange(5, dtype=np.float32),
        mechanism=b"\x00told",
        seconds={"train": 1.5, "wall": 2.0},
        state={"momentum": np.ones(5, np.float32), "second": np.full(5, 1e-30, np.float32)},
        record=Round(round=round_number, figures={"round": round_number, "test_loss": None}),
    )


def test_a_checkpoint_round_trips_bit_for_bit(tmp_path: Path) -> None:
    before = _checkpoint()
    before.write(tmp_path / "c")
    after = Checkpoint.read(tmp_path / "c")
    assert (after.round_number, after.record, after.mechanism) == (3, before.record, b"\x00told")
    assert after.seconds == before.seconds
    assert after.model.tobytes() == before.model.tobytes()
    assert {k: v.tobytes() for k, v in after.state.items()} == {k: v.tobytes() for k, v in before.state.items()}


def test_the_first_checkpoint_has_no_record(tmp_path: Path) -> None:
    Checkpoint(round_number=0, model=np.zeros(2, np.float32), state={}, mechanism=b"", seconds={}, record=None).write(
        tmp_path / "c"
    )
    after = Checkpoint.read(tmp_path / "c")
    assert (after.round_number, after.record, dict(after.state)) == (0, None, {})


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "c"
    _checkpoint().write(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RunError, match="checkpoint"):
        Checkpoint.read(path)


def test_another_safetensors_file_is_no_checkpoint(tmp_path: Path) -> None:
    save_file({"model": np.zeros(2, np.float32)}, tmp_path / "plain")
    save_file({"weight": np.zeros(2, np.float32)}, tmp_path / "other", {"round": "1", "record": "null"})
    for name in ("plain", "other"):
        with pytest.raises(RunError, match="is not a checkpoint of a run"):
            Checkpoint.read(tmp_path / name)


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a" / "b", config="seed: 1\n", force=False)
    assert sorted(path.name for path in folder.path.iterdir()) == [
        ".journal.jsonl.lock",
        CONFIG,
        JOURNAL,
    ]
    assert folder.checkpoint() is None
    assert list(folder.records()) == []
    folder.save(_checkpoint(4))
    found = folder.checkpoint()
    assert found is not None
    assert found.round_number == 4
    folder.close()
    assert sorted(path.name for path in folder.path.iterdir()) == [CHECKPOINT, CONFIG, JOURNAL]


def test_what_holds_the_root_of_randomness_is_for_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    run(digits(out=out))
    assert out.stat().st_mode & 0o777 == 0o700
    assert out.parent.stat().st_mode & 0o777 == 0o777 & ~_mask()
    for name in (CONFIG, JOURNAL, CHECKPOINT, RESULT):
        assert (out / name).stat().st_mode & 0o777 == 0o600, name


def _mask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_a_folder_that_is_there_keeps_its_permissions_and_a_journal_that_is_there_does_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / JOURNAL).write_text("old\n")
    RunFolder.create(tmp_path, config="", force=True).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / JOURNAL).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT])
def test_a_folder_with_any_trace_of_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old\n")
    with pytest.raises(RunError, match=rf"holds another run \({name}\).*tacit resume.*--force"):
        RunFolder.create(tmp_path, config="", force=False)
    assert (tmp_path / name).read_text() == "old\n"


def test_other_files_are_nobodys_run_and_survive_force(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for name in (CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT):
        (tmp_path / name).write_text("old\n")
    folder = RunFolder.create(tmp_path, config="new", force=True)
    folder.journal.append(End(rounds=1))
    assert list(folder.records()) == [End(rounds=1)]
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [CONFIG, JOURNAL, "notes.txt"]


def test_force_does_not_replace_a_run_that_goes_on(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path, config="first", force=False)
    first.journal.append(End(rounds=1))
    with pytest.raises(RunError, match="in use by another process"):
        RunFolder.create(tmp_path, config="second", force=True)
    assert (tmp_path / CONFIG).read_text() == "first"
    assert list(first.records()) == [End(rounds=1)]
    first.close()


@pytest.mark.parametrize("present", [[], [CONFIG], [MODEL]])
def test_a_folder_without_a_run_can_not_be_opened(tmp_path: Path, present: list[str]) -> None:
    for name in present:
        (tmp_path / name).write_text("")
    with pytest.raises(RunError, match="is not the folder of a run"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunError, match="is not the folder of a run"):
        RunFolder.open(tmp_path / "missing")


UNBORN: list[dict[str, str]] = [
    {".journal.jsonl.lock": '{"process": 1}'},
    {".journal.jsonl.lock": "", JOURNAL: ""},
    {JOURNAL: '{"type": "star'},
    {".journal.jsonl.lock": "", JOURNAL: "", ".config.yaml.a1b2c3d4.part": "see"},
    {JOURNAL: "", CONFIG: "seed: 1\n"},
]


@pytest.mark.parametrize("left", UNBORN)
def test_a_run_that_died_while_its_folder_was_made_has_lost_nothing(tmp_path: Path, left: dict[str, str]) -> None:
    for name, text in left.items():
        (tmp_path / name).write_text(text)
    for look in (resume, history.read, ledger_of, RunFolder.open):
        with pytest.raises(RunError, match=r"ended while it was being made. Nothing was .* lost: give its .* again"):
            look(tmp_path)
    folder = RunFolder.create(tmp_path, config="seed: 2\n", force=False)
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [CONFIG, JOURNAL]
    assert (tmp_path / CONFIG).read_text() == "seed: 2\n"


def test_an_empty_journal_beside_a_model_is_not_taken_for_a_run_that_never_began(tmp_path: Path) -> None:
    for name in (CONFIG, JOURNAL, MODEL):
        (tmp_path / name).touch()
    with pytest.raises(RunError, match="holds another run"):
        RunFolder.create(tmp_path, config="", force=False)
    assert (tmp_path / MODEL).exists()


def test_a_name_that_is_too_long_is_a_sentence(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 256)
    for look in (resume, history.read, ledger_of, RunFolder.open):
        with pytest.raises(StorageError, match=r"File name too long. Choose a shorter name"):
            look(long)
    with pytest.raises(StorageError, match="too long"):
        RunFolder.create(long, config="", force=False)


def test_a_folder_that_may_not_be_looked_into_is_no_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "stat", forbidden)
    with pytest.raises(StorageError, match="Permission denied"):
        RunFolder.check(tmp_path, force=False)


def test_a_file_in_the_way_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(StorageError, match="Can't write"):
            RunFolder.create(path, config="", force=False)
