"""Keys of fixed primes, and the scheme as a textbook has it, in Python's own integers."""

from __future__ import annotations

import functools
import math

from tacit.crypto import paillier
from tacit.crypto.paillier import Ciphertext, PrivateKey, PublicKey
from tacit.crypto.ring import from_integers, to_integers

P, Q = 0xCCA99ADF3602A28913D79199646D9157, 0xF5C2E98B43F0F2ED3AE95A117685240B
OTHER_P, OTHER_Q = 0xFAB818E2998721A3D4AC335D733C2913, 0xF6E4E44F0819FF4359E9D876806E43BF
FEW_P, FEW_Q = 5780238979, 5482357571  # 2 * 3 divides the one less one, 2 * 5 the other
BASE = 2


def pair(p: int, q: int, *, order_p: int | None = None, order_q: int | None = None) -> tuple[PublicKey, PrivateKey]:
    """Return the key pair of two primes, with noise of the given orders modulo each."""
    n, order_p, order_q = p * q, order_p or p - 1, order_q or q - 1
    cofactor = (p - 1) // order_p * ((q - 1) // order_q)
    h = pow(-pow(BASE, 2 * cofactor, n) % n, n, n * n)
    public = PublicKey(n=n, h=h)
    return public, PrivateKey(public=public, p=p, q=q, order_p=order_p, order_q=order_q)


PUBLIC, PRIVATE = pair(P, Q)
OTHER_PUBLIC, OTHER_PRIVATE = pair(OTHER_P, OTHER_Q)
FEW_PUBLIC, FEW_PRIVATE = pair(FEW_P, FEW_Q, order_p=6, order_q=10)  # its noise is a group of 30


@functools.cache
def subgroup_pair() -> tuple[PublicKey, PrivateKey]:
    """Return a subgroup key of the smallest size that has one."""
    return paillier.generate(bits=1024, kind="subgroup", insecure_key_size=True)


def textbook_encrypt(message: int, r: int, *, n: int = P * Q) -> int:
    return pow(1 + n, message, n * n) * pow(r, n, n * n) % (n * n)


def textbook_decrypt(ciphertext: int, *, p: int = P, q: int = Q) -> int:
    n, exponent = p * q, math.lcm(p - 1, q - 1)
    quotient = (pow(ciphertext, exponent, n * n) - 1) // n
    message = quotient * pow((pow(1 + n, exponent, n * n) - 1) // n, -1, n) % n
    return message - n if message > n // 2 else message


def number(ciphertext: Ciphertext) -> int:
    (value,) = to_integers(ciphertext.row)
    return value


def ciphertext(value: int, *, key: PublicKey = PUBLIC) -> Ciphertext:
    return Ciphertext(key=key, row=from_integers([value], key.ring.width))
