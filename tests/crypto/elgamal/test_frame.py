"""Ciphertexts as bytes: they round trip, and nothing but what this key made gets in."""

from __future__ import annotations

import gmpy2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.crypto import elgamal
from tacit.crypto.groups import Group, own
from tacit.crypto.primes import safe_prime
from tacit.crypto.ring import from_integers
from tacit.errors import CipherError
from tests.crypto.elgamal.conftest import Pair

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HEADER = 64


@pytest.fixture(scope="module")
def content(pair: Pair) -> bytes:
    return pair[0].encrypt_many([1, 2, 3]).to_bytes()


def test_round_trip(pair: Pair, content: bytes) -> None:
    public, private = pair
    assert len(content) == HEADER + 2 * 3 * 32
    assert private.decrypt_many(public.parse(content)) == [1, 2, 3]
    assert public.parse(content).to_bytes() == content
    counts = public.encrypt_counts([4, 5])
    assert private.decrypt_counts(public.parse_counts(counts.to_bytes()), bound=10).tolist() == [4, 5]


def test_header_names_group_key_and_count(pair: Pair, content: bytes) -> None:
    public, _ = pair
    assert content[:4] == b"TcEG"
    assert content[8:24].rstrip(b"\0").decode() == public.group.name
    assert content[24:56] == public.identity
    assert int.from_bytes(content[56:64], "big") == 3


def test_numbers_and_counts_are_told_apart(pair: Pair, content: bytes) -> None:
    public, _ = pair
    with pytest.raises(CipherError, match="form 1, expected 2"):
        public.parse_counts(content)
    with pytest.raises(CipherError, match="form 2, expected 1"):
        public.parse(public.encrypt_counts(1).to_bytes())


def test_another_key_or_group_is_refused(pair: Pair, group: Group, content: bytes) -> None:
    stranger, _ = elgamal.generate(group, insecure_key_size=True)
    with pytest.raises(CipherError, match=r"of key .* Use the key they were made with"):
        stranger.parse(content)
    foreigner, _ = elgamal.generate(own(safe_prime(256), insecure_key_size=True), insecure_key_size=True)
    with pytest.raises(CipherError, match="of group"):
        foreigner.parse(content)
    careful, _ = elgamal.generate(group, exponents="full", insecure_key_size=True)
    with pytest.raises(CipherError, match="of key"):
        careful.parse(content)


def test_every_truncation_and_extension_is_refused(pair: Pair, content: bytes) -> None:
    public, _ = pair
    for length in range(len(content)):
        with pytest.raises(CipherError):
            public.parse(content[:length])
    for extra in (1, 32, 64, 192):
        with pytest.raises(CipherError, match="truncated, or something was appended"):
            public.parse(content + bytes(extra))


@pytest.mark.parametrize("half", [0, 1])
def test_numbers_outside_the_group_are_refused(pair: Pair, content: bytes, half: int) -> None:
    public, _ = pair
    p = public.group.p
    no_square = next(n for n in range(2, p) if gmpy2.jacobi(n, p) == -1)
    start = HEADER + half * 3 * 32 + 32  # the second ciphertext
    honest = int.from_bytes(content[start : start + 32], "big")
    for number in (0, p, p - 1, p + 1, (1 << 256) - 1, no_square, p - honest):
        forged = content[:start] + from_integers([number], 32).tobytes() + content[start + 32 :]
        with pytest.raises(CipherError, match="Ciphertext 1 of 3 holds a number"):
            public.parse(forged)


def test_a_count_that_claims_too_much_is_refused_at_once(pair: Pair, content: bytes) -> None:
    public, _ = pair
    for count in (0, 2, 4, 2**63, 2**64 - 1):
        with pytest.raises(CipherError, match="truncated, or something was appended"):
            public.parse(content[:56] + count.to_bytes(8, "big") + content[64:])


@quick
@given(st.data())
def test_any_changed_byte_of_the_header_is_refused(pair: Pair, content: bytes, data: st.DataObject) -> None:
    place, change = data.draw(st.integers(0, HEADER - 1)), data.draw(st.integers(1, 255))
    changed = bytearray(content)
    changed[place] ^= change
    with pytest.raises(CipherError):
        pair[0].parse(bytes(changed))


@quick
@given(st.data())
def test_changed_bytes_are_refused_or_still_in_the_group(pair: Pair, content: bytes, data: st.DataObject) -> None:
    public, private = pair
    place, change = data.draw(st.integers(HEADER, len(content) - 1)), data.draw(st.integers(1, 255))
    changed = bytearray(content)
    changed[place] ^= change
    try:
        ciphertext = public.parse(bytes(changed))
    except CipherError:
        return
    assert all(1 <= message <= public.group.q for message in private.decrypt_many(ciphertext))


@quick
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda tail: b"TcEG\x01\x01\x00\x20" + tail)))
def test_any_bytes_are_refused_with_the_right_error(pair: Pair, noise: bytes) -> None:
    for parse in (pair[0].parse, pair[0].parse_counts):
        with pytest.raises(CipherError):
            parse(noise)
