from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit import wire
from tacit.crypto import paillier
from tacit.errors import KeysError, WireError
from tacit.protocols.paillier import Authority, ShareHolder
from tacit.protocols.protocol import KeyHolder
from tests.protocols.test_conformance import key_pair, key_shares, layout

LENGTH = 20


def _holder(kind: str, minimum: int = 3) -> KeyHolder:
    if kind == "authority":
        return Authority(private=key_pair()[1], minimum_clients=minimum)
    return ShareHolder(share=key_shares()[0], minimum_clients=minimum)


def _key(kind: str) -> paillier.PublicKey:
    return key_pair()[0] if kind == "authority" else key_shares()[0].public.key


def _sum(kind: str, summands: int = 3, length: int = LENGTH) -> paillier.CiphertextVector:
    key = _key(kind)
    return key.encrypt(np.full(length, 0.5), layout(length, key.bits)) * summands


def _ask(holder: KeyHolder, vector: paillier.CiphertextVector, round_number: int = 1, attempt: int = 0) -> wire.Frame:
    turn = wire.Turn(round_number=round_number, attempt=attempt)
    frame = wire.unpack(holder.answer(wire.pack(wire.Kind.OPEN, turn, vector.to_bytes())))
    assert frame.turn == turn
    return frame


BOTH = pytest.mark.parametrize("kind", ["authority", "share"])
AUTHORITY = pytest.mark.parametrize("kind", ["authority"])


@BOTH
def test_a_sum_of_enough_clients_is_opened_once_a_round(kind: str) -> None:
    holder = _holder(kind)
    for number in (1, 2, 5):
        assert _ask(holder, _sum(kind), number).kind is wire.Kind.OPENED


@BOTH
def test_the_same_sum_is_opened_again_as_an_answer_may_be_lost(kind: str) -> None:
    holder, vector = _holder(kind), _sum(kind)
    first, again = _ask(holder, vector), _ask(holder, vector)
    assert again.kind is wire.Kind.OPENED
    assert bytes(first.body) == bytes(again.body)


@BOTH
@pytest.mark.parametrize("summands", [1, 2])
def test_a_sum_of_too_few_is_refused(kind: str, summands: int) -> None:
    holder = _holder(kind)
    frame = _ask(holder, _sum(kind, summands))
    assert frame.kind is wire.Kind.FAILURE
    assert f"a sum of {summands} vectors was not opened, expected at least 3".encode() in bytes(frame.body)
    assert _ask(holder, _sum(kind)).kind is wire.Kind.OPENED  # a refusal uses up nothing


@BOTH
@pytest.mark.parametrize("later", [(1, 0), (1, 1)])
def test_a_second_sum_of_a_round_is_refused(kind: str, later: tuple[int, int]) -> None:
    holder = _holder(kind)
    _ask(holder, _sum(kind))
    frame = _ask(holder, _sum(kind, 4), *later)
    assert frame.kind is wire.Kind.FAILURE
    assert b"a second sum for round 1 was not opened" in bytes(frame.body)


@BOTH
def test_a_sum_of_an_earlier_round_is_refused(kind: str) -> None:
    holder = _holder(kind)
    _ask(holder, _sum(kind), 7)
    assert _ask(holder, _sum(kind), 6).kind is wire.Kind.FAILURE


@BOTH
def test_a_round_that_was_tried_again_is_opened(kind: str) -> None:
    assert _ask(_holder(kind), _sum(kind), 1, attempt=2).kind is wire.Kind.OPENED


@BOTH
def test_another_layout_is_refused(kind: str) -> None:
    holder = _holder(kind)
    _ask(holder, _sum(kind))
    frame = _ask(holder, _sum(kind, length=LENGTH + 1), 2)
    assert frame.kind is wire.Kind.FAILURE
    assert b"another layout" in bytes(frame.body)


@BOTH
def test_a_sum_of_another_key_is_refused(kind: str) -> None:
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    vector = stranger.encrypt(np.zeros(LENGTH), layout(LENGTH, 256)) * 3
    frame = _ask(_holder(kind), vector)
    assert frame.kind is wire.Kind.FAILURE
    assert b"encrypted with key" in bytes(frame.body)


@BOTH
def test_a_damaged_sum_is_refused(kind: str) -> None:
    vector = _sum(kind)
    rows = vector.rows.copy()
    rows[0] = 0
    assert _ask(_holder(kind), replace(vector, rows=rows)).kind is wire.Kind.FAILURE


@AUTHORITY
def test_a_forged_sum_tells_nothing_of_its_content(kind: str) -> None:
    """A slot pushed beyond its range must not come back in the words of the refusal; a share has no content to tell."""
    key, secret = _key(kind), 0.1234567
    honest = key.encrypt(np.full(LENGTH, secret), layout(LENGTH, key.bits)) * 3
    slots = honest.layout.slots
    push = sum(1 << (honest.layout.slot_bits * (slot + 1) - 1) for slot in range(slots - 1))
    forged = replace(
        honest, rows=key.ring.affine([(honest.rows, 1)], 0, times=np.repeat(key.encrypt(push).row, len(honest.rows), 0))
    )
    holder = _holder(kind)
    frame = _ask(holder, forged)
    assert frame.kind is wire.Kind.FAILURE
    assert b"nothing of it is told" in bytes(frame.body)
    assert not any(character.isdigit() for character in bytes(frame.body).decode())
    assert _ask(holder, _sum(kind)).kind is wire.Kind.FAILURE  # the round is used up: no second guess


@BOTH
def test_the_public_key_is_told_and_nothing_else_is_answered(kind: str) -> None:
    holder, turn = _holder(kind), wire.Turn(round_number=0)
    assert wire.unpack(holder.answer(wire.pack(wire.Kind.KEY, turn, b""))).kind is wire.Kind.KEY
    with pytest.raises(WireError, match="a key holder does nothing else"):
        holder.answer(wire.pack(wire.Kind.CIPHER, turn, b""))


@BOTH
def test_a_holder_that_starts_anew_remembers_what_it_opened(kind: str) -> None:
    first, vector = _holder(kind), _sum(kind)
    assert first.memory == b""
    assert _ask(first, vector).kind is wire.Kind.OPENED
    if kind == "authority":
        again: KeyHolder = Authority(private=key_pair()[1], minimum_clients=3, memory=first.memory)
    else:
        again = ShareHolder(share=key_shares()[0], minimum_clients=3, memory=first.memory)
    assert _ask(again, vector).kind is wire.Kind.OPENED
    assert _ask(again, _sum(kind, summands=4)).kind is wire.Kind.FAILURE
    assert _ask(again, _sum(kind, length=LENGTH + 1), round_number=2).kind is wire.Kind.FAILURE  # another layout
    assert _ask(again, _sum(kind), round_number=2).kind is wire.Kind.OPENED


@pytest.mark.parametrize("memory", [b"{", b"[]", b'{"round": 1}', b'{"round":1,"attempt":0,"digest":"","layout":"00"}'])
def test_a_damaged_memory_is_refused(memory: bytes) -> None:
    with pytest.raises(KeysError, match="can't be read"):
        Authority(private=key_pair()[1], minimum_clients=3, memory=memory)
