"""Keys, encrypted vectors, partial decryptions and proofs, ElGamal."""

from __future__ import annotations

import functools

import numpy as np

from tacit.crypto.elgamal import EncryptedCounts
from tacit.crypto.paillier import CiphertextVector, total
from tacit.crypto.paillier.vector import HEADER_BYTES, _digest
from tacit.crypto.threshold import PartialDecryption
from tacit.errors import TacitError
from tacit.protocols.paillier.binding import pack_key, unpack_key
from tests.fuzz.fixed import PRIVATE, PUBLIC, VALUES, determined, elgamal_keys, encrypted, threshold_key
from tests.fuzz.harness import Target

_DIGEST_AT = HEADER_BYTES - 16


def _keys() -> list[bytes]:
    return [pack_key(PUBLIC), pack_key(threshold_key()[0])]


def _key(data: bytes) -> None:
    key = unpack_key(data)
    assert unpack_key(pack_key(key)) == key
    assert 2 < key.bits <= 16384


def _vectors() -> list[bytes]:
    return [encrypted(1).to_bytes(), encrypted(2).to_bytes(), encrypted(3, 7).to_bytes(), (encrypted(1) * 3).to_bytes()]


def mend_vector(data: bytes) -> bytes:
    """Return an encrypted vector of the right key, whose digest fits."""
    if len(data) < HEADER_BYTES:
        return data
    facts, body = data[:5] + PUBLIC.identity + data[37:_DIGEST_AT], data[HEADER_BYTES:]
    return facts + _digest(memoryview(facts), memoryview(body)) + body


def _vector(data: bytes) -> None:
    """What is accepted is written as it was read, and adds up: its content is what the sum differs by."""
    vector = CiphertextVector.from_bytes(data, PUBLIC)
    assert vector.to_bytes() == data
    content = PRIVATE.decrypt(vector)
    assert np.abs(content).max() <= vector.layout.clip * vector.summands * (1 + 1e-9)
    with determined():
        honest = PUBLIC.encrypt(VALUES[: vector.layout.length], vector.layout)
    added = PRIVATE.decrypt(total([vector, honest]))
    assert np.allclose(added, content + PRIVATE.decrypt(honest), atol=1e-6)


@functools.cache
def _parts() -> tuple[bytes, ...]:
    with determined(5):
        return tuple(share.partial(encrypted(1, shared=True), prove=True).to_bytes() for share in threshold_key()[1])


def _partials() -> list[bytes]:
    with determined(6):
        bare = threshold_key()[1][1].partial(encrypted(1, shared=True)).to_bytes()
    return [_parts()[1], _parts()[2], bare]


def _mend_partial(data: bytes) -> bytes:
    """Return a partial decryption whose header says how many rows there are, and of what."""
    return _parts()[1][:70] + data[70:] if len(data) > 80 else data


def _partial(data: bytes) -> None:
    """Whatever one holder sends, two others are right: the value is theirs, or there is none."""
    public, _ = threshold_key()
    partial = PartialDecryption.from_bytes(data, public)
    assert partial.to_bytes() == data
    vector = encrypted(1, shared=True)
    honest = [PartialDecryption.from_bytes(part, public) for part in _parts() if part[70:72] != data[70:72]]
    for verify in (False, True):
        try:
            value = public.combine(vector, [partial, *honest], verify=verify).value
        except TacitError:
            continue
        assert np.allclose(np.asarray(value), VALUES, atol=1e-6)


def _numbers() -> list[bytes]:
    public, _ = elgamal_keys()
    with determined():
        return [public.encrypt_many([1, 2, 3]).to_bytes(), public.encrypt_counts([4, 5, 6]).to_bytes()]


def _elgamal(data: bytes) -> None:
    public, private = elgamal_keys()
    for parse in (public.parse, public.parse_counts):
        try:
            found = parse(data)
        except TacitError:
            continue
        assert found.to_bytes() == data
        if isinstance(found, EncryptedCounts):
            private.decrypt_counts(found, bound=100)
        else:
            private.decrypt_many(found)


TARGETS = (
    Target(name="keys", seeds=_keys, check=_key, form="json", inputs=3000),
    Target(name="vectors", seeds=_vectors, check=_vector, mend=mend_vector, inputs=2500),
    Target(name="partials", seeds=_partials, check=_partial, mend=_mend_partial, inputs=1500),
    Target(name="elgamal", seeds=_numbers, check=_elgamal, inputs=2500),
)
