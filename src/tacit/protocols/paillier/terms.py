"""The public key as it travels, and how a client comes to trust it."""

from __future__ import annotations

import functools
import json
from typing import Literal

from tacit import foreign
from tacit.crypto.paillier import NoisePool, PublicKey
from tacit.crypto.threshold import ThresholdPublic
from tacit.errors import KeysError, TacitError, WireError

KeyUse = Literal["authority", "threshold", "shared"]
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


def unpack_encryption_key(data: bytes) -> PublicKey:
    """Read and check a key that encrypts."""
    key = unpack_key(data)
    if not isinstance(key, PublicKey):
        raise WireError("Expected the key that encrypts, got one of a threshold scheme.")
    return key


@functools.lru_cache(maxsize=4)
def pool_of(key: PublicKey) -> NoisePool:
    """Return the pool of noise for a key; an entry is used once, by whichever client here comes first."""
    return NoisePool(key)


def check_key(pin: bytes, key: PublicKey, *, insecure_key_size: bool) -> None:
    """Refuse any key but the pinned one, which is the first that a client saw unless it was given one.

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


def reason(error: TacitError) -> str:
    """Return an error as the reason in a frame."""
    return str(error).rstrip(".") + "."
