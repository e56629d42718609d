"""A client of an encrypted run: what it remembers, how it enrols, and how it binds what it encrypts."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import wire
from tacit.crypto.paillier import Layout, PublicKey
from tacit.crypto.paillier.public import Noise
from tacit.errors import KeysError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier import binding, enrolment
from tacit.protocols.paillier.binding import NONCE_BYTES, RUN_BYTES, SECRET_BYTES, SIGNATURE_BYTES, Rules
from tacit.protocols.paillier.terms import KeyUse, pack_key, unpack_encryption_key
from tacit.protocols.protocol import Contribution
from tacit.randomness import system_bytes

SEAL_BYTES: dict[KeyUse, int] = {"authority": NONCE_BYTES, "threshold": SIGNATURE_BYTES, "shared": 0}
_FACTS = struct.Struct(f">{RUN_BYTES}sQ{SECRET_BYTES}s")


@dataclass(frozen=True, kw_only=True)
class Member:
    """What a client that has enrolled remembers, and keeps to itself.

    Attributes:
        run: which run it enrolled in.
        number: which client it is.
        secret: from which its masks, or its signature key, are derived; for this run alone.
        key: what it encrypts with, pinned.
    """

    run: bytes
    number: ClientId
    secret: bytes = field(repr=False)
    key: PublicKey

    @classmethod
    def of(cls, run: bytes, number: ClientId, key: PublicKey, identity: Ed25519PrivateKey | None) -> Member:
        """Return a new member: its secret is drawn, or derived where a lasting identity could be asked again.

        A node that was started anew has forgotten what it drew. With an identity it comes to the same secret again,
        and takes part in the run as before.
        """
        secret = system_bytes(SECRET_BYTES)
        if identity is not None:
            label = b"tacit paillier secret of a run 1\n" + run + struct.pack(">Q", number)
            secret = hashlib.sha256(label + identity.private_bytes_raw()).digest()
        return cls(run=run, number=number, secret=secret, key=key)

    def to_bytes(self) -> bytes:
        """Return what the client's state is."""
        return _FACTS.pack(self.run, self.number, self.secret) + pack_key(self.key)

    @classmethod
    def from_bytes(cls, state: bytes) -> Member:
        """Read what :meth:`to_bytes` wrote."""
        if len(state) < _FACTS.size:
            raise KeysError("the client's memory of its enrolment is damaged, and it has to enrol anew")
        run, number, secret = _FACTS.unpack_from(state)
        return cls(run=run, number=number, secret=secret, key=unpack_encryption_key(state[_FACTS.size :]))

    def enrolment(self, keys: KeyUse, rules: Rules, identity: Ed25519PrivateKey | None) -> bytes:
        """Return what the key holders have to know of this client; nothing where all clients share the key."""
        if keys == "shared":
            return b""
        stated = binding.statement(self.run, self.number, rules)
        if keys == "threshold":
            body = enrolment.shown_to_shares(self._seed, stated)
        else:
            body = enrolment.Agreement.of(self.secret, self.key, stated).enrolment
        return body if identity is None else enrolment.identified(body, stated, identity)

    def reply(
        self, vector: Contribution, layout: Layout, turn: wire.Turn, keys: KeyUse, rules: Rules, noise: Noise
    ) -> bytes:
        """Return the client's vector, encrypted and bound to the turn: the seal, then the ciphertext."""
        if keys == "authority":
            stated = binding.statement(self.run, self.number, rules)
            agreed = enrolment.Agreement.of(self.secret, self.key, stated).secret
            nonce = system_bytes(NONCE_BYTES)
            masks = binding.masks(agreed, turn, nonce, self.key, layout.rows)
            return nonce + self.key.encrypt(vector, layout, noise=noise, shift=masks).to_bytes()
        ciphertext = self.key.encrypt(vector, layout, noise=noise).to_bytes()
        if keys == "shared":
            return ciphertext
        signed = binding.contribution(self.run, self.number, turn, ciphertext)
        return binding.signing_key(self._seed).sign(signed) + ciphertext

    @property
    def _seed(self) -> bytes:
        return hashlib.sha256(b"tacit paillier signature key 1\n" + self.secret).digest()


def pack_invitation(run: bytes, key: PublicKey) -> bytes:
    """Return the body of the frame that asks a client to enrol."""
    return run + pack_key(key)


def unpack_invitation(body: bytes) -> tuple[bytes, PublicKey]:
    """Read what :func:`pack_invitation` wrote."""
    if len(body) < RUN_BYTES:
        raise WireError(f"Expected a run and a key to enrol with, got {len(body)} bytes.")
    return body[:RUN_BYTES], unpack_encryption_key(body[RUN_BYTES:])
