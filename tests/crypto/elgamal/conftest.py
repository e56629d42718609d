from __future__ import annotations

import pytest

from tacit.crypto import elgamal
from tacit.crypto.groups import Group, own
from tacit.crypto.primes import safe_prime

Pair = tuple[elgamal.PublicKey, elgamal.PrivateKey]


@pytest.fixture(scope="session")
def group() -> Group:
    """A group of 256 bits: every form of arithmetic, and quick."""
    return own(safe_prime(256), insecure_key_size=True)


@pytest.fixture(scope="session")
def pair(group: Group) -> Pair:
    return elgamal.generate(group, insecure_key_size=True)


@pytest.fixture(scope="session")
def real() -> Pair:
    return elgamal.generate("ffdhe2048")
