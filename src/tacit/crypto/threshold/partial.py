r"""One holder's part of a decryption, as it travels to whoever combines, and the proof that it is right.

**Proofs.** The holder of :math:`s_i` shows that :math:`X^{s_i} = Y` and :math:`v^{s_i} = v_i` have the same exponent
(Chaum and Pedersen 1992, made non-interactive with a hash by Fiat and Shamir 1986, in the squares modulo n by Shoup
2000), where

.. math:: X = \prod_j x_j^{4 \Delta \rho_j}, \qquad Y = \prod_j y_j^{2 \rho_j}

join all rows of a vector: :math:`x_j` are the ciphertexts modulo n, :math:`y_j = x_j^{2 \Delta s_i}` the rows of the
partial decryption, :math:`\rho_j` 128 bits each from a hash of all of them. So a vector has one proof, not one per
ciphertext (why that is enough is said below). Squaring removes the elements of order two,
and the combination raises to even powers, so a sign that was changed neither matters nor passes for a wrong share.

The proof is the challenge :math:`h` and the response :math:`z = k + h s_i` with a nonce k of 512 bits more than the
longest secret: z is distributed like k up to :math:`2^{-256}`, and tells nothing.

**Many equations in one** (:mod:`tacit.crypto.batch`). If some :math:`z_j = a_j / b_j` of two rows that have to be equal
is not one, then whatever the other exponents are, at most one :math:`\rho_j` modulo the order of :math:`z_j` makes the
products equal. Here all :math:`z_j` are squares modulo a product of two safe primes 2p'+1
and 2q'+1, where every order but one is at least the smaller of p' and q': both are longer than 128 bits for every key
that may be used, so the chance is at most :math:`2^{-128}`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gmpy2
import numpy as np

from tacit.crypto.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.crypto.paillier import Ciphertext, CiphertextVector, PublicKey
from tacit.crypto.ring import Rows, from_integers, not_below, to_integers, zeros
from tacit.errors import CipherError
from tacit.randomness import system_below

if TYPE_CHECKING:
    from tacit.crypto.threshold.public import ThresholdPublic

CHALLENGE_BYTES = 32

_MAGIC = b"TCTS"
_VERSION = 3
_HEADER = struct.Struct(">4sBB32s32sHI")  # magic, version, whether proved, key, ciphertext, share, count of rows
NONCE_BITS = 2 * 8 * CHALLENGE_BYTES  # beyond the secret: one half for the challenge, one to hide


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The challenge, a SHA-256 digest, and the response."""

    challenge: bytes
    response: int
    length: int  # bytes of the response as it travels: as many as the longest has

    def to_bytes(self) -> bytes:
        """Return the response as it travels."""
        return self.response.to_bytes(self.length, "big")


@dataclass(frozen=True, kw_only=True, eq=False)
class PartialDecryption:
    r"""The ciphertexts of one vector, or of one integer, to the power of :math:`2 \Delta s_i`, modulo n.

    Attributes:
        identity: the identity of the threshold key.
        index: the number of the share.
        ciphertext: the digest of what is decrypted; see :func:`digest`.
        rows: one number below n per ciphertext.
        proof: that they were made with this share, where the holder was asked for one.
    """

    identity: bytes
    index: int
    ciphertext: bytes
    rows: Rows
    proof: Proof | None = None

    def check(self, public: ThresholdPublic) -> None:
        """Raise CipherError where the numbers can't be a partial decryption under this key; one gcd for all."""
        if self.identity != public.identity:
            raise CipherError(
                f"Share {self.index} is of the threshold key {self.identity.hex(':')[:23]}…, expected "
                f"{public.fingerprint[:23]}… . Ask the holder to use the share of this key."
            )
        if not 1 <= self.index <= public.shares:
            raise CipherError(f"There is no share {self.index}: this key has shares 1 to {public.shares}.")
        n, width = public.key.n, public.key.residues.width
        if self.rows.ndim != 2 or self.rows.shape[1] != width or self.rows.dtype != np.uint8 or not len(self.rows):
            raise CipherError(
                f"Share {self.index} has rows of shape {self.rows.shape}, expected numbers of {width} bytes."
            )
        for wrong, what in ((zeros(self.rows), "0"), (not_below(self.rows, n), "not below n")):
            if len(wrong):
                raise CipherError(
                    f"Number {wrong[0]} of {len(self.rows)} of share {self.index} is {what}, which no partial "
                    "decryption gives: it is forged or damaged."
                )
        if gmpy2.gcd(public.key.residues.fold(self.rows), n) != 1:
            raise CipherError(f"A number of share {self.index} has a divisor in common with n: it is forged.")

    def to_bytes(self) -> bytes:
        """Return the partial decryption as it travels: header, rows of equal length, and the proof if there is one."""
        header = _HEADER.pack(
            _MAGIC,
            _VERSION,
            self.proof is not None,
            self.identity,
            self.ciphertext,
            self.index,
            len(self.rows),
        )
        if self.proof is None:
            return header + self.rows.tobytes()
        return header + self.rows.tobytes() + self.proof.challenge + self.proof.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, public: ThresholdPublic) -> PartialDecryption:
        """Read and validate: the key, the exact length, the share's number, and that every number is a unit below n.

        Whether it is right is seen when it is combined.

        Args:
            data: what :meth:`to_bytes` returned.
            public: the threshold key it has to be of.
        """
        if len(data) < _HEADER.size:
            raise CipherError(f"Expected at least {_HEADER.size} bytes of a partial decryption, got {len(data)}.")
        magic, version, proved, identity, ciphertext, index, count = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise CipherError(f"Expected a partial decryption, which starts with {_MAGIC!r}, got {magic!r}.")
        if version != _VERSION:
            raise CipherError(
                f"Expected version {_VERSION} of partial decryptions, got {version}: it was made by another version of "
                "Tacit. Ask the holder for one made by this version."
            )
        if proved > 1:
            raise CipherError(f"Expected 0 or 1 for whether a partial decryption has a proof, got {proved}.")
        width = public.key.residues.width
        end = _HEADER.size + count * width
        expected = partial_bytes(public.key, count, proved=bool(proved), spare_bits=public.spare_bits)
        if len(data) != expected or not count:
            raise CipherError(
                f"Expected {expected} bytes ({count} numbers of {width} bytes{', and a proof' if proved else ''}), "
                f"got {len(data)}: the partial decryption is empty, cut off or damaged."
            )
        rows = np.frombuffer(data, np.uint8, offset=_HEADER.size, count=count * width).reshape(count, width)
        proof = None
        if proved:
            tail = bytes(data[end:])
            challenge, response = tail[:CHALLENGE_BYTES], tail[CHALLENGE_BYTES:]
            proof = Proof(challenge=challenge, response=int.from_bytes(response, "big"), length=len(response))
        partial = cls(identity=identity, index=index, ciphertext=ciphertext, rows=rows, proof=proof)
        partial.check(public)
        return partial


def partial_bytes(key: PublicKey, rows: int, *, proved: bool, spare_bits: int) -> int:
    """Return the length of a partial decryption of so many ciphertexts as it travels.

    Args:
        key: that encrypted.
        rows: how many ciphertexts.
        proved: whether a proof comes with it.
        spare_bits: how much longer than n a share can be, see :func:`tacit.crypto.threshold.public.spare_bits`.
    """
    width = key.residues.width
    return _HEADER.size + rows * width + (CHALLENGE_BYTES + response_bytes(width, spare_bits) if proved else 0)


def digest(ciphertext: Ciphertext | CiphertextVector) -> bytes:
    """Return the SHA-256 digest of a ciphertext and all that says how to read it: key, layout, count of summands."""
    if isinstance(ciphertext, CiphertextVector):
        return hashlib.sha256(b"tacit encrypted vector\n" + ciphertext.to_bytes()).digest()
    if isinstance(ciphertext, Ciphertext):
        content = ciphertext.key.identity + ciphertext.row.tobytes()
        return hashlib.sha256(b"tacit encrypted integer\n" + content).digest()
    raise CipherError(f"Expected an encrypted integer or vector, got {type(ciphertext).__name__}.")


def rows_of(ciphertext: Ciphertext | CiphertextVector) -> Rows:
    """Return the rows of a vector, or the one row of an integer."""
    return ciphertext.rows if isinstance(ciphertext, CiphertextVector) else ciphertext.row


def response_bytes(width: int, spare_bits: int) -> int:
    """Return how many bytes the longest response has where n has ``width``, and shares ``spare_bits`` more."""
    return width + (spare_bits + NONCE_BITS) // 8 + 1


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
    nonce = system_below(1 << (public.bits + public.spare_bits + NONCE_BITS))
    starts = from_integers([joined, public.verifier], ring.width)
    commitments = to_integers(ring.power(starts, nonce, secret=True, workers=1))
    challenge = _challenge(public, statement, commitments)
    response = nonce + int.from_bytes(challenge, "big") * secret
    return Proof(challenge=challenge, response=response, length=response_bytes(ring.width, public.spare_bits))


def holds(public: ThresholdPublic, index: int, ciphertext: bytes, bases: Rows, rows: Rows, proof: Proof) -> bool:
    r"""Return whether a proof holds: :math:`h = H(\ldots, X^z Y^{-h}, v^z v_i^{-h})`."""
    if not 0 <= proof.response < 1 << (8 * response_bytes(public.key.residues.width, public.spare_bits)):
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
