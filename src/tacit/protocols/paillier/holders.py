"""Key holders: who may open an encrypted sum, what they are asked, and which sums they refuse to open."""

from __future__ import annotations

import hashlib
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tacit import foreign, wire
from tacit.crypto.paillier import CiphertextVector, Layout, PrivateKey, total
from tacit.crypto.ring import Rows
from tacit.crypto.threshold import KeyShare
from tacit.errors import CipherError, ConfigError, KeysError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier import binding
from tacit.protocols.paillier.binding import (
    CHALLENGE_BYTES,
    SEAL_BYTES,
    Admission,
    KeyUse,
    Public,
    Rules,
    encryption_key,
    laid_out,
    pack_key,
    reason,
    run_of,
)
from tacit.protocols.signatures import verified
from tacit.randomness import system_bytes

FLOOR = 2  # a sum of one is that client's vector, whatever a run's settings say

_LARGEST = 1 << 28  # bytes of a memory: some hundred per client
_COUNT = struct.Struct(">I")
_CLIENT = struct.Struct(">Q")


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
        if request.kind is wire.Kind.KEY:
            self._begin()
            return wire.pack(wire.Kind.KEY, request.turn, self._register.challenge + pack_key(self._public))
        try:
            if request.kind is wire.Kind.ADMIT:
                return wire.pack(wire.Kind.ADMIT, request.turn, self._admitted(bytes(request.body)))
            if request.kind is wire.Kind.OPEN:
                return wire.pack(wire.Kind.OPENED, request.turn, self._opened(request))
        except (CipherError, ConfigError, WireError) as error:
            return wire.pack_failure(request.turn, wire.Failure.REFUSED, reason(error))
        raise WireError(
            f"Expected a KEY, ADMIT or OPEN frame, got {request.kind.name}: a key holder does nothing else."
        )

    def _begin(self) -> None:
        self._register.begin(self._caution.rules)

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
        opening = Opening.from_bytes(frame.body, seal_bytes=SEAL_BYTES[self.keys], each=self.keys == "threshold")
        vector = self._sum(opening, frame.turn)
        layout = vector.layout
        make = self._caution.layout
        if make is not None and layout != laid_out(make, layout.length, self._key.bits):
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
        return binding.secrets_of(enrolments, self._private)

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        vector = CiphertextVector.from_bytes(opening.vectors[0], self._key)
        self._register.listed(opening.seals)
        if vector.summands != len(opening.seals):
            raise CipherError(f"the sum claims {vector.summands} summands, and {len(opening.seals)} clients are named")
        return vector

    def _content(self, vector: CiphertextVector, opening: Opening, turn: wire.Turn) -> bytes:
        secrets = self._register.members  # all of the list are: see _sum
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
        found = {client: binding.signer_of(body, stated) for client, (body, stated) in enrolments.items()}
        return {client: public for client, public in found.items() if public is not None}

    def _sum(self, opening: Opening, turn: wire.Turn) -> CiphertextVector:
        publics = self._register.listed(opening.seals)
        vectors = []
        for (client, signature), body in zip(opening.seals.items(), opening.vectors, strict=True):
            signed = binding.contribution(self._register.run, client, turn, body)
            if not verified(publics[client], signature, signed):
                raise CipherError(f"client {client} has not signed its ciphertext for this round: nothing was opened")
            vectors.append(CiphertextVector.from_bytes(body, self._key, units=False))
        if any(vector.summands != 1 for vector in vectors):
            raise CipherError("a client's ciphertext claims to be a sum, and nothing was opened")
        return total(vectors, check_units=True, workers=self._workers)

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

    def _begin(self) -> None:
        if not self._register.challenge:  # nothing would keep ciphertexts of a run that is forgotten from being opened
            self._register.begin(self._caution.rules)

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


@dataclass(kw_only=True)
class Register:
    """A key holder's book of one run.

    It opens one sum per round, of rounds in order and no more of them than there were to be, of at least as many
    clients as the rules say and never fewer than ``floor``. The same sum may be asked for again, as an answer may be
    lost.

    Asking for the key begins a new run: the challenge is drawn anew, and everything that was known of the last run is
    forgotten. That is safe, and so is a holder that loses its memory: no client enrolled for the new challenge, and
    what was made for the old one is bound to keys that nobody has any more.

    Attributes:
        rules: what this holder was told first; clients have to state the same.
        floor: the fewest clients of a sum, whatever the rules say: the word of the holder's own operator.
        challenge: what this holder drew for the run.
        run: the identity of the run.
        members: what binds each client's replies: the secret of its masks, or the key of its signatures.
        identities: the lasting identities that clients enrolled with, where they did.
        last: the last round a sum of which was opened, and of which try.
        digest: of what was opened in it.
        layout: of all sums.
    """

    rules: Rules
    floor: int = FLOOR
    challenge: bytes = b""
    run: bytes = b""
    members: dict[ClientId, bytes] = field(default_factory=dict, repr=False)
    identities: dict[ClientId, bytes] = field(default_factory=dict)
    last: wire.Turn | None = None
    digest: bytes = b""
    layout: Layout | None = None

    def begin(self, rules: Rules) -> None:
        """Begin a run, and forget the last one."""
        self.rules, self.challenge, self.run = rules, system_bytes(CHALLENGE_BYTES), b""
        self.members, self.identities = {}, {}
        self.last, self.digest, self.layout = None, b"", None

    def same(self, rules: Rules) -> None:
        """Refuse rules that are not those the run began with."""
        if rules != self.rules:
            raise CipherError(f"the run began with {self.rules}, and now has {rules}: nothing is opened")

    def joined(self, admission: Admission) -> None:
        """Fix the run that clients are enrolled in, or refuse another one than the first, or one of other holders."""
        run = run_of(admission.challenges)
        if not self.challenge or self.challenge not in admission.challenges or self.run not in (b"", run):
            raise CipherError("the clients enrolled in another run than this key holder's: ask for the key again")
        self.run = run

    def admit(self, client: ClientId, member: bytes, identity: bytes | None) -> bool:
        """Note a client, and return whether it is one that may take part: whoever came first under a number stays."""
        taken = identity is not None and self.identities.get(client, identity) != identity
        twice = identity is not None and any(i == identity and c != client for c, i in self.identities.items())
        if taken or twice or self.members.get(client, member) != member:
            return False
        self.members[client] = member
        if identity is not None:
            self.identities[client] = identity
        return True

    def listed(self, clients: Mapping[ClientId, bytes]) -> dict[ClientId, bytes]:
        """Return what binds the replies of a sum's clients, who all have to be members."""
        strangers = [client for client in clients if client not in self.members]
        if strangers:
            raise CipherError(
                f"client {strangers[0]} is not enrolled in this run, and nothing of {len(clients)} clients was opened"
            )
        return {client: self.members[client] for client in clients}

    def allow(self, turn: wire.Turn, body: bytes | memoryview, *, summands: int, layout: Layout) -> None:
        """Record an opening, or raise CipherError."""
        number, least = turn.round_number, max(self.floor, self.rules.minimum_clients)
        if summands < least:
            raise CipherError(
                f"a sum of {summands} vectors was not opened, expected at least {least}: fewer could expose one client"
            )
        if not 1 <= number <= self.rules.rounds:
            raise CipherError(
                f"a sum for round {number} was not opened, expected a round from 1 to {self.rules.rounds}"
            )
        if self.layout is not None and layout != self.layout:
            raise CipherError("the sum has another layout than those of earlier rounds, and was not opened")
        digest = hashlib.sha256(body).digest()
        if self.last is not None and number <= self.last.round_number and (turn, digest) != (self.last, self.digest):
            raise CipherError(
                f"a second sum for round {number} was not opened: one was, for round {self.last.round_number}, and two "
                "sums of a round could expose a client by their difference"
            )
        self.last, self.digest, self.layout = turn, digest, layout

    def to_bytes(self) -> bytes:
        """Return what must not be forgotten during a run: with an authority, secrets of its clients too."""
        if not self.challenge and self.last is None:
            return b""
        record = {
            "minimum": self.rules.minimum_clients,
            "rounds": self.rules.rounds,
            "challenge": self.challenge.hex(),
            "run": self.run.hex(),
            "members": {str(client): member.hex() for client, member in self.members.items()},
            "identities": {str(client): identity.hex() for client, identity in self.identities.items()},
            "last": None if self.last is None else [self.last.round_number, self.last.attempt],
            "digest": self.digest.hex(),
            "layout": None if self.layout is None else self.layout.to_bytes().hex(),
        }
        return json.dumps(record).encode()

    @classmethod
    def remembered(cls, memory: bytes, *, rules: Rules, floor: int) -> Register:
        """Read what :meth:`to_bytes` wrote; nothing is the memory of a holder that knows of no run yet."""
        if not memory:
            return cls(rules=rules, floor=floor)
        try:
            record = foreign.json_object(memory, largest=_LARGEST)
            last, layout = record["last"], record["layout"]
            found = cls(
                rules=Rules(minimum_clients=int(record["minimum"]), rounds=int(record["rounds"])),
                floor=floor,
                challenge=bytes.fromhex(record["challenge"]),
                run=bytes.fromhex(record["run"]),
                members={int(client): bytes.fromhex(member) for client, member in record["members"].items()},
                identities={int(client): bytes.fromhex(one) for client, one in record["identities"].items()},
                last=None if last is None else wire.Turn(round_number=int(last[0]), attempt=int(last[1])),
                digest=bytes.fromhex(record["digest"]),
                layout=None if layout is None else Layout.from_bytes(bytes.fromhex(layout)),
            )
            found._check()
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, WireError, CipherError) as error:
            raise KeysError(
                f"The key holder's memory of what it has opened can't be read: {type(error).__name__}. Without it a "
                "sum could be opened twice. Restore it, or remove it and begin the run anew."
            ) from error
        return found

    def _check(self) -> None:
        """Refuse a memory that no run leaves behind, such as one of clients without a challenge."""
        lengths = {len(self.challenge), len(self.run), len(self.digest)} - {0, CHALLENGE_BYTES}
        numbers = (self.rules.minimum_clients, self.rules.rounds, *self.members, *self.identities)
        known = self.run or self.members or self.identities
        if lengths or min(numbers) < 0 or (known and not self.challenge) or (self.members and not self.run):
            raise ValueError("its parts don't belong together")
