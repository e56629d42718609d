"""What key holders are asked to open: whose replies, what binds each to the round, and the ciphertexts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.errors import WireError
from tacit.flow import ClientId

_COUNT = struct.Struct(">I")
_CLIENT = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A request to open one sum.

    Attributes:
        seals: the clients in the sum, with the nonce of each one's masks or its signature; none with legacy keys.
        vectors: the encrypted sum; for holders of shares every client's ciphertext, in the order of the seals.
    """

    seals: Mapping[ClientId, bytes]
    vectors: Sequence[bytes | memoryview]

    def to_bytes(self) -> bytes:
        """Return the body of an OPEN frame."""
        seals = [_CLIENT.pack(client) + seal for client, seal in self.seals.items()]
        return b"".join([_COUNT.pack(len(seals)), *seals, *self.vectors])

    @classmethod
    def from_bytes(cls, body: memoryview, *, seal_bytes: int, each: bool) -> Opening:
        """Read what :meth:`to_bytes` wrote.

        Args:
            body: of the frame.
            seal_bytes: how long a seal is.
            each: whether every client's ciphertext is expected, or the sum alone.
        """
        if len(body) < _COUNT.size:
            raise WireError(f"Expected the clients of a sum, got {len(body)} bytes.")
        (count,) = _COUNT.unpack_from(body)
        entry = _CLIENT.size + seal_bytes
        start = _COUNT.size + count * entry
        if start > len(body):
            raise WireError(f"Expected {count} clients with {entry} bytes each, got {len(body)} bytes.")
        seals: dict[ClientId, bytes] = {}
        for at in range(_COUNT.size, start, entry):
            (client,) = _CLIENT.unpack_from(body, at)
            if client in seals:
                raise WireError(f"Expected every client once in a sum, got client {client} twice.")
            seals[client] = bytes(body[at + _CLIENT.size : at + entry])
        rest = body[start:]
        parts = count if each else 1
        if not parts or len(rest) % parts:
            raise WireError(f"Expected {parts} encrypted vectors of one length, got {len(rest)} bytes.")
        length = len(rest) // parts
        return cls(seals=seals, vectors=[rest[at * length : (at + 1) * length] for at in range(parts)])
