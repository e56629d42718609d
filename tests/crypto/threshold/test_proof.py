from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import randomness
from tacit.crypto.ring import from_integers, to_integers
from tacit.crypto.threshold import KeyShare, PartialDecryption, Proof, ThresholdPublic
from tacit.crypto.threshold import partial as partials
from tacit.crypto.threshold.partial import digest
from tests.crypto.threshold.common import SMALL, dealt, order_of

PUBLIC, SHARES = dealt(5, 3)
N = PUBLIC.key.n
LONG = PUBLIC.key.encrypt(np.arange(100))  # more than a few ciphertexts
SHORT = PUBLIC.key.encrypt(np.arange(9))
BASES = {vector: from_integers([c % N for c in to_integers(vector.rows)], 32) for vector in (LONG, SHORT)}


def holds(partial: PartialDecryption, vector: object = LONG, index: int | None = None) -> bool:
    bases = BASES[vector]  # type: ignore[index]
    assert partial.proof is not None
    return partials.holds(
        PUBLIC, partial.index if index is None else index, partial.ciphertext, bases, partial.rows, partial.proof
    )


def checked_by_hand(public: ThresholdPublic, partial: PartialDecryption, bases: list[int]) -> bool:
    """Verify with Python's integers and a transcript written down again."""
    n, width, proof, rows = public.key.n, 32, partial.proof, to_integers(partial.rows)
    assert proof is not None
    claims = b"tacit threshold proof 2: statement\n" + public.identity + partial.ciphertext
    claims += partial.index.to_bytes(8, "big") + len(rows).to_bytes(8, "big") + partial.rows.tobytes()
    statement = hashlib.sha256(claims).digest()
    stream = hashlib.shake_256(b"tacit threshold proof 2: exponents\n" + statement).digest(16 * len(rows))
    rho = [int.from_bytes(stream[16 * j : 16 * j + 16], "big") for j in range(len(rows))]
    x = y = 1
    for base, row, exponent in zip(bases, rows, rho, strict=True):
        x, y = x * pow(base, 4 * public.delta * exponent, n) % n, y * pow(row, 2 * exponent, n) % n
    h = int.from_bytes(proof.challenge, "big")
    a = pow(x, proof.response, n) * pow(y, -h, n) % n
    b = pow(public.verifier, proof.response, n) * pow(public.verifiers[partial.index - 1], -h, n) % n
    shown = a.to_bytes(width, "big") + b.to_bytes(width, "big")
    return hashlib.sha256(b"tacit threshold proof 2: challenge\n" + statement + shown).digest() == proof.challenge


@pytest.mark.parametrize("vector", [LONG, SHORT])
@pytest.mark.parametrize("share", SHARES)
def test_an_honest_proof_holds(share: KeyShare, vector: object) -> None:
    partial = share.partial(vector, prove=True)  # type: ignore[arg-type]
    assert holds(partial, vector)
    assert checked_by_hand(PUBLIC, partial, to_integers(BASES[vector]))  # type: ignore[index]


def test_it_is_one_proof_however_long_the_vector() -> None:
    lengths = {len(SHARES[0].partial(v, prove=True).to_bytes()) - len(SHARES[0].partial(v).to_bytes()) for v in BASES}
    assert lengths == {32 + 32 + 64 + 1 + PUBLIC.spare_bits // 8}


def test_proofs_are_fresh() -> None:
    first, second = (SHARES[0].partial(SHORT, prove=True).proof for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.challenge != second.challenge
    assert first.response != second.response


@pytest.mark.parametrize("vector", [LONG, SHORT])
def test_any_changed_row_is_found(vector: object) -> None:
    partial = SHARES[1].partial(vector, prove=True)  # type: ignore[arg-type]
    for place in range(0, len(partial.rows), 7):
        rows = partial.rows.copy()
        rows[place, -1] ^= 1
        assert not holds(replace(partial, rows=rows), vector)
    assert not holds(replace(partial, rows=partial.rows[::-1].copy()), vector)


def forged(rows: list[int], vector: object = LONG) -> PartialDecryption:
    """Return what a holder who wants these rows to pass can do best: prove its true exponent for them."""
    share, width = SHARES[2], 32
    bound = digest(vector)  # type: ignore[arg-type]
    made = from_integers(rows, width)
    proof = partials.prove(PUBLIC, share.index, share.secret, bound, BASES[vector], made)  # type: ignore[index]
    return PartialDecryption(identity=PUBLIC.identity, index=3, ciphertext=bound, rows=made, proof=proof)


@pytest.mark.parametrize("vector", [LONG, SHORT])
def test_a_holder_can_not_prove_rows_of_another_exponent(vector: object) -> None:
    honest = to_integers(SHARES[2].partial(vector).rows)  # type: ignore[arg-type]
    assert holds(forged(honest, vector), vector)
    assert not holds(forged([pow(y, 3, N) for y in honest], vector), vector)
    for place in range(len(honest)):
        assert not holds(forged([*honest[:place], honest[place] * 4 % N, *honest[place + 1 :]], vector), vector)


def test_errors_that_cancel_in_the_plain_product_are_found() -> None:
    honest = to_integers(SHARES[2].partial(LONG).rows)
    shift = pow(7, 2, N)
    pair = [honest[0] * shift % N, honest[1] * pow(shift, -1, N) % N, *honest[2:]]
    assert not holds(forged(pair))


def test_another_sign_is_no_other_share() -> None:
    """Signs vanish in the even powers of a combination, so a proof may hold with them."""
    honest = to_integers(SHARES[2].partial(LONG).rows)
    turned = forged([N - honest[0], *honest[1:]])
    assert holds(turned)
    others = [SHARES[0].partial(LONG, prove=True), SHARES[1].partial(LONG, prove=True)]
    result = PUBLIC.combine(LONG, [*others, turned], verify=True)
    assert (result.value.tolist(), result.wrong) == (list(range(100)), ())


def test_a_proof_belongs_to_its_share_its_ciphertext_and_its_key() -> None:
    partial = SHARES[0].partial(LONG, prove=True)
    assert not holds(partial, index=2)
    assert not holds(replace(partial, ciphertext=bytes(32)))
    assert not holds(replace(partial, proof=SHARES[0].partial(SHORT, prove=True).proof))
    assert not holds(replace(partial, proof=SHARES[1].partial(LONG, prove=True).proof))
    again = PUBLIC.key.encrypt(np.arange(100))
    assert not holds(replace(partial, rows=SHARES[0].partial(again).rows))
    assert partial.proof is not None
    other, _ = dealt(5, 4)
    assert not partials.holds(other, 1, partial.ciphertext, BASES[LONG], partial.rows, partial.proof)


@pytest.mark.parametrize("change", [1, -1, 2**255, -(2**255)])
def test_another_response_does_not_hold(change: int) -> None:
    partial = SHARES[0].partial(LONG, prove=True)
    assert partial.proof is not None
    assert not holds(replace(partial, proof=replace(partial.proof, response=partial.proof.response + change)))


def test_responses_outside_the_range_do_not_hold() -> None:
    """Adding the order, or taking it away, is right in the exponent; only numbers that can be written count."""
    partial, order = SHARES[0].partial(SHORT, prove=True), order_of(SMALL)
    assert partial.proof is not None
    limit = 1 << (8 * partials.response_bytes(32, PUBLIC.spare_bits))
    for response in (
        partial.proof.response - (1 << 1200) * order,
        partial.proof.response + limit // order * order + order,
    ):
        assert not holds(replace(partial, proof=replace(partial.proof, response=response)), SHORT)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 255))
def test_no_other_challenge_holds(bit: int) -> None:
    partial = SHARES[4].partial(SHORT, prove=True)
    assert partial.proof is not None
    challenge = bytearray(partial.proof.challenge)
    challenge[bit // 8] ^= 1 << bit % 8
    assert not holds(replace(partial, proof=replace(partial.proof, challenge=bytes(challenge))), SHORT)


@pytest.mark.parametrize("challenge", [b"", bytes(31), bytes(32), bytes(33)])
def test_made_up_proofs_do_not_hold(challenge: bytes) -> None:
    partial = SHARES[0].partial(SHORT)
    for response in (0, 1, 2**700):
        assert not holds(replace(partial, proof=Proof(challenge=challenge, response=response, length=200)), SHORT)


def test_the_nonce_hides_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nonce has 256 bits more than challenge times share, from the operating system, anew for every proof."""
    bounds: list[int] = []

    def watched(bound: int) -> int:
        bounds.append(bound)
        return randomness.system_below(bound)

    monkeypatch.setattr(partials, "system_below", watched)
    for _ in range(2):
        SHARES[0].partial(SHORT, prove=True)
    assert len(bounds) == 2
    assert all(bound >= SHARES[0].secret * 2**512 for bound in bounds)
