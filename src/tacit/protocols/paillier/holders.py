"""Key holders: who may open an encrypted sum, and which sums they refuse to open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout, PrivateKey, total
from tacit.crypto.ring import Rows
from tacit.crypto.threshold import KeyShare
from tacit.errors import CipherError, ConfigError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier import binding, enrolment
from tacit.protocols.paillier.binding import Rules
from tacit.protocols.paillier.member import SEAL_BYTES
from tacit.protocols.paillier.opening import Opening
from tacit.protocols.paillier.register import FLOOR, Register
from tacit.protocols.paillier.terms import KeyUse, Public, encryption_key, pack_key, reason


@dataclass(frozen=True, kw_only=True)
class Caution:
    """What a key holder goes by, of which the server has no word.

    Attributes:
        rules: of the run, as this holder's own settings have them.
        layout: what sums of a length have to look like; None accepts any, the same in all rounds.
        floor: the fewest clients of a sum, whatever the rules say.
        clients: the lasting identities of those who may enrol; None lets anybody.
        memory: what :attr:`Holder.memory` was when the holder stopped.
    """

    rules: Rules
    layout: Callable[[int, int], Layout] | None = None
    floor: int = FLOOR
    clients: frozenset[bytes] | None = None
    memory: bytes = b""


class Holder(ABC):
    """What all key holders do: tell the key, admit clients, and open one sum a round, by the rules of its register."""

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

    def answer(self, request: bytes) -> bytes:
        """Tell the public key and a challenge, admit clients, or open a sum; refuse by a FAILURE that says why."""
        frame = wire.unpack(request)
        if frame.kind is wire.Kind.KEY:
            self._begin()
            return wire.pack(wire.Kind.KEY, frame.turn, self._register.challenge + pack_key(self._public))
        try:
            if frame.kind is wire.Kind.ADMIT:
                return wire.pack(wire.Kind.ADMIT, frame.turn, self._admitted(bytes(frame.body)))
            if frame.kind is wire.Kind.OPEN:
                return wire.pack(wire.Kind.OPENED, frame.turn, self._opened(frame))
        except (CipherError, ConfigError, WireError) as error:
            return wire.pack_failure(frame.turn, wire.Failure.REFUSED, reason(error))
        raise WireError(f"Expected a KEY, ADMIT or OPEN frame, got {frame.kind.name}: a key holder does nothing else.")

    def _begin(self) -> None:
        self._register.begin(self._caution.rules)

    def _admitted(self, body: bytes) -> bytes:
        """Note the clients whose enrolments are right, and return the numbers of the others."""
        admission = enrolment.Admission.from_bytes(body)
        register = self._register
        register.same(self._caution.rules)
        register.joined(admission)
        length = enrolment.length_of(self._key, signs=self.keys == "threshold")
        stated: dict[ClientId, tuple[bytes, bytes]] = {}
        vouched: dict[ClientId, bytes | None] = {}
        for client, given in admission.enrolments.items():
            said = binding.statement(register.run, client, register.rules)
            own, vouched[client] = enrolment.identity_of(given, said, length)
            if self._caution.clients is None or vouched[client] in self._caution.clients:
                stated[client] = own, said
        right = self._members(stated)
        refused = [c for c in admission.enrolments if c not in right or not register.admit(c, right[c], vouched[c])]
        return enrolment.pack_clients(refused)

    def _opened(self, frame: wire.Frame) -> bytes:
        register = self._register
        register.same(self._caution.rules)
        opening = Opening.from_bytes(frame.body, seal_bytes=SEAL_BYTES[self.keys], each=self.keys == "threshold")
        vector = self._sum(opening, frame.turn)
        layout = vector.layout
        if self._caution.layout is not None and layout != self._caution.layout(layout.length, self._key.bits):
            raise CipherError("the sum has another layout than this key holder's settings give, and was not opened")
        register.allow(frame.turn, frame.body, summands=vector.summands, layout=layout)
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
    or a number that tells nothing (:mod:`tacit.protocols.paillier.binding`).
    """

    keys = "authority"

    def __init__(self, *, private: PrivateKey, caution: Caution, workers: int | None = None) -> None:
        super().__init__(private.public, caution)
        self._private = private
        self._workers = workers

    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        return enrolment.secrets_of(enrolments, self._private)

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:  # noqa: ARG002
        vector = CiphertextVector.from_bytes(opening.vectors[0], self._key)
        self._register.listed(opening.seals)
        if vector.summands != len(opening.seals):
            raise CipherError(f"the sum claims {vector.summands} summands, and {len(opening.seals)} clients are named")
        return vector

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        secrets = self._register.listed(opening.seals)
        taken_off = (
            binding.masks(secrets[client], turn, nonce, self._key, len(vector.rows))
            for client, nonce in opening.seals.items()
        )
        rows = self._private.open(vector.rows, workers=self._workers)
        return _told(vector, binding.unmasked(rows, taken_off, self._key, workers=self._workers))


class ShareHolder(Holder):
    """One of several who hold a share of the key each: only ``threshold`` of them together open a sum.

    It is shown every client's ciphertext, none of which it can read, checks whose they are and what they were made
    for, and gives its part of their product alone.
    """

    keys = "threshold"

    def __init__(self, *, share: KeyShare, caution: Caution, prove: bool = False, workers: int | None = None) -> None:
        super().__init__(share.public, caution)
        self._share = share
        self._prove = prove
        self._workers = workers

    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:
        found = {client: enrolment.signer_of(body, stated) for client, (body, stated) in enrolments.items()}
        return {client: public for client, public in found.items() if public is not None}

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        publics = self._register.listed(opening.seals)
        vectors = []
        for (client, signature), body in zip(opening.seals.items(), opening.vectors, strict=True):
            signed = binding.contribution(self._register.run, client, turn, body)
            if not binding.verified(publics[client], signature, signed):
                raise CipherError(f"client {client} has not signed its ciphertext for this round: nothing was opened")
            vectors.append(CiphertextVector.from_bytes(body, self._key, units=False))
        if any(vector.summands != 1 for vector in vectors):
            raise CipherError("a client's ciphertext claims to be a sum, and nothing was opened")
        return total(vectors, check_units=True, workers=self._workers)

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:  # noqa: ARG002
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

    def _begin(self) -> None:
        if not self._register.challenge:  # nothing would keep ciphertexts of a run that is forgotten from being opened
            self._register.begin(self._caution.rules)

    def _members(self, enrolments: dict[ClientId, tuple[bytes, bytes]]) -> dict[ClientId, bytes]:  # noqa: ARG002
        return {}

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:  # noqa: ARG002
        return CiphertextVector.from_bytes(opening.vectors[0], self._key)

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:  # noqa: ARG002
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
