"""A key holder's folder and process: what it survives, what it refuses to start with, and what its operator sees."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit import wire
from tacit.crypto import keyfile, paillier, sealing, threshold
from tacit.crypto.threshold.refresh import contribute, refreshed
from tacit.errors import ConfigError, KeysError, StorageError, TacitError
from tacit.holder.memory import Memory
from tacit.holder.new import init
from tacit.holder.process import KeyHolder
from tacit.holder.settings import FILE, MEMORY, Settings
from tacit.protocols.paillier import Caution, Rules, ShareHolder, blocks
from tacit.protocols.paillier.session import SETUP
from tacit.protocols.signatures import read_identities
from tacit.service import ServiceError
from tests.holder.common import RULES, WORDS, People, Serving, code_of, made, memory_of, run_with
from tests.protocols.paillier.run import LENGTH, Run, opens, refused
from tests.protocols.test_conformance import key_shares, layout

TURN = wire.Turn(round_number=1)


@pytest.fixture(scope="module")
def people() -> People:
    """Return a short list."""
    return People(12)


class Inside:
    """A holder in this process, where nothing depends on a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.holder = KeyHolder(folder, lambda _: WORDS)

    def answer(self, frame: wire.Frame) -> bytes:
        """Answer a frame."""
        return self.holder.answer(wire.pack(frame.kind, frame.turn, frame.body))


def _inside(tmp_path: Path, people: People, keys: str = "authority", **changed: object) -> Inside:
    return Inside(made(tmp_path / "holder", keys, people, **changed))


def test_kill_nine_never_counts_too_few(tmp_path: Path, people: People) -> None:
    """Whatever was told is on disk: the process is killed when it has told, and while it works, whenever that is."""
    serving = Serving(made(tmp_path / "holder", "authority", people, rounds=3000, openings=3000))
    run = run_with("authority", serving.remote, people, rules=Rules(minimum_clients=3, rounds=3000))
    opens(run.open([0, 1, 2, 3], 1), run.exact(range(4)))
    serving.kill()
    assert len(serving.memory.opened) == 1
    serving.start()
    killer = threading.Timer(0.05, serving.process.kill)  # the process of this test's own
    killer.start()
    told = 1
    with contextlib.suppress(ServiceError):
        for number in range(2, 3000):
            told += not isinstance(run.open([0, 1, 2, 3], number), str)
    killer.join()
    serving.kill()
    assert told <= len(serving.memory.opened) <= told + 1


def test_the_life_of_a_key_ends(tmp_path: Path, people: People) -> None:
    inside = _inside(tmp_path, people, openings=2)
    run = run_with("authority", inside, people)
    for number in (1, 2):
        opens(run.open(range(4), number), run.exact(range(4)))
    assert refused(run.open(range(4), 3), "2 sums were opened with this key, which is all that its holder allows")
    again = run_with("authority", Inside(inside.folder), people)
    assert refused(again.open(range(4), 1), "make a new key")


def test_chains_are_seen_where_the_operator_asks_for_it(tmp_path: Path, people: People) -> None:
    """Seven of eight as two parts of four and three, and then all eight: no two differ by fewer than three."""
    for rule, words in (("pairs", ""), ("chains", "1 client would have been in other sums")):
        (tmp_path / rule).mkdir()
        inside = _inside(tmp_path / rule, people, differences=rule)
        run = run_with("authority", inside, people, identities=people.some(8))
        assert not isinstance(run.open([0, 1, 2, 3], 1), str)
        assert not isinstance(run.open([4, 5, 6], 2), str)
        given = run.open(range(8), 3)
        assert refused(given, words) if words else not isinstance(given, str)


@pytest.mark.parametrize(("needed", "served"), [(2, False), (3, True)])
def test_chains_need_a_holder_that_sees_every_sum(tmp_path: Path, people: People, needed: int, served: bool) -> None:
    """Of 2 in 3 a server has three sums opened by three pairs of holders, of which each has seen two."""
    _, shares = threshold.generate(shares=3, threshold=needed, bits=256, insecure_key_size=True)
    keyfile.save(tmp_path / "share.key", shares[0])
    (tmp_path / "clients.pub").write_bytes(people.lines)
    settings = Settings(
        key=tmp_path / "share.key",
        clients=tmp_path / "clients.pub",
        minimum_clients=3,
        differences="chains",
        unsealed=True,
        insecure_key_size=True,
    )
    if served:
        init(tmp_path / "holder", settings)
        return
    with pytest.raises(ConfigError, match="chains needs a holder that sees every sum, and 2 of 3 holders"):
        init(tmp_path / "holder", settings)
    assert not (tmp_path / "holder").exists()


def test_where_the_disk_is_full_nothing_is_told_and_the_sum_is_counted_later(tmp_path: Path, people: People) -> None:
    inside = _inside(tmp_path, people)
    run = run_with("authority", inside, people)
    opening = run.opening(run.replies())
    request = wire.pack(wire.Kind.OPEN, wire.Turn(round_number=1), opening.to_bytes())
    database = inside.holder._memory._database
    database.execute(
        "CREATE TEMP TRIGGER full BEFORE INSERT ON openings BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    assert code_of(inside.holder.answer(request)) is wire.Failure.STORAGE
    database.execute("DROP TRIGGER full")
    assert memory_of(inside.folder).opened == []
    opens(run.ask(opening), run.exact(range(4)))
    assert len(memory_of(inside.folder).opened) == 1


def test_a_sum_that_is_opened_in_blocks_counts_once_and_is_of_one_list_of_clients(
    tmp_path: Path, people: People, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blocks, "FRAME_BYTES", 1)
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    caplog.set_level("INFO", "tacit.holder")
    inside = _inside(tmp_path, people, "threshold")
    run = run_with("threshold", inside, people)
    replies = run.replies()
    whole, part = run.opening(replies), run.opening({client: replies[client] for client in range(3)})
    first, *others = (wire.pack(wire.Kind.OPEN, TURN, one.to_bytes(n)) for one in (whole, part) for n in range(3))
    assert wire.unpack(inside.holder.answer(first)).kind is wire.Kind.OPENED
    anew = KeyHolder(inside.folder, lambda _: WORDS)
    kinds = [wire.unpack(anew.answer(request)).kind for request in others]
    assert kinds == [wire.Kind.OPENED] * 2 + [wire.Kind.FAILURE] * 3
    opens(run.ask(whole), run.exact(range(4)))
    assert [opened.numbers for opened in memory_of(inside.folder).opened] == [LENGTH]
    assert sum("opened a sum" in record.message for record in caplog.records) == 1


def test_of_two_sums_that_are_asked_for_at_once_and_differ_by_one_client_one_is_opened(
    tmp_path: Path, people: People
) -> None:
    """Two rounds of a run, from two threads: whichever comes first, the other is compared with it."""
    inside = _inside(tmp_path, people)
    run = run_with("authority", inside, people)
    asked = [run.opening({client: run.reply(client, number) for client in range(5 - number)}) for number in (1, 2)]
    answers: dict[int, wire.Kind] = {}

    def ask(number: int) -> None:
        turn = wire.Turn(round_number=number)
        request = wire.pack(wire.Kind.OPEN, turn, asked[number - 1].to_bytes())
        answers[number] = wire.unpack(inside.holder.answer(request)).kind

    threads = [threading.Thread(target=ask, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers.values()) == [wire.Kind.FAILURE, wire.Kind.OPENED]
    assert len(memory_of(inside.folder).opened) == 1


def test_a_client_that_was_struck_off_the_list_is_in_no_further_sum(tmp_path: Path, people: People) -> None:
    inside = _inside(tmp_path, people)
    run = run_with("authority", inside, people)
    listed = inside.folder / "clients.pub"
    own = run.identities[0].public_key().public_bytes_raw()
    lines = [line for line in listed.read_text().splitlines() if _public(line) != own]
    listed.write_text("\n".join(lines))
    run.holders[-1] = Inside(inside.folder)  # type: ignore[assignment]  # it answers frames as any holder does
    assert refused(run.open(range(4)), "no longer on this key holder's list")
    opens(run.open([1, 2, 3], 2), run.exact([1, 2, 3]))


def _public(line: str) -> bytes:
    return next(iter(read_identities(line, where="test")))


def test_a_forged_sum_counts_and_uses_up_its_round(tmp_path: Path, people: People) -> None:
    """An authority has decrypted it before it sees that: a server can't try one guess after the other for nothing."""
    inside = _inside(tmp_path, people)
    run = run_with("authority", inside, people)
    replies = run.replies()
    bodies = [replies[0][1], *(replies[c][1] for c in (0, 1, 2))]
    forged = replace(run.opening(replies), vectors=[run.added(bodies).to_bytes()])
    assert refused(run.ask(forged), "nothing of it is told")
    assert len(memory_of(inside.folder).opened) == 1
    assert refused(run.ask(run.opening(replies)), "a second sum for round 1")


# What a process does not start with


def _refused(folder: Path, words: str, *, error: type[TacitError] = TacitError) -> None:
    with pytest.raises(error, match=words):
        KeyHolder(folder, lambda _: WORDS)


def test_a_memory_that_is_lost_damaged_or_of_another_key_is_not_an_empty_one(tmp_path: Path, people: People) -> None:
    folder = made(tmp_path / "holder", "authority", people)
    kept = folder / MEMORY
    whole = kept.read_bytes()
    for damage in (b"", b"no database at all" * 300, whole[:4096] + b"\xff" * 4096 + whole[8192:], whole[:100]):
        for path in folder.glob(f"{MEMORY}*"):
            path.unlink()
        kept.write_bytes(damage)
        _refused(folder, "can't be read or written", error=StorageError)
    kept.unlink()
    _refused(folder, "is not there: this holder's memory", error=StorageError)
    Memory.make(kept, bytes(32))
    _refused(folder, "is the memory of key 00:00", error=KeysError)
    with pytest.raises(StorageError, match="never replaced"):
        Memory.make(kept, bytes(32))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("minimum_cohort: 5", "there is no setting 'minimum_cohort'"),
        ("minimum_clients: 1", "minimum_clients is 1, expected a whole number of at least 2"),
        ("minimum_clients: true", "minimum_clients is True"),
        ("minimum_clients: 13", "lists 12 clients, and sums of fewer than minimum_clients=13"),
        ("openings: -1", "openings is -1"),
        ("rounds: 1e9", "rounds is"),
        ("differences: pair", "differences is 'pair', expected one of pairs, chains, none"),
        ("group: 5", "group is 5"),
        ("rounds: 7\nrounds: 8", "a name is given twice"),
        ("prove: 'no'", "prove is 'no'"),
        ("unsealed: [", "can't be read"),
        ("clients: nobody.pub", "nobody.pub can't be read"),
        ("key: nothing.key", "There is no key file"),
        ("insecure_key_size: false", "holds a key of 256 bits"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, people: People, line: str, words: str) -> None:
    folder = made(tmp_path / "holder", "authority", people)
    name = line.partition(":")[0]
    kept = [one for one in (folder / FILE).read_text().splitlines() if not one.startswith(f"{name}:")]
    (folder / FILE).write_text("\n".join([*kept, line]))
    _refused(folder, words)


def test_settings_that_are_missing_or_no_mapping_are_refused(tmp_path: Path, people: People) -> None:
    folder = made(tmp_path / "holder", "authority", people)
    for text, words in (("[]", "expected named values"), ("rounds: 3", "key is missing")):
        (folder / FILE).write_text(text)
        _refused(folder, words, error=ConfigError)
    (folder / FILE).unlink()
    _refused(folder, "There is no .*holder.yaml", error=ConfigError)


def test_a_key_that_is_public_or_not_sealed_is_refused(tmp_path: Path, people: People) -> None:
    folder = made(tmp_path / "holder", "authority", people)
    public, private = paillier.generate(bits=256, insecure_key_size=True)
    (folder / "secret.key").unlink()
    keyfile.save(folder / "secret.key", private)
    _refused(folder, "is not sealed", error=KeysError)
    (folder / "secret.key").unlink()
    keyfile.save(folder / "secret.key", public)
    _refused(folder, "expected a private Paillier key or a share", error=KeysError)


def test_a_second_process_and_a_wrong_passphrase_end_with_a_sentence(tmp_path: Path, people: People) -> None:
    serving = Serving(made(tmp_path / "holder", "threshold", people))
    environment = {**os.environ, "TACIT_PASSPHRASE": WORDS}
    command = [sys.executable, "-m", "tacit", "holder", "serve", str(serving.folder)]
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (second.returncode, "in use by another process" in second.stderr) == (1, True), second.stderr
    serving.stop()
    with pytest.raises(KeysError, match="passphrase is wrong"):
        KeyHolder(serving.folder, lambda _: "other words than those")


def test_old_files_that_are_put_back_make_it_forget(tmp_path: Path, people: People) -> None:
    """What does not hold, and is stated: whoever writes to the holder's folder can turn its memory back."""
    inside = _inside(tmp_path, people)
    shutil.copy(inside.folder / MEMORY, tmp_path / "old")
    identities = people.some()
    run = run_with("authority", inside, people, identities=identities)
    opens(run.open(range(4)), run.exact(range(4)))
    inside.holder.close()
    shutil.copy(tmp_path / "old", inside.folder / MEMORY)
    again = run_with("authority", Inside(inside.folder), people, identities=identities)
    opens(again.open([0, 1, 2]), again.exact([0, 1, 2]))


def test_a_fresh_share_goes_on_with_the_memory_of_its_key(tmp_path: Path, people: People) -> None:
    folder = made(tmp_path / "holder", "threshold", people)
    given = [contribute(share) for share in key_shares()[:2]]
    shares = [refreshed(share, [parts[share.index - 1] for parts in given]) for share in key_shares()]
    identities = people.some()
    inside = Inside(folder)
    run = run_with("threshold", inside, people, identities=identities)
    opens(run.open(range(4)), run.exact(range(4)))
    inside.holder.close()
    (folder / "secret.key").unlink()
    keyfile.save(folder / "secret.key", shares[0], passphrase=WORDS, cost=sealing.Cost(n=1024))
    caution = Caution(rules=RULES, layout=layout)
    holders: dict[int, Any] = {-1: Inside(folder), -2: ShareHolder(share=shares[1], caution=caution)}
    again = Run("threshold", holders=holders, rules=RULES, identities=identities)
    assert refused(again.open([0, 1, 2]), "differs from one that was opened by 1 client")
    opens(again.open(range(4), 2), again.exact(range(4)))
    assert len(memory_of(folder).opened) == 2


def test_the_refusals_that_are_kept_are_the_last_ones(
    tmp_path: Path, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.holder.memory._REFUSALS", 3)
    inside = _inside(tmp_path, people)
    for rounds in range(101, 106):
        inside.holder.answer(wire.pack(wire.Kind.KEY, SETUP, Rules(minimum_clients=3, rounds=rounds).to_bytes()))
    refusals = memory_of(inside.folder).refused
    assert [one.reason.split()[5] for one in refusals] == ["103", "104", "105"]


def test_a_file_of_settings_is_read_as_it_was_written(tmp_path: Path) -> None:
    settings = Settings(key=tmp_path / "a b.key", clients=tmp_path / 'c"d', group="flower", differences="chains")
    (tmp_path / FILE).write_text(settings.to_text())
    assert Settings.read(tmp_path) == settings


def test_the_memory_is_written_ahead_and_through(tmp_path: Path, people: People) -> None:
    database = _inside(tmp_path, people).holder._memory._database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    with pytest.raises(sqlite3.OperationalError):
        database.execute("SELECT * FROM nothing")
