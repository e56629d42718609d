r"""The combination of partial decryptions, and the search for wrong ones.

From :math:`y_i = x^{2 \Delta s_i}` of t holders, with the whole weights of interpolation :math:`\mu_i` and D,

.. math:: w = \prod_i y_i^{2 \mu_i} = x^{4 D \Delta f(0)}, \qquad w^n = x^{4 D \Delta} \bmod n,

since n f(0) is one modulo the order of the squares. Modulo n squared, :math:`w^n` is the noise of :math:`c^F` with
:math:`F = 4 D \Delta`, so :math:`c^F w^{-n} = 1 + F M n`, and M follows by an exact division by n and by F modulo n.
That the left side is one modulo n is the test that :math:`w^n` is what it has to be: no other w passes.

Where it fails, proofs tell whose share is wrong; without proofs :func:`agreeing` searches for those that agree.
Interpolation is at zero and with whole numbers only, since nobody can divide by what they want in a secret exponent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, TypeVar

import gmpy2
import numpy as np

from tacit.crypto.backend import backend
from tacit.crypto.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.crypto.paillier import Ciphertext, CiphertextVector
from tacit.crypto.ring import Rows, from_integers, widened
from tacit.crypto.threshold.partial import PartialDecryption, digest, holds, rows_of
from tacit.errors import CipherError
from tacit.randomness import system_below, system_bytes

if TYPE_CHECKING:
    from tacit.crypto.threshold.public import ThresholdPublic

Value = TypeVar("Value")

_SELECTIONS = 1000  # at 2048 bits 10 ms each with 12 holders, 65 ms with 100


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
        raise CipherError(f"Given more than once: {numbered(twice)}. Give one partial decryption per holder.")
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


def agreeing(
    public: ThresholdPublic, bases: Rows, shares: Mapping[int, Rows], *, sure: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return t shares that combine, and those that do not agree with them.

    All rows are joined with random exponents first, so a selection costs one power modulo n, however long the
    vector is. There are at most a thousand: all of them in turn, or as many at random, in an order that nobody can
    prepare for. To find the right ones among many is decoding in the exponent, which is hard (Peikert 2006): where
    several of many holders may lie, let them prove.

    Args:
        public: the public part of the key.
        bases: the ciphertexts modulo n.
        shares: the partial decryptions by their numbers.
        sure: those whose proofs hold.

    Raises:
        CipherError: where no selection combines, or there is none to try or too many.
    """
    n, t, ring = public.key.n, public.threshold, public.key.residues
    rest = sorted(index for index in shares if index not in sure)
    sure = sure[:t]
    missing = t - len(sure)
    exponents = coefficients(system_bytes(len(bases) * COEFFICIENT_BYTES))
    base = combined(ring, bases, exponents)
    joined = {index: combined(ring, rows, exponents) for index, rows in shares.items()}

    def combines(selection: Iterable[int]) -> bool:
        common, factors = weights(selection)
        power = gmpy2.mpz(1)
        for index, factor in factors.items():
            power = power * gmpy2.powmod(joined[index], 2 * factor, n) % n
        return bool(gmpy2.powmod(power, n, n) == gmpy2.powmod(base, 4 * common * public.delta, n))

    number = math.comb(len(rest), missing)
    for some in _selections(rest, missing, number):
        chosen = tuple(sorted((*sure, *some)))
        if combines(chosen):
            kept = [index for index in chosen if index != (some or sure)[0]]
            others = [index for index in rest if index not in chosen]
            return chosen, tuple(index for index in others if not combines((*kept, index)))
    if number == 1:
        raise CipherError(
            f"One of {numbered(rest)} is wrong, or more of them. Ask for proofs (prove=True) to learn which, or for "
            "another holder's share."
        )
    if number > _SELECTIONS:
        raise CipherError(
            f"Of {numbered(shares)} several are wrong: none of {_SELECTIONS} selections of {t} combines, of {number}. "
            "Ask for proofs (prove=True) to learn which."
        )
    raise CipherError(
        f"Of {numbered(shares)} fewer than {t} are right: no selection combines. Ask for proofs (prove=True) to learn "
        "which, or for other holders' shares."
    )


def _selections(numbers: Sequence[int], count: int, possible: int) -> Iterator[tuple[int, ...]]:
    if possible <= _SELECTIONS:
        yield from itertools.combinations(numbers, count)
        return
    for _ in range(_SELECTIONS):
        left = list(numbers)
        yield tuple(left.pop(system_below(len(left))) for _ in range(count))


def numbered(shares: Iterable[int]) -> str:
    """Return the numbers of shares for people.

    >>> numbered([3, 1]), numbered([2]), numbered([])
    ('shares 1, 3', 'share 2', 'no share')
    """
    numbers = sorted(set(shares))
    if not numbers:
        return "no share"
    return f"share{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def weights(indices: Iterable[int]) -> tuple[int, dict[int, int]]:
    r"""Return the least D > 0 and the whole :math:`\mu_i` with :math:`\sum_i \mu_i f(i) = D f(0)`.

    This holds for every polynomial f of a degree below the number of indices, with
    :math:`\mu_i = D \prod_{j \ne i} j / (j - i)` (Lagrange). D divides the factorial of the largest index
    (Shoup 2000, lemma 1), and is mostly much smaller.

    >>> weights([1, 2, 3])
    (1, {1: 3, 2: -3, 3: 1})
    >>> weights([1, 3, 5])
    (8, {1: 15, 3: -10, 5: 3})
    """
    places = sorted(indices)
    exact = {i: math.prod((Fraction(j, j - i) for j in places if j != i), start=Fraction(1)) for i in places}
    common = math.lcm(*(weight.denominator for weight in exact.values()))
    return common, {i: int(weight * common) for i, weight in exact.items()}
