"""One holder's part of a decryption, as it travels to whoever combines."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gmpy2
import numpy as np

from tacit.crypto.paillier import Ciphertext, CiphertextVector, PublicKey
from tacit.crypto.rows import Rows, not_below, zeros
from tacit.crypto.threshold.proof import CHALLENGE_BYTES, Proof, response_bytes
from tacit.errors import CipherError

if TYPE_CHECKING:
    from tacit.crypto.threshold.public import ThresholdPublic

_MAGIC = b"TCTS"
_VERSION = 2
_HEADER = struct.Struct(">4sBB32s32sHI")  # magic, version, whether proved, key, ciphertext, share, count of rows


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
        response = self.proof.response.to_bytes(response_bytes(self.rows.shape[1]), "big")
        return header + self.rows.tobytes() + self.proof.challenge + response

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
        expected = partial_bytes(public.key, count, proved=bool(proved))
        if len(data) != expected or not count:
            raise CipherError(
                f"Expected {expected} bytes ({count} numbers of {width} bytes{', and a proof' if proved else ''}), "
                f"got {len(data)}: the partial decryption is empty, cut off or damaged."
            )
        rows = np.frombuffer(data, np.uint8, offset=_HEADER.size, count=count * width).reshape(count, width)
        proof = None
        if proved:
            tail = bytes(data[end:])
            proof = Proof(challenge=tail[:CHALLENGE_BYTES], response=int.from_bytes(tail[CHALLENGE_BYTES:], "big"))
        partial = cls(identity=identity, index=index, ciphertext=ciphertext, rows=rows, proof=proof)
        partial.check(public)
        return partial


def partial_bytes(key: PublicKey, rows: int, *, proved: bool) -> int:
    """Return the length of a partial decryption of so many ciphertexts as it travels."""
    width = key.residues.width
    return _HEADER.size + rows * width + (CHALLENGE_BYTES + response_bytes(width) if proved else 0)


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
