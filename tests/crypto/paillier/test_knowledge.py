"""Proofs of knowledge: what holds, what is refused, what two answers give away, and that one gives away nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.crypto import ring
from tacit.crypto.batch import COEFFICIENT_BYTES
from tacit.crypto.paillier import NoisePool, PublicKey, knowledge
from tacit.crypto.paillier.knowledge import Claim, KnownNoise, Proof, encrypted, proof_bytes, unproved
from tacit.crypto.ring import Rows, from_integers, random_below, to_integers
from tacit.errors import CipherError
from tests.crypto.paillier.common import PRIVATE, PUBLIC, subgroup_pair

N, SQUARE = PUBLIC.n, PUBLIC.square
NOISE = KnownNoise(key=PUBLIC)


def _claim(count: int = 3, *, messages: Sequence[int] | None = None, context: bytes = b"for this") -> Claim:
    given = random_below(N, count) if messages is None else from_integers(messages, PUBLIC.residues.width)
    rows, proof = encrypted(PUBLIC, given, context, noise=NOISE)
    return Claim(rows=rows, context=context, proof=proof)


def _holds(claim: Claim, key: PublicKey = PUBLIC) -> bool:
    return unproved(key, [claim]) == []


@pytest.mark.parametrize("count", [1, 3, 40])
def test_what_was_encrypted_by_somebody_who_knows_it_is_proved(count: int) -> None:
    messages = random_below(N, count)
    rows, proof = encrypted(PUBLIC, messages, b"for this", noise=NOISE)
    assert to_integers(PRIVATE.open(rows)) == to_integers(messages)
    read = Proof.from_bytes(proof.to_bytes(PUBLIC), PUBLIC)
    assert read == proof
    assert _holds(Claim(rows=rows, context=b"for this", proof=read))


def test_keys_with_other_exponents_prove_too() -> None:
    key = subgroup_pair()[0]
    rows, proof = encrypted(key, random_below(key.n, 2), b"", noise=KnownNoise(key=key))
    assert len(proof.to_bytes(key)) == proof_bytes(key)
    assert _holds(Claim(rows=rows, context=b"", proof=proof), key)


def test_noise_may_come_from_a_pool_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "BLOCK", 4)
    pool = NoisePool(NOISE)
    pool.fill(7, wait=True)
    rows, proof = encrypted(PUBLIC, random_below(N, 10), b"", noise=pool)
    assert len(pool) == 0
    assert _holds(Claim(rows=rows, context=b"", proof=proof))
    with pytest.raises(ValueError, match="use a KnownNoise"):
        encrypted(PUBLIC, random_below(N, 2), b"", noise=PUBLIC)


# What it is bound to


def test_a_proof_is_worth_nothing_for_anything_else() -> None:
    claim, other = _claim(), _claim()
    proof = claim.proof
    wrong = [
        replace(claim, context=b"for that"),
        replace(claim, context=b"for thi"),
        replace(claim, proof=other.proof),
        replace(claim, rows=other.rows),
        replace(claim, rows=claim.rows[::-1]),
        replace(claim, rows=claim.rows[:2]),
        replace(claim, rows=np.concatenate([claim.rows, from_integers([1], PUBLIC.ring.width)])),
        replace(claim, rows=PUBLIC.ring.multiply(claim.rows, PUBLIC.take(1))),  # the same content
        replace(claim, proof=replace(proof, message=(proof.message + 1) % N)),
        replace(claim, proof=replace(proof, noise=proof.noise + 1)),
        replace(claim, proof=replace(proof, commitment=SQUARE - proof.commitment)),
        replace(claim, proof=replace(proof, commitment=proof.commitment * (1 + N) % SQUARE)),
    ]
    assert _holds(claim)
    assert unproved(PUBLIC, [*wrong, claim]) == list(range(len(wrong)))
    assert not _holds(claim, replace(PUBLIC, h=pow(PUBLIC.h, 3, SQUARE)))


def test_errors_that_cancel_are_found_and_only_the_wrong_are_named() -> None:
    """Without exponents of the verifier's own, the product of both equations would hold."""
    claims = [_claim(2) for _ in range(5)]
    for place, error in ((1, 1), (3, N - 1)):
        proof = claims[place].proof
        claims[place] = replace(claims[place], proof=replace(proof, message=(proof.message + error) % N))
    assert unproved(PUBLIC, claims) == [1, 3]
    assert unproved(PUBLIC, []) == []


def test_what_is_known_to_hold_is_not_looked_at_again_and_nothing_else_passes_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, known = _claim(), set[bytes]()
    assert unproved(PUBLIC, [right], known=known) == []
    assert len(known) == 1
    looked: list[Claim] = []
    raised = knowledge._raised

    def looking(key: PublicKey, claim: Claim, *more: Any) -> int:
        looked.append(claim)
        return raised(key, claim, *more)

    monkeypatch.setattr(knowledge, "_raised", looking)
    assert unproved(PUBLIC, [right, replace(right)], known=known) == []
    assert looked == []
    proof = right.proof
    wrong = [
        replace(right, proof=replace(proof, message=(proof.message + 1) % N)),
        replace(right, proof=replace(proof, noise=proof.noise + 1)),
        replace(right, context=b"for that"),
        replace(right, rows=right.rows[::-1]),
    ]
    for _ in range(2):  # what does not hold is not remembered
        assert unproved(PUBLIC, [right, *wrong], known=known) == [1, 2, 3, 4]
    assert len(known) == 1
    monkeypatch.setattr(knowledge, "_MOST_HOLD", 3)
    for _ in range(10):
        assert unproved(PUBLIC, [_claim(1)], known=known) == []
        assert len(known) <= 3


# What somebody can try who has others' ciphertexts


def _inverse(rows: Rows) -> Rows:
    return PUBLIC.ring.inverse(rows)


@pytest.mark.parametrize("kind", ["copied", "inverse", "doubled", "blinded", "shifted"])
def test_what_is_made_of_anothers_ciphertexts_is_not_proved(kind: str) -> None:
    theirs, own = _claim(context=b"theirs"), _claim(context=b"own")
    multiply = PUBLIC.ring.multiply
    made = {
        "copied": theirs.rows,
        "inverse": _inverse(theirs.rows),
        "doubled": multiply(theirs.rows, theirs.rows),
        "blinded": multiply(theirs.rows, PUBLIC.take(3)),
        "shifted": multiply(own.rows, _inverse(theirs.rows)),
    }[kind]
    for proof in (own.proof, theirs.proof):  # its own and the other's, which it has seen
        assert not _holds(Claim(rows=made, context=b"own", proof=proof))
    knows = to_integers(PRIVATE.open(own.rows))  # its own numbers: it answers as if the rest were not there
    zeros = np.zeros((3, -(-PUBLIC.noise_bits // 8)), np.uint8)
    messages = from_integers(knows, PUBLIC.residues.width)
    assert not _holds(Claim(rows=made, context=b"own", proof=knowledge._proved(PUBLIC, messages, zeros, made, b"own")))


def _related(theirs: int, challenges: Sequence[int]) -> list[int]:
    """Return two rows made of another's ciphertext that cancel under known challenges."""
    first, second = challenges
    return [pow(theirs, second, SQUARE), pow(theirs, -first, SQUARE)]


def test_rows_chosen_after_the_challenges_are_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weak form of Fiat and Shamir's hash, which leaves the statement out, would let this pass."""
    theirs = to_integers(_claim(1).rows)[0]
    claim = _claim(messages=[0, 0])
    commitment, context = claim.proof.commitment, claim.context
    hashed = to_integers(knowledge._challenges(knowledge._bound(PUBLIC, claim.rows, context, commitment), 2))
    assert len(set(hashed)) == 2
    assert max(hashed).bit_length() > 100
    made = [a * b % SQUARE for a, b in zip(to_integers(claim.rows), _related(theirs, hashed), strict=True)]
    forged = replace(claim, rows=from_integers(made, PUBLIC.ring.width))
    assert not _holds(forged)
    monkeypatch.setattr(knowledge, "_challenges", lambda *_: from_integers(hashed, COEFFICIENT_BYTES))
    assert _holds(forged)


def test_a_commitment_chosen_after_the_challenges_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it does not know: the inverse of another's row. A hash without the commitment would let this pass."""
    rows = _inverse(_claim(1).rows)
    challenge = 0x1234 << 100
    message, noise = 5, 7
    power = pow(to_integers(rows)[0], -challenge, SQUARE)
    commitment = (1 + message * N) * pow(PUBLIC.h, noise, SQUARE) * power % SQUARE
    forged = Claim(rows=rows, context=b"", proof=Proof(commitment=commitment, message=message, noise=noise))
    assert not _holds(forged)
    monkeypatch.setattr(knowledge, "_challenges", lambda *_: from_integers([challenge], COEFFICIENT_BYTES))
    assert _holds(forged)


# Two answers tell what is in a row, and one tells nothing


def test_who_answers_two_challenges_knows_what_is_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extractor of the docstring, played: same commitment, challenges that differ in one place."""
    messages = random_below(N, 3)
    rows = PUBLIC.encrypt_rows(messages)
    power = knowledge._long_power(PUBLIC)
    monkeypatch.setattr(knowledge, "_long_power", lambda _: power)
    monkeypatch.setattr(knowledge, "system_below", lambda _: 12345)
    answers = []
    for challenges in ([11, 22, 33], [11, 1 << 127, 33]):
        monkeypatch.setattr(knowledge, "_challenges", lambda *_, c=challenges: from_integers(c, COEFFICIENT_BYTES))
        exponents = np.zeros((3, -(-PUBLIC.noise_bits // 8)), np.uint8)
        answers.append(knowledge._proved(PUBLIC, messages, exponents, rows, b"").message)
    difference = (answers[0] - answers[1]) * pow(22 - (1 << 127), -1, N) % N
    assert difference == to_integers(messages)[1]


def test_one_answer_is_spread_over_all_numbers_whatever_the_message() -> None:
    longest = PUBLIC.noise_bits + knowledge._low_bits(PUBLIC)
    assert longest - (PUBLIC.noise_bits + 8 * COEFFICIENT_BYTES + 32) >= 128  # beyond what it hides
    for message in (0, N - 1):
        proofs = [_claim(messages=[message]).proof for _ in range(60)]
        shares = np.array([[p.message / N, p.noise / 2**longest] for p in proofs])
        assert np.abs(shares.mean(axis=0) - 0.5).max() < 5 / np.sqrt(12 * len(proofs))
        assert len({p.commitment for p in proofs}) == len({p.noise for p in proofs}) == len(proofs)


def test_the_long_power_is_a_power() -> None:
    for key in (PUBLIC, subgroup_pair()[0]):
        exponent, power = knowledge._long_power(key)
        assert pow(key.h, exponent, key.square) == power


# What can't be read


@pytest.mark.parametrize("kind", ["empty", "short", "long", "zero", "square", "message", "ones"])
def test_a_proof_that_no_prover_sends_is_refused(kind: str) -> None:
    data = _claim().proof.to_bytes(PUBLIC)
    wide, width = PUBLIC.ring.width, PUBLIC.residues.width
    wrong = {
        "empty": b"",
        "short": data[:-1],
        "long": data + b"\0",
        "zero": bytes(wide) + data[wide:],
        "square": SQUARE.to_bytes(wide, "big") + data[wide:],
        "message": data[:wide] + N.to_bytes(width, "big") + data[wide + width :],
        "ones": b"\xff" * len(data),
    }[kind]
    with pytest.raises(CipherError, match=r"proof of knowledge"):
        Proof.from_bytes(wrong, PUBLIC)


def test_a_commitment_or_row_without_inverse_is_not_proved() -> None:
    claim = _claim()
    prime = PRIVATE.p
    assert not _holds(replace(claim, proof=replace(claim.proof, commitment=prime)))
    assert not _holds(replace(claim, rows=from_integers([prime] * 3, PUBLIC.ring.width)))
