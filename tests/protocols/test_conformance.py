"""What every sum protocol has to keep. A new protocol joins the suite with a line in ``PROTOCOLS``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import wire
from tacit.crypto import paillier, threshold
from tacit.crypto.paillier import Layout
from tacit.errors import DropoutError, RemoteError
from tacit.flow import ClientId, Frames, InProcessEngine, drive
from tacit.protocols.clear import ClearSum
from tacit.protocols.masks import Field, MaskedSum
from tacit.protocols.paillier import Authority, Caution, KeyCopy, PaillierSum, Rules, ShareHolder
from tacit.protocols.protocol import KeyHolder, SumProtocol, Total
from tacit.protocols.signs import SignSum
from tacit.vectors import Vector
from tacit.wire import Task, Turn


def floats(clients: int, length: int, seed: int) -> list[Vector]:
    return list(np.random.default_rng(seed).normal(size=(clients, length)).astype(np.float32))


def signs(clients: int, length: int, seed: int) -> list[Vector]:
    """Return one sign at a few coordinates each, then a bit, then a one."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(clients):
        vector = np.zeros(length, np.float32)
        vector[generator.choice(length - 2, _named(length - 2), replace=False)] = generator.choice([-1.0, 1.0])
        vector[-2:] = generator.integers(2), 1.0
        found.append(vector)
    return found


def _named(dimensions: int) -> int:
    return min(2, dimensions)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A protocol, who holds its key, the largest error of one number of one client, and what clients contribute."""

    protocol: SumProtocol
    holders: Mapping[ClientId, KeyHolder] = field(default_factory=dict)
    error: float = 0.0
    contributions: Callable[[int, int, int], list[Vector]] = floats
    least: int = 1  # clients whose sum is ever formed


@functools.cache
def key_pair() -> tuple[paillier.PublicKey, paillier.PrivateKey]:
    return paillier.generate(bits=256, insecure_key_size=True)


@functools.cache
def key_shares() -> tuple[threshold.KeyShare, ...]:
    return threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)[1]


def layout(length: int, key_bits: int) -> Layout:
    return Layout.floats(length=length, clip=8.0, bits=30, summands=16, key_bits=key_bits)


def encrypted(minimum: int, keys: str, layout: Callable[[int, int], Layout] = layout) -> Parts:
    private = key_pair()[1]
    caution = Caution(rules=Rules(minimum_clients=minimum, rounds=9), layout=layout, floor=1)
    holders: dict[ClientId, KeyHolder] = {-1: Authority(private=private, caution=caution)}
    if keys == "threshold":
        holders = {-s.index: ShareHolder(share=s, caution=caution) for s in key_shares()}
    elif keys == "shared":
        holders = {client: KeyCopy(private=private, caution=caution) for client in range(16)}
    protocol = PaillierSum(
        minimum_clients=minimum,
        rounds=9,
        layout=layout,
        keys=keys,  # type: ignore[arg-type]
        holders=() if keys == "shared" else tuple(holders),
        needed=2 if keys == "threshold" else 1,
        insecure_key_size=True,
    )
    return Parts(protocol=protocol, holders=holders, error=layout(1, 256).error(1))


def masked(minimum: int) -> Parts:
    field_ = Field.floats(clip=8.0, bits=28, summands=16)
    protocol = MaskedSum(minimum_clients=minimum, rounds=9, fields=lambda _: field_)
    return Parts(protocol=protocol, error=field_.error, least=2)


Make = Callable[[int], Parts]  # minimum of clients -> the protocol
PROTOCOLS: dict[str, Make] = {
    "clear": lambda minimum: Parts(protocol=ClearSum(minimum_clients=minimum)),
    "paillier, authority": functools.partial(encrypted, keys="authority"),
    "paillier, threshold": functools.partial(encrypted, keys="threshold"),
    "paillier, shared": functools.partial(encrypted, keys="shared"),
    "masks": masked,
    "signs": lambda minimum: Parts(protocol=SignSum(minimum_clients=minimum, named=_named), contributions=signs),
}
OF_FLOATS = [name for name in PROTOCOLS if name != "signs"]  # those whose clients may contribute any number
TURN = Turn(round_number=3, attempt=1)
TASK = Task(turn=TURN, model=np.arange(4, dtype=np.float32))


@pytest.fixture(params=PROTOCOLS.values(), ids=list(PROTOCOLS))
def make(request: pytest.FixtureRequest) -> Make:
    chosen: Make = request.param
    return chosen


@pytest.fixture(params=OF_FLOATS)
def make_of_floats(request: pytest.FixtureRequest) -> Make:
    return PROTOCOLS[request.param]


class Clients:
    """Honest clients, each with a vector; ``meddle`` changes what arrives."""

    def __init__(
        self, parts: Parts, vectors: Sequence[Vector], meddle: Callable[[Frames], Frames] = lambda r: r
    ) -> None:
        self._protocol = parts.protocol
        self._holders = parts.holders
        self._vectors = vectors
        self._meddle = meddle
        self._states = dict.fromkeys(range(len(vectors)), b"")
        self.models: list[Vector] = []

    def sum(self, task: Task = TASK, length: int | None = None) -> Total:
        size = len(self._vectors[0]) if length is None else length
        cohort, engine = range(len(self._vectors)), InProcessEngine(answer=self._answer)
        ready = drive(self._protocol.setup(cohort), engine)
        return drive(ready.server(cohort, task, size), engine)

    def _answer(self, requests: Frames) -> Frames:
        kind = wire.unpack(next(iter(requests.values()))).kind
        if kind in wire.FOR_HOLDERS:
            return {holder: self._holders[holder].answer(wire.unpack(requests[holder])) for holder in requests}
        if kind is not wire.Kind.TASK:
            return {client: self._step(client, request, None) for client, request in requests.items()}
        replies = {}
        for client, request in requests.items():
            self.models.append(wire.unpack_task(wire.unpack(request)).model)
            self._protocol.prepare(self._states[client], len(self._vectors[client]))
            replies[client] = self._step(client, request, self._vectors[client])
        return self._meddle(replies)

    def _step(self, client: ClientId, request: bytes, vector: Vector | None) -> bytes:
        frame = wire.unpack(request)
        self._states[client], reply = self._protocol.client(self._states[client], frame, vector, number=client)
        return reply


def _vectors(make: Make, clients: int, length: int = 6) -> list[Vector]:
    return make(1).contributions(clients, length, 8)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(3, 50), st.integers(0, 10_000), st.sampled_from(sorted(PROTOCOLS)))
def test_the_sum_is_numpys(clients: int, length: int, seed: int, name: str) -> None:
    parts = PROTOCOLS[name](1)
    clients = max(clients, parts.least)
    vectors = parts.contributions(clients, length, seed)
    total = Clients(parts, vectors).sum(length=length)
    exact = np.sum(vectors, axis=0, dtype=np.float64)
    np.testing.assert_allclose(total.vector, exact, rtol=1e-12, atol=1e-12 + clients * parts.error)
    assert total.vector.dtype == np.float64
    assert total.clients == tuple(range(clients))


def test_the_clients_get_the_model(make: Make) -> None:
    clients = Clients(make(1), _vectors(make, 3))
    clients.sum()
    assert [model.tolist() for model in clients.models] == [[0.0, 1.0, 2.0, 3.0]] * 3


def test_who_dropped_out_is_not_in_the_sum(make: Make) -> None:
    vectors = _vectors(make, 5)
    total = Clients(make(2), vectors, lambda r: {c: f for c, f in r.items() if c not in (0, 3)}).sum()
    assert total.clients == (1, 2, 4)
    np.testing.assert_allclose(total.vector, np.sum([vectors[c] for c in (1, 2, 4)], axis=0), rtol=1e-6, atol=1e-6)


def test_the_order_in_which_replies_arrive_changes_nothing(make: Make) -> None:
    vectors = _vectors(make, 9, length=100)
    straight = Clients(make(1), vectors).sum()
    reversed_ = Clients(make(1), vectors, lambda r: dict(reversed(list(r.items())))).sum()
    assert straight.vector.tobytes() == reversed_.vector.tobytes()


@pytest.mark.parametrize("replied", [0, 1, 2])
def test_too_few_replies_fail_closed(make: Make, replied: int) -> None:
    clients = Clients(make(3), _vectors(make, 5), lambda r: {c: f for c, f in r.items() if c < replied})
    with pytest.raises(DropoutError, match=rf"{replied} of 5 clients sent a reply that counts in round 3, 3 needed"):
        clients.sum()


def test_just_enough_replies_are_enough(make: Make) -> None:
    total = Clients(make(3), _vectors(make, 5), lambda r: {c: f for c, f in r.items() if c < 3}).sum()
    assert total.clients == (0, 1, 2)


def _replace(client: int, change: Callable[[bytes], bytes]) -> Callable[[Frames], Frames]:
    return lambda replies: {c: change(f) if c == client else f for c, f in replies.items()}


def _without(total: Total, vectors: Sequence[Vector], *dropped: int) -> None:
    """Check that a sum is that of the others, and that those who were left out are named, in order."""
    left = [client for client in range(len(vectors)) if client not in dropped]
    assert total.clients == tuple(left)
    np.testing.assert_allclose(total.vector, np.sum([vectors[c] for c in left], axis=0), rtol=1e-6, atol=1e-6)
    assert [re.findall(r"lient (\d+) ", note)[:1] for note in total.notes] == [[str(client)] for client in dropped]
    assert all("round 3" in note or "damaged" in note or "round_number=3" in note for note in total.notes)
    assert all(note.endswith("The sum is without it.") for note in total.notes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_dropped_and_named(make_of_floats: Make, bad: float) -> None:
    vectors = _vectors(make_of_floats, 4)
    vectors[2][5] = bad
    total = Clients(make_of_floats(3), vectors).sum()
    _without(total, vectors, 2)
    assert "optimizer.lr" in total.notes[0]


def test_infinities_that_cancel_are_seen(make_of_floats: Make) -> None:
    vectors = _vectors(make_of_floats, 4)
    vectors[1][0], vectors[2][0] = np.inf, -np.inf
    _without(Clients(make_of_floats(2), vectors).sum(), vectors, 1, 2)


def test_where_too_many_diverge_the_round_fails_with_the_reasons(make_of_floats: Make) -> None:
    vectors = _vectors(make_of_floats, 9)
    for client in range(7):
        vectors[client][0] = np.nan
    with pytest.raises(DropoutError) as caught:
        Clients(make_of_floats(3), vectors).sum()
    text = str(caught.value)
    assert text.startswith("2 of 9 clients sent a reply that counts in round 3, 3 needed")
    assert all(f"Client {client} " in text for client in range(5))
    assert "So were replies of 2 more clients: 5, 6." in text
    assert "optimizer.lr" in text


@pytest.mark.parametrize("length", [0, 5, 7])
def test_a_vector_of_another_length_is_dropped_and_named(make_of_floats: Make, length: int) -> None:
    vectors = _vectors(make_of_floats, 4)
    sent = list(vectors)
    sent[1] = np.ones(length, np.float32)
    _without(Clients(make_of_floats(3), sent).sum(length=6), vectors, 1)


GARBAGE = {
    "empty": lambda frame: b"",
    "short": lambda frame: frame[:-1],
    "long": lambda frame: frame + b"\x00",
    "magic": lambda frame: b"X" + frame[1:],
    "version": lambda frame: frame[:3] + b"\x09" + frame[4:],
    "a task": lambda frame: wire.pack_task(TASK),
    "a failure": lambda frame: wire.pack_failure(TURN, wire.Failure.INTERNAL),
    "an unknown failure": lambda frame: wire.pack(wire.Kind.FAILURE, TURN, b"\xff"),
    "a body of nothing": lambda frame: wire.pack(wire.unpack_brief(frame).kind, TURN, b""),
    "a body of noise": lambda frame: wire.pack(
        wire.unpack_brief(frame).kind, TURN, np.random.default_rng(1).bytes(max(37, len(frame) - 20))
    ),
}


@pytest.mark.parametrize("change", GARBAGE.values(), ids=list(GARBAGE))
def test_garbage_from_one_client_is_dropped_and_named(make: Make, change: Callable[[bytes], bytes]) -> None:
    vectors = _vectors(make, 5)
    _without(Clients(make(4), vectors, _replace(3, change)).sum(), vectors, 3)
    with pytest.raises(DropoutError, match=r"4 of 5 clients sent a reply that counts in round 3, 5 needed.*lient 3 "):
        Clients(make(5), vectors, _replace(3, change)).sum()


def test_a_failures_words_can_not_steer_a_terminal_or_fill_a_journal(make: Make) -> None:
    long = wire.pack_failure(TURN, wire.Failure.REFUSED, "\x1b[2J\x07\nWell " + 100_000 * "é")
    (note,) = Clients(make(1), _vectors(make, 5), _replace(3, lambda _: long)).sum().notes
    assert note.isprintable()
    assert "Well éé" in note
    assert len(note) < 700


@pytest.mark.parametrize("turn", [Turn(round_number=3, attempt=0), Turn(round_number=2, attempt=1)])
def test_a_replayed_reply_is_dropped_and_named(make: Make, turn: Turn) -> None:
    vectors = _vectors(make, 5)
    old: dict[int, bytes] = {}

    def keep(replies: Frames) -> Frames:
        old.update(replies)
        return replies

    Clients(make(1), vectors, keep).sum(Task(turn=turn, model=TASK.model))
    total = Clients(make(1), vectors, _replace(4, lambda _: old[4])).sum()
    _without(total, vectors, 4)
    assert "stale" in total.notes[0]


def test_a_reply_from_outside_the_cohort_is_refused(make: Make) -> None:
    clients = Clients(make(1), _vectors(make, 3), lambda r: {**r, 17: r[0]})
    with pytest.raises(RemoteError, match="17"):
        clients.sum()


def test_the_guarantee_is_stated(make: Make) -> None:
    guarantee = make(1).protocol.guarantee
    assert all((guarantee.server, guarantee.clients, guarantee.outsider))
