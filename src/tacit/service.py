"""A process that answers frames on a Unix socket: one connection, one request, one reply.

Whoever keeps something that shipped code must not reach (a site's data, a key) keeps it in a process of its own, and
answers through a file that its operator alone can open::

    service = Service(path=Path("site/socket"), answer=lambda request: Message(body=request.body))
    with service, stopped_by_signals(service):
        service.run()                                                   # until SIGTERM, or service.stop()

    call(Path("site/socket"), Message(head={"party": 0}, body=frame))   # the other end: the reply, or a ServiceError

A message, either way, is a fixed header, a small head (a JSON object) and a body, which nobody here looks into::

    magic "TCTS" | version u8 | code u8 | zero u16 | head length u32 | body length u64    (20 bytes, big-endian)

Lengths are checked before anything is read. A body is received in one piece and handed on without a copy, and memory
is taken as bytes arrive, not as they are claimed. What is wrong with a request is told as a :class:`Code` and nothing
else; words are in the service's own log.

The socket is for its owner alone (0600, in a folder of 0700), which the system checks, and the peer's user is looked at
again; where a ``group`` may speak to it, for that group too (0660 in 0710), because shipped code that runs as the owner
could read all that the owner can. A socket that a killed process left is replaced; one in use is an error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from tacit import foreign
from tacit.errors import LinkError, RunError, StorageError, WireError
from tacit.storage import Lock, cannot_write, make_folder

SOCKET = "socket"  # its name, where nobody chose another
LARGEST_HEAD = foreign.LARGEST
LARGEST_BODY = 1 << 30
_HEADER = struct.Struct(">4sBBHIQ")
_MAGIC, _VERSION = b"TCTS", 1
_PATIENCE = 60.0  # seconds for a request to arrive, and for a reply to be taken
_TIME = struct.Struct("@ll")
_CREDENTIALS = struct.Struct("@iII")
_LONGEST_PATH = 100  # bytes of a socket's address; 108 and less by system
_ROOM = 0.5  # seconds that a request waits for room
_GRACE = 30.0  # seconds that requests in work are waited for at the end
_LOG = logging.getLogger("tacit.service")


class Code(IntEnum):
    """How a request ended: answered, or why nobody worked on it."""

    ANSWERED = 0
    DAMAGED = 1
    TOO_LARGE = 2
    BUSY = 3
    STRANGER = 4
    FAILED = 5
    SLOW = 6

    @property
    def words(self) -> str:
        """The code in words for people, with what to do."""
        return _WORDS[self]


_WORDS = {
    Code.ANSWERED: "it answered.",
    Code.DAMAGED: "it does not understand the request. Use the same version of tacit on both sides.",
    Code.TOO_LARGE: "the request is larger than it takes.",
    Code.BUSY: "it works on as many requests as it may. Try again later.",
    Code.STRANGER: "it does not know the user who asks. The service's operator decides who may.",
    Code.FAILED: "something went wrong there; its own log has more.",
    Code.SLOW: "the request did not arrive in time.",
}


class ServiceError(LinkError):
    """A request that no service answered.

    Attributes:
        code: what the service said, or None where none was reached.
    """

    def __init__(self, message: str, code: Code | None = None) -> None:
        super().__init__(message)
        self.code = code


class _RefusedError(WireError):
    """A request that gets a code instead of an answer."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Message:
    """A request or a reply.

    Attributes:
        head: a few named values, as JSON has them.
        body: bytes that travel as they are.
        code: of a reply, how the request ended.
    """

    head: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""
    code: Code = Code.ANSWERED

    def pieces(self) -> tuple[bytes, bytes]:
        """Return what is sent: header and head, and then the body.

        >>> Message(body=b"abc").pieces()[1]
        b'abc'
        """
        head = json.dumps(dict(self.head)).encode() if self.head else b""
        return _HEADER.pack(_MAGIC, _VERSION, self.code, 0, len(head), len(self.body)) + head, self.body


@dataclass(frozen=True, kw_only=True)
class Header:
    """What stands before a message; ``read`` refuses what is too long before any of it is received."""

    code: Code
    head: int
    body: int

    @classmethod
    def read(cls, data: bytes, *, largest: int) -> Header:
        """Parse a header."""
        if len(data) != _HEADER.size:
            raise _RefusedError(Code.DAMAGED, f"Expected a header of {_HEADER.size} bytes, got {len(data)}.")
        magic, version, code, zero, head, body = _HEADER.unpack(data)
        if (magic, version, zero) != (_MAGIC, _VERSION, 0) or code not in Code.__members__.values():
            raise _RefusedError(Code.DAMAGED, f"Expected a header of version {_VERSION} of this service, got {data!r}.")
        if head > LARGEST_HEAD or body > largest:
            raise _RefusedError(
                Code.TOO_LARGE, f"Expected at most {LARGEST_HEAD} + {largest} bytes, got {head} + {body} announced."
            )
        return cls(code=Code(code), head=head, body=body)

    def message(self, head: bytes, body: bytes) -> Message:
        """Return the message whose parts these are."""
        try:
            named = foreign.json_object(head, largest=LARGEST_HEAD) if head else {}
        except WireError as error:
            raise _RefusedError(Code.DAMAGED, str(error)) from error
        return Message(head=named, body=body, code=self.code)


def call(path: Path, request: Message, *, patience: float | None = None, largest: int = LARGEST_BODY) -> Message:
    """Ask the service at ``path`` and return what it answered.

    Args:
        path: the socket.
        request: what is asked.
        patience: seconds to wait for the reply; None for as long as it takes.
        largest: bytes of the longest reply that is taken.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        try:
            with _address(path) as address:
                peer.connect(address)
        except OSError as error:
            raise ServiceError(
                f"No service answers at {path}: {error.strerror or error}. Start it, or check the path."
            ) from error
        _wait_at_most(peer, patience or 0.0)
        try:
            with contextlib.suppress(ConnectionError):  # it may refuse before it has read all, and says why
                _send(peer, request)
            reply = _receive(peer, largest)
        except (WireError, OSError) as error:
            raise ServiceError(f"The service at {path} ended, or answered something else: {error}") from error
    if reply.code is not Code.ANSWERED:
        raise ServiceError(f"The service at {path} refused: {reply.code.words}", reply.code)
    return reply


class Service:
    """Answers at a socket, several requests at a time; a context, in which the socket is there.

    Args:
        path: the socket; its folder is made where it is not there.
        answer: makes a reply; called from several threads. What it raises is in the log, and the peer learns FAILED.
        group: who may speak to it besides its owner: the name or number of a group.
        largest: bytes of the longest body that is taken.
        at_once: how many requests are worked on side by side; one more is told BUSY.
        patience: seconds in which a request has to arrive.
    """

    def __init__(
        self,
        *,
        path: Path,
        answer: Callable[[Message], Message],
        group: str | int | None = None,
        largest: int = LARGEST_BODY,
        at_once: int = 8,
        patience: float = _PATIENCE,
    ) -> None:
        self.path = path
        self._answer = answer
        self._group = _group_number(group)
        self._largest = largest
        self._patience = patience
        self._room = threading.BoundedSemaphore(at_once)
        self._at_work: set[threading.Thread] = set()
        self._listener: socket.socket | None = None
        self._lock: Lock | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None  # rung from outside, and heard by the loop

    def __enter__(self) -> Service:
        """Take the socket; one that another process answers at is left to it."""
        make_folder(self.path.parent, mode=0o700, advice="Choose another place for the socket.")
        self._lock = Lock(
            self.path.with_name(f".{self.path.name}.lock"),
            advice="One process answers at a socket: stop the other first.",
        )
        try:
            self._listener = self._bound()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise cannot_write(self.path, error, "Choose another place for the socket.") from error
            raise
        self._bell = socket.socketpair()
        self._bell[0].setblocking(False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the socket away; requests that are worked on are waited for a while."""
        if self._listener is not None:
            self._listener.close()
            self.path.unlink(missing_ok=True)
        end = time.monotonic() + _GRACE
        for thread in tuple(self._at_work):
            thread.join(max(0.0, end - time.monotonic()))
        if self._lock is not None:
            self._lock.release()
        for end_of_bell in self._bell or ():
            end_of_bell.close()

    def _bound(self) -> socket.socket:
        self._check_folder()
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise StorageError(f"{self.path} is there and no socket; it is left as it was. Choose another place.")
            self.path.unlink()  # nobody holds the lock, so whoever made it is gone
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        new = self.path.with_name(f".{self.path.name}.new")
        new.unlink(missing_ok=True)
        try:
            with _address(new) as address:
                listener.bind(address)
            if self._group is not None:
                os.chown(new, -1, self._group)
            new.chmod(0o600 if self._group is None else 0o660)
            listener.listen(64)  # only now can anybody connect
            new.rename(self.path)  # and the name is there
        except BaseException:
            listener.close()
            raise
        return listener

    def _check_folder(self) -> None:
        """Refuse a folder in which others could put a socket of theirs; open one that is private to the group."""
        folder = self.path.parent
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StorageError(
                f"Others can write in {folder} (mode {mode:o}), and could answer in place of this service. Choose a "
                f"folder of its own for the socket."
            )
        if self._group is not None and not mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.chown(folder, -1, self._group)
            folder.chmod(0o710)

    def run(self, *beside: Service) -> None:
        """Answer until :meth:`stop`; for services ``beside`` this one too, whose contexts are open."""
        with selectors.DefaultSelector() as doors:
            for service in (self, *beside):
                if service._listener is None:
                    raise RunError("A service answers inside its context: `with service: service.run()`.")
                doors.register(service._listener, selectors.EVENT_READ, service)
            assert self._bell is not None, "it is there as long as the listener is"
            doors.register(self._bell[1], selectors.EVENT_READ)
            while True:
                ready = [key.data for key, _ in doors.select()]
                if None in ready:
                    return
                for service in ready:
                    service._accept()

    def _accept(self) -> None:
        assert self._listener is not None, "who calls has looked"
        try:
            peer, _ = self._listener.accept()
        except OSError as error:  # it went away again, or descriptors are short
            _LOG.error("tacit: a connection failed: %s", error)
            time.sleep(0.01)
            return
        self._take(peer)

    def stop(self) -> None:
        """End :meth:`run`; from any thread, or a handler of signals."""
        if self._bell is not None:
            with contextlib.suppress(OSError):  # it is ending already
                self._bell[0].send(b"\0")

    def _take(self, peer: socket.socket) -> None:
        if not self._room.acquire(timeout=_ROOM):  # one that has just answered is about to leave
            with peer, contextlib.suppress(OSError):
                _wait_at_most(peer, 1.0)
                _send(peer, Message(code=Code.BUSY))
            return
        thread = threading.Thread(target=self._work, args=(peer,), name="tacit-service", daemon=True)
        self._at_work.add(thread)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._at_work.discard(thread)
            self._room.release()
            peer.close()

    def _work(self, peer: socket.socket) -> None:
        try:
            with peer:
                _wait_at_most(peer, self._patience)
                reply = self._reply(peer)
                with contextlib.suppress(OSError):  # who asked has gone; what was decided stands
                    _send(peer, reply)
        finally:
            self._room.release()
            self._at_work.discard(threading.current_thread())

    def _reply(self, peer: socket.socket) -> Message:
        try:
            self._check_user(peer)
            return self._answer(_receive(peer, self._largest))
        except _RefusedError as error:
            _LOG.error("tacit: %s: %s", error.code.name, error)
            return Message(code=error.code)
        except BlockingIOError:
            return Message(code=Code.SLOW)
        except ConnectionError:
            return Message(code=Code.DAMAGED)
        except Exception:  # whatever it is, its words could tell what this process keeps
            _LOG.exception("tacit: a request failed")
            return Message(code=Code.FAILED)

    def _check_user(self, peer: socket.socket) -> None:
        """Refuse another user, where the system lets one in that the socket's mode does not."""
        if self._group is None and (user := _user_of(peer)) not in (None, 0, os.getuid()):
            raise _RefusedError(Code.STRANGER, f"User {user} asked, and this service answers user {os.getuid()} only.")


@contextlib.contextmanager
def stopped_by_signals(service: Service) -> Iterator[None]:
    """End ``service`` at SIGTERM, SIGINT and SIGHUP, after the requests it works on; in the main thread."""

    def stop(_: int, __: FrameType | None) -> None:
        service.stop()

    before = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _receive(peer: socket.socket, largest: int) -> Message:
    header = Header.read(_exactly(peer, _HEADER.size), largest=largest)
    return header.message(_exactly(peer, header.head), _exactly(peer, header.body))


def _exactly(peer: socket.socket, count: int) -> bytes:
    """Return the next ``count`` bytes: received into place, and memory is touched only as they arrive."""
    parts: list[bytes] = []
    while count:
        part = peer.recv(count, socket.MSG_WAITALL)
        if not part:
            raise _RefusedError(Code.DAMAGED, f"Expected {count} bytes more, and the other side ended.")
        parts.append(part)
        count -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _send(peer: socket.socket, message: Message) -> None:
    for piece in message.pieces():
        peer.sendall(piece)


def _wait_at_most(peer: socket.socket, seconds: float) -> None:
    """Bound each wait for the other side, by the system: Python's own would receive a body in small pieces."""
    whole = int(seconds)
    limit = _TIME.pack(whole, int((seconds - whole) * 1e6))
    for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        peer.setsockopt(socket.SOL_SOCKET, way, limit)


def _user_of(peer: socket.socket) -> int | None:
    """Return who is at the other end, where the system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)


def _group_number(group: str | int | None) -> int | None:
    if group is None or isinstance(group, int):
        return group
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise StorageError(f"There is no group {group!r} here: expected one that may speak to the socket.") from None


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Return the address of a socket; where the path is too long for one, by way of its folder's descriptor."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
