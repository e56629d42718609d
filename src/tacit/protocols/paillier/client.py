"""The client half of the Paillier sum: what a client remembers, how it enrols, and how it binds what it encrypts."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout, PublicKey
from tacit.crypto.paillier.knowledge import encrypted
from tacit.crypto.paillier.public import Noise
from tacit.crypto.ring import Rows, from_integers
from tacit.errors import KeysError, TacitError, WireError
from tacit.flow import ClientId
from tacit.progress import told
from tacit.protocols.paillier import binding
from tacit.protocols.paillier.binding import (
    NONCE_BYTES,
    RUN_BYTES,
    SECRET_BYTES,
    KeyUse,
    Occasion,
    Rules,
    check_key,
    laid_out,
    pack_key,
    pool_of,
    reason,
    unpack_encryption_key,
)
from tacit.protocols.paillier.blocks import Blocks, tree_of
from tacit.protocols.paillier.check import Check
from tacit.protocols.protocol import Contribution
from tacit.randomness import system_bytes

_FACTS = struct.Struct(f">{RUN_BYTES}sQ{SECRET_BYTES}s")


@dataclass(frozen=True, kw_only=True)
class ClientHalf:
    """What a client of the encrypted sum does: enrol once, then answer tasks with its vector, encrypted and bound.

    It encrypts to its pinned key only, in the layout that its own settings give, and keeps nothing: what it must
    remember is the state that :class:`Member` reads.

    Attributes:
        minimum_clients: with fewer replies the round fails closed.
        rounds: how many there are; nobody answers for a later one.
        layout: makes the layout for a vector's length and a key's bits; it has the clip and the number of summands.
        keys: who holds the private key: an authority, several by shares, or (legacy) all clients.
        insecure_key_size: whether keys below 2048 bits are accepted.
        settings: the hash of what all parties have to agree on; replies by other settings are not opened together.
        pin: on a client, the identity of the key that its operator trusts; empty to trust the first.
        identity: on a client, its lasting identity, where it has one.
        own: the client's own source of noise, on a client that has the private key; never on the server.
    """

    trips: ClassVar[tuple[wire.Kind, ...]] = (wire.Kind.TASK,)

    minimum_clients: int
    rounds: int
    layout: Callable[[int, int], Layout]
    keys: KeyUse = "authority"
    insecure_key_size: bool = False
    settings: bytes = b""
    pin: bytes = b""
    identity: Ed25519PrivateKey | None = field(default=None, repr=False)
    own: Noise | None = None

    @property
    def rules(self) -> Rules:
        """What clients and key holders have to agree on."""
        return Rules(minimum_clients=self.minimum_clients, rounds=self.rounds)

    def laid_out(self, length: int, key_bits: int) -> Layout:
        """Return the layout of vectors of a length, which is the same in all rounds."""
        return laid_out(self.layout, length, key_bits)

    def prepare(self, state: bytes, length: int) -> None:
        """Begin to make the noise for one vector, so that it is there when training is done."""
        if self.own is not None or not state:
            return
        try:
            key = Member.from_bytes(state).key
            rows = self.laid_out(length, key.bits).rows
        except TacitError:
            return  # the client half says what is wrong
        pool = pool_of(key, self.keys)
        pool.fill(pool.wanted + rows + (self.keys == "authority"))  # and the check

    def client(
        self, state: bytes, request: wire.Frame, vector: Contribution | None, *, number: ClientId = 0
    ) -> tuple[bytes, bytes]:
        """Enrol, or answer a task with the client's vector, encrypted; the state is secret."""
        turn = request.turn
        if request.kind is wire.Kind.ENROL:
            return self._enrolled(state, request, number)
        if vector is None or request.kind is not wire.Kind.TASK:
            raise WireError(
                f"Expected an ENROL or a TASK frame, got {request.kind.name}: a client answers nothing else."
            )
        if not state:
            return state, wire.pack_failure(turn, wire.Failure.NOT_ENROLLED)
        if not 1 <= turn.round_number <= self.rounds:
            return state, wire.pack_failure(turn, wire.Failure.BEYOND)
        if not np.isfinite(vector).all():  # where, and what it is instead, the server must not know
            return state, wire.pack_failure(turn, wire.Failure.NOT_FINITE)
        try:
            member = Member.from_bytes(state)
            layout = self.laid_out(len(vector), member.key.bits)
            noise = pool_of(member.key, self.keys) if self.own is None else self.own
            body = member.reply(vector, layout, request, self.keys, self.rules, noise, self.settings)
        except TacitError:  # whose words may be about the client's numbers
            return state, wire.pack_failure(turn, wire.Failure.REFUSED)
        return state, wire.pack(wire.Kind.CIPHER, turn, *body)

    def _enrolled(self, state: bytes, request: wire.Frame, number: ClientId) -> tuple[bytes, bytes]:
        """Enrol in a run, or again in the same one, as an answer may be lost; the key has to be the pinned one."""
        try:
            run, key = unpack_invitation(bytes(request.body))
            member = Member.from_bytes(state) if state else None
            pin = self.pin or (b"" if member is None else member.key.identity)
            check_key(pin, key, insecure_key_size=self.insecure_key_size)
            if member is None or (member.run, member.number, member.key) != (run, number, key):
                member = Member.of(run, number, key, self.identity)
            body = member.enrolment(self.keys, self.rules, self.identity)
        except TacitError as error:  # about keys and frames: nothing of the client's data is known here
            return state, wire.pack_failure(request.turn, wire.Failure.KEY, reason(error))
        return member.to_bytes(), wire.pack(wire.Kind.ENROL, request.turn, body)


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
            body = binding.shown_to_shares(self._seed, stated)
        else:
            body = binding.Agreement.of(self.secret, self.key, stated).enrolment
        return body if identity is None else binding.identified(body, stated, identity)

    def reply(
        self,
        vector: Contribution,
        layout: Layout,
        request: wire.Frame,
        keys: KeyUse,
        rules: Rules,
        noise: Noise,
        settings: bytes = b"",
    ) -> tuple[bytes | memoryview, ...]:
        """Return the client's vector, encrypted and bound to the task: seal, ciphertext, and an encrypted check.

        They come in pieces, which are put together in one copy as long as they are.

        The check is for an authority alone, and binds its answer. Holders of shares get a proof for each block in the
        seal, which takes noise with its exponents (:func:`tacit.protocols.paillier.binding.noise_of`).
        """
        packed, _ = layout.encode(vector, beyond="refuse" if layout.step is None else "clip")
        turn = request.turn
        if keys == "shared":
            return self._pieces(layout, self.key.encrypt_rows(packed, noise=noise))
        asked = wire.bound_to(request, settings)
        if keys == "authority":
            check = Check(seed=wire.unpack_task(request).told, asked=asked)
            stated = binding.statement(self.run, self.number, rules)
            agreed = binding.Agreement.of(self.secret, self.key, stated).secret
            nonce = system_bytes(NONCE_BYTES)
            masks = binding.masks(agreed, turn, nonce, check.digest, self.key, layout.rows + 1)
            borne = from_integers([check.of(packed, 1, self.key)], packed.shape[1])
            rows = self.key.encrypt_rows(np.concatenate([packed, borne]), noise=noise, shift=masks)
            return nonce, *self._pieces(layout, rows[:-1]), rows[-1:].tobytes()
        occasion = Occasion(run=self.run, client=self.number, turn=turn, asked=asked)
        blocks = Blocks(layout=layout)
        rows = np.empty((layout.rows, self.key.ring.width), np.uint8)
        proofs: list[bytes] = []
        for number in range(blocks.count):
            part = blocks.rows(number)
            rows[part], proof = encrypted(self.key, packed[part], occasion.of_block(number), noise=noise)
            proofs.append(proof.to_bytes(self.key))
            if blocks.count > 1:
                told("encrypting", part.stop / layout.rows)
        return self.signature(occasion, layout, proofs, rows), *proofs, *self._pieces(layout, rows)

    def signature(self, occasion: Occasion, layout: Layout, proofs: Sequence[bytes], rows: Rows) -> bytes:
        """Return the client's signature of its ciphertexts and of the proofs of all blocks, for an occasion."""
        root = tree_of(layout, proofs, rows).root
        return binding.signing_key(self._seed).sign(occasion.signed(self.key, layout, root))

    def _pieces(self, layout: Layout, rows: Rows) -> tuple[bytes, memoryview]:
        return CiphertextVector(key=self.key, layout=layout, summands=1, rows=rows).pieces()

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
