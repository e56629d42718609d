"""What a node was told first of a run, and what it has answered: no later message changes the one or repeats the other.

A server says in its messages what a run is: its mode, noise, numbers and rounds. A node writes down what it was told
first, before it answers, and refuses a message that says anything else. It writes down the turn of a task before it
works on it: turns only rise, each is answered at most once, and none is beyond the rounds and tries announced. Where an
epsilon was announced, tries are not more than rounds in all: an honest server stops there too, as each is charged. So a
client releases at most as often as was announced, whatever it is asked. Its secret for an encrypted run is there too.

Flower starts a process for each message, several at a time, and hands each the state as it was before all of them; the
state is kept after the answer has left. So a node's memory is a file of its own, under a lock::

    tacit-memory in the node's config, or FLWR_HOME/tacit, or ~/.flwr/tacit

Nodes that only play (Flower's simulation, ``tacit-simulation``) keep it in Flower's state. The first message may lie
itself: what it said is in the node's log, and the memory is that of one run.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tacit import foreign, wire
from tacit.errors import StorageError, WireError
from tacit.parties.calls import Value
from tacit.parties.refusals import LOG, RefusalError
from tacit.storage import write_atomically

_LONGEST = 300  # of what was told in full; longer texts are kept as their hash
_ADVICE = "Nothing was computed. Free some space, or name another folder: --node-config 'tacit-memory=\"FOLDER\"'"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a node remembers of a run.

    Attributes:
        told: what was said of the run, by names; each as it was said first.
        last: the turn of the last task, as its round and its try.
        answered: how many tasks it has taken on.
        state: what its client's half of the protocol remembers, such as its secret for an encrypted run.
    """

    told: Mapping[str, str] = field(default_factory=dict)
    last: tuple[int, int] = (0, 0)
    answered: int = 0
    state: bytes = field(default=b"", repr=False)

    def held_to(self, said: Mapping[str, str]) -> Memory:
        """Return the memory with what is said for the first time; a word that differs from the first is refused."""
        said = {name: _brief(text) for name, text in said.items()}
        for name, text in said.items():
            first = self.told.get(name, text)
            if first != text:
                raise RefusalError(
                    wire.Failure.CHANGED,
                    f"The server says {name} {text}, and at first it said {first}. Nothing was computed: what a run "
                    "promises does not change while it runs",
                )
        return replace(self, told={**self.told, **said})

    def answering(
        self, turn: wire.Turn, *, rounds: int, retries: int, separation: int = 1, most: int | None = None
    ) -> Memory:
        """Return the memory once a task is taken on, or refuse one that was answered or announced by nobody.

        Args:
            turn: of the task.
            rounds: how many were announced.
            retries: how often each may be tried again.
            separation: how many rounds are between two of this client's.
            most: how many answers were announced in all, where an epsilon was that is spent by them.
        """
        if not 1 <= turn.round_number <= rounds or turn.attempt > retries:
            raise RefusalError(
                wire.Failure.BEYOND,
                f"The server asks for round {turn.round_number}, try {turn.attempt + 1}, and the run was announced "
                f"with {rounds} rounds of at most {retries + 1} tries",
            )
        asked = (turn.round_number, turn.attempt + 1)
        if asked <= self.last:
            raise RefusalError(
                wire.Failure.REPEATED,
                f"The server asks for round {asked[0]}, try {asked[1]}, after round {self.last[0]}, try "
                f"{self.last[1]}: it was answered, or the time for it is over, and no noise is drawn twice",
            )
        if self.last[0] and 0 < asked[0] - self.last[0] < separation:
            raise RefusalError(
                wire.Failure.BEYOND,
                f"The server asks for round {asked[0]} after round {self.last[0]}, and the run was announced with this "
                f"client in every {separation}-th round",
            )
        if most is not None and self.answered >= most:
            raise RefusalError(
                wire.Failure.BEYOND,
                f"The server asks for round {asked[0]}, try {asked[1]}, after {self.answered} answers: the epsilon "
                "that was announced is spent",
            )
        return replace(self, last=asked, answered=self.answered + 1)

    def worked(self, before: bytes, after: bytes) -> Memory:
        """Return the memory once a task is done, or refuse to answer where its client was asked other things meanwhile.

        Written back, an old state would let a client forget what it has signed and revealed since.
        """
        if self.state != before:
            raise RefusalError(
                wire.Failure.REPEATED, "The server asked for something else while this task was worked on: it is over"
            )
        return replace(self, state=after)

    def to_bytes(self) -> bytes:
        """Return the memory as it is kept."""
        kept = {"told": dict(self.told), "last": self.last, "answered": self.answered, "state": self.state.hex()}
        return json.dumps(kept).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Memory:
        """Read what :meth:`to_bytes` wrote; nothing is an empty memory."""
        if not data:
            return cls()
        try:
            plain = foreign.json_object(data)
            last = int(plain["last"][0]), int(plain["last"][1])
            told = {str(name): str(text) for name, text in plain["told"].items()}
            return cls(told=told, last=last, answered=int(plain["answered"]), state=bytes.fromhex(plain["state"]))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, WireError) as error:
            raise StorageError(f"This node's memory of the run is damaged ({error!r}). Send a new run.") from error


class Keeper(Protocol):
    """Keeps a node's memory of a run."""

    def change(self, step: Callable[[Memory], Memory]) -> tuple[Memory, Memory]:
        """Take a step and keep what comes of it before anything else happens; return what was, and what is."""
        ...


class InState:
    """A memory that Flower keeps, for nodes that only play.

    Attributes:
        data: what to keep.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    def change(self, step: Callable[[Memory], Memory]) -> tuple[Memory, Memory]:
        """Take a step."""
        before = Memory.from_bytes(self.data)
        after = step(before)
        self.data = after.to_bytes()
        return before, after


@dataclass(frozen=True, kw_only=True)
class InFile:
    """A memory in a file, which one process at a time reads and replaces.

    Attributes:
        path: the file.
        most: how many memories its folder may hold, where a stranger can name runs; None for any number.
    """

    path: Path
    most: int | None = None

    def change(self, step: Callable[[Memory], Memory]) -> tuple[Memory, Memory]:
        """Take a step, alone; what comes of it is on disk when this returns."""
        if self.most is not None and not self.path.exists():
            _make_room(self.path.parent, self.most)
        with self._alone():
            before = Memory.from_bytes(self.path.read_bytes() if self.path.exists() else b"")
            after = step(before)
            if after != before:
                write_atomically(self.path, after.to_bytes(), mode=0o600, advice=_ADVICE)
        return before, after

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _lock_of(self.path).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise StorageError(
                f"Can't keep this node's memory of the run in {self.path}: {error.strerror or error}. {_ADVICE}"
            ) from error


def _make_room(folder: Path, most: int) -> None:
    """Make room for one memory more: forget runs in which nothing was answered, the oldest first, and no other.

    Where nothing was answered nothing was released, nothing signed for a sum and no word relied on: such a run may
    begin anew. What was answered is never forgotten by itself.
    """
    try:
        kept = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        left = len(kept)
        if left < most:
            return
        for path in kept:
            if left <= most // 2:
                return
            if _unanswered(path):
                path.unlink()
                _lock_of(path).unlink(missing_ok=True)
                left -= 1
    except OSError as error:
        raise StorageError(f"Can't look through the runs in {folder}: {error.strerror or error}.") from error
    if left >= most:
        raise StorageError(
            f"{folder} remembers {left} runs that were answered, which is all there is room for. Remove the files of "
            "runs that are over: a run whose file is gone can be answered, and charged, again."
        )


def _unanswered(path: Path) -> bool:
    try:
        return not Memory.from_bytes(path.read_bytes()).answered
    except StorageError:  # damaged: who knows
        return False


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def kept_in(node: Mapping[str, Value], name: str) -> InFile:
    """Return the memory of a real node.

    Args:
        node: its config.
        name: the run, and who of the node it is about.
    """
    given = node.get("tacit-memory")
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    return InFile(path=(home / "tacit" if given is None else Path(str(given))) / f"{name}.json")


def announce(keeper: Keeper, said: Mapping[str, str], promise: Callable[[], str], *, about: str) -> None:
    """Hold the server to what it says, and leave in the node's log what it said first.

    Args:
        keeper: the node's memory.
        said: what it says of the run, by names.
        promise: makes the line for the log.
        about: which of the names is told for the first time where the line is due.
    """
    before, _ = keeper.change(lambda memory: memory.held_to(said))
    if about in said and about not in before.told:
        LOG.info("tacit: %s. Whatever says otherwise later is refused.", promise())


def digest(data: bytes) -> str:
    """Return a short text that stands for some bytes."""
    return hashlib.sha256(data).hexdigest()


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"sha256:{digest(text.encode())}"
