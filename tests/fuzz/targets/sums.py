"""The encrypted sum from end to end: one party's answers, or the server's requests, are what the input says.

Whatever a party sends in place of one of its answers, the round gives the exact sum of the clients it names, or none;
but for the authority that has the whole key: the server has its word for what a sum is, within what clients can give.
Whatever the server asks a key holder, it opens the sum of honest replies of enough clients, or nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.crypto.paillier import Layout
from tacit.errors import TacitError
from tacit.flow import ClientId, Frames, InProcessEngine, drive
from tacit.protocols.paillier import Authority, Caution, PaillierSum, Rules, ShareHolder
from tacit.protocols.paillier.binding import Admission, KeyUse, seal_bytes, unpack_clients
from tacit.protocols.paillier.check import DIGEST_BYTES, check_bytes
from tacit.protocols.paillier.client import Member, pack_invitation
from tacit.protocols.paillier.holders import Holder, Opening
from tacit.protocols.paillier.register import Register
from tests.fuzz.fixed import PRIVATE, PUBLIC, determined, threshold_key
from tests.fuzz.harness import Target
from tests.fuzz.targets.ciphertexts import mend_vector
from tests.fuzz.targets.frames import whole

RULES = Rules(minimum_clients=2, rounds=3)
TURN = wire.Turn(round_number=1)
_LENGTH = 6
_CLIENTS = range(3)
_KINDS: tuple[KeyUse, ...] = ("authority", "threshold")
_HEAD = 2  # bytes before a frame: which keys, which answer


def _layout(length: int, key_bits: int) -> Layout:
    return Layout.floats(length=length, clip=4.0, summands=4, key_bits=key_bits)


@functools.cache
def _vectors() -> NDArray[np.float64]:
    return np.random.default_rng(3).normal(size=(len(_CLIENTS), _LENGTH))


def _exact(clients: Iterable[ClientId]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = _vectors()[list(clients)].sum(axis=0)
    return total


def _holders(keys: KeyUse, memory: bytes = b"") -> dict[ClientId, Holder]:
    caution = Caution(rules=RULES, layout=_layout, memory=memory)
    if keys == "authority":
        return {-1: Authority(private=PRIVATE, caution=caution)}
    return {-share.index: ShareHolder(share=share, caution=caution, prove=True) for share in threshold_key()[1]}


def _protocol(keys: KeyUse) -> PaillierSum:
    return PaillierSum(
        minimum_clients=RULES.minimum_clients,
        rounds=RULES.rounds,
        layout=_layout,
        keys=keys,
        holders=tuple(_holders(keys)),
        needed=2 if keys == "threshold" else 1,
        insecure_key_size=True,
        prove=keys == "threshold",
    )


class Federation:
    """Honest parties, one answer of which is another; the same in every process."""

    def __init__(self, keys: KeyUse, replaced: Mapping[int, bytes] | None = None) -> None:
        self.protocol, self.holders = _protocol(keys), _holders(keys)
        self.states = dict.fromkeys(_CLIENTS, b"")
        self.replaced = dict(replaced or {})
        self.requests: list[bytes] = []
        self.answers: list[bytes] = []

    def answer(self, requests: Frames) -> Frames:
        replies: dict[ClientId, bytes] = {}
        for party, request in sorted(requests.items()):
            frame = wire.unpack(request)
            if party < 0:
                reply = self.holders[party].answer(frame)
            else:
                vector = _vectors()[party] if frame.kind is wire.Kind.TASK else None
                self.states[party], reply = self.protocol.client(self.states[party], frame, vector, number=party)
            replies[party] = self.replaced.get(len(self.answers), reply)
            self.requests.append(request)
            self.answers.append(reply)
        return replies

    def sum(self) -> None:
        """Run a round, and look at what came of it."""
        task = wire.Task(turn=TURN, model=np.zeros(_LENGTH, np.float32))
        with determined(11):
            engine = InProcessEngine(answer=self.answer)
            ready = drive(self.protocol.setup(_CLIENTS), engine)
            total = drive(ready.server(_CLIENTS, task, _LENGTH), engine)
        assert len(total.clients) >= RULES.minimum_clients
        assert np.abs(total.vector).max() <= 4.0 * len(total.clients) * (1 + 1e-9)
        opened = [wire.unpack(self.answers[place]).kind is wire.Kind.OPENED for place in self.replaced]
        if len(self.holders) > 1 or not any(opened):
            assert np.allclose(total.vector, _exact(total.clients), atol=1e-5), "the sum of those it names"


@functools.cache
def _honest(keys: KeyUse) -> Federation:
    made = Federation(keys)
    made.sum()
    return made


def _round_seeds() -> list[bytes]:
    return [
        bytes([place, number]) + answer
        for place, keys in enumerate(_KINDS)
        for number, answer in enumerate(_honest(keys).answers)
    ]


def _mend_frame(data: bytes) -> bytes:
    """Return an answer in a whole frame, a ciphertext in it with the digest it needs."""
    frame = whole(data[_HEAD:])
    keys = _KINDS[data[0] % 2]
    seal = seal_bytes(keys, threshold_key()[0].key if keys == "threshold" else PUBLIC)
    if len(frame) > 20 and frame[4] == wire.Kind.CIPHER:
        frame = frame[: 20 + seal] + mend_vector(frame[20 + seal :])
    return data[:_HEAD] + frame


def _round(data: bytes) -> None:
    keys = _KINDS[data[0] % 2 if data else 0]
    number = data[1] % len(_honest(keys).answers) if len(data) > 1 else 0
    Federation(keys, {number: data[_HEAD:]}).sum()


def _request_seeds() -> list[bytes]:
    return [
        bytes([place, 0]) + request
        for place, keys in enumerate(_KINDS)
        for request in _honest(keys).requests
        if wire.unpack(request).kind in wire.FOR_HOLDERS
    ]


@functools.cache
def _remembered(keys: KeyUse) -> tuple[bytes, ...]:
    """Return what the key holders know when all clients are enrolled."""
    made = Federation(keys)
    with determined(11):
        drive(made.protocol.setup(_CLIENTS), InProcessEngine(answer=made.answer))
    return tuple(holder.memory for holder in made.holders.values())


def _asked(data: bytes) -> None:
    """A key holder answers any request; what an authority opens is the sum of the clients that are named."""
    keys = _KINDS[data[0] % 2 if data else 0]
    holder = next(iter(_holders(keys, _remembered(keys)[0]).values()))
    request = wire.unpack(data[_HEAD:])
    reply = wire.unpack(holder.answer(request))
    assert reply.kind in (wire.Kind.KEY, wire.Kind.ADMIT, wire.Kind.OPENED, wire.Kind.FAILURE)
    if reply.kind is wire.Kind.ADMIT:
        unpack_clients(reply.body)
    if reply.kind is wire.Kind.OPENED and keys == "authority":
        opening = Opening.from_bytes(request.body, seal_bytes=16, check_bytes=check_bytes("authority", PUBLIC))
        assert len(opening.seals) >= RULES.minimum_clients
        sums = np.frombuffer(reply.body[:-DIGEST_BYTES], "<i8") * (_layout(_LENGTH, PUBLIC.bits).step or 1.0)
        assert np.allclose(sums, _exact(opening.seals), atol=1e-5)


def _invited(data: bytes) -> None:
    """A client enrols with the pinned key or refuses; what it answers to a task before is a refusal."""
    for pin in (b"", PUBLIC.identity):
        for keys in _KINDS:
            client = _pinned(keys, pin)
            with contextlib.suppress(TacitError):
                state, reply = client.client(b"", wire.unpack(data), None, number=1)
                kind = wire.unpack(reply).kind
                assert kind in (wire.Kind.ENROL, wire.Kind.FAILURE)
                assert (kind is wire.Kind.ENROL) == bool(state)
                assert not state or not pin or Member.from_bytes(state).key == PUBLIC


def _pinned(keys: KeyUse, pin: bytes) -> PaillierSum:
    return replace(_protocol(keys), pin=pin)


def _invitations() -> list[bytes]:
    keys = (PUBLIC, threshold_key()[0].key)
    return [wire.pack(wire.Kind.ENROL, wire.Turn(round_number=0), pack_invitation(bytes(32), key)) for key in keys]


def _states() -> list[bytes]:
    return [state for keys in _KINDS for state in _honest(keys).states.values()]


def _state(data: bytes) -> None:
    member = Member.from_bytes(data)
    assert Member.from_bytes(member.to_bytes()) == member
    task = wire.pack_task(wire.Task(turn=TURN, model=np.zeros(_LENGTH, np.float32), told=bytes(32)))
    for keys in _KINDS:
        _, reply = _protocol(keys).client(data, wire.unpack(task), _vectors()[0], number=0)
        assert wire.unpack(reply).kind in (wire.Kind.CIPHER, wire.Kind.FAILURE)


def _register(data: bytes) -> None:
    register = Register.remembered(data, rules=RULES, floor=2)
    assert Register.remembered(register.to_bytes(), rules=RULES, floor=2) == register
    for holder in _holders("authority", data).values():
        for request in _honest("authority").requests:
            with contextlib.suppress(TacitError):
                holder.answer(wire.unpack(request))


def _admissions() -> list[bytes]:
    found = [wire.unpack(request) for keys in _KINDS for request in _honest(keys).requests]
    return [bytes(frame.body) for frame in found if frame.kind is wire.Kind.ADMIT]


def _admission(data: bytes) -> None:
    read = Admission.from_bytes(data)
    assert Admission.from_bytes(read.to_bytes()) == read


TARGETS = (
    Target(name="rounds", seeds=_round_seeds, check=_round, mend=_mend_frame, inputs=250),
    Target(name="openings", seeds=_request_seeds, check=_asked, mend=_mend_frame, inputs=2000),
    Target(name="invitations", seeds=_invitations, check=_invited, mend=whole, inputs=1500),
    Target(name="members", seeds=_states, check=_state, inputs=1500),
    Target(name="registers", seeds=lambda: list(_remembered("authority")), check=_register, form="json", inputs=1000),
    Target(name="admissions", seeds=_admissions, check=_admission, inputs=4000),
)
