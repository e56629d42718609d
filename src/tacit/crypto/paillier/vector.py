"""An encrypted vector: packed ciphertexts as one contiguous array, with the key and the layout they belong to."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import gmpy2
import numpy as np

from tacit.crypto.layout import Layout
from tacit.crypto.rows import Rows, in_blocks, not_below, zeros
from tacit.errors import CipherError

if TYPE_CHECKING:
    from tacit.crypto.paillier.public import Noise, PublicKey

_MAGIC = b"TCTC"
_VERSION = 1
_FACTS = struct.Struct(">4sB32sQ37s")  # magic, version, key, summands, layout
_DIGEST_BYTES = 16
HEADER_BYTES = _FACTS.size + _DIGEST_BYTES


@dataclass(frozen=True, kw_only=True, eq=False)
class CiphertextVector:
    """The sum of ``summands`` encrypted vectors of one layout under one key.

    ``a + b`` adds, and ``a * k`` with a positive integer is the sum of k times the same vector. :func:`total` adds many
    at once. Sums are malleable and deterministic: call :meth:`rerandomised` before a sum is shown to anyone who knows
    its parts.

    Attributes:
        clipped: how many numbers of an own vector were clipped when it was encrypted. It does not travel.
    """

    key: PublicKey
    layout: Layout
    summands: int
    rows: Rows
    clipped: int = 0

    def __add__(self, other: CiphertextVector) -> CiphertextVector:
        return total([self, other])

    def __mul__(self, times: int) -> CiphertextVector:
        if not isinstance(times, int):
            return NotImplemented
        if times < 1:
            raise CipherError(
                f"An encrypted vector can be multiplied with a whole number of at least 1, not with {times}. Scale or "
                "negate before encryption."
            )
        summands = self._checked(self.summands * times)
        return replace(self, rows=self.key.ring.power(self.rows, times, secret=False), summands=summands)

    __rmul__ = __mul__

    @property
    def nbytes(self) -> int:
        """The length of :meth:`to_bytes`."""
        return HEADER_BYTES + self.rows.nbytes

    def rerandomised(self, *, noise: Noise | None = None, workers: int | None = None) -> CiphertextVector:
        """Return the same sum in ciphertexts that can't be linked with these."""
        fresh = (self.key if noise is None else noise).take(len(self.rows), workers=workers)
        return replace(self, rows=self.key.ring.multiply(self.rows, fresh, workers=workers))

    def to_bytes(self) -> bytes:
        """Return the vector as it travels: key, count of summands, layout, a digest, equally long ciphertexts.

        The digest finds damage, in the header and in the ciphertexts. It stops no forger: only an authenticated
        connection does.
        """
        facts = _FACTS.pack(_MAGIC, _VERSION, self.key.identity, self.summands, self.layout.to_bytes())
        body = self.rows.tobytes()
        return b"".join([facts, _digest(facts, body), body])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, key: PublicKey, *, units: bool = True) -> CiphertextVector:
        """Read and validate a vector: its key, its exact length, 0 < c < n^2 and gcd(c, n) = 1 for every ciphertext.

        Args:
            data: what :meth:`to_bytes` returned.
            key: the key it has to be of.
            units: whether to look for common divisors with n now; :func:`total` looks at the sum of all at once.
        """
        if len(data) < HEADER_BYTES:
            raise CipherError(f"Expected at least {HEADER_BYTES} bytes of an encrypted vector, got {len(data)}.")
        magic, version, identity, summands, layout_bytes = _FACTS.unpack_from(data)
        if magic != _MAGIC:
            raise CipherError(f"Expected an encrypted vector, which starts with {_MAGIC!r}, got {magic!r}.")
        if version != _VERSION:
            raise CipherError(f"Expected version {_VERSION} of encrypted vectors, got {version}.")
        if identity != key.identity:
            raise CipherError(
                f"The vector is encrypted with key {identity.hex(':')[:23]}…, expected {key.fingerprint[:23]}… . Use "
                "the key it was made with."
            )
        layout = Layout.from_bytes(layout_bytes)
        if layout.key_bits != key.bits:
            raise CipherError(f"The layout is for keys of {layout.key_bits} bits, and this one has {key.bits}.")
        if not 1 <= summands <= layout.summands:
            raise CipherError(f"The vector claims {summands} summands, expected 1 to {layout.summands}.")
        width = key.ring.width
        expected = HEADER_BYTES + layout.rows * width
        if len(data) != expected:
            raise CipherError(
                f"Expected {expected} bytes ({layout.rows} ciphertexts of {width} bytes), got {len(data)}: the vector "
                "is cut off or damaged."
            )
        view = memoryview(data)
        if view[_FACTS.size : HEADER_BYTES] != _digest(view[: _FACTS.size], view[HEADER_BYTES:]):
            raise CipherError(
                "The vector's bytes do not have the digest they came with: it is damaged. Ask for it again."
            )
        rows = np.frombuffer(data, np.uint8, offset=HEADER_BYTES).reshape(-1, width)
        for wrong, what in ((zeros(rows), "0"), (not_below(rows, key.square), "not below n^2")):
            if len(wrong):
                raise CipherError(f"Ciphertext {wrong[0]} of {len(rows)} is {what}, which no encryption gives.")
        vector = cls(key=key, layout=layout, summands=summands, rows=rows)
        if units:
            vector.check_units()
        return vector

    def check_units(self) -> None:
        """Raise CipherError where a ciphertext has a divisor in common with n; one gcd for all."""
        if gmpy2.gcd(self.key.ring.fold(self.rows), self.key.n) != 1:
            raise CipherError("A ciphertext has a divisor in common with n, which no encryption gives: it is forged.")

    def _checked(self, summands: int) -> int:
        if summands > self.layout.summands:
            raise CipherError(
                f"The sum would have {summands} summands, and the layout has room for {self.layout.summands}. Make the "
                "layout for more summands before encrypting."
            )
        return summands


def _digest(facts: bytes | memoryview, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(facts)
    digest.update(body)
    return digest.digest()[:_DIGEST_BYTES]


def total(
    vectors: Sequence[CiphertextVector], *, check_units: bool = False, workers: int | None = None
) -> CiphertextVector:
    """Return the sum of many vectors of one key and one layout.

    Args:
        vectors: at least one.
        check_units: look for common divisors with n in the sum, which has one as soon as any summand has.
        workers: how many cores to use; by default all.
    """
    if not vectors:
        raise CipherError("Expected at least one encrypted vector to add, got none.")
    first = vectors[0]
    for place, vector in enumerate(vectors[1:], 1):
        if vector.key != first.key:
            raise CipherError(f"Vector {place} is of another key than the first: their sum would mean nothing.")
        if vector.layout != first.layout:
            raise CipherError(f"Vector {place} has {vector.layout}, expected {first.layout} as the first has.")
    summands = first._checked(sum(vector.summands for vector in vectors))
    ring = first.key.ring
    rows = in_blocks(
        len(first.rows), lambda part: ring.product([vector.rows[part] for vector in vectors], workers=workers)
    )
    added = CiphertextVector(key=first.key, layout=first.layout, summands=summands, rows=rows)
    if check_units:
        added.check_units()
    return added
