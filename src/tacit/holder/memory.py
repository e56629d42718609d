"""What a key holder must never forget: who was in every sum that its key opened, for the life of the key.

One SQLite file (write-ahead log, ``synchronous=FULL``). A request is one transaction: what it changes is on disk when
:meth:`Memory.step` ends, and only then does a reply leave. So a process that is killed at any point has told nothing
that is not written down; at worst it has written down what nobody was told, and that same sum can be asked for again.

The file belongs to one key: to the one that encrypts, so that fresh shares of it go on with the same memory. A process
never makes the file, only ``tacit holder init`` does: a memory that was lost is not one that is empty. Whoever can put
an old copy in its place makes the holder forget; it is for the holder's user alone (0600).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tacit.errors import KeysError, StorageError
from tacit.protocols.paillier.holders import NewSum
from tacit.storage import sync_folder

_FORMAT = 1
_REFUSALS = 1000  # that are kept
_WAIT = 30.0  # seconds for another process to let go of the file
_SCHEMA = """
CREATE TABLE key (format INTEGER NOT NULL, identity BLOB NOT NULL, made TEXT NOT NULL, run BLOB NOT NULL);
CREATE TABLE clients (place INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE);
CREATE TABLE openings (
  number INTEGER PRIMARY KEY, at TEXT NOT NULL, run BLOB NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
  numbers INTEGER NOT NULL, clients INTEGER NOT NULL, places BLOB NOT NULL, UNIQUE (run, round)
);
CREATE TABLE refusals (number INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL);
"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A sum that was opened."""

    at: str
    run: bytes
    round_number: int
    numbers: int
    clients: int


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A request that was refused, and why."""

    at: str
    kind: str
    reason: str


class Step:
    """One request's view of the memory, inside a transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @property
    def run(self) -> bytes:
        """What the holder remembers of its run, see :attr:`tacit.protocols.paillier.holders.Holder.memory`."""
        (run,) = self._database.execute("SELECT run FROM key").fetchone()
        return bytes(run)

    def keep(self, run: bytes) -> None:
        """Remember a run."""
        self._database.execute("UPDATE key SET run = ?", (run,))

    @property
    def openings(self) -> int:
        """How many sums were opened in the life of the key."""
        (count,) = self._database.execute("SELECT count(*) FROM openings").fetchone()
        return int(count)

    @property
    def sets(self) -> list[int]:
        """Who was in each of them: a bit per client, each different set once."""
        rows = self._database.execute("SELECT DISTINCT places FROM openings").fetchall()
        return [int.from_bytes(places, "big") for (places,) in rows]

    def set_of(self, identities: frozenset[bytes]) -> int:
        """Return the set of some clients; one that was never seen gets a place of its own."""
        new = [(identity,) for identity in sorted(identities)]
        self._database.executemany("INSERT OR IGNORE INTO clients (identity) VALUES (?)", new)
        places = dict(self._database.execute("SELECT identity, place FROM clients").fetchall())
        return sum(1 << places[identity] for identity in identities)

    def note(self, new: NewSum, places: int) -> None:
        """Note that a sum is opened."""
        turn = new.turn
        entry = (_now(), new.run, turn.round_number, turn.attempt, new.numbers, len(new.clients))
        self._database.execute(
            "INSERT INTO openings (at, run, round, attempt, numbers, clients, places) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*entry, places.to_bytes((places.bit_length() + 7) // 8, "big")),
        )

    def refused(self, kind: str, reason: str) -> None:
        """Note a refusal, for people; the last ones are kept."""
        entry = (_now(), kind, reason)
        self._database.execute("INSERT INTO refusals (at, kind, reason) VALUES (?, ?, ?)", entry)
        self._database.execute(
            "DELETE FROM refusals WHERE number <= (SELECT max(number) FROM refusals) - ?", (_REFUSALS,)
        )


class Memory:
    """The memory of a key, in a file that is there.

    Args:
        path: the file.
        identity: of the key that encrypts; the memory of another key is refused.
    """

    def __init__(self, path: Path, identity: bytes) -> None:
        self._path = path
        self._lock = threading.Lock()
        if not path.is_file():
            raise StorageError(
                f"{path} is not there: this holder's memory of what it has opened. Without it sums could be opened "
                "again. Restore it. Only where nothing was ever opened with this key, make one: tacit holder init."
            )
        with self._told():
            self._database = _connected(path)
            self._check(identity)

    def _check(self, identity: bytes) -> None:
        """Refuse a file that is damaged, or of another key."""
        if self._database.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("its parts don't belong together")
        rows = self._database.execute("SELECT format, identity FROM key").fetchall()
        if len(rows) != 1 or rows[0][0] != _FORMAT:
            raise sqlite3.DatabaseError(f"expected a memory of format {_FORMAT}")
        if bytes(rows[0][1]) != identity:
            raise KeysError(
                f"{self._path} is the memory of key {bytes(rows[0][1]).hex(':')[:23]}…, and the key file holds "
                f"{identity.hex(':')[:23]}… . A new key needs a holder folder of its own: tacit holder init."
            )

    @classmethod
    def make(cls, path: Path, identity: bytes) -> None:
        """Make the empty memory of a new key, readable by its owner alone; one that is there is never replaced."""
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise StorageError(
                f"{path} is there already, and a memory is never replaced. Choose another --out."
            ) from None
        except OSError as error:
            raise StorageError(f"Can't write {path}: {error.strerror or error}.") from error
        try:
            with contextlib.closing(_connected(path)) as database:
                database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                database.execute("INSERT INTO key VALUES (?, ?, ?, ?)", (_FORMAT, identity, _now(), b""))
            sync_folder(path.parent)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"Can't write {path}: {error}. Remove it, and try again.") from error

    @contextlib.contextmanager
    def step(self) -> Iterator[Step]:
        """Do one request's work, alone; when this ends without an error, what it changed is on disk."""
        with self._lock, self._told():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield Step(self._database)
                self._database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # it may have ended by itself, as where the disk is full
                    self._database.execute("ROLLBACK")
                raise

    @property
    def opened(self) -> Sequence[Opened]:
        """All sums that were opened, the first one first."""
        query = "SELECT at, run, round, numbers, clients FROM openings ORDER BY number"
        with self._lock, self._told():
            rows = self._database.execute(query).fetchall()
        return [
            Opened(at=at, run=bytes(run), round_number=number, numbers=numbers, clients=clients)
            for at, run, number, numbers, clients in rows
        ]

    @property
    def refused(self) -> Sequence[Refused]:
        """The last refusals, the oldest first."""
        with self._lock, self._told():
            rows = self._database.execute("SELECT at, kind, reason FROM refusals ORDER BY number").fetchall()
        return [Refused(at=at, kind=kind, reason=reason) for at, kind, reason in rows]

    def close(self) -> None:
        """Close the file; all that was kept is on disk already."""
        with self._lock:
            self._database.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"{self._path}, this holder's memory of what it has opened, can't be read or written: {error}. Nothing "
                "was opened. Free some space, or restore the file; without it sums could be opened again."
            ) from error


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
