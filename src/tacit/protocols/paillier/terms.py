"""What travels with a task: the public key and the layout, and how a client comes to trust them."""

from __future__ import annotations

import functools
import json
import struct
from dataclasses import dataclass

from tacit import foreign
from tacit.crypto.layout import Layout
from tacit.crypto.paillier import NoisePool, PublicKey
from tacit.crypto.threshold import ThresholdPublic
from tacit.errors import KeysError, TacitError, WireError

_LENGTH = struct.Struct(">I")

Public = PublicKey | ThresholdPublic


def encryption_key(public: Public) -> PublicKey:
    """Return the key that encrypts."""
    return public if isinstance(public, PublicKey) else public.key


def pack_key(public: Public) -> bytes:
    """Return a public key as it travels."""
    kind = "paillier" if isinstance(public, PublicKey) else "threshold"
    return json.dumps({"kind": kind, "key": public.to_dict()}, separators=(",", ":")).encode()


@functools.lru_cache(maxsize=4)
def unpack_key(data: bytes) -> Public:
    """Read and check a public key; the same bytes give the same object, so that its tables are made once."""
    try:
        plain = foreign.json_object(data)
        kinds: dict[str, type[PublicKey] | type[ThresholdPublic]] = {
            "paillier": PublicKey,
            "threshold": ThresholdPublic,
        }
        read: Public = kinds[plain["kind"]].from_dict(plain["key"])
    except (WireError, ValueError, KeyError, TypeError) as error:
        raise WireError(f"The public key that arrived can't be read: {error!r}.") from error
    return read


@functools.lru_cache(maxsize=4)
def pool_of(key: PublicKey) -> NoisePool:
    """Return the pool of noise for a key; an entry is used once, by whichever client here comes first."""
    return NoisePool(key)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The key and the layout of a run."""

    key: PublicKey
    layout: Layout

    def to_bytes(self) -> bytes:
        """Return the terms as they travel with every task."""
        key = pack_key(self.key)
        return _LENGTH.pack(len(key)) + key + self.layout.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Terms:
        """Read the terms of a task."""
        if len(data) < _LENGTH.size:
            raise WireError(f"Expected the task to bring a key and a layout, got {len(data)} bytes of terms.")
        (length,) = _LENGTH.unpack_from(data)
        key = unpack_key(data[_LENGTH.size : _LENGTH.size + length])
        if not isinstance(key, PublicKey):
            raise WireError("Expected the key that encrypts with the task.")
        return cls(key=key, layout=Layout.from_bytes(data[_LENGTH.size + length :]))


def pinned(pin: bytes, key: PublicKey, *, insecure_key_size: bool) -> bytes:
    """Return the client's pin, which is the first key it saw unless it was given one; any other key is refused.

    A server that hands out a key of its own could read everything: whoever runs a client should compare the
    fingerprint with the key holder's over another channel, and give it to the client as its pin.
    """
    if pin and pin != key.identity:
        raise KeysError(
            f"the server sent key {key.fingerprint[:23]}…, and {pin.hex(':')[:23]}… is pinned. Nothing was encrypted. "
            "Ask the key holder for the fingerprint; if the key was changed on purpose, pin the new one"
        )
    if key.insecure and not insecure_key_size:
        raise KeysError(
            f"the server sent a key of {key.bits} bits, expected at least 2048. Nothing was encrypted. For an "
            "experiment set paillier.insecure_key_size=true"
        )
    return key.identity


def reason(error: TacitError) -> str:
    """Return an error as the reason in a frame."""
    return str(error).rstrip(".") + "."
