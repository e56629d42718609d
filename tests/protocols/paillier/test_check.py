"""A key authority that lies about a sum, and servers and clients that lie about the check that tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tacit import wire
from tacit.crypto.ring import from_integers
from tacit.errors import CipherError, DropoutError
from tacit.protocols.paillier.check import Check, check_row, told_of
from tests.protocols.paillier.run import LENGTH, Run, refused
from tests.protocols.paillier.test_sum import Federation, _only
from tests.protocols.test_conformance import encrypted, key_pair, layout

SUMS = 8 * 40  # bytes of the sums in an answer, for the vectors of a federation in test_sum


def _lying(change: Callable[[bytes], bytes]) -> Federation:
    """Return a federation whose authority changes what it says."""

    def lied(replies: dict[int, bytes]) -> dict[int, bytes]:
        frame = wire.unpack(replies[-1])
        return {**replies, -1: wire.pack(wire.Kind.OPENED, frame.turn, change(bytes(frame.body)))}

    return Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.OPEN, lied))  # type: ignore[arg-type]


def _one_more(body: bytes) -> bytes:
    sums = np.frombuffer(body[:SUMS], "<i8").copy()
    sums[7] += 1
    return sums.tobytes() + body[SUMS:]


def _own_check(body: bytes) -> bytes:
    return _one_more(body)[:SUMS] + told_of(12345, key_pair()[0])


@pytest.mark.parametrize(
    "change",
    [
        _one_more,
        _own_check,
        lambda body: bytes(SUMS) + body[SUMS:],
        lambda body: (np.frombuffer(body[:SUMS], "<i8") // 2).tobytes() + body[SUMS:],
        lambda body: body[8:SUMS] + body[:8] + body[SUMS:],
        lambda body: body[:SUMS] + bytes(32),
    ],
    ids=["one unit", "one unit and a check of its own", "nothing", "half", "in another order", "no check"],
)
def test_an_authority_that_tells_another_sum_is_caught(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(DropoutError, match=r"Key holder 1 .*does not bear the check"):
        _lying(change).sum()


@pytest.mark.parametrize("change", [lambda body: body[:SUMS], lambda body: body + b"x"])
def test_an_answer_of_another_length_is_refused(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(DropoutError, match=f"expected {SUMS + 32}"):
        _lying(change).sum()


def test_an_answer_of_another_round_does_not_pass_for_this_ones() -> None:
    """With other clients' vectors the sums differ, and with the same ones the seed does."""
    run = Run("authority")
    first, second = (run.opening(run.replies(number)) for number in (1, 2))
    answers = []
    for number, opening in ((1, first), (2, second)):
        request = wire.pack(wire.Kind.OPEN, wire.Turn(round_number=number), opening.to_bytes())
        answers.append(bytes(wire.unpack(run.holders[-1].answer(wire.unpack(request))).body))
    assert answers[0] == answers[1]  # the same seed and vectors
    sums = np.frombuffer(answers[0][: 8 * LENGTH], "<i8").astype(np.int64)
    run.check.compare(sums, answers[0][8 * LENGTH :], layout(LENGTH, 256), 4, run.session.key)
    with pytest.raises(CipherError, match="does not bear"):
        Check.drawn(bytes(32)).compare(sums, answers[0][8 * LENGTH :], layout(LENGTH, 256), 4, run.session.key)


def test_the_server_draws_a_seed_for_every_try() -> None:
    federation = Federation(encrypted(1, "authority"))
    federation.sum()
    federation.sum()
    tasks = [frame for frame in map(wire.unpack, federation.frames) if frame.kind is wire.Kind.TASK]
    told = [wire.unpack_task(frame).told for frame in tasks]
    assert len(told) == 8
    assert len(set(told)) == 2
    assert {len(seed) for seed in told} == {32}


def test_the_authority_is_never_told_a_seed() -> None:
    federation = Federation(encrypted(1, "authority"))
    federation.sum()
    frames = [wire.unpack(frame) for frame in federation.frames]
    tasks = [frame for frame in frames if frame.kind is wire.Kind.TASK]
    ((seed, asked),) = {(wire.unpack_task(frame).told, wire.bound_to(frame, b"")) for frame in tasks}
    shown = [bytes(frame.body) for frame in frames if frame.kind in wire.FOR_HOLDERS]
    assert any(Check(seed=seed, asked=asked).digest in body for body in shown)
    assert not any(seed in body for body in shown)


# A server that lies about the check


def test_clients_that_were_told_different_seeds_are_not_opened_together() -> None:
    """Factors of its choice for one client and none for the others would have the check hold that client's row."""
    run = Run("authority")
    replies = {client: run.reply(client) for client in (0, 1, 2)}
    honest, run.check = run.check, Check.drawn(run.check.asked)
    replies[3] = run.reply(3)
    for named in (honest, run.check):
        run.check = named
        run.holders[-1]._register.last = None  # so that the round is not used up by the first try
        assert refused(run.ask(run.opening(replies)), "nothing of it is told")


def test_a_check_that_no_client_was_told_opens_nothing() -> None:
    run = Run("authority")
    opening = run.opening(run.replies())
    assert refused(run.ask(replace(opening, check=bytes(32) + opening.check[32:])), "nothing of it is told")


def test_what_is_hidden_in_the_check_is_not_told() -> None:
    """Any number passes for a check: a ciphertext that the server hides in it must not come back."""
    run = Run("authority")
    key, opening = run.session.key, run.opening(run.replies())
    secret = 987_654_321
    row = np.frombuffer(opening.check[32:], np.uint8)[None]
    hidden = key.ring.multiply(row, key.encrypt(secret).row).tobytes()
    request = wire.pack(
        wire.Kind.OPEN, wire.Turn(round_number=1), replace(opening, check=opening.check[:32] + hidden).to_bytes()
    )
    body = bytes(wire.unpack(run.holders[-1].answer(wire.unpack(request))).body)
    assert len(body) == 8 * LENGTH + 32
    units = np.frombuffer(body[: 8 * LENGTH], "<i8").astype(np.int64)
    borne = run.check.of(layout(LENGTH, 256).packed(units, 4), 4, key)
    assert body[8 * LENGTH :] == told_of((borne + secret) % key.n, key)  # a digest: who knows the secret can tell


@pytest.mark.parametrize("row", [0, "n", "factor", "beyond"])
def test_a_check_that_is_no_ciphertext_is_refused(row: int | str) -> None:
    key, private = key_pair()
    number = {"n": key.n, "factor": private.p, "beyond": key.square + 1, 0: 0}[row]
    data = from_integers([number], key.ring.width).tobytes()
    with pytest.raises(CipherError, match="no ciphertext of this key"):
        check_row(data, key)
    run = Run("authority")
    opening = run.opening(run.replies())
    assert refused(run.ask(replace(opening, check=opening.check[:32] + data)), "no ciphertext of this key")


# Clients that lie


def test_a_clients_wrong_check_spoils_the_round_and_nothing_is_used() -> None:
    def wrong(replies: dict[int, bytes]) -> dict[int, bytes]:
        frame = wire.unpack(replies[2])
        width = key_pair()[0].ring.width
        key, row = key_pair()[0], np.frombuffer(frame.body[-width:], np.uint8)[None]
        body = bytes(frame.body[:-width]) + key.ring.multiply(row, key.encrypt(1).row).tobytes()
        return {**replies, 2: wire.pack(wire.Kind.CIPHER, frame.turn, body)}

    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.TASK, wrong))  # type: ignore[arg-type]
    with pytest.raises(DropoutError, match="does not bear the check"):
        federation.sum()


def test_an_authority_that_a_client_told_the_seed_can_lie() -> None:
    """What does not hold, and is stated."""
    run = Run("authority")
    key, check = run.session.key, run.check
    sums = np.full(LENGTH, 77, np.int64)
    borne = check.of(layout(LENGTH, 256).packed(sums, 4), 4, key)
    check.compare(sums, told_of(borne, key), layout(LENGTH, 256), 4, key)


@pytest.mark.parametrize("told", [b"", bytes(31), bytes(33)])
def test_a_client_that_is_told_no_seed_answers_nothing(told: bytes) -> None:
    run = Run("authority")
    task = wire.Task(turn=wire.Turn(round_number=1), model=np.zeros(1, np.float32), told=told)
    frame = wire.unpack(run._answer(0, wire.pack_task(task)))
    assert wire.unpack_failure(frame)[0] is wire.Failure.REFUSED


def test_checks_add_as_vectors_do() -> None:
    key, check, form = key_pair()[0], Check.drawn(bytes(32)), layout(LENGTH, 256)
    draw = np.random.default_rng(3)
    vectors = [draw.integers(-form.bound, form.bound, LENGTH) for _ in range(3)]
    single = sum(check.of(form.packed(vector, 1), 1, key) for vector in vectors) % key.n
    assert single == check.of(form.packed(np.sum(vectors, axis=0), 3), 3, key)
    others = [check.of(form.packed(vector, 1), 1, key) for vector in vectors]
    assert all(a != b for a, b in itertools.combinations([single, *others], 2))
    np.testing.assert_array_equal(form.sums(form.packed(vectors[0], 1), 1), vectors[0])
