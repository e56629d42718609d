"""The masked sum: exact whoever drops out and when, closed where too many do."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import wire
from tacit.errors import DropoutError, SpoiledError
from tacit.flow import ClientId, Frames
from tacit.protocols.masks import Field, MaskedSum
from tacit.protocols.masks.member import Member
from tacit.wire import Kind
from tests.protocols.masks.run import STAGES, Federation, Meddle, clear_sum, losing, masked, reason, task, vectors

_MESSAGES = [(stage, signed) for stage in STAGES for signed in (False, True) if signed or stage is not Kind.LIST]


def _checked(federation: Federation, number: int = 1, cohort: Sequence[ClientId] | None = None) -> tuple[ClientId, ...]:
    total = federation.sum(task(number), cohort)
    assert total.vector.tolist() == clear_sum(federation.vectors, total.clients).tolist()
    return total.clients


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("stage", "signed"), _MESSAGES)
def test_drop_outs_at_every_message_leave_the_exact_sum_of_the_others(stage: Kind, when: str, signed: bool) -> None:
    """Six of ten are needed: of the ten, four never see a message or their answers to it are lost."""
    federation = Federation(masked(minimum=6, signed=signed), vectors(range(10)))
    setattr(federation, when, losing({stage: [0, 3, 4, 9]}))
    late = stage in (Kind.LIST, Kind.REVEAL)  # by then their vectors are in the sum
    assert _checked(federation) == (tuple(range(10)) if late else (1, 2, 5, 6, 7, 8))
    federation.before = federation.after = losing({})
    assert _checked(federation, 2) == tuple(range(10))  # and they are back in the next round


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("stage", "signed"), _MESSAGES)
def test_one_drop_out_more_and_nothing_is_revealed(stage: Kind, when: str, signed: bool) -> None:
    federation = Federation(masked(minimum=6, signed=signed), vectors(range(10)))
    setattr(federation, when, losing({stage: range(5 if stage is not Kind.REVEAL else 6)}))
    with pytest.raises(DropoutError) as caught:
        federation.sum(task())
    if stage is not Kind.REVEAL:
        assert not any(kind is Kind.REVEAL for kind, *_ in federation.frames)
    assert "needed" in str(caught.value) or "have to open" in str(caught.value)
    federation.before = federation.after = losing({})
    again = federation.sum(task(1, attempt=1))  # a new try has masks of its own
    assert again.vector.tolist() == clear_sum(federation.vectors, range(10)).tolist()


@functools.cache
def _sparse() -> MaskedSum:
    protocol = masked(minimum=45, expected=50)
    assert protocol.hood(50).neighbours < 49
    return protocol


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_cohort_threshold_and_pattern_of_drop_outs(data: st.DataObject) -> None:
    """Exact where enough are left at every stage, and closed where they are not."""
    signed = data.draw(st.booleans())
    count = data.draw(st.integers(2, 14))
    minimum = data.draw(st.integers(2, count))
    numbers = sorted(data.draw(st.sets(st.integers(0, 2**64 - 1), min_size=count, max_size=count)))
    protocol = masked(minimum=minimum, signed=signed, corrupted=data.draw(st.sampled_from([0.0, 0.05, 0.3])))
    lost = {stage: data.draw(st.lists(st.sampled_from(numbers), max_size=3)) for stage in STAGES}
    unheard = {stage: data.draw(st.lists(st.sampled_from(numbers), max_size=2)) for stage in STAGES}
    federation = Federation(protocol, vectors(numbers, seed=count), before=losing(lost), after=losing(unheard))
    hood = protocol.hood(count)
    stages = {stage: set[int](lost[stage]) | set(unheard[stage]) for stage in STAGES}
    early = stages[Kind.SHARE] | stages[Kind.TASK]
    inside = [number for number in numbers if number not in early]
    signing = [number for number in inside if number not in stages[Kind.LIST]]
    opening = [number for number in signing if number not in stages[Kind.REVEAL]]
    shared = [number for number in numbers if number not in stages[Kind.SHARE]]
    enough = len(inside) >= hood.minimum and (not signed or len(signing) >= hood.quorum)
    enough = enough and all(len(set(opening) - {number}) >= hood.threshold for number in shared)
    if enough:
        assert _checked(federation) == tuple(inside)
    else:
        with pytest.raises(DropoutError):
            federation.sum(task())


@settings(deadline=None, max_examples=2)
@given(st.permutations(range(50)), st.integers(0, 5))
def test_on_a_sparse_graph_too(order: list[int], gone: int) -> None:
    lost = {Kind.SHARE: order[: gone // 2], Kind.TASK: order[gone // 2 : gone]}
    federation = Federation(_sparse(), vectors(range(50)), before=losing(lost))
    assert len(_checked(federation)) == 50 - gone


def test_cohorts_change_from_round_to_round_and_clients_enrol_once() -> None:
    federation = Federation(masked(minimum=2), vectors(range(8)))
    for number, cohort in enumerate([[0, 1, 2, 3], [2, 3, 4, 5, 6, 7], [0, 7], list(range(8))], start=1):
        assert _checked(federation, number, cohort) == tuple(cohort)
    enrolled = [client for kind, client, _ in federation.frames if kind is Kind.ENROL]
    assert sorted(enrolled) == list(range(8))


def test_what_travels_is_uniform_whatever_the_vector_is() -> None:
    length = 4096
    zeros = {client: np.zeros(length, np.int64) for client in range(3)}
    federation = Federation(masked(minimum=3, fields=lambda _: Field(bound=1000, summands=3)), zeros)
    assert federation.sum(task()).vector.tolist() == [0.0] * length
    for kind, _, reply in federation.replies:
        if kind is Kind.TASK:
            numbers = Field(bound=1000, summands=3).unpack(wire.unpack(reply).body, length)
            counts = np.histogram(numbers, 16, (0, 2**13))[0]
            assert ((counts - length / 16) ** 2 / (length / 16)).sum() < 60  # chi squared, 15 degrees: 2e-7


def test_no_secret_of_one_turn_is_one_of_another() -> None:
    federation = Federation(masked(minimum=3), vectors(range(3)))
    for number, attempt in ((1, 0), (1, 1), (2, 0)):
        federation.sum(task(number, attempt))
    sent = [bytes(wire.unpack(reply).body) for kind, _, reply in federation.replies if kind in (Kind.SHARE, Kind.TASK)]
    assert len(set(sent)) == len(sent)
    opened = [bytes(wire.unpack(reply).body) for kind, _, reply in federation.replies if kind is Kind.REVEAL]
    shares = [body[start : start + 32] for body in opened for start in range(0, len(body), 32)]
    assert len(set(shares)) == len(shares)


def test_nothing_long_lived_is_ever_sent() -> None:
    federation = Federation(masked(minimum=2, signed=True), vectors(range(5)), before=losing({Kind.TASK: [2]}))
    federation.sum(task())
    members = [Member.from_bytes(state) for state in federation.states.values()]
    everything = b"".join(frame for _, _, frame in federation.frames + federation.replies)
    for member in members:
        keys = member.keys(None)
        kept = [member.secret, member.nonce, *member.agreed]
        kept += [keys.agreeing.private_bytes_raw(), keys.signing.private_bytes_raw()]
        assert not any(secret in everything for secret in kept)


def _changed(kind: Kind, client: ClientId, change: bytes) -> Meddle:
    def meddle(found: Kind, replies: Frames) -> Frames:
        if found is not kind or client not in replies:
            return replies
        frame = wire.unpack(replies[client])
        body = bytes(frame.body)
        return {**replies, client: wire.pack(frame.kind, frame.turn, body[: -len(change)] + change)}

    return meddle


@pytest.mark.parametrize("kind", [Kind.LIST, Kind.REVEAL])
def test_a_client_that_signs_or_opens_wrongly_is_named_and_done_without(kind: Kind) -> None:
    federation = Federation(masked(minimum=4, signed=True), vectors(range(6)), after=_changed(kind, 2, b"?" * 8))
    total = federation.sum(task())
    assert total.vector.tolist() == clear_sum(federation.vectors, range(6)).tolist()
    assert len(total.notes) == 1
    assert "lient 2 " in total.notes[0]


def test_a_client_whose_shares_do_not_fit_loses_the_round_and_is_left_out_from_then_on() -> None:
    def meddle(kind: Kind, replies: Frames) -> Frames:
        if kind is not Kind.SHARE:
            return replies
        frame = wire.unpack(replies[1])
        return {**replies, 1: wire.pack(frame.kind, frame.turn, bytes(32) + bytes(frame.body)[32:])}

    federation = Federation(masked(minimum=3), vectors(range(4)), after=meddle)
    with pytest.raises(DropoutError, match="Client 1 dealt shares that do not fit together"):
        federation.sum(task())
    federation.after = losing({})
    total = federation.sum(task(1, attempt=1))
    assert total.clients == (0, 2, 3)
    assert "Client 1 dealt shares" in total.notes[0]


def test_a_client_that_lies_about_its_vector_spoils_the_sum_and_that_is_seen() -> None:
    wide = replace(masked(minimum=3), fields=lambda _: Field(bound=2**20, summands=64))
    federation = Federation(wide, vectors(range(4), length=64), after=_changed(Kind.TASK, 1, b"\x7f" * 128))
    with pytest.raises(SpoiledError, match="can't be one"):
        federation.sum(task())


def test_a_client_that_deals_garbage_stops_nobody_from_opening_the_others_shares() -> None:
    def meddle(kind: Kind, replies: Frames) -> Frames:
        if kind is not Kind.SHARE or 1 not in replies:
            return replies
        frame = wire.unpack(replies[1])
        return {**replies, 1: wire.pack(frame.kind, frame.turn, bytes(frame.body)[:64] + bytes(144 * 5))}

    federation = Federation(masked(minimum=3), vectors(range(6)), after=meddle)
    with pytest.raises(DropoutError, match="Client 1 dealt shares that 5 of its neighbours could not open"):
        federation.sum(task())
    assert federation.sum(task(1, attempt=1)).clients == (0, 2, 3, 4, 5)


def test_a_client_that_forgot_the_run_is_out_of_it_and_stops_nobody() -> None:
    federation = Federation(masked(minimum=2), vectors(range(5)))
    federation.sum(task())
    del federation.states[1]
    for number in (2, 3):
        total = federation.sum(task(number))
        assert total.clients == (0, 2, 3, 4)
        assert "lient 1 " in total.notes[0]
    assert "forgotten the keys that it first came with" in total.notes[0]


def _enrols_with(entry: bytes) -> Meddle:
    def meddle(kind: Kind, replies: Frames) -> Frames:
        if kind is not Kind.ENROL:
            return replies
        return {**replies, 1: wire.pack(Kind.ENROL, wire.unpack(replies[1]).turn, entry)}

    return meddle


@pytest.mark.parametrize("other", [None, bytes(32), (1).to_bytes(32, "little")])
def test_keys_that_others_would_refuse_keep_a_client_out_and_stop_nobody(other: bytes | None) -> None:
    """A key of small order, and another client's, rightly signed by whoever sends it."""
    federation = Federation(masked(minimum=2), vectors(range(4)))
    key = Ed25519PrivateKey.generate()

    def meddle(kind: Kind, replies: Frames) -> Frames:
        if kind is not Kind.ENROL:
            return replies
        run = wire.unpack(next(f for k, _, f in federation.frames if k is Kind.ENROL)).body
        agreeing = bytes(wire.unpack(replies[0]).body)[:32] if other is None else other
        signed = key.sign(b"tacit masks keys 1\n" + federation.protocol.statement(bytes(run), 1) + agreeing)
        return _enrols_with(agreeing + key.public_key().public_bytes_raw() + signed)(kind, replies)

    federation.after = meddle
    total = federation.sum(task())
    assert total.clients == (0, 2, 3)
    assert "Client 1 could not enrol" in total.notes[0]


def test_the_ends_of_the_range_add_up() -> None:
    ends = {client: np.array([1000, -1000, 0]) for client in range(16)}
    protocol = masked(minimum=9, fields=lambda _: Field(bound=1000, summands=16))
    assert _checked(Federation(protocol, ends)) == tuple(range(16))


def test_a_vector_beyond_the_bound_is_refused_without_a_word_on_it() -> None:
    federation = Federation(masked(minimum=2), {**vectors(range(3)), 3: np.full(5, 1001)})
    total = federation.sum(task())
    assert total.clients == (0, 1, 2)
    assert "1001" not in total.notes[0]
    refused = next(reply for kind, client, reply in federation.replies if (kind, client) == (Kind.TASK, 3))
    assert reason(refused) == wire.Failure.REFUSED.words
