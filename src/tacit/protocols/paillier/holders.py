"""Key holders: who may open an encrypted sum, what they look at first, and which sums they refuse to open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
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
    NONCE_BYTES,
    Admission,
    KeyUse,
    Occasion,
    Public,
    Rules,
    encryption_key,
    laid_out,
    pack_key,
    pack_seals,
    reason,
    unpack_seals,
)
from tacit.protocols.paillier.blocks import BlockOpening, Blocks, Commitment, leaf, root_of
from tacit.protocols.paillier.check import DIGEST_BYTES, check_bytes, check_row, told_of
from tacit.protocols.paillier.register import FLOOR, Register
from tacit.protocols.signatures import verified


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
    """A request to open one sum, to whoever has the whole key.

    Attributes:
        seals: the clients in the sum, with the nonce of each one's masks; none with legacy keys.
        vector: the encrypted sum, in one piece or several.
        check: for an authority the digest of the check and the sum of what clients sent of it, encrypted.
    """

    seals: Mapping[ClientId, bytes]
    vector: Sequence[bytes | memoryview]
    check: bytes = b""

    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """Return the body of an OPEN frame, in pieces."""
        return pack_seals(self.seals), self.check, *self.vector

    @classmethod
    def from_bytes(cls, body: memoryview, *, seal_bytes: int, check_bytes: int) -> Opening:
        """Read what :meth:`pieces` wrote.

        Args:
            body: of the frame.
            seal_bytes: how long a seal is.
            check_bytes: how long a check is.
        """
        seals, rest = unpack_seals(body, seal_bytes, check_bytes)
        return cls(seals=seals, check=bytes(rest[:check_bytes]), vector=[rest[check_bytes:]])


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a key holder is asked to open, its clients checked.

    Attributes:
        sum: what tells the sum from all others; the same bytes may be asked for again.
        clients: who is in it.
        layout: of their vectors.
        content: returns what is told of it, where it may be opened.
    """

    sum: bytes | memoryview
    clients: Collection[ClientId]
    layout: Layout
    content: Callable[[], bytes]


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
        register, turn = self._register, frame.turn
        register.same(self._caution.rules)
        asked = self._asked(frame)
        layout, make = asked.layout, self._caution.layout
        if make is not None and layout != laid_out(make, layout.length, self._key.bits):
            raise CipherError("the sum has another layout than this key holder's settings give, and was not opened")
        if register.allow(turn, asked.sum, summands=len(asked.clients), layout=layout):
            if self._caution.policy is not None:
                clients = frozenset(register.identity_of(client) for client in asked.clients)
                self._caution.policy.opens(NewSum(run=register.run, turn=turn, clients=clients, numbers=layout.length))
            register.note(turn, asked.sum, layout)
        return asked.content()

    def _opening(self, frame: wire.Frame) -> tuple[Opening, CiphertextVector]:
        """Return the request of a whole sum, and the sum."""
        seal, check = NONCE_BYTES if self.keys == "authority" else 0, check_bytes(self.keys, self._key)
        opening = Opening.from_bytes(frame.body, seal_bytes=seal, check_bytes=check)
        return opening, CiphertextVector.from_bytes(opening.vector[0], self._key)

    @abstractmethod
    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        """Return what binds the replies of those clients whose enrolments are right, given what each has to state."""

    @abstractmethod
    def _asked(self, frame: wire.Frame) -> Asked:
        """Return the sum, or the block of one, that is asked for, its clients checked."""


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

    def _asked(self, frame: wire.Frame) -> Asked:
        opening, vector = self._opening(frame)
        check_row(opening.check[DIGEST_BYTES:], self._key)
        self._register.listed(opening.seals)
        if vector.summands != len(opening.seals):
            raise CipherError(f"the sum claims {vector.summands} summands, and {len(opening.seals)} clients are named")
        return Asked(
            sum=frame.body,
            clients=opening.seals,
            layout=vector.layout,
            content=lambda: self._content(vector, opening, frame.turn),
        )

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        secrets = self._register.members  # all of the list are: see _asked
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

    It is shown every client's ciphertexts, none of which it can read, a block at a time; checks whose they are, what
    they were made for, that they are those of the one sum of the round and that each client knows what is in its own;
    and gives its part of their product alone. It keeps nothing between two blocks but what the sum is
    (:class:`tacit.protocols.paillier.blocks.Commitment`), so that blocks may be asked for in any order, and again.
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

    def _asked(self, frame: wire.Frame) -> Asked:
        opening = BlockOpening.from_bytes(frame.body, self._key)
        commitment, number = opening.commitment, opening.number
        occasions = self._signed(commitment, frame.turn)
        layout = Blocks(layout=commitment.layout).layout_of(number)
        vectors, claims = [], []
        for (client, occasion), part in zip(occasions.items(), opening.parts, strict=True):
            if root_of(leaf(part.proof, part.rows), number, part.way) != commitment.signed_by(client)[1]:
                raise CipherError(
                    f"what was shown of client {client} in block {number} is not what it signed: nothing of the block "
                    "was opened"
                )
            vectors.append(CiphertextVector.of(memoryview(part.rows), self._key, layout))
            claims.append(occasion.claim(number, part.proof, vectors[-1].rows, self._key))
        product = total(vectors, check_units=True, workers=self._workers)
        if wrong := unproved(self._key, claims, workers=self._workers):
            client = list(occasions)[wrong[0]]
            raise CipherError(
                f"client {client} has not proved that it knows what it encrypted: nothing of block {number} was opened"
            )
        return Asked(
            sum=commitment.to_bytes(),
            clients=commitment.seals,
            layout=commitment.layout,
            content=lambda: self._share.partial(product, prove=self._prove, workers=self._workers).to_bytes(),
        )

    def _signed(self, commitment: Commitment, turn: wire.Turn) -> dict[ClientId, Occasion]:
        """Return what the clients of a sum made their vectors for, where each has signed that it did."""
        publics, run = self._register.listed(commitment.seals), self._register.run
        occasions = {
            client: Occasion(run=run, client=client, turn=turn, asked=commitment.asked) for client in commitment.seals
        }
        if self._register.opened(turn, commitment.to_bytes()):  # for another block: their signatures were looked at
            return occasions
        for client, occasion in occasions.items():
            signature, root = commitment.signed_by(client)
            if not verified(publics[client], signature, occasion.signed(self._key, commitment.layout, root)):
                raise CipherError(
                    f"client {client} has not signed its ciphertexts for this round, or was asked for something else "
                    "than was said: nothing was opened"
                )
        return occasions


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

    def _asked(self, frame: wire.Frame) -> Asked:
        _, vector = self._opening(frame)
        return Asked(
            sum=frame.body,
            clients=range(vector.summands),  # as many as the server says
            layout=vector.layout,
            content=lambda: _told(vector, self._private.open(vector.rows, workers=self._workers)),
        )


def _told(vector: CiphertextVector, rows: Rows) -> bytes:
    try:
        sums = vector.layout.sums(rows, vector.summands)
    except CipherError:  # whose words would tell the server a number of what it may have forged
        raise CipherError(
            "what was to be opened is no sum of honest vectors, and nothing of it is told. A client sent numbers "
            "beyond its layout, or the sum was forged"
        ) from None
    return sums.astype("<i8").tobytes()
