r"""The combination of partial decryptions.

From :math:`y_i = x^{2 \Delta s_i}` of t holders, with the whole weights of interpolation :math:`\mu_i` and D,

.. math:: w = \prod_i y_i^{2 \mu_i} = x^{4 D \Delta f(0)}, \qquad w^n = x^{4 D \Delta} \bmod n,

since n f(0) is one modulo the order of the squares. Modulo n squared, :math:`w^n` is the noise of :math:`c^F` with
:math:`F = 4 D \Delta`, so :math:`c^F w^{-n} = 1 + F M n`, and M follows by an exact division by n and by F modulo n.
That the left side is one modulo n is the test that :math:`w^n` is what it has to be: no other w passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import gmpy2
import numpy as np

from tacit.crypto.backend import backend
from tacit.crypto.paillier import Ciphertext, CiphertextVector
from tacit.crypto.rows import Rows, from_integers, widened
from tacit.crypto.threshold.interpolation import weights
from tacit.crypto.threshold.partial import PartialDecryption, digest, rows_of
from tacit.crypto.threshold.proof import holds
from tacit.crypto.threshold.search import agreeing, numbered
from tacit.errors import CipherError

if TYPE_CHECKING:
    from tacit.crypto.threshold.public import ThresholdPublic

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Combined(Generic[Value]):
    """What a combination gave.

    The value is right whoever lied. Who is in ``wrong`` is certain where the proofs were verified. Without proofs,
    shares that agree are told from those that don't: with g shares that agree and a threshold of t, the others are
    the wrong ones unless g - t + 2 holders or more conspired, who would be among those that agree.

    Attributes:
        value: the integer, or the vector.
        used: the numbers of the shares that it was made with.
        wrong: the numbers of the shares found to be wrong.
    """

    value: Value
    used: tuple[int, ...]
    wrong: tuple[int, ...] = ()


def combine(
    public: ThresholdPublic,
    ciphertext: Ciphertext | CiphertextVector,
    partials: Sequence[PartialDecryption],
    *,
    verify: bool,
    workers: int | None,
) -> tuple[Rows, tuple[int, ...], tuple[int, ...]]:
    """Return the plain numbers below n, the shares used, and the wrong ones."""
    bound = digest(ciphertext)
    if ciphertext.key != public.key:
        raise CipherError(
            f"The ciphertext is of key {ciphertext.key.fingerprint[:23]}…, and this threshold key encrypts with "
            f"{public.key.fingerprint[:23]}… . Combine with the key it was made with."
        )
    rows = rows_of(ciphertext)
    held = accepted(public, bound, len(rows), partials)
    if verify:
        unproved = [index for index, partial in held.items() if partial.proof is None]
        if unproved:
            raise CipherError(
                f"Without a proof: {numbered(unproved)}. Ask these holders again, with prove=True, or don't verify."
            )
    else:
        used = tuple(sorted(held))[: public.threshold]
        messages = opened(public, rows, {index: held[index].rows for index in used}, workers=workers)
        if messages is not None:
            return messages, used, ()
    wrong = disproved(public, ciphertext, list(held.values()))
    held = {index: partial for index, partial in held.items() if index not in wrong}
    if len(held) < public.threshold:
        raise CipherError(
            f"The proofs of {numbered(wrong)} don't hold, and {numbered(held)} are fewer than the "
            f"{public.threshold} that are needed. Ask other holders, and these what happened."
        )
    sure = tuple(sorted(index for index, partial in held.items() if partial.proof is not None))
    used = sure[: public.threshold]
    if len(sure) < len(held):
        bases = public.key.residues.affine([(rows, 1)], 0)
        shares = {index: partial.rows for index, partial in held.items()}
        used, others = agreeing(public, bases, shares, sure=sure)
        wrong = tuple(sorted((*wrong, *others)))
    messages = opened(public, rows, {index: held[index].rows for index in used}, workers=workers)
    if messages is None:
        raise CipherError(f"{numbered(used)} don't combine, though nothing is wrong with any: don't use this key.")
    return messages, used, wrong


def accepted(
    public: ThresholdPublic, bound: bytes, count: int, partials: Sequence[PartialDecryption]
) -> dict[int, PartialDecryption]:
    """Return the partial decryptions by their numbers, where there are enough and all are of this ciphertext."""
    strangers = [partial.index for partial in partials if partial.identity != public.identity]
    if strangers:
        raise CipherError(
            f"Of another threshold key than {public.fingerprint[:23]}…: {numbered(strangers)}. Ask these holders to "
            "use their shares of this key."
        )
    for partial in partials:
        partial.check(public)
    others = [partial.index for partial in partials if partial.ciphertext != bound or len(partial.rows) != count]
    if others:
        raise CipherError(
            f"Of another ciphertext than this one: {numbered(others)}. Ask for partial decryptions of this very one, "
            "with its layout and its number of summands."
        )
    held = {partial.index: partial for partial in partials}
    if len(held) < len(partials):
        numbers = [partial.index for partial in partials]
        twice = sorted({index for index in numbers if numbers.count(index) > 1})
        raise CipherError(f"Given more than once: {numbered(twice)}. Give one partial decryption a holder.")
    missing = public.threshold - len(held)
    if missing > 0:
        absent = [index for index in range(1, public.shares + 1) if index not in held]
        raise CipherError(
            f"Got {numbered(held)}, expected {public.threshold} of {public.shares}: {missing} too few. Ask the holders "
            f"of any of {numbered(absent)}."
        )
    return held


def opened(
    public: ThresholdPublic, rows: Rows, shares: Mapping[int, Rows], *, workers: int | None = None
) -> Rows | None:
    """Return the plain numbers that exactly t shares give, or None where one of the shares is wrong."""
    n, ring, residues = public.key.n, public.key.ring, public.key.residues
    common, factors = weights(shares)
    scale = 4 * common * public.delta
    sides: dict[bool, list[Rows]] = {True: [], False: []}
    for index, factor in factors.items():
        sides[factor > 0].append(residues.power(shares[index], 2 * abs(factor), secret=False, workers=workers))
    inverse = residues.inverse(residues.product(sides[True]))
    if sides[False]:
        inverse = residues.multiply(inverse, residues.product(sides[False]))  # 1 / w
    noise = ring.power(widened(inverse, ring.width), n, secret=False, workers=workers)
    scaled = ring.multiply(ring.power(rows, scale, secret=False, workers=workers), noise)  # 1 + F M n
    if not np.array_equal(residues.affine([(scaled, 1)], 0), _ones(len(rows), residues.width)):
        return None
    multiples = backend().quotient(ring.affine([(scaled, 1)], ring.modulus - 1), n)  # F M
    return residues.affine([(multiples, int(gmpy2.invert(scale, n)))], 0)


def _ones(count: int, width: int) -> Rows:
    return np.repeat(from_integers([1], width), count, axis=0)


def disproved(
    public: ThresholdPublic, ciphertext: Ciphertext | CiphertextVector, partials: Sequence[PartialDecryption]
) -> tuple[int, ...]:
    """Return the numbers of the shares whose proofs don't hold; of those without a proof nothing is said."""
    bound, bases = digest(ciphertext), public.key.residues.affine([(rows_of(ciphertext), 1)], 0)
    return tuple(
        sorted(
            partial.index
            for partial in partials
            if partial.proof is not None and not holds(public, partial.index, bound, bases, partial.rows, partial.proof)
        )
    )
