"""The numbers of ``004_a69ec1a5888a3c07.txt`` on ElGamal, as they stand there: milliseconds. Nothing here is ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stages:
    """One line of its table of stages, and how often it repeated the measurement."""

    repeats: int
    key: float
    encrypt: float
    decrypt: float


STAGES: Mapping[int, Stages] = {  # by the bits of the key
    64: Stages(repeats=1000, key=5.74, encrypt=0.049, decrypt=0.040),
    128: Stages(repeats=100, key=36.93, encrypt=0.132, decrypt=0.095),
    256: Stages(repeats=10, key=431.81, encrypt=0.698, decrypt=0.300),
    512: Stages(repeats=3, key=6826.95, encrypt=1.928, decrypt=1.001),
    1024: Stages(repeats=1, key=119515.77, encrypt=9.002, decrypt=5.000),
}

KEY_BEFORE: Mapping[int, float | None] = {  # with p - 1 factored; None is "用时过长", too long
    64: 7.97,
    128: 1868.80,
    256: 102292.40,
    512: None,
    1024: None,
}

BATCH = 1000
PER_MESSAGE: Mapping[int, tuple[float, float]] = {  # a key each, one key
    64: (6.24, 0.097),
    128: (47.52, 0.350),
    256: (463.81, 0.851),
}

LEFT, RIGHT, PRODUCT = 5, 24, 120
PRODUCT_REPEATS = 1000
TWO_DECRYPTIONS, ONE_DECRYPTION = 0.194, 0.101  # the length of the key is not stated

MESSAGE, MESSAGE_BITS = 123456, 128  # encrypted several times
