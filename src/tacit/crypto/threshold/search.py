"""The search for wrong shares without proofs: which of them agree?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import gmpy2

from tacit.crypto.rows import Rows
from tacit.crypto.threshold.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.crypto.threshold.interpolation import weights
from tacit.errors import CipherError
from tacit.randomness import system_below, system_bytes

if TYPE_CHECKING:
    from tacit.crypto.threshold.public import ThresholdPublic

_SELECTIONS = 1000  # at 2048 bits 10 ms each with 12 holders, 65 ms with 100


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
