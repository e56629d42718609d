"""What the labs' reports say. These numbers are quoted, never measured here; everything else on a page is."""

from __future__ import annotations

from collections.abc import Mapping

SOURCE = "the lab's report"

# Paillier, keys of 1024 bits: 1,000 times two encryptions, their sum and its decryption, seconds by the integers' bits
PAILLIER_KEY_BITS = 1024
PAILLIER_REPEATS = 1000
PAILLIER_EXERCISE: Mapping[int, float] = {10: 16.7, 100: 17.9, 1000: 30.5}

# encrypted learning on MNIST, seconds; the plain epoch ran on an RTX 2080 Ti
CLIENT_ENCRYPTS = 240.0
CLIENT_DECRYPTS = 70.0
ENCRYPTED_EPOCH = 1600.0
PLAIN_EPOCH = 36.0
