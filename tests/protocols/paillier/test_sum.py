"""What is particular to the Paillier sum; what it shares with every protocol is in test_conformance.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import wire
from tacit.crypto import paillier, threshold
from tacit.crypto.paillier import Layout
from tacit.crypto.ring import from_integers
from tacit.errors import ConfigError, DropoutError, KeysError, WireError
from tacit.flow import ClientId, Frames, InProcessEngine, drive
from tacit.protocols.paillier import Authority, Caution, PaillierSum, Rules, ShareHolder
from tacit.protocols.paillier.binding import Occasion, pack_key, seal_bytes
from tacit.protocols.paillier.client import Member, pack_invitation
from tacit.protocols.paillier.holders import Opening
from tacit.protocols.protocol import Contribution, Total
from tacit.protocols.signatures import SIGNATURE_BYTES
from tests.protocols.test_conformance import Parts, encrypted, key_pair, key_shares, layout

TURN = wire.Turn(round_number=3)
TASK = wire.Task(turn=TURN, model=np.zeros(4, np.float32), extras=b"for the mechanism", told=bytes(32))
LENGTH = 40
Meddle = Callable[[Frames, Frames], Frames]


class Federation:
    """Clients with vectors, key holders, and someone who sees all frames and may change them."""

    def __init__(self, parts: Parts, clients: int = 4, meddle: Meddle = lambda _, replies: replies) -> None:
        self.parts, self.meddle = parts, meddle
        self.vectors = list(np.random.default_rng(5).normal(size=(clients, LENGTH)).astype(np.float32))
        self.states = dict.fromkeys(range(clients), b"")
        self.frames: list[bytes] = []
        self.asked: list[tuple[wire.Kind, list[ClientId]]] = []

    def answer(self, requests: Frames) -> Frames:
        kind = wire.unpack(next(iter(requests.values()))).kind
        self.asked.append((kind, sorted(requests)))
        replies: dict[ClientId, bytes] = {}
        for party, request in requests.items():
            if kind in wire.FOR_HOLDERS:
                replies[party] = self.parts.holders[party].answer(wire.unpack(request))
            else:
                vector = self.vectors[party] if kind is wire.Kind.TASK else None
                self.states[party], replies[party] = self.parts.protocol.client(
                    self.states[party], wire.unpack(request), vector, number=party
                )
        changed = self.meddle(requests, replies)
        self.frames += [*requests.values(), *changed.values()]
        return changed

    def ready(self) -> PaillierSum:
        cohort = range(len(self.vectors))
        ready = drive(self.parts.protocol.setup(cohort), InProcessEngine(answer=self.answer))
        assert isinstance(ready, PaillierSum)
        return ready

    def sum(self, task: wire.Task = TASK) -> Total:
        flow = self.ready().server(range(len(self.vectors)), task, LENGTH)
        return drive(flow, InProcessEngine(answer=self.answer))

    @property
    def exact(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        total: np.ndarray[Any, np.dtype[np.float64]] = np.sum(self.vectors, axis=0, dtype=np.float64)
        return total


def _only(kind: wire.Kind, change: Callable[[Frames], Frames]) -> Meddle:
    def meddle(requests: Frames, replies: Frames) -> Frames:
        return change(replies) if wire.unpack(next(iter(requests.values()))).kind is kind else replies

    return meddle


def _reachable(thing: object, seen: set[int]) -> Iterator[object]:
    """Yield everything that can be reached from an object: attributes, items, closures, a generator's variables."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    parts: list[object] = []
    if isinstance(thing, Mapping):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set, frozenset)):
        parts += list(thing)
    if inspect.isgenerator(thing) and thing.gi_frame is not None:
        parts += [*thing.gi_frame.f_locals.values(), thing.gi_yieldfrom]
    if inspect.isfunction(thing):
        parts += [cell.cell_contents for cell in thing.__closure__ or ()]
    if inspect.ismethod(thing):
        parts.append(thing.__self__)
    if not inspect.ismodule(thing) and not inspect.isclass(thing):
        parts += list(getattr(thing, "__dict__", {}).values())
    for part in parts:
        yield from _reachable(part, seen)


def _secrets(keys: str) -> list[int]:
    if keys == "threshold":
        return [share.secret for share in key_shares()]
    private = key_pair()[1]
    return [private.p, private.q, private.order_p, private.order_q]


@pytest.mark.parametrize("keys", ["authority", "threshold", "shared"])
def test_the_server_half_never_holds_a_private_value(keys: str) -> None:
    federation = Federation(encrypted(1, keys))
    flow = federation.ready().server(range(4), TASK, LENGTH)
    secrets = _secrets(keys)
    widths = {secret: secret.to_bytes((secret.bit_length() + 7) // 8, "big") for secret in secrets}
    requests = next(flow)
    seen: list[object] = []
    try:
        while True:
            for thing in _reachable(flow, set()):
                seen.append(thing)
                assert not isinstance(thing, (paillier.PrivateKey, Authority, ShareHolder))
                assert not (isinstance(thing, int) and thing in secrets)
            replies = federation.answer(requests)
            if hasattr(requests, "receive"):
                for client, reply in replies.items():
                    requests.receive(client, reply)
                replies = {}
            requests = flow.send(replies)
    except StopIteration:
        pass
    key = key_shares()[0].public.key if keys == "threshold" else key_pair()[0]
    assert any(thing == key.n for thing in seen if isinstance(thing, int))  # the walk reaches the key's numbers
    assert any(isinstance(thing, paillier.CiphertextVector) for thing in seen)  # and what was added
    for frame in federation.frames:
        for secret, raw in widths.items():
            assert raw not in frame
            assert raw[::-1] not in frame
            assert f"{secret:x}".encode() not in frame


def test_the_walk_finds_what_is_hidden() -> None:
    private = key_pair()[1]
    hidden = replace(encrypted(1, "shared").protocol, own=private)  # type: ignore[type-var]
    assert any(thing is private for thing in _reachable({"a": [hidden]}, set()))


@pytest.mark.parametrize("keys", ["authority", "threshold", "shared"])
def test_no_frame_shows_a_vector_in_the_clear_but_the_sum(keys: str) -> None:
    federation = Federation(encrypted(1, keys))
    federation.sum()
    for vector in federation.vectors:
        units = np.rint(vector.astype(np.float64) / layout(LENGTH, 256).step).astype("<i8")
        assert not [frame for frame in federation.frames if vector.tobytes() in frame or units.tobytes() in frame]


def test_a_round_is_two_trips_after_three_to_enrol() -> None:
    federation = Federation(encrypted(1, "threshold"))
    federation.sum()
    assert federation.asked == [
        (wire.Kind.KEY, [-3, -2, -1]),
        (wire.Kind.ENROL, [0, 1, 2, 3]),
        (wire.Kind.ADMIT, [-3, -2, -1]),
        (wire.Kind.TASK, [0, 1, 2, 3]),
        (wire.Kind.OPEN, [-2, -1]),  # as many as it takes
    ]


def test_the_sum_that_is_opened_can_not_be_linked_with_its_summands() -> None:
    federation = Federation(encrypted(1, "authority"))
    federation.sum()
    frames = [wire.unpack(frame) for frame in federation.frames]
    key = key_pair()[0]
    vectors = [paillier.CiphertextVector.from_bytes(f.body[16:-64], key) for f in frames if f.kind is wire.Kind.CIPHER]
    (asked,) = [
        Opening.from_bytes(f.body, seal_bytes=16, check_bytes=32 + 64) for f in frames if f.kind is wire.Kind.OPEN
    ]
    opened = paillier.CiphertextVector.from_bytes(asked.vector[0], key)
    assert opened.summands == len(vectors) == 4
    assert not (opened.rows == paillier.total(vectors).rows).all(axis=1).any()


def test_the_mechanisms_extras_reach_the_clients() -> None:
    federation = Federation(encrypted(1, "authority"))
    federation.sum()
    tasks = [wire.unpack_task(frame) for frame in map(wire.unpack, federation.frames) if frame.kind is wire.Kind.TASK]
    assert {task.extras for task in tasks} == {b"for the mechanism"}


# Drop-outs at every stage


def test_a_client_lost_before_its_upload_is_not_in_the_sum() -> None:
    federation = Federation(encrypted(2, "authority"), meddle=_only(wire.Kind.TASK, lambda r: {1: r[1], 3: r[3]}))
    total = federation.sum()
    assert total.clients == (1, 3)
    np.testing.assert_allclose(total.vector, federation.vectors[1] + federation.vectors[3], atol=1e-6)


def test_clients_lost_after_their_upload_change_nothing() -> None:
    federation = Federation(encrypted(2, "authority"))
    ready = federation.ready()
    flow = ready.server(range(4), TASK, LENGTH)

    def only_holders(requests: Frames) -> Frames:
        assert all(party < 0 for party in requests), "a client was asked again"
        return federation.answer(requests)

    requests = next(flow)
    for client, reply in federation.answer(requests).items():
        requests.receive(client, reply)  # type: ignore[attr-defined]
    with pytest.raises(StopIteration) as stop:
        flow.send(only_holders(flow.send({})))
    np.testing.assert_allclose(stop.value.value.vector, federation.exact, atol=1e-6)


@pytest.mark.parametrize("away", [1, 2])
def test_an_authority_that_is_away_is_asked_again_and_no_client_trains_again(away: int) -> None:
    left = [away]

    def lost(replies: Frames) -> Frames:
        left[0] -= 1
        return replies if left[0] < 0 else {}

    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.OPEN, lost))
    np.testing.assert_allclose(federation.sum().vector, federation.exact, atol=1e-6)
    kinds = [kind for kind, _ in federation.asked]
    assert kinds.count(wire.Kind.TASK) == 1
    assert kinds.count(wire.Kind.OPEN) == away + 1


def test_an_authority_that_is_gone_ends_the_round() -> None:
    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.OPEN, lambda _: {}))
    with pytest.raises(DropoutError, match=r"sum of round 3 was not opened: 0 of 1 key holders answered.*1 needed"):
        federation.sum()


def test_no_authority_at_the_start_is_an_error_before_anything_is_sent() -> None:
    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.KEY, lambda _: {}))
    with pytest.raises(DropoutError, match="0 of 1 key holders answered, 1 needed"):
        federation.sum()
    assert [kind for kind, _ in federation.asked] == [wire.Kind.KEY]


def test_threshold_goes_on_with_whoever_is_left() -> None:
    federation = Federation(
        encrypted(1, "threshold"), meddle=_only(wire.Kind.OPEN, lambda r: {h: f for h, f in r.items() if h != -2})
    )
    np.testing.assert_allclose(federation.sum().vector, federation.exact, atol=1e-6)
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.OPEN] == [[-2, -1], [-3]]


def test_too_few_key_holders_end_the_round() -> None:
    federation = Federation(
        encrypted(1, "threshold"), meddle=_only(wire.Kind.OPEN, lambda r: {h: f for h, f in r.items() if h == -1})
    )
    with pytest.raises(DropoutError, match=r"1 of 3 key holders answered with their part, 2 needed"):
        federation.sum()


def test_shared_keys_are_opened_by_the_next_client_where_one_is_away() -> None:
    federation = Federation(
        encrypted(1, "shared"), meddle=_only(wire.Kind.OPEN, lambda r: {h: f for h, f in r.items() if h != 0})
    )
    np.testing.assert_allclose(federation.sum().vector, federation.exact, atol=1e-6)
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.OPEN] == [[0], [1]]


# Wrong parties


def test_a_wrong_share_is_named_and_left_out() -> None:
    def wrong(replies: Frames) -> Frames:
        frame = wire.unpack(replies[-1]) if -1 in replies else None
        if frame is None:
            return replies
        body = bytearray(frame.body)
        body[-1] ^= 1
        return {**replies, -1: wire.pack(frame.kind, frame.turn, bytes(body))}

    federation = Federation(encrypted(1, "threshold"), meddle=_only(wire.Kind.OPEN, wrong))
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert total.notes == ("Key holder 1 gave a wrong share. The sum was opened without it.",)
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.OPEN] == [[-2, -1], [-3]]


@pytest.mark.parametrize("change", [lambda b: b[:-8], lambda b: b + bytes(8), lambda b: b"\x7f" * len(b)])
def test_an_authority_that_answers_nonsense_is_refused(change: Callable[[bytes], bytes]) -> None:
    def nonsense(replies: Frames) -> Frames:
        frame = wire.unpack(replies[-1])
        return {-1: wire.pack(frame.kind, frame.turn, change(bytes(frame.body)))}

    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.OPEN, nonsense))
    with pytest.raises(
        DropoutError, match=r"was not opened.*Key holder 1 .*(bytes, expected|larger than its summands)"
    ):
        federation.sum()


def _borne() -> bytes:
    """Return a ciphertext in the place of a client's check."""
    return key_pair()[0].encrypt(0).row.tobytes()


def _forge(client: ClientId, vector: Callable[[], paillier.CiphertextVector]) -> Meddle:
    def forged(replies: Frames) -> Frames:
        return {**replies, client: wire.pack(wire.Kind.CIPHER, TURN, bytes(16) + vector().to_bytes() + _borne())}

    return _only(wire.Kind.TASK, forged)


def _dropped(meddle: Meddle, client: ClientId, words: str) -> None:
    """Check that the others are summed, and the one who sent something else is named with the reason."""
    federation = Federation(encrypted(3, "authority"), meddle=meddle)
    total = federation.sum()
    left = [other for other in range(4) if other != client]
    assert total.clients == tuple(left)
    np.testing.assert_allclose(total.vector, np.sum([federation.vectors[c] for c in left], axis=0), atol=1e-6)
    (note,) = total.notes
    assert re.search(rf"Client {client} .*{words}", note), note


def test_a_client_with_another_key_is_named() -> None:
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    forged = _forge(2, lambda: stranger.encrypt(np.zeros(LENGTH), layout(LENGTH, 256)))
    _dropped(forged, 2, "encrypted with key")


@pytest.mark.parametrize(
    "make",
    [
        lambda key: key.encrypt(np.zeros(LENGTH + 1), layout(LENGTH + 1, 256)),
        lambda key: key.encrypt(
            np.zeros(LENGTH), Layout.floats(length=LENGTH, clip=4.0, bits=30, summands=16, key_bits=256)
        ),
        lambda key: key.encrypt(np.zeros(LENGTH), layout(LENGTH, 256)) * 2,
    ],
    ids=["length", "clip", "summands"],
)
def test_a_vector_of_another_layout_or_count_names_the_client(
    make: Callable[[paillier.PublicKey], paillier.CiphertextVector],
) -> None:
    _dropped(_forge(1, lambda: make(key_pair()[0])), 1, "can't be added.*expected")


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_that_is_no_ciphertext_names_the_client(number: int) -> None:
    key = key_pair()[0]

    def forged() -> paillier.CiphertextVector:
        vector = key.encrypt(np.zeros(LENGTH), layout(LENGTH, 256))
        rows = vector.rows.copy()
        rows[1] = 0 if number == 0 else 255
        return replace(vector, rows=rows)

    _dropped(_forge(3, forged), 3, "Ciphertext 1 of")


def test_a_ciphertext_with_a_divisor_of_n_is_dropped_and_named() -> None:
    key, private = key_pair()

    def forged() -> paillier.CiphertextVector:
        vector = key.encrypt(np.zeros(LENGTH), layout(LENGTH, 256))
        rows = vector.rows.copy()
        rows[2] = from_integers([private.p], rows.shape[1])[0]
        return replace(vector, rows=rows)

    _dropped(_forge(0, forged), 0, "divisor in common")


def test_clients_that_have_not_proved_what_they_know_are_left_out_and_named() -> None:
    """One of the first eight, which are looked at together, and one of the rest; key holders open the others' sum."""

    def exchanged(replies: Frames) -> Frames:
        key, form = key_shares()[0].public.key, layout(LENGTH, 256)
        size = seal_bytes("threshold", key)
        bodies = {client: bytes(wire.unpack(reply).body) for client, reply in replies.items()}
        changed = dict(replies)
        for client in (5, 9):
            proof, ciphertext = bodies[0][SIGNATURE_BYTES:size], bodies[client][size:]
            member = Member.from_bytes(federation.states[client])
            asked = wire.bound_to(TASK, b"")
            occasion = Occasion(run=member.run, client=client, turn=TURN, asked=asked)
            rows = paillier.CiphertextVector.from_bytes(ciphertext, key).rows
            signature = member.signature(occasion, form, [proof], rows)
            changed[client] = wire.pack(wire.Kind.CIPHER, TURN, signature + proof + ciphertext)
        return changed

    federation = Federation(encrypted(1, "threshold"), clients=11, meddle=_only(wire.Kind.TASK, exchanged))
    total = federation.sum()
    assert total.clients == tuple(client for client in range(11) if client not in (5, 9))
    assert np.abs(total.vector - np.sum([federation.vectors[c] for c in total.clients], axis=0)).max() < 1e-5
    assert [note[:9] for note in total.notes] == ["Client 5 ", "Client 9 "]
    assert all("Its proof that it knows what is in it does not hold" in note for note in total.notes)


def test_a_second_reply_of_a_client_does_not_count() -> None:
    """Engines hand over one reply per client; were one to hand over two, the sum would hold the client twice."""
    federation = Federation(encrypted(1, "authority"))
    flow = federation.ready().server(range(4), TASK, LENGTH)
    requests = next(flow)
    for client, reply in federation.answer(requests).items():
        for sent in (reply, reply, b"no frame"):
            requests.receive(client, sent)  # type: ignore[attr-defined]
    with pytest.raises(StopIteration) as stop:
        flow.send(federation.answer(flow.send({})))
    assert stop.value.value.clients == (0, 1, 2, 3)
    assert stop.value.value.notes == ()
    np.testing.assert_allclose(stop.value.value.vector, federation.exact, atol=1e-6)


def test_of_several_bad_replies_all_are_named_in_order_whatever_the_order_of_arrival() -> None:
    federation = Federation(
        encrypted(1, "authority"),
        meddle=_only(
            wire.Kind.TASK,
            lambda r: {3: b"x", 2: wire.pack_failure(TURN, wire.Failure.REFUSED, "no data"), 1: r[1], 0: r[0]},
        ),
    )
    notes = federation.sum().notes
    assert [note.split(":")[0] for note in notes] == ["Client 2 failed in round 3", "Client 3 sent a damaged reply"]


# The client half


def _client(number: int = 0, state: bytes = b"", **settings: Any) -> Callable[..., tuple[bytes, wire.Frame]]:
    protocol = replace(encrypted(1, "authority").protocol, **settings)  # type: ignore[type-var]

    def answer(request: bytes, state: bytes = state, vector: Contribution | None = None) -> tuple[bytes, wire.Frame]:
        state, reply = protocol.client(state, wire.unpack(request), vector, number=number)
        return state, wire.unpack(reply)

    return answer


def _invitation(key: paillier.PublicKey, run: bytes = bytes(32)) -> bytes:
    return wire.pack(wire.Kind.ENROL, wire.Turn(round_number=0), pack_invitation(run, key))


def _enrolled(**settings: Any) -> tuple[bytes, Callable[..., tuple[bytes, wire.Frame]]]:
    client = _client(**settings)
    return client(_invitation(key_pair()[0]))[0], client


def test_a_client_pins_the_first_key_and_refuses_another() -> None:
    client = _client()
    state, frame = client(_invitation(key_pair()[0]))
    assert frame.kind is wire.Kind.ENROL
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    after, frame = client(_invitation(stranger), state)
    assert (after, frame.kind) == (state, wire.Kind.FAILURE)
    assert b"is pinned. Nothing was encrypted" in bytes(frame.body)


def test_a_client_takes_no_other_key_than_the_one_its_operator_gave_it() -> None:
    client = _client(pin=key_pair()[0].identity)
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    state, frame = client(_invitation(stranger))
    assert (state, frame.kind) == (b"", wire.Kind.FAILURE)
    assert client(_invitation(key_pair()[0]))[1].kind is wire.Kind.ENROL


def test_a_client_refuses_a_short_key_unless_it_was_told() -> None:
    _, frame = _client(insecure_key_size=False)(_invitation(key_pair()[0]))
    assert frame.kind is wire.Kind.FAILURE
    assert b"a key of 256 bits, expected at least 2048" in bytes(frame.body)


@pytest.mark.parametrize("body", [b"", bytes(31), bytes(32), bytes(32) + b"{}", bytes(32) + b"[" * 5])
def test_a_client_refuses_an_invitation_it_can_not_read(body: bytes) -> None:
    state, frame = _client()(wire.pack(wire.Kind.ENROL, wire.Turn(round_number=0), body))
    assert (state, frame.kind) == (b"", wire.Kind.FAILURE)


def test_a_client_that_is_asked_twice_to_enrol_in_a_run_remembers_the_same() -> None:
    state, client = _enrolled()
    assert client(_invitation(key_pair()[0]), state)[0] == state
    assert client(_invitation(key_pair()[0], bytes(31) + b"2"), state)[0] != state  # another run, another secret


def test_a_client_that_is_not_enrolled_says_so() -> None:
    frame = _client()(wire.pack_task(TASK), vector=np.zeros(LENGTH, np.float32))[1]
    assert wire.unpack_failure(frame)[0] is wire.Failure.NOT_ENROLLED


@pytest.mark.parametrize("number", [0, 10, 4_000_000_000])
def test_a_client_answers_no_round_that_the_run_does_not_have(number: int) -> None:
    state, client = _enrolled()
    request = wire.pack_task(replace(TASK, turn=wire.Turn(round_number=number)))
    frame = client(request, state, np.zeros(LENGTH, np.float32))[1]
    assert wire.unpack_failure(frame)[0] is wire.Failure.BEYOND


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_server_is_not_told_where_an_update_is_not_finite(bad: float) -> None:
    vector = np.zeros(LENGTH, np.float32)
    vector[17] = bad
    state, client = _enrolled()
    frame = client(wire.pack_task(TASK), state, vector)[1]
    assert (frame.kind, bytes(frame.body)) == (wire.Kind.FAILURE, bytes([wire.Failure.NOT_FINITE]))


def test_a_client_knows_enrolments_and_tasks_only() -> None:
    with pytest.raises(WireError, match="ENROL or a TASK"):
        _client()(wire.pack(wire.Kind.KEY, TURN, b""))


@pytest.mark.parametrize("bound", [1, 5, 30])
def test_a_refusal_tells_nothing_of_how_many_numbers_are_beyond_the_clip(bound: int) -> None:
    """A client of whole numbers refuses those beyond its own bound: by a code, the same for one number and for all."""

    def whole(length: int, key_bits: int) -> Layout:
        return Layout(length=length, bound=bound, summands=16, key_bits=key_bits)

    state, client = _enrolled(layout=whole)
    frame = client(wire.pack_task(TASK), state, np.arange(LENGTH, dtype=np.int64))[1]
    assert (frame.kind, bytes(frame.body)) == (wire.Kind.FAILURE, bytes([wire.Failure.REFUSED]))


def test_a_server_can_not_choose_the_layout_a_client_encrypts_in() -> None:
    """The quantile oracle: what once asked for a clip of the server's choice is answered in the client's own layout."""
    state, client = _enrolled()
    vector = np.linspace(-3.0, 3.0, LENGTH).astype(np.float32)
    oracle = Layout(length=LENGTH, bound=1, summands=16, key_bits=256).to_bytes()
    for extras in (b"", oracle, pack_key(key_pair()[0]) + oracle):
        frame = client(wire.pack_task(replace(TASK, extras=extras)), state, vector)[1]
        sent = paillier.CiphertextVector.from_bytes(frame.body[16:-64], key_pair()[0])
        assert sent.layout == layout(LENGTH, 256)


def test_a_refused_key_makes_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The review's attack: a key that is not the pinned one, and an absurd length, left a thread making noise."""
    made: list[int] = []
    monkeypatch.setattr(paillier.NoisePool, "fill", lambda _, count, **__: made.append(count))
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    protocol = replace(encrypted(1, "authority").protocol, pin=key_pair()[0].identity)  # type: ignore[type-var]
    state, _ = protocol.client(b"", wire.unpack(_invitation(stranger)), None)
    protocol.prepare(state, LENGTH)
    assert not made
    state, _ = protocol.client(b"", wire.unpack(_invitation(key_pair()[0])), None)
    protocol.prepare(state, LENGTH)
    assert made == [layout(LENGTH, 256).rows + 1]  # and the check


def test_numbers_beyond_the_clip_are_clipped() -> None:
    federation = Federation(encrypted(1, "authority"), clients=2)
    federation.vectors[0][7] = 100.0
    total = federation.sum()
    np.testing.assert_allclose(total.vector[7], 8.0 + federation.vectors[1][7], atol=1e-6)


# Set-up


def test_holders_of_different_keys_are_refused() -> None:
    parts = encrypted(1, "threshold")
    _, others = threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)
    mixed = {
        **parts.holders,
        -3: ShareHolder(share=others[2], caution=Caution(rules=Rules(minimum_clients=1, rounds=9), floor=1)),
    }
    total = Federation(replace(parts, holders=mixed)).sum()  # two of three have one key, which is enough
    assert total.notes == ("Key holder 3 has another public key than the others. The run goes on without it.",)
    _, more = threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)
    mixed[-2] = ShareHolder(share=more[1], caution=Caution(rules=Rules(minimum_clients=1, rounds=9)))
    with pytest.raises(KeysError, match=r"key holders \[-3, -2, -1\] have different public keys"):
        Federation(replace(parts, holders=mixed)).ready()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fingerprint": "00:11"}, "expected 00:11"),
        ({"insecure_key_size": False}, "256 bits, expected at least 2048"),
        ({"keys": "threshold"}, "not of the kind that paillier.keys=threshold needs"),
    ],
)
def test_a_key_that_is_not_the_expected_one_stops_the_run(settings: dict[str, Any], words: str) -> None:
    parts = encrypted(1, "authority")
    changed = replace(parts.protocol, **settings)  # type: ignore[type-var]
    with pytest.raises(KeysError, match=words):
        Federation(replace(parts, protocol=changed)).ready()


def test_the_right_fingerprint_is_accepted() -> None:
    parts = encrypted(1, "authority")
    known = replace(parts.protocol, fingerprint=key_pair()[0].fingerprint)  # type: ignore[type-var]
    assert Federation(replace(parts, protocol=known)).ready().public == key_pair()[0]


def test_the_fingerprint_of_a_threshold_key_is_the_one_that_tacit_keys_prints() -> None:
    parts = encrypted(1, "threshold")
    public = key_shares()[0].public
    known = replace(parts.protocol, fingerprint=public.fingerprint)  # type: ignore[type-var]
    assert Federation(replace(parts, protocol=known)).ready().public == public


def test_a_threshold_key_for_another_number_of_holders_is_refused() -> None:
    parts = encrypted(1, "threshold")
    with pytest.raises(KeysError, match="opens with 2 shares, and the run is set up for 3"):
        Federation(replace(parts, protocol=replace(parts.protocol, needed=3))).ready()  # type: ignore[type-var]


def test_without_setup_there_is_no_sum() -> None:
    with pytest.raises(ConfigError, match="public key is not known"):
        next(encrypted(1, "authority").protocol.server(range(2), TASK, LENGTH))


def test_a_cohort_larger_than_the_layout_allows_is_refused() -> None:
    ready = Federation(encrypted(1, "authority")).ready()
    with pytest.raises(DropoutError, match="17 clients, and the layout room for 16"):
        next(ready.server(range(17), TASK, LENGTH))


def test_whole_numbers_are_summed_exactly() -> None:
    def whole(length: int, key_bits: int) -> Layout:
        return Layout(length=length, bound=2**40, summands=16, key_bits=key_bits)

    federation = Federation(encrypted(1, "authority", whole))
    numbers = np.random.default_rng(3).integers(-(2**40), 2**40, (4, LENGTH))
    federation.vectors = list(numbers)
    assert federation.sum().vector.tolist() == numbers.sum(axis=0).astype(np.float64).tolist()


# Who is there when


def test_a_client_that_was_away_at_first_enrols_when_it_is_asked() -> None:
    federation = Federation(encrypted(1, "authority"))
    engine = InProcessEngine(answer=federation.answer)
    ready = drive(federation.parts.protocol.setup([0, 1, 3]), engine)
    assert drive(ready.server(range(4), TASK, LENGTH), engine).clients == (0, 1, 3)
    again = drive(ready.setup(range(4)), engine)
    later = replace(TASK, turn=wire.Turn(round_number=4))
    total = drive(again.server(range(4), later, LENGTH), engine)
    assert total.clients == (0, 1, 2, 3)
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.ENROL] == [[0, 1, 3], [2]]


@pytest.mark.parametrize("keys", ["authority", "threshold"])
def test_a_client_that_forgot_its_enrolment_is_left_out_and_named(keys: str) -> None:
    federation = Federation(encrypted(1, keys))
    engine = InProcessEngine(answer=federation.answer)
    ready = drive(federation.parts.protocol.setup(range(4)), engine)
    federation.states[2] = b""
    first = drive(ready.server(range(4), TASK, LENGTH), engine)
    assert first.clients == (0, 1, 3)
    assert first.notes == (
        "Client 2 failed in round 3: it is not enrolled in this run, or has forgotten it. The sum is without it.",
    )
    drive(ready.setup(range(4)), engine)
    second = drive(ready.server(range(4), replace(TASK, turn=wire.Turn(round_number=4)), LENGTH), engine)
    assert second.clients == (0, 1, 3)
    assert "Client 2 was not admitted by the key holders" in second.notes[0]


def test_a_key_holder_that_was_away_at_set_up_is_not_asked_to_open() -> None:
    away = _only(wire.Kind.KEY, lambda replies: {h: f for h, f in replies.items() if h != -1})
    federation = Federation(encrypted(1, "threshold"), meddle=away)
    np.testing.assert_allclose(federation.sum().vector, federation.exact, atol=1e-6)
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.OPEN] == [[-3, -2]]


def test_a_key_holder_that_admits_nobody_is_done_without() -> None:
    def lost(replies: Frames) -> Frames:
        return {holder: b"garbage" if holder == -1 else frame for holder, frame in replies.items()}

    federation = Federation(encrypted(1, "threshold"), meddle=_only(wire.Kind.ADMIT, lost))
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert "Key holder 1 admitted nobody" in total.notes[0]


def test_garbage_for_an_enrolment_is_named_and_the_others_go_on() -> None:
    def garbage(replies: Frames) -> Frames:
        wrong = wire.pack(wire.Kind.ENROL, wire.Turn(round_number=0), bytes(96))
        return {**replies, 1: wrong, 2: b"garbage"}

    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.ENROL, garbage))
    total = federation.sum()
    assert total.clients == (0, 3)
    assert "Client 1 was not admitted" in total.notes[0]
    assert "Client 2 sent a damaged reply" in total.notes[1]


def test_a_second_reply_of_a_client_does_not_change_what_the_first_is_bound_by() -> None:
    """Of two replies the first counts: with the nonce of the second the sum could not be opened."""
    federation = Federation(encrypted(1, "authority"))
    engine = InProcessEngine(answer=federation.answer)
    ready = drive(federation.parts.protocol.setup(range(4)), engine)
    flow = ready.server(range(4), TASK, LENGTH)
    requests = next(flow)
    for _ in range(2):
        for client, reply in federation.answer(requests).items():
            requests.receive(client, reply)  # type: ignore[attr-defined]
    with pytest.raises(StopIteration) as stop:
        flow.send(federation.answer(flow.send({})))
    np.testing.assert_allclose(stop.value.value.vector, federation.exact, atol=1e-6)


@pytest.mark.parametrize(("needed", "holders", "liars"), [(2, 3, 1), (3, 5, 1), (3, 4, 2), (4, 5, 3), (3, 3, 3)])
def test_the_report_says_how_many_key_holders_could_help_the_server(needed: int, holders: int, liars: int) -> None:
    numbers = tuple(-number for number in range(1, holders + 1))
    protocol = replace(encrypted(1, "threshold").protocol, needed=needed, holders=numbers)  # type: ignore[type-var]
    assert f"only together with {liars} of {holders} key holders" in protocol.guarantee.server
