"""Frames: what travels between server and clients. Tagged, versioned, length-checked; never pickle.

Every frame is a fixed header and a body::

    magic "TCT" | version u8 | kind u8 | zero u8 | attempt u16 | round u32 | body length u64    (20 bytes, big-endian)

=========  ==========================================================================================
kind       body
=========  ==========================================================================================
TASK       extras length u32, extras (the mechanism's), told length u32, told (the protocol's), model vector
           (float32, little-endian)
VECTOR     one vector (float32, little-endian)
FAILURE    a :class:`Failure` u8 and, where the reason has nothing to do with data, details in UTF-8
CIPHER     one encrypted vector
KEY        a request for the public key, with the run's rules, and the answer: a challenge and the key
ENROL      a run and its key, which a client is asked to enrol with, and the client's enrolment
ADMIT      clients' enrolments, which a key holder is told, and whom it did not admit
OPEN       whose replies a key holder is asked to open the sum of, and the ciphertexts, or a block of each
OPENED     the sum, or a share of the decryption of a block
SIGNS      a set of coordinates as one number, their common sign and a bit
HELLO      who one is and what one was set up for, before the first round
SHARE      a cohort and the keys of a client's neighbours, and the shares of its secrets that it sealed for them
MASKED     one vector under masks
LIST       whose vectors arrived, and a client's signature of the list
REVEAL     a list, its signatures and sealed shares, and the shares that a client opens
=========  ==========================================================================================

The header's length is a multiple of four, so that the floats behind it are aligned and are added without a copy.
Round and attempt travel in every frame, so that a stale or replayed reply is refused by :func:`expect`.

Where a whole reply is twenty bytes, the header would be half of what is sent. Such replies have a brief one, with a
mark that no other frame begins with; how long their body is the protocol knows::

    mark 0xB1 (the last digit is the version) | kind u8 | attempt u16 | round u32    (8 bytes, big-endian)
"""

from __future__ import annotations

import functools
import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tacit.errors import ClientError, WireError
from tacit.flow import ClientId, party_name
from tacit.vectors import Vector

VERSION = 1
_MAGIC = b"TCT"
_HEADER = struct.Struct(">3sBBBHIQ")
_BRIEF = struct.Struct(">BBHI")
_MARK = 0xB0 + VERSION
BRIEF_BYTES = _BRIEF.size
_LENGTH = struct.Struct(">I")
_DETAILS = 500  # letters of a peer's reason that are shown
_FLOAT = np.dtype("<f4")


class Kind(IntEnum):
    """What a frame carries."""

    TASK = 1
    VECTOR = 2
    FAILURE = 3
    CIPHER = 4
    KEY = 5
    OPEN = 6
    OPENED = 7
    SIGNS = 8
    HELLO = 9
    ENROL = 10
    ADMIT = 11
    SHARE = 12
    MASKED = 13
    LIST = 14
    REVEAL = 15


FOR_HOLDERS = (Kind.KEY, Kind.ADMIT, Kind.OPEN)  # requests that only key holders answer


class Failure(IntEnum):
    """Why a party could not answer: a code, because words made from a client's data would tell of them.

    DIVERGED and NOT_FINITE are about data and travel without details; no noise would protect the loss, or the
    coordinate and its value.
    """

    DIVERGED = 1
    NOT_FINITE = 2
    REFUSED = 3
    INTERNAL = 4
    VERSION = 5
    SETTINGS = 6
    CHANGED = 7
    REPEATED = 8
    BEYOND = 9
    PREDICTABLE = 10
    PARTY = 11
    KEY = 12
    DATA = 13
    STORAGE = 14
    DEVICE = 15
    REQUEST = 16
    APP = 17
    NOT_ENROLLED = 18
    CONTRACT = 19
    BUDGET = 20
    NO_PROCESS = 21

    @property
    def words(self) -> str:
        """The code in words for people, with what to do."""
        return _FAILURES[self]


_LEARN_SLOWER = "Lower optimizer.lr, or set optimizer.grad_clip=1.0"
_FAILURES = {
    Failure.DIVERGED: f"its training diverged. {_LEARN_SLOWER}.",
    Failure.NOT_FINITE: f"its update is not finite. {_LEARN_SLOWER}.",
    Failure.REFUSED: "it refused what it was asked for.",
    Failure.NOT_ENROLLED: "it is not enrolled in this run, or has forgotten it.",
    Failure.INTERNAL: "something went wrong there; its own log has more.",
    Failure.VERSION: "it runs another version of tacit. Install the same version on all sides; its own log names both.",
    Failure.SETTINGS: "its settings differ from the server's, or don't work there; its own log names them. Use one "
    "configuration on all sides.",
    Failure.CHANGED: "the server says something else of the run than it said first; its own log names both. Nothing "
    "was computed. Send a new run.",
    Failure.REPEATED: "it has answered this round, or a later one, before: nothing is released twice. Send a new run.",
    Failure.BEYOND: "the round, or its try, is beyond what the run was announced with.",
    Failure.PREDICTABLE: "the run has a seed, so that its noise can be predicted, and the node takes part in real runs "
    "only. Leave the seed out, or start the node with --node-config 'tacit-simulation=true'.",
    Failure.PARTY: "it is not who it was asked as. Check partition-id in its config; its own log has more.",
    Failure.KEY: "its key file, or the key pinned there, is missing, can't be used or is another than the server's; "
    "its own log names it. Nothing was encrypted or opened.",
    Failure.DATA: "its data can't be had or don't fit the job; its own log has more.",
    Failure.STORAGE: "a file there can't be read or written; its own log names it. Nothing was released.",
    Failure.DEVICE: "the device that it should train on is not there; its own log has more.",
    Failure.REQUEST: "it does not understand the request; its own log has more.",
    Failure.CONTRACT: "its site's own rules do not allow it; its own log names the rule. Nothing was computed.",
    Failure.BUDGET: "the privacy budget that its site has for these data, over all runs, does not allow it. Nothing "
    "was computed.",
    Failure.NO_PROCESS: "its operator names no process that holds its data or its key (tacit-socket in its config), "
    "and the app that a server sends holds neither. `tacit site init` and `tacit site serve` make one; its own log "
    "has the commands.",
    Failure.APP: "its app returned something else than a mod can protect; its own log has more.",
}
_ABOUT_DATA = (Failure.DIVERGED, Failure.NOT_FINITE)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Which try of which round a frame belongs to."""

    round_number: int
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Task:
    """The request to train: the model, and what mechanism and protocol want their client halves to know."""

    turn: Turn
    model: Vector
    extras: bytes = b""  # the mechanism's
    told: bytes = b""  # the protocol's

    @property
    def asked(self) -> bytes:
        """The hash of what clients are asked for: the model and what the mechanism says.

        Protocols bind replies to it, so that what is summed are the replies of clients who were asked the same. Their
        own words are left out.
        """
        return _asked(self.extras, _model_bytes(self.model))


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A parsed header and the body it announced."""

    kind: Kind
    turn: Turn
    body: memoryview

    @functools.cached_property
    def asked(self) -> bytes:
        """The hash of what a TASK asks for, see :attr:`Task.asked`; once for all clients who are handed the frame."""
        extras, rest = _prefixed(self.body, "extras")
        return _asked(extras, _prefixed(rest, "words to the protocol")[1])


def pack(kind: Kind, turn: Turn, *body: bytes | memoryview) -> bytes:
    """Return a frame; a body in several parts is put together here, in one copy."""
    length = sum(map(len, body))
    return b"".join((_HEADER.pack(_MAGIC, VERSION, kind, 0, turn.attempt, turn.round_number, length), *body))


def unpack(data: bytes) -> Frame:
    """Parse a frame.

    >>> unpack(pack(Kind.KEY, Turn(round_number=3), b"")).turn.round_number
    3
    """
    if len(data) < _HEADER.size:
        raise WireError(f"Expected a frame of at least {_HEADER.size} bytes, got {len(data)}.")
    magic, version, kind, zero, attempt, round_number, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise WireError(f"Expected a frame that starts with {_MAGIC!r}, got {magic!r}.")
    if version != VERSION:
        raise WireError(
            f"Expected wire version {VERSION}, got {version}. Install the same version of tacit on all sides."
        )
    if zero != 0:
        raise WireError(f"Expected 0 in the header's unused byte, got {zero}: the frame is damaged.")
    if length != len(data) - _HEADER.size:
        raise WireError(f"Expected a body of {length} bytes, got {len(data) - _HEADER.size}: the frame is damaged.")
    turn = Turn(round_number=round_number, attempt=attempt)
    return Frame(kind=_known(kind), turn=turn, body=memoryview(data)[_HEADER.size :])


def pack_brief(kind: Kind, turn: Turn, body: bytes) -> bytes:
    """Return a frame with the brief header.

    >>> len(pack_brief(Kind.SIGNS, Turn(round_number=3), b"abc"))
    11
    """
    return _BRIEF.pack(_MARK, kind, turn.attempt, turn.round_number) + body


def unpack_brief(data: bytes) -> Frame:
    """Parse a frame with the brief header, or with the usual one, as failures have."""
    if data[:1] != bytes([_MARK]):
        return unpack(data)
    if len(data) < _BRIEF.size:
        raise WireError(f"Expected a brief frame of at least {_BRIEF.size} bytes, got {len(data)}.")
    _, kind, attempt, round_number = _BRIEF.unpack_from(data)
    return Frame(
        kind=_known(kind),
        turn=Turn(round_number=round_number, attempt=attempt),
        body=memoryview(data)[_BRIEF.size :],
    )


def pack_task(task: Task) -> bytes:
    """Return the frame that asks a client to train."""
    model = _model_bytes(task.model)
    extras, told = _LENGTH.pack(len(task.extras)), _LENGTH.pack(len(task.told))
    return pack(Kind.TASK, task.turn, extras, task.extras, told, task.told, model)


def unpack_task(frame: Frame) -> Task:
    """Return what a frame asks a client to train on."""
    if frame.kind is not Kind.TASK:
        raise WireError(f"Expected a TASK frame, got {frame.kind.name}.")
    extras, rest = _prefixed(frame.body, "extras")
    told, rest = _prefixed(rest, "words to the protocol")
    return Task(turn=frame.turn, model=unpack_floats(rest), extras=extras, told=told)


def _model_bytes(model: Vector) -> memoryview:
    return np.ascontiguousarray(model, _FLOAT).data.cast("B")


def _asked(extras: bytes, model: memoryview) -> bytes:
    running = hashlib.sha256(b"tacit asked 1\n" + _LENGTH.pack(len(extras)) + extras)
    running.update(model)
    return running.digest()


def bound_to(what: Task | Frame, settings: bytes) -> bytes:
    """Return what replies to a task are bound to: what was asked, under which settings.

    A sum then holds the replies of clients who were asked the same, by the same settings, or stays hidden.
    """
    return hashlib.sha256(b"tacit bound 1\n" + settings + what.asked).digest()


def _prefixed(body: memoryview, what: str) -> tuple[bytes, memoryview]:
    """Return bytes whose length stands before them, and what is behind them."""
    if len(body) < _LENGTH.size:
        raise WireError(f"Expected the length of a task's {what} in {_LENGTH.size} bytes, got {len(body)}.")
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    if end > len(body):
        raise WireError(f"Expected {length} bytes of {what}, got {len(body) - _LENGTH.size}.")
    return bytes(body[_LENGTH.size : end]), body[end:]


def pack_vector(turn: Turn, vector: Vector) -> bytes:
    """Return the frame that carries one vector."""
    return pack(Kind.VECTOR, turn, np.ascontiguousarray(vector, _FLOAT).data.cast("B"))


def task_bytes(parameters: int, *, extras: int) -> int:
    """Return the size of a task's frame, for a model of so many numbers and so many bytes of extras.

    >>> len(pack_task(Task(turn=Turn(round_number=1), model=np.zeros(3, np.float32), extras=b"ab")))
    42
    >>> task_bytes(3, extras=2)
    42
    """
    return _HEADER.size + 2 * _LENGTH.size + extras + _FLOAT.itemsize * parameters


def vector_bytes(length: int) -> int:
    """Return the size of the frame of a vector of so many numbers.

    >>> len(pack_vector(Turn(round_number=1), np.zeros(3, np.float32))), vector_bytes(3)
    (32, 32)
    """
    return _HEADER.size + _FLOAT.itemsize * length


def pack_failure(turn: Turn, failure: Failure, details: str = "") -> bytes:
    """Return the frame with which a party says that it could not answer.

    Args:
        turn: what it could not answer.
        failure: why.
        details: for the people on the other side; never anything that was computed from a client's data.
    """
    if details and failure in _ABOUT_DATA:
        raise WireError(f"{failure.name} is about a client's data and travels without details.")
    return pack(Kind.FAILURE, turn, bytes([failure]) + details.encode())


def unpack_failure(frame: Frame) -> tuple[Failure, str]:
    """Return the code of a FAILURE frame, and the reason in words.

    >>> unpack_failure(unpack(pack_failure(Turn(round_number=3), Failure.REFUSED, "it holds another key.")))[1]
    'it holds another key.'
    """
    try:
        failure = Failure(frame.body[0])
    except (IndexError, ValueError):
        raise WireError(f"Expected a code among {[f.name for f in Failure]}, got {bytes(frame.body[:1])!r}.") from None
    details = _printable(frame.body[1 : 1 + 4 * _DETAILS])
    if details and failure in _ABOUT_DATA:
        raise WireError(f"Expected {failure.name} without details, got {len(frame.body) - 1} bytes of them.")
    return failure, details or failure.words


def expect(kind: Kind, turn: Turn, client: ClientId, data: bytes) -> memoryview:
    """Return the body of a client's reply, or raise an error that names the client and what is wrong."""
    try:
        frame = unpack_brief(data) if kind is Kind.SIGNS else unpack(data)
        failure, reason = unpack_failure(frame) if frame.kind is Kind.FAILURE else (None, "")
    except WireError as error:
        raise ClientError(
            f"{party_name(client)} sent a damaged reply: {error}", client=client, round_number=turn.round_number
        ) from error
    if frame.kind is Kind.FAILURE:
        raise ClientError(
            f"{party_name(client)} failed in round {turn.round_number}: {reason}",
            client=client,
            round_number=turn.round_number,
            failure=failure,
        )
    if frame.kind is not kind or frame.turn != turn:
        raise ClientError(
            f"{party_name(client)} answered with {frame.kind.name} for {frame.turn}, expected {kind.name} for {turn}: "
            "the reply is stale or belongs to another run.",
            client=client,
            round_number=turn.round_number,
        )
    return frame.body


def _printable(text: memoryview) -> str:
    """Return a peer's words on one line, without what could steer a terminal, cut off where they are long."""
    words = "".join(letter if letter.isprintable() else " " for letter in bytes(text).decode(errors="replace"))
    return words if len(words) <= _DETAILS else f"{words[:_DETAILS]}…"


def _known(kind: int) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        raise WireError(f"Expected a kind among {[k.name for k in Kind]}, got {kind}.") from None


def unpack_floats(body: memoryview) -> Vector:
    """Return the vector in ``body`` without a copy."""
    if len(body) % _FLOAT.itemsize:
        raise WireError(f"Expected a multiple of {_FLOAT.itemsize} bytes of float32, got {len(body)}.")
    return np.frombuffer(body, _FLOAT)
