"""The masked sum from end to end: one client's answers, or the server's requests, are what the input says.

Whatever a client sends in place of one of its answers, the round gives the exact sum of the clients it names, or none;
but for its own vector, which masks hide. Whatever the server asks, a client reveals for one list, and for no short one.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

import numpy as np

from tacit import wire
from tacit.errors import TacitError
from tacit.flow import ClientId, Frames
from tacit.protocols.masks.client import ClientHalf
from tacit.protocols.masks.graph import pack_clients, pack_members, unpack_clients, unpack_members
from tacit.protocols.masks.member import Member
from tacit.wire import Kind
from tests.fuzz.fixed import determined
from tests.fuzz.harness import Target
from tests.fuzz.targets.frames import whole
from tests.protocols.masks.run import Federation, clear_sum, masked, task, vectors

_CLIENTS, _MINIMUM, _ASKED = 5, 3, 1
_HEAD = 2  # bytes before a frame: whether lists are signed, which answer or request
_ANSWERS = {Kind.ENROL: Kind.ENROL, Kind.SHARE: Kind.SHARE, Kind.TASK: Kind.MASKED, Kind.LIST: Kind.LIST}


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A request to one client, with what it remembered before."""

    request: bytes
    state: bytes


class _Told(Federation):
    """Honest clients, the same in every process, that note what the first of them was asked and remembered."""

    asked: list[_Asked]

    def step(self, client: ClientId, request: bytes) -> bytes:
        if client == _ASKED:
            self.asked.append(_Asked(request=request, state=self.states.get(client, b"")))
        return super().step(client, request)


def _protocol(signed: bool) -> ClientHalf:
    return masked(minimum=_MINIMUM, signed=signed, rounds=3)


@functools.cache
def _honest(signed: bool) -> _Told:
    made = _Told(masked(minimum=_MINIMUM, signed=signed, rounds=3), vectors(range(_CLIENTS)))
    made.asked = []
    with determined(7):
        made.sum(task())
    return made


def _is_signed(data: bytes) -> bool:
    return bool(data) and bool(data[0] % 2)


def _mend(data: bytes) -> bytes:
    return data[:_HEAD] + whole(data[_HEAD:])


def _round_seeds() -> list[bytes]:
    return [
        bytes([signed, number]) + answer
        for signed in (False, True)
        for number, (_, client, answer) in enumerate(_honest(signed).replies)
        if client == _ASKED
    ]


def _round(data: bytes) -> None:
    """One answer of a client is another: the sum is that of the clients that it names, but for that one's vector."""
    signed, number = _is_signed(data), data[1] if len(data) > 1 else 0
    kind, liar, _ = _honest(signed).replies[number % len(_honest(signed).replies)]

    def lied(asked: Kind, replies: Frames) -> Frames:
        return {c: data[_HEAD:] if (asked, c) == (kind, liar) else reply for c, reply in replies.items()}

    federation = Federation(masked(minimum=_MINIMUM, signed=signed, rounds=3), vectors(range(_CLIENTS)), after=lied)
    with determined(7):
        total = federation.sum(task())
    assert len(total.clients) >= _MINIMUM
    assert np.abs(total.vector).max() <= 1000 * len(total.clients)
    if kind is not Kind.TASK or liar not in total.clients:
        assert total.vector.tolist() == clear_sum(federation.vectors, total.clients).tolist(), "of those it names"


def _request_seeds() -> list[bytes]:
    return [
        bytes([signed, number]) + asked.request
        for signed in (False, True)
        for number, asked in enumerate(_honest(signed).asked)
    ]


def _request(data: bytes) -> None:
    """A client answers any request as it should, or refuses; and what it reveals is for a list that hides it."""
    signed = _is_signed(data)
    asked = _honest(signed).asked
    state = asked[data[1] % len(asked) if len(data) > 1 else 0].state
    frame = wire.unpack(data[_HEAD:])
    vector = vectors(range(_CLIENTS))[_ASKED] if frame.kind is Kind.TASK else None
    with determined(8):
        after, reply = _protocol(signed).client(state, frame, vector, number=_ASKED)
    answer = wire.unpack(reply)
    if answer.kind is Kind.FAILURE:
        assert after == state
        return
    assert answer.kind is _ANSWERS.get(frame.kind, Kind.REVEAL)
    member = Member.from_bytes(after)
    if answer.kind in (Kind.LIST, Kind.REVEAL):
        listed = unpack_members(member.listed, member.clients)
        assert listed[member.place]
        assert _MINIMUM <= listed.sum() <= unpack_members(member.sharers, member.clients).sum()
        assert Member.from_bytes(state).listed in (b"", member.listed), "for one list"
        rest = bytes(frame.body)[len(member.listed) :]
        for gone in range(_CLIENTS):  # neither signed nor revealed for another one, whichever that is
            other = pack_members(listed ^ (np.arange(_CLIENTS) == gone))
            again = wire.unpack(wire.pack(frame.kind, frame.turn, other + rest))
            assert wire.unpack(_protocol(signed).client(after, again, None, number=_ASKED)[1]).kind is Kind.FAILURE


def _states() -> list[bytes]:
    return [asked.state for signed in (True, False) for asked in _honest(signed).asked if asked.state]


def _state(data: bytes) -> None:
    member = Member.from_bytes(data)
    assert Member.from_bytes(member.to_bytes()) == member
    for signed in (False, True):
        for asked in _honest(signed).asked:
            frame = wire.unpack(asked.request)
            vector = vectors(range(_CLIENTS))[_ASKED] if frame.kind is Kind.TASK else None
            with determined(8):
                wire.unpack(_protocol(signed).client(data, frame, vector, number=_ASKED)[1])


def _lists() -> list[bytes]:
    numbers: tuple[list[int], ...] = ([0, 1, 2, 3], [5, 300, 70_000], [1 << 63, (1 << 64) - 1], [])
    lists = [pack_clients(np.array(each, np.uint64)) + b"rest" for each in numbers]
    return [*lists, pack_members(np.ones(11, np.bool_))]


def _list(data: bytes) -> None:
    for count in (8 * len(data), max(8 * len(data) - 3, 0)):
        with contextlib.suppress(TacitError):
            assert pack_members(unpack_members(data, count)) == data
    clients, listed, rest = unpack_clients(data)
    assert listed + rest == data
    assert (np.diff(clients.astype(object)) > 0).all()
    again, _, _ = unpack_clients(pack_clients(clients))
    assert (again == clients).all()


TARGETS = (
    Target(name="masked-rounds", seeds=_round_seeds, check=_round, mend=_mend, inputs=120),
    Target(name="masked-requests", seeds=_request_seeds, check=_request, mend=_mend, inputs=1500),
    Target(name="masked-members", seeds=_states, check=_state, inputs=300),
    Target(name="client-lists", seeds=_lists, check=_list, inputs=3000),
)
