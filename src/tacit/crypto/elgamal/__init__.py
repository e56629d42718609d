"""ElGamal in the squares modulo a safe prime: numbers that multiply, and counts that add, under encryption.

>>> from tacit.crypto import elgamal
>>> public, private = elgamal.generate("ffdhe2048")  # ffdhe3072 is the default
>>> private.decrypt(public.encrypt(20) * public.encrypt(22))
440
>>> votes = elgamal.total([public.encrypt_counts([1, 0]), public.encrypt_counts([1, 1])])
>>> private.decrypt_counts(votes.rerandomised(), bound=100).tolist()
[2, 1]
>>> private.decrypt_bytes(public.encrypt_bytes(b"a key to wrap"))
b'a key to wrap'

It has no packing: use it for counts, votes, key wrapping and teaching, and Paillier for models.
"""

from tacit.crypto.elgamal.ciphertext import Ciphertext, product
from tacit.crypto.elgamal.counts import LARGEST_COUNT, EncryptedCounts, total
from tacit.crypto.elgamal.keys import (
    ASSUMPTIONS,
    DEFAULT_GROUP,
    KIND,
    Exponents,
    PrivateKey,
    PublicKey,
    exponent_bits,
    generate,
)

__all__ = [
    "ASSUMPTIONS",
    "DEFAULT_GROUP",
    "KIND",
    "LARGEST_COUNT",
    "Ciphertext",
    "EncryptedCounts",
    "Exponents",
    "PrivateKey",
    "PublicKey",
    "exponent_bits",
    "generate",
    "product",
    "total",
]
