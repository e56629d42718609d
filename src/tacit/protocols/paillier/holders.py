"""Key holders: who may open an encrypted sum, what they are asked, and which sums they refuse to open."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout, PrivateKey, total
from tacit.crypto.paillier.knowledge import unproved
from tacit.crypto.ring import Rows, to_integers
from tacit.crypto.threshold import KeyShare
from tacit.errors import CipherError, ConfigError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier import binding
from tacit.protocols.paillier.binding import (
    Admission,
    KeyUse,
    Occasion,
    Public,
    Rules,
    encryption_key,
    laid_out,
    pack_key,
    reason,
    seal_bytes,
)
from tacit.protocols.paillier.check import DIGEST_BYTES, check_bytes, check_row, told_of
from tacit.protocols.paillier.register import FLOOR, Register
from tacit.protocols.signatures import SIGNATURE_BYTES, verified

_COUNT = struct.Struct(">I")
_CLIENT = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class NewSum:
    """A sum that is to be opened for the first time, with all that is checked of it in its own run behind it.

    Attributes:
        run: the identity of the run.
        turn: of the sum.
        clients: the lasting identities of those who are in it; by their numbers where they have none.
        numbers: how many numbers a vector has.
    """

    run: bytes
    turn: wire.Turn
    clients: frozenset[bytes]
    numbers: int


class Policy(Protocol):
    """What a holder's operator allows over the life of a key, whatever run it is; refuses by CipherError."""

    def begins(self, rules: Rules) -> None:
        """Refuse a run that was announced with such rules."""
        ...

    def opens(self, new: NewSum) -> None:
        """Refuse a sum, or note that it is opened."""
        ...


@dataclass(frozen=True, kw_only=True)
class Caution:
    """What a key holder goes by, of which the server has no word.

    Attributes:
        rules: of the run, as this holder's own settings have them; None takes those that the server announces and every
            client states, within the policy.
        layout: what sums of a length have to look like; None accepts any, the same in all rounds.
        floor: the fewest clients of a sum, whatever the rules say.
        clients: the lasting identities of those who may enrol; None lets anybody.
        policy: what is allowed over the life of the key; None where a holder lives for one run.
        memory: what :attr:`Holder.memory` was when the holder stopped.
    """

    rules: Rules | None
    layout: Callable[[int, int], Layout] | None = None
    floor: int = FLOOR
    clients: frozenset[bytes] | None = None
    policy: Policy | None = None
    memory: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A request to open one sum.

    Attributes:
        seals: the clients in the sum, with the nonce of each one's masks, or its signature and proof; none with legacy
            keys.
        vectors: the encrypted sum; for holders of shares every client's ciphertext, in the order of the seals.
        check: for an authority the digest of the check and the sum of what clients sent of it, encrypted; for holders
            of shares the hash of what the clients were asked.
    """

    seals: Mapping[ClientId, bytes]
    vectors: Sequence[bytes | memoryview]
    check: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the body of an OPEN frame."""
        seals = [_CLIENT.pack(client) + seal for client, seal in self.seals.items()]
        return b"".join([_COUNT.pack(len(seals)), *seals, self.check, *self.vectors])

    @classmethod
    def from_bytes(cls, body: memoryview, *, seal_bytes: int, check_bytes: int, each: bool) -> Opening:
        """Read what :meth:`to_bytes` wrote.

        Args:
            body: of the frame.
            seal_bytes: how long a seal is.
            check_bytes: how long a check is.
            each: whether every client's ciphertext is expected, or the sum alone.
        """
        if len(body) < _COUNT.size:
            raise WireError(f"Expected the clients of a sum, got {len(body)} bytes.")
        (count,) = _COUNT.unpack_from(body)
        entry = _CLIENT.size + seal_bytes
        start = _COUNT.size + count * entry
        if start + check_bytes > len(body):
            raise WireError(
                f"Expected {count} clients with {entry} bytes each and {check_bytes} more, got {len(body)} bytes."
            )
        seals: dict[ClientId, bytes] = {}
        for at in range(_COUNT.size, start, entry):
            (client,) = _CLIENT.unpack_from(body, at)
            if client in seals:
                raise WireError(f"Expected every client once in a sum, got client {client} twice.")
            seals[client] = bytes(body[at + _CLIENT.size : at + entry])
        check, rest = bytes(body[start : start + check_bytes]), body[start + check_bytes :]
        parts = count if each else 1
        if not parts or len(rest) % parts:
            raise WireError(f"Expected {parts} encrypted vectors of one length, got {len(rest)} bytes.")
        length = len(rest) // parts
        return cls(seals=seals, vectors=[rest[at * length : (at + 1) * length] for at in range(parts)], check=check)


class Holder(ABC):
    """What all key holders do: tell the key, admit clients, and open one sum per round, by their register's rules."""

    keys: KeyUse

    def __init__(self, public: Public, caution: Caution) -> None:
        self._public = public
        self._key = encryption_key(public)
        self._caution = caution
        self._register = Register.remembered(caution.memory, rules=caution.rules, floor=caution.floor)

    @property
    def memory(self) -> bytes:
        """What the holder must remember, should it start anew during a run."""
        return self._register.to_bytes()

    def answer(self, request: wire.Frame) -> bytes:
        """Tell the public key and a challenge, admit clients, or open a sum; refuse by a FAILURE that says why."""
        try:
            if request.kind is wire.Kind.KEY:
                self._begin(bytes(request.body))
                return wire.pack(wire.Kind.KEY, request.turn, self._register.challenge + pack_key(self._public))
            if request.kind is wire.Kind.ADMIT:
                return wire.pack(wire.Kind.ADMIT, request.turn, self._admitted(bytes(request.body)))
            if request.kind is wire.Kind.OPEN:
                return wire.pack(wire.Kind.OPENED, request.turn, self._opened(request))
        except (CipherError, ConfigError, WireError) as error:
            return wire.pack_failure(request.turn, wire.Failure.REFUSED, reason(error))
        raise WireError(
            f"Expected a KEY, ADMIT or OPEN frame, got {request.kind.name}: a key holder does nothing else."
        )

    def _begin(self, announced: bytes) -> None:
        rules = self._caution.rules or Rules.from_bytes(announced)
        if self._caution.policy is not None:
            self._caution.policy.begins(rules)
        self._register.begin(rules)

    def _admitted(self, body: bytes) -> bytes:
        """Note the clients whose enrolments are right, and return the numbers of the others."""
        admission = Admission.from_bytes(body)
        register = self._register
        register.same(self._caution.rules)
        register.joined(admission)
        length = binding.length_of(self._key, signs=self.keys == "threshold")
        stated: dict[ClientId, tuple[bytes, bytes]] = {}
        vouched: dict[ClientId, bytes | None] = {}
        for client, given in admission.enrolments.items():
            said = binding.statement(register.run, client, register.rules)
            own, vouched[client] = binding.identity_of(given, said, length)
            if self._caution.clients is None or vouched[client] in self._caution.clients:
                stated[client] = own, said
        right = self._members(stated)
        refused = [c for c in admission.enrolments if c not in right or not register.admit(c, right[c], vouched[c])]
        return binding.pack_clients(refused)

    def _opened(self, frame: wire.Frame) -> bytes:
        register = self._register
        register.same(self._caution.rules)
        opening = Opening.from_bytes(
            frame.body,
            seal_bytes=seal_bytes(self.keys, self._key),
            check_bytes=check_bytes(self.keys, self._key),
            each=self.keys == "threshold",
        )
        vector = self._sum(opening, frame.turn)
        layout = vector.layout
        make = self._caution.layout
        if make is not None and layout != laid_out(make, layout.length, self._key.bits):
            raise CipherError("the sum has another layout than this key holder's settings give, and was not opened")
        if register.allow(frame.turn, frame.body, summands=vector.summands, layout=layout):
            if self._caution.policy is not None:
                clients = frozenset(register.identity_of(client) for client in opening.seals)
                new = NewSum(run=register.run, turn=frame.turn, clients=clients, numbers=layout.length)
                self._caution.policy.opens(new)
            register.note(frame.turn, frame.body, layout)
        return self._content(vector, opening, frame.turn)

    @abstractmethod
    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        """Return what binds the replies of those clients whose enrolments are right, given what each has to state."""

    @abstractmethod
    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        """Return the sum that is asked for, its clients checked."""

    @abstractmethod
    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        """Return what is told of a sum that may be opened."""


class Authority(Holder):
    """A key authority apart from the server: it has the private key, and is shown sums under masks it can take off.

    What is left when the masks of a list of clients are taken off is the sum of exactly their replies of that round,
    or a number that tells nothing (:mod:`tacit.protocols.paillier.binding`). What it says is in a sum the server can
    check (:mod:`tacit.protocols.paillier.check`).
    """

    keys = "authority"

    def __init__(self, *, private: PrivateKey, caution: Caution, workers: int | None = None) -> None:
        super().__init__(private.public, caution)
        self._private = private
        self._workers = workers

    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        return binding.secrets_of(enrolments, self._private)

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        vector = CiphertextVector.from_bytes(opening.vectors[0], self._key)
        check_row(opening.check[DIGEST_BYTES:], self._key)
        self._register.listed(opening.seals)
        if vector.summands != len(opening.seals):
            raise CipherError(f"the sum claims {vector.summands} summands, and {len(opening.seals)} clients are named")
        return vector

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        secrets = self._register.members  # all of the list are: see _sum
        digest, borne = opening.check[:DIGEST_BYTES], opening.check[DIGEST_BYTES:]
        rows = np.concatenate([vector.rows, np.frombuffer(borne, np.uint8)[None]])
        taken_off = (
            binding.masks(secrets[client], turn, nonce, digest, self._key, len(rows))
            for client, nonce in opening.seals.items()
        )
        opened = self._private.open(rows, workers=self._workers)
        bare = binding.unmasked(opened, taken_off, self._key, workers=self._workers)
        return _told(vector, bare[:-1]) + told_of(to_integers(bare[-1:])[0], self._key)


class ShareHolder(Holder):
    """One of several who hold a share of the key each: only ``threshold`` of them together open a sum.

    It is shown every client's ciphertext, none of which it can read, checks whose they are, what they were made for and
    that each client knows what is in its own, and gives its part of their product alone.
    """

    keys = "threshold"

    def __init__(self, *, share: KeyShare, caution: Caution, prove: bool = False, workers: int | None = None) -> None:
        super().__init__(share.public, caution)
        self._share = share
        self._prove = prove
        self._workers = workers

    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        found = {client: binding.signer_of(body, stated) for client, (body, stated) in enrolments.items()}
        return {client: public for client, public in found.items() if public is not None}

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        publics, run = self._register.listed(opening.seals), self._register.run
        vectors, claims = [], []
        for (client, seal), body in zip(opening.seals.items(), opening.vectors, strict=True):
            occasion = Occasion(run=run, client=client, turn=turn, asked=opening.check)
            signature, proof = seal[:SIGNATURE_BYTES], seal[SIGNATURE_BYTES:]
            if not verified(publics[client], signature, occasion.signed(proof, body)):
                raise CipherError(
                    f"client {client} has not signed its ciphertext for this round, or was asked for something else "
                    "than was said: nothing was opened"
                )
            vectors.append(CiphertextVector.from_bytes(body, self._key, units=False))
            claims.append(occasion.claim(proof, vectors[-1]))
        if any(vector.summands != 1 for vector in vectors):
            raise CipherError("a client's ciphertext claims to be a sum, and nothing was opened")
        product = total(vectors, check_units=True, workers=self._workers)
        if wrong := unproved(self._key, claims, workers=self._workers):
            client = list(opening.seals)[wrong[0]]
            raise CipherError(f"client {client} has not proved that it knows what it encrypted: nothing was opened")
        return product

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        return self._share.partial(vector, prove=self._prove, workers=self._workers).to_bytes()


class KeyCopy(Holder):
    """A client that has the private key, as all of them do (legacy): it can read everybody's ciphertexts.

    Nothing binds a ciphertext here. What the number of summands is, and which round, is the server's word.
    """

    keys = "shared"

    def __init__(self, *, private: PrivateKey, caution: Caution, workers: int | None = None) -> None:
        super().__init__(private.public, caution)
        self._private = private
        self._workers = workers

    def _begin(self, announced: bytes) -> None:
        if not self._register.challenge:  # nothing would keep ciphertexts of a run that is forgotten from being opened
            super()._begin(announced)

    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        return {}

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        return CiphertextVector.from_bytes(opening.vectors[0], self._key)

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        return _told(vector, self._private.open(vector.rows, workers=self._workers))


def _told(vector: CiphertextVector, rows: Rows) -> bytes:
    try:
        sums = vector.layout.sums(rows, vector.summands)
    except CipherError:  # whose words would tell the server a number of what it may have forged
        raise CipherError(
            "what was to be opened is no sum of honest vectors, and nothing of it is told. A client sent numbers "
            "beyond its layout, or the sum was forged"
        ) from None
    return sums.astype("<i8").tobytes()
