r"""Proofs that a partial decryption was made with the share that the dealer gave out.

The holder of :math:`s_i` shows that :math:`X^{s_i} = Y` and :math:`v^{s_i} = v_i` have the same exponent (Chaum and
Pedersen 1992, made non-interactive with a hash by Fiat and Shamir 1986, in the squares modulo n by Shoup 2000), where

.. math:: X = \prod_j x_j^{4 \Delta \rho_j}, \qquad Y = \prod_j y_j^{2 \rho_j}

join all rows of a vector: :math:`x_j` are the ciphertexts modulo n, :math:`y_j = x_j^{2 \Delta s_i}` the rows of the
partial decryption, :math:`\rho_j` 128 bits each from a hash of all of them. So a vector has one proof, not one per
ciphertext (:mod:`tacit.crypto.threshold.batch` says why that is enough). Squaring removes the elements of order two,
and the combination raises to even powers, so a sign that was changed neither matters nor passes for a wrong share.

The proof is the challenge :math:`h` and the response :math:`z = k + h s_i` with a nonce k of 512 bits more than the
secret: z is distributed like k up to :math:`2^{-256}`, and tells nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gmpy2

from tacit.crypto.rows import Rows, from_integers, to_integers
from tacit.crypto.threshold.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.randomness import system_below

if TYPE_CHECKING:
    from tacit.crypto.threshold.public import ThresholdPublic

CHALLENGE_BYTES = 32

_NONCE_BITS = 2 * 8 * CHALLENGE_BYTES  # beyond the secret: one half for the challenge, one to hide


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The challenge, a SHA-256 digest, and the response."""

    challenge: bytes
    response: int


def response_bytes(width: int) -> int:
    """Return how many bytes the longest response has where n has ``width``."""
    return width + _NONCE_BITS // 8 + 1


def prove(public: ThresholdPublic, index: int, secret: int, ciphertext: bytes, bases: Rows, rows: Rows) -> Proof:
    r"""Prove that ``rows`` are the ``bases`` to the power of :math:`2 \Delta` times the secret of share ``index``.

    Args:
        public: the public part of the key.
        index: the number of the share.
        secret: the share itself.
        ciphertext: the digest of what is decrypted.
        bases: the ciphertexts modulo n.
        rows: the partial decryption.
    """
    ring = public.key.residues
    statement = _statement(public, index, ciphertext, rows)
    joined = pow(combined(ring, bases, _exponents(statement, len(rows))), 4 * public.delta, ring.modulus)
    nonce = system_below(1 << (public.bits + _NONCE_BITS))
    starts = from_integers([joined, public.verifier], ring.width)
    commitments = to_integers(ring.power(starts, nonce, secret=True, workers=1))
    challenge = _challenge(public, statement, commitments)
    return Proof(challenge=challenge, response=nonce + int.from_bytes(challenge, "big") * secret)


def holds(public: ThresholdPublic, index: int, ciphertext: bytes, bases: Rows, rows: Rows, proof: Proof) -> bool:
    r"""Return whether a proof holds: :math:`h = H(\ldots, X^z Y^{-h}, v^z v_i^{-h})`."""
    if not 0 <= proof.response < 1 << (8 * response_bytes(public.key.residues.width)):
        return False
    ring, n = public.key.residues, public.key.n
    statement = _statement(public, index, ciphertext, rows)
    exponents = _exponents(statement, len(rows))
    joined = pow(combined(ring, bases, exponents), 4 * public.delta, n)
    shown = pow(combined(ring, rows, exponents), 2, n)
    challenge = int.from_bytes(proof.challenge, "big")
    starts = from_integers([joined, public.verifier], ring.width)
    raised = to_integers(ring.power(starts, proof.response, secret=False, workers=1))
    ends = (shown, public.verifiers[index - 1])
    commitments = [int(a * gmpy2.powmod(b, -challenge, n) % n) for a, b in zip(raised, ends, strict=True)]
    return hmac.compare_digest(proof.challenge, _challenge(public, statement, commitments))


def _statement(public: ThresholdPublic, index: int, ciphertext: bytes, rows: Rows) -> bytes:
    """Return the digest of everything that is claimed; the key's identity covers n, v and all v_i."""
    running = hashlib.sha256(b"tacit threshold proof 2: statement\n" + public.identity + ciphertext)
    running.update(index.to_bytes(8, "big") + len(rows).to_bytes(8, "big"))
    running.update(rows.tobytes())
    return running.digest()


def _exponents(statement: bytes, count: int) -> Rows:
    stream = hashlib.shake_256(b"tacit threshold proof 2: exponents\n" + statement)
    return coefficients(stream.digest(count * COEFFICIENT_BYTES))


def _challenge(public: ThresholdPublic, statement: bytes, commitments: list[int]) -> bytes:
    width = public.key.residues.width
    shown = b"".join(number.to_bytes(width, "big") for number in commitments)
    return hashlib.sha256(b"tacit threshold proof 2: challenge\n" + statement + shown).digest()
