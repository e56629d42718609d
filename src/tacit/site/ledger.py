"""The ledger for life: every release ever made about a site's data, in one SQLite file that the site owns.

::

    with Ledger.open(folder / "ledger.sqlite", contract) as ledger:
        ledger.charge(release, contract)        # on disk when this returns; over budget it raises, and nothing leaves

A charge is one transaction: ``BEGIN IMMEDIATE`` keeps every other process out from the look at what was spent to the
commit, so two runs at once are composed as if one had come after the other; the log is forced to disk
(``synchronous=FULL``) before the reply is made. A process that is killed anywhere has charged or has not; what was not
charged has not left.

Rows are never changed. Each holds the hash of the one before it, so that a row that was lost, changed or put in shows;
then nothing is released until a backup is restored. The file says whose data it is about, by the data's hash.

Rounds per day need a clock. While the machine is up, what passes between two releases is taken from the clock that
counts since it was started, and a wall clock that jumped against it is refused; after a restart the wall clock counts,
and must not be behind the last row.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit import foreign, wire
from tacit.errors import RunError, StorageError, TacitError
from tacit.parties.refusals import RefusalError
from tacit.site.contract import TRUSTS, Contract, Trust
from tacit.site.costs import AGAINST, Price, composed

_VERSION = 1
_DAY = 24 * 3600.0
_SLACK = 30.0  # seconds that the wall clock may be set back or forth between releases, as a network's time does
_BUSY = 30.0  # seconds to wait for another process
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    mode TEXT NOT NULL, settings TEXT NOT NULL, price TEXT NOT NULL, link TEXT NOT NULL
);
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), boot TEXT NOT NULL, up REAL NOT NULL, wall REAL NOT NULL);
"""
_DAMAGED = (
    "Nothing was released. Restore the ledger from its backup; a ledger that is begun anew forgets what was spent."
)


def _boot() -> str:
    try:
        return foreign.read_plain(Path("/proc/sys/kernel/random/boot_id"), largest=100).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""  # a system that does not tell; then only a clock that goes back is seen


def _up() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What time it is: by the wall, and since the machine was started."""

    wall: Callable[[], float] = time.time
    up: Callable[[], float] = _up
    boot: Callable[[], str] = _boot


@dataclass(frozen=True, kw_only=True)
class Release:
    """One reply that is about to leave.

    Attributes:
        run: by whoever carries the request; a relay can say what it likes, so nothing is spared by it.
        turn: its round and try.
        mode: of the run.
        settings: a short text that stands for all settings of the run.
        price: what it costs.
    """

    run: str
    turn: wire.Turn
    mode: str
    settings: str
    price: Price


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the ledger."""

    number: int
    at: float
    run: str
    round: int
    attempt: int
    mode: str
    settings: str
    price: str

    def link(self, before: str) -> str:
        """Return what binds the row to the one before it."""
        return hashlib.sha256(json.dumps([before, asdict(self)], sort_keys=True).encode()).hexdigest()


class Ledger:
    """An open ledger."""

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock) -> None:
        self._connection = connection
        self._path = path
        self._clock = clock
        self._read: list[Row] = []  # rows whose chain was followed
        self._link = ""

    @classmethod
    def create(cls, path: Path, contract: Contract) -> None:
        """Begin a ledger; one that is there is never replaced."""
        if path.exists():
            raise RunError(f"{path} is there already and is left as it was: a ledger is for life.")
        path.touch(mode=0o600)
        about = {"version": str(_VERSION), **_identity(contract)}
        try:
            with contextlib.closing(_connected(path)) as connection, connection:
                connection.executescript(_SCHEMA)
                connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        except sqlite3.Error as error:
            raise StorageError(f"Can't write {path}: {error}.") from error

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, contract: Contract, *, clock: Clock | None = None) -> Iterator[Ledger]:
        """Open the ledger of a contract, or say what is wrong with it; none is ever begun here."""
        if not path.is_file():
            raise StorageError(f"There is no ledger at {path}, and one was begun with the site. {_DAMAGED}")
        with _guarded(path):
            connection = _connected(path)
        with contextlib.closing(connection):
            ledger = cls(connection, path, clock or Clock())
            ledger._check(contract)
            yield ledger

    def charge(self, release: Release, contract: Contract) -> float:
        """Charge a release and return the epsilon of all of them; what a rule or the budget forbids is refused."""
        budget, rules = contract.budget, contract.rules
        with _guarded(self._path), self._alone():
            rows = self.rows()
            now = self._now(rows[-1].at if rows else None)
            recent = [row for row in rows if row.at > now - _DAY]
            if len(recent) >= rules.rounds_per_day:
                raise _against(
                    f"{len(recent)} rounds were answered in 24 hours, and rounds_per_day={rules.rounds_per_day}"
                )
            if rows and now - rows[-1].at < rules.seconds_apart:
                raise _against(
                    f"the last round was {now - rows[-1].at:.0f} s ago, seconds_apart={rules.seconds_apart:g}"
                )
            same = [row for row in rows if row.run == release.run]
            if len(same) >= rules.rounds:
                raise _against(f"{len(same)} rounds of run {release.run} were answered, and rounds={rules.rounds}")
            if same and 0 < release.turn.round_number - same[-1].round < rules.rounds_apart:
                raise _against(f"round {same[-1].round} of the run was answered, and rounds_apart={rules.rounds_apart}")
            spent = _composed([*prices_of(rows).items(), (release.price, 1)], contract)
            if budget.epsilon is not None and not spent <= budget.epsilon * (1 + 1e-9):
                raise RefusalError(
                    wire.Failure.BUDGET,
                    f"Round {release.turn.round_number} of run {release.run} would bring epsilon to {spent:.4g} at "
                    f"delta {budget.delta:g} per {budget.unit}, against {AGAINST[budget.trust]}; the budget of these "
                    f"data is {budget.epsilon:g} for life",
                )
            self._append(release, now, rows)
        return spent

    def rows(self) -> list[Row]:
        """Return all releases, in order; a chain that is broken is an error."""
        with _guarded(self._path), self._one_look():
            new = self._connection.execute(
                "SELECT * FROM releases WHERE number > ? ORDER BY number", (len(self._read),)
            ).fetchall()
            (count,) = self._connection.execute("SELECT count(*) FROM releases").fetchone()
            last = self._about().get("last", "")
        rows, before = [*self._read], self._link
        for *values, link in new:
            row = Row(**dict(zip(Row.__dataclass_fields__, values, strict=True)))
            if row.number != len(rows) + 1 or row.link(before) != link:
                raise StorageError(
                    f"Release {len(rows) + 1} in the ledger {self._path} is not the one that was written. {_DAMAGED}"
                )
            rows.append(row)
            before = link
        if before != last or len(rows) != count:
            raise StorageError(f"The last releases of the ledger {self._path} are missing. {_DAMAGED}")
        self._read, self._link = rows, before
        return rows

    def spent(self, contract: Contract) -> float:
        """Return the epsilon of all releases under a contract."""
        return _composed(list(prices_of(self.rows()).items()), contract)

    def _append(self, release: Release, now: float, rows: list[Row]) -> None:
        row = Row(
            number=len(rows) + 1,
            at=now,
            run=release.run,
            round=release.turn.round_number,
            attempt=release.turn.attempt,
            mode=release.mode,
            settings=release.settings,
            price=json.dumps(release.price.to_dict(), sort_keys=True),
        )
        link = row.link(self._about().get("last", ""))
        self._connection.execute("INSERT INTO releases VALUES (?,?,?,?,?,?,?,?,?)", (*asdict(row).values(), link))
        self._connection.execute("INSERT OR REPLACE INTO about VALUES ('last', ?)", (link,))
        clock = (self._clock.boot(), self._clock.up(), self._clock.wall())
        self._connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)", clock)

    def _now(self, last: float | None) -> float:
        """Return the time by which rounds are counted, where the clocks agree on what passed since the last row."""
        wall = self._clock.wall()
        known = self._connection.execute("SELECT boot, up, wall FROM clock").fetchone()
        if known is None or last is None:
            return wall
        boot, up, wall_then = known
        up_since = self._clock.up() - up if boot and boot == self._clock.boot() else None
        ahead = wall - wall_then - (0.0 if up_since is None else up_since)
        if ahead < -_SLACK:
            raise _against(f"the clock went back by {-ahead:.0f} s since the last release; set it right")
        if up_since is None:
            return max(wall, last)
        if ahead > _SLACK:
            raise _against(f"the clock was set forward by {ahead:.0f} s since the last release; set it right")
        return float(last + max(up_since, 0.0))

    def _about(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT key, value FROM about"))

    def _check(self, contract: Contract) -> None:
        with _guarded(self._path):
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            about = self._about()
        if found != "ok":
            raise StorageError(f"The ledger {self._path} is damaged ({found}). {_DAMAGED}")
        if about.get("version") != str(_VERSION):
            raise StorageError(f"{self._path} is a ledger of version {about.get('version')}, expected {_VERSION}.")
        for key, value in _identity(contract).items():
            if about.get(key) != value:
                raise StorageError(
                    f"The ledger {self._path} is about {key} {about.get(key)!r}, and site.yaml says {value!r}. Nothing "
                    "was released. Bring back what was there; other data are another site (`tacit site init`)."
                )
        self.rows()

    @contextlib.contextmanager
    def _one_look(self) -> Iterator[None]:
        """Read the ledger as it is at one time, whoever charges meanwhile."""
        own = not self._connection.in_transaction
        if own:
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if own:
                self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep all others out until what was written is on disk."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Turn what SQLite refuses into errors of Tacit's: where a ledger can't be read or written nothing is released."""
    try:
        yield
    except sqlite3.OperationalError as error:  # locked, full, read-only
        raise StorageError(f"Can't use the ledger {path}: {error}. Nothing was released.") from error
    except sqlite3.Error as error:
        raise StorageError(f"The ledger {path} is damaged ({error}). {_DAMAGED}") from error


def totals(rows: list[Row], contract: Contract) -> Mapping[str, float]:
    """Return the epsilon of each run by itself."""
    runs = dict.fromkeys(row.run for row in rows)
    return {run: _composed(list(prices_of([row for row in rows if row.run == run]).items()), contract) for run in runs}


def views(rows: list[Row], contract: Contract) -> Mapping[Trust, float]:
    """Return the epsilon of all releases by whom one trusts: against everyone first."""

    def by(trust: Trust) -> float:
        budget = contract.budget.model_copy(update={"trust": trust})
        return _composed(list(prices_of(rows).items()), contract.model_copy(update={"budget": budget}))

    return {trust: by(trust) for trust in TRUSTS}


def prices_of(rows: list[Row]) -> dict[Price, int]:
    """Return the prices of releases, each with how often it was charged."""
    counted = Counter(row.price for row in rows)
    try:
        return {Price.from_dict(foreign.json_object(text)): count for text, count in counted.items()}
    except (TacitError, TypeError) as error:
        raise StorageError(f"The ledger holds a price that this version does not know: {error}. {_DAMAGED}") from error


def _composed(prices: list[tuple[Price, int]], contract: Contract) -> float:
    try:
        return composed(prices, contract.budget)
    except TacitError as error:  # no number is no permission
        raise StorageError(f"What was released can't be added up: {error} Nothing was released.") from error


def _against(why: str) -> RefusalError:
    return RefusalError(wire.Failure.CONTRACT, f"The site's own rules refuse it: {why}")


def _identity(contract: Contract) -> dict[str, str]:
    """Return whom and what a ledger is about."""
    data = contract.data
    return {"site": contract.name, "data": data.name, "sha256": data.sha256 or ""}


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def plain(row: Row) -> dict[str, Any]:
    """Return a row for JSON."""
    return asdict(row) | {"price": foreign.json_object(row.price)}
