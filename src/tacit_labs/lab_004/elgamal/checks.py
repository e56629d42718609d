"""Whether products under encryption are right, and what ciphertexts of one number look like to an outsider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.elgamal import Ciphertext, PublicKey
from tacit.crypto.elgamal.insecure import InsecureTextbookElGamal, leaked_symbol
from tacit.crypto.ring import Rows, to_integers
from tacit.randomness import system_below
from tacit_labs.harness.checks import Case, Check, judge, short
from tacit_labs.lab_004.elgamal.measured import Guesses, Looks, View

BUCKETS = 20
UNUSUAL = 1e-4  # uniform numbers look less even than this once in ten thousand runs
FAR = 4.0  # standard deviations, once in sixteen thousand


class Decrypts(Protocol):
    """Whoever has the private key."""

    def decrypt(self, ciphertext: Ciphertext) -> int:
        """Return the integer."""


def products(public: PublicKey, private: Decrypts, *, random: int) -> tuple[Check, ...]:
    """Try encryption, products and powers on small and large integers; beyond q they wrap around, up to the sign."""
    p, q = public.group.p, public.group.q
    small = [(1, 1), (6, 7), (1, 1000), (255, 255)]
    small += [(1 + system_below(1000), 1 + system_below(1000)) for _ in range(random)]
    large = [(q, 1), (q, q), (q - 1, 2)]
    large += [(1 + system_below(q), 1 + system_below(q)) for _ in range(random)]
    checks = []
    for name, pairs in (("small, up to 10 bits", small), (f"large, up to {q.bit_length()} bits", large)):
        kept: list[Case] = []
        multiplied: list[Case] = []
        raised: list[Case] = []
        hidden: list[Case] = []
        for a, b in pairs:
            left, right = public.encrypt(a), public.encrypt(b)
            words, expected = f"{short(a)} × {short(b)}", folded(a * b, p)
            kept.append((short(a), private.decrypt(left), a))
            multiplied.append((words, private.decrypt(left * right), expected))
            raised.append((f"{short(a)} to the power 3", private.decrypt(left**3), folded(a**3, p)))
            hidden.append((words, private.decrypt((left * right).rerandomised()), expected))
        checks += [
            judge("encrypt, decrypt", name, kept),
            judge("multiply", name, multiplied),
            judge("power 3", name, raised),
            judge("multiply, re-randomise", name, hidden),
        ]
    return tuple(checks)


def folded(number: int, p: int) -> int:
    """Return the integer from 1 to (p - 1) / 2 that a product stands for: modulo p, up to the sign.

    >>> folded(42, 23), folded(6 * 7, 1019)
    (4, 42)
    """
    residue = number % p
    return min(residue, p - residue)


def randomness(public: PublicKey, *, message: int, count: int) -> Looks:
    """Encrypt one number many times and look at the ciphertexts as an outsider would.

    Uniform looks are necessary and prove nothing: that ciphertexts can't be told apart rests on the decisional
    Diffie-Hellman assumption.
    """
    made = public.encrypt_many([message] * count, workers=1)
    pairs = {(bytes(a), bytes(b)) for a, b in zip(made.first, made.second, strict=True)}
    return Looks(
        count=count,
        message=message,
        bits=public.group.bits,
        different=len(pairs),
        halves={
            "g^r": view(made.first, public.group.p),
            "m y^r": view(made.second, public.group.p),
        },
    )


def view(rows: Rows, p: int) -> View:
    """Return statistics of numbers below p that should be uniform.

    The share of [0, p) that each number falls into, the share of ones among the lower bits, the values of the bytes,
    and how many bits differ from one number to the next.
    """
    numbers = to_integers(rows)
    places = np.array([int(number * BUCKETS // p) for number in numbers])
    buckets = np.bincount(places, minlength=BUCKETS)
    lower = rows[:, 8:]  # the highest bits of a number below p are not uniform where p is no power of two
    bits = np.unpackbits(lower, axis=1)
    flips = (bits[1:] != bits[:-1]).sum(axis=1)
    ones = float(bits.mean())
    return View(
        buckets=buckets.tolist(),
        bucket_p=chi_square(buckets),
        ones=ones,
        ones_z=(ones - 0.5) * 2 * math.sqrt(bits.size),
        byte_p=chi_square(np.bincount(lower.ravel(), minlength=256)),
        lower_bits=int(bits.shape[1]),
        flips_mean=float(flips.mean()),
        flips_z=(float(flips.mean()) / bits.shape[1] - 0.5) * 2 * math.sqrt(flips.size * bits.shape[1]),
        flips=flips.tolist(),
    )


def chi_square(observed: NDArray[np.int64] | Sequence[int]) -> float:
    """Return how likely uniform counts are to look at least as uneven as these (Pearson 1900).

    >>> chi_square([100, 100, 100]), chi_square([300, 0, 0]) < 1e-9
    (1.0, True)
    """
    from scipy.stats import chi2

    counts = np.asarray(observed, np.float64)
    expected = counts.sum() / len(counts)
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def symbols(public: PublicKey, *, count: int) -> Guesses:
    """Guess from public values alone whether encrypted numbers are squares, with a textbook's key and with ours."""
    group = public.group
    book = InsecureTextbookElGamal.generate(group)
    textbook = tacit = 0
    for _ in range(count):
        message = 1 + system_below(group.q)
        square = group.holds(message)
        guess = leaked_symbol(book.p, book.y, book.encrypt(message)) == 1
        textbook += guess == square
        made = public.encrypt(message)
        pair = to_integers(made.first)[0], to_integers(made.second)[0]
        tacit += (leaked_symbol(group.p, public.y, pair) == 1) == square
    return Guesses(count=count, textbook=textbook, tacit=tacit)
