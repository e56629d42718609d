r"""Messages as squares modulo p, so that no ciphertext tells whether its message is a square.

An integer m in [1, q] becomes m where m is a square and p - m where it is not: -1 is no square modulo a safe prime, so
exactly one of the two is. Back, x stands for x where x <= q and for p - x otherwise. This is an isomorphism
from the integers modulo p up to their sign to the group: products of encodings are encodings of products.

The Jacobi symbol takes time that depends on the message: encode where nobody can measure it to the microsecond.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.crypto.groups import Group
from tacit.crypto.ring import Rows, from_integers, not_below, to_integers, width_of, zeros
from tacit.errors import CipherError, ConfigError

_MARK = b"\x01"  # in front of bytes, so that none of their leading zeros is lost


def encode(numbers: Iterable[SupportsIndex], group: Group) -> Rows:
    """Return integers in [1, q] as squares.

    >>> from tacit.crypto.groups import own
    >>> group = own(40127, insecure_key_size=True)
    >>> decode(encode([1, 5, 20063], group), group)
    [1, 5, 20063]
    """
    p, q, squares = group.p, group.q, []
    for place, given in enumerate(numbers):
        try:
            number = operator.index(given)
        except TypeError:
            raise ConfigError(
                f"Message {place} is {given!r}, expected an integer. Scale and round other numbers first."
            ) from None
        if not 1 <= number <= q:
            size = number if abs(number) < 1 << 64 else f"of {number.bit_length()} bits"
            raise ConfigError(
                f"Message {place} is {size}, expected an integer from 1 to q, of {q.bit_length()} bits. 0 and negative "
                "numbers are no part of the group; for counts use encrypt_counts."
            )
        squares.append(number if gmpy2.jacobi(number, p) == 1 else p - number)
    return from_integers(squares, width_of(p))


def decode(rows: Rows, group: Group) -> list[int]:
    """Return the integers in [1, q] that squares stand for."""
    return [number if number <= group.q else group.p - number for number in to_integers(rows)]


def longest_message(group: Group) -> int:
    """Return how many bytes fit one ciphertext."""
    return (group.q.bit_length() - 2) // 8


def number_of(message: bytes, group: Group) -> int:
    """Return a short message as an integer in [1, q]."""
    if len(message) > longest_message(group):
        raise ConfigError(
            f"The message has {len(message)} bytes, expected at most {longest_message(group)} in the group "
            f"{group.name}. Encrypt a random key for a symmetric cipher instead, and the message with that."
        )
    return int.from_bytes(_MARK + message, "big")


def message_of(number: int) -> bytes:
    """Return the message that an integer stands for."""
    raw = number.to_bytes(-(-number.bit_length() // 8), "big")
    if not raw.startswith(_MARK):
        raise CipherError(
            "The ciphertext does not hold bytes: it is of an integer, a product, or was changed on its way."
        )
    return raw[1:]


def strangers(rows: Rows, group: Group) -> NDArray[np.intp]:
    """Return the places of the rows that are no element of the group: 0, not below p, or no square modulo p."""
    outside = np.union1d(zeros(rows), not_below(rows, group.p))
    if len(outside):
        return outside
    raw, width, parse, p = rows.tobytes(), rows.shape[1], gmpy2.mpz.from_bytes, gmpy2.mpz(group.p)
    symbols: Sequence[int] = [
        gmpy2.jacobi(parse(raw[start : start + width], "big"), p) for start in range(0, len(raw), width)
    ]
    return np.flatnonzero(np.array(symbols, np.int8) != 1)
