"""Groups: the named ones are those of the RFCs and safe, and one's own are checked."""

from __future__ import annotations

import hashlib

import gmpy2
import pytest

from tacit.crypto import groups
from tacit.crypto.groups import NAMES, SAFE_BITS, Group, generate, named, own
from tacit.crypto.primes import is_prime, safe_prime
from tacit.errors import ConfigError, KeysError

# the last 32 digits before the final 64 ones as printed in the RFCs, and SHA-256 of p as OpenSSL's library holds it
KNOWN = {
    "ffdhe2048": (
        "C6F34A26C1B2EFFA886B423861285C97",
        "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
    ),
    "ffdhe3072": (
        "3C1B20EE3FD59D7C25E41D2B66C62E37",
        "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
    ),
    "ffdhe4096": (
        "4DB5A851F44182E1C68A007E5E655F6A",
        "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
    ),
    "ffdhe6144": (
        "A41D570D7938DAD4A40E329CD0E40E65",
        "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
    ),
    "ffdhe8192": (
        "011E2A94838FF88CD68C8BB7C5C6424C",
        "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
    ),
    "modp1536": (
        "670C354E4ABC9804F1746C08CA237327",
        "64fcc83ec403930bf18393dbc883ccaa1fbb08ac876f77f7aa99748ca945019b",
    ),
    "modp2048": (
        "15D2261898FA051015728E5A8AACAA68",
        "d66436f79bbd6b2e38c0ffbd079be904d2641415e2e67140e09448be9a60890e",
    ),
    "modp3072": (
        "43DB5BFCE0FD108E4B82D120A93AD2CA",
        "48cf8b092fbce4359d9871abf74f98e25b6163379eaa15cd9087e800c6d1c55c",
    ),
    "modp4096": (
        "86FFB7DC90A6C08F4DF435C934063199",
        "4ee95187682bcb230ad26a95205f6920e84708f6251b3894329b09ec23919e33",
    ),
    "modp6144": (
        "12BF2D5B0B7474D6E694F91E6DCC4024",
        "d1bfe6d0925ce7e4da262b62861514a7755e35831e429f343e7b864848657efd",
    ),
    "modp8192": (
        "C81F56E880B96E7160C980DD98EDD3DF",
        "39ab4feab950a3128fb71accb9fc3965d857012e081998a85996e3ea8b3c3bcf",
    ),
}
FIRST = {"ffdhe": "ADF85458A2BB4A9AAFDC5620273D3CF1", "modp": "C90FDAA22168C234C4C6628B80DC1CD1"}


def test_all_are_known() -> None:
    assert set(KNOWN) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_digits_are_those_of_the_rfcs(name: str) -> None:
    group = named(name)
    digits = f"{group.p:X}"
    last, digest = KNOWN[name]
    assert digits.startswith("F" * 16 + FIRST[name.rstrip("0123456789")])
    assert digits.endswith(last + "F" * 16)
    assert hashlib.sha256(group.p.to_bytes(group.bits // 8, "big")).hexdigest() == digest
    assert group.bits == int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))


@pytest.mark.parametrize("name", NAMES)
def test_p_and_q_are_prime(name: str) -> None:
    group = named(name)
    if group.bits <= 3072:
        assert is_prime(group.p, rounds=5)
        assert is_prime(group.q, rounds=5)
    else:  # a full test takes seconds: one base each, and with q prime that of p is a proof (Pocklington)
        assert gmpy2.powmod(2, group.q - 1, group.q) == 1
        assert gmpy2.powmod(2, group.p - 1, group.p) == 1


@pytest.mark.parametrize("name", NAMES)
def test_two_generates_the_squares(name: str) -> None:
    group = named(name)
    assert group.g == 2
    assert group.p % 8 == 7
    assert group.holds(2)
    assert not group.holds(group.p - 1)
    assert not group.holds(0)
    assert not group.holds(group.p + 1)
    assert group.insecure == (group.bits < SAFE_BITS)


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="Expected one of ffdhe2048"):
        named("ffdhe1024")


def test_e_and_pi_are_exact() -> None:
    import mpmath

    with mpmath.workprec(3000):
        assert groups._certain(groups._floor_e, 2000) == int(mpmath.floor(mpmath.e * mpmath.mpf(2) ** 2000))
        assert groups._certain(groups._floor_pi, 2000) == int(mpmath.floor(mpmath.pi * mpmath.mpf(2) ** 2000))


def test_own_group_is_checked() -> None:
    p = safe_prime(64)
    group = own(p, insecure_key_size=True)
    assert group.g == 4
    assert group.q == (p - 1) // 2
    assert pow(group.g, group.q, p) == 1
    assert group == own(p, g=4, insecure_key_size=True)
    with pytest.raises(KeysError, match="64 bits is not secure"):
        own(p)
    for g in (0, 1, p - 1, p + 4, -4, next(g for g in range(2, p) if gmpy2.jacobi(g, p) == -1)):
        with pytest.raises(KeysError, match="does not generate the squares"):
            own(p, g=g, insecure_key_size=True)


@pytest.mark.parametrize(
    "p",
    [
        (2**61 - 1) * (2**31 - 1),  # p composite
        2**61 - 1,  # prime, with smooth (p - 1) / 2
        2 * (2**31 - 1) * (2**61 - 1) + 1,
    ],
)
def test_primes_that_are_not_safe_are_refused(p: int) -> None:
    with pytest.raises(KeysError, match="is not prime"):
        own(p, insecure_key_size=True)


def test_a_composite_p_over_a_prime_q_is_refused() -> None:
    q = next(q for q in range(2**30 + 1, 2**31, 2) if gmpy2.is_prime(q) and not gmpy2.is_prime(2 * q + 1))
    with pytest.raises(KeysError, match="is not prime"):
        own(2 * q + 1, insecure_key_size=True)


def test_absurd_sizes_are_refused() -> None:
    for p in (7, 23, 2**20000 + 1):
        with pytest.raises(KeysError, match="16 to 16384"):
            own(p, insecure_key_size=True)


def test_dictionaries_round_trip_and_are_checked() -> None:
    mine = generate(80, insecure_key_size=True)
    for group in (named("ffdhe2048"), mine):
        assert Group.from_dict(group.to_dict()) == group
    assert named("ffdhe2048").to_dict() == {"name": "ffdhe2048"}
    content = mine.to_dict()
    changes: list[dict[str, str]] = [
        {**content, "p": f"{mine.p + 2:x}"},
        {**content, "p": "no number"},
        {**content, "g": "1"},
        {**content, "name": "own-000000000000"},
        {"name": mine.name},
        {},
    ]
    for damaged in changes:
        with pytest.raises(KeysError):
            Group.from_dict(damaged)


def test_generate_refuses_small_groups() -> None:
    with pytest.raises(ConfigError, match="bits=1024"):
        generate(1024)
