"""A run of the encrypted sum, as the server knows it: who is enrolled, and what it makes of a round's replies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout, PublicKey, total
from tacit.crypto.paillier.knowledge import Claim, proof_bytes, unproved
from tacit.crypto.ring import Rows
from tacit.errors import CipherError, ClientError, DropoutError, KeysError, WireError
from tacit.flow import ClientId, Flow, party_name
from tacit.protocols.paillier.binding import (
    CHALLENGE_BYTES,
    Admission,
    KeyUse,
    Occasion,
    Public,
    encryption_key,
    run_of,
    seal_bytes,
    unpack_clients,
    unpack_key,
)
from tacit.protocols.paillier.blocks import Aside, BlockOpening, Blocks, Commitment, Tree, tree_of
from tacit.protocols.paillier.check import Check, check_row
from tacit.protocols.paillier.client import pack_invitation
from tacit.protocols.paillier.holders import Opening
from tacit.protocols.protocol import Refusals
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified

SETUP = wire.Turn(round_number=0)
_BATCH, _BATCH_BYTES = 8, 1 << 26  # vectors that wait to be added at once, and what they take at most


@dataclass(kw_only=True)
class Session:
    """A run of the encrypted sum at the server: who is enrolled in it.

    Clients enrol before the first round, or, if they were away then, when they are first asked. Whoever came first
    under a number stays: a client that has forgotten its secret is out for the rest of the run, unless it has a lasting
    identity and comes to the same secret again.

    Attributes:
        public: the key holders' public key.
        keys: who holds the private key.
        challenges: what each key holder drew for the run.
        needed: how many key holders open a sum.
        enrolments: what clients answered when they were asked to enrol.
        admitted: which clients each key holder has taken in.
        reasons: why clients take no part.
        remarks: what else people should know, until they are told.
    """

    public: Public
    keys: KeyUse
    challenges: Mapping[ClientId, bytes]
    needed: int
    enrolments: dict[ClientId, bytes] = field(default_factory=dict)
    admitted: dict[ClientId, set[ClientId]] = field(default_factory=dict)
    reasons: dict[ClientId, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def key(self) -> PublicKey:
        """The key that encrypts."""
        return encryption_key(self.public)

    @property
    def run(self) -> bytes:
        """The identity of the run."""
        return run_of(self.challenges.values())

    def members(self, cohort: Sequence[ClientId]) -> list[ClientId]:
        """Return those of a cohort whose replies can be opened: enough key holders have admitted them."""
        return [client for client in cohort if client in self.enrolments and self._accepted(client)]

    def signed(self, occasion: Occasion, signature: bytes, layout: Layout, root: bytes) -> bool:
        """Return whether an enrolled client has signed the root of its blocks for an occasion."""
        public = self.enrolments.get(occasion.client, b"")[:PUBLIC_BYTES]  # of one that is not, nothing is right
        return verified(public, signature, occasion.signed(self.key, layout, root))

    def told(self) -> tuple[str, ...]:
        """Return the remarks, once."""
        said, self.remarks = tuple(self.remarks), []
        return said

    def forget(self, client: ClientId) -> None:
        """Have a client enrol again that says it is not enrolled, such as one that was started anew."""
        self.enrolments.pop(client, None)
        for known in self.admitted.values():
            known.discard(client)

    def enrol(self, cohort: Sequence[ClientId]) -> Flow[None]:
        """Ask those of a cohort that are not enrolled, and have the key holders admit them."""
        new = [client for client in cohort if client not in self.enrolments]
        if not new:
            return
        invitation = wire.pack(wire.Kind.ENROL, SETUP, pack_invitation(self.run, self.key))
        replies = yield dict.fromkeys(new, invitation)
        came: list[ClientId] = []
        for client, reply in sorted(replies.items()):
            try:
                self.enrolments[client] = bytes(wire.expect(wire.Kind.ENROL, SETUP, client, reply))
                came.append(client)
                self.reasons.pop(client, None)
            except ClientError as error:
                self.reasons[client] = str(error)
        if self.keys == "shared" or not came:
            return
        for holder in self.challenges:
            self.admitted.setdefault(holder, set())
        answers = yield {
            holder: wire.pack(wire.Kind.ADMIT, SETUP, self._admission(holder).to_bytes()) for holder in self.challenges
        }
        for holder, answer in sorted(answers.items(), reverse=True):
            self._heard(holder, answer)
        for client in came:
            if not self._accepted(client):
                self.reasons[client] = (
                    f"Client {client} was not admitted by the key holders: another enrolment under its number came "
                    "first, its settings are others, or its identity is not on their lists."
                )

    def _admission(self, holder: ClientId) -> Admission:
        """Return what a holder does not know yet."""
        unknown = {client: body for client, body in self.enrolments.items() if client not in self.admitted[holder]}
        return Admission(challenges=list(self.challenges.values()), enrolments=unknown)

    def _heard(self, holder: ClientId, answer: bytes) -> None:
        try:
            refused = unpack_clients(wire.expect(wire.Kind.ADMIT, SETUP, holder, answer))
        except (ClientError, WireError) as error:
            self.remarks.append(f"{party_name(holder)} admitted nobody: {error}")
            return
        self.admitted[holder] |= self.enrolments.keys() - set(refused)

    def _accepted(self, client: ClientId) -> bool:
        return self.keys == "shared" or sum(client in known for known in self.admitted.values()) >= self.needed


def opened_session(
    holders: Sequence[ClientId], *, needed: int, keys: KeyUse, replies: Mapping[ClientId, bytes]
) -> Session:
    """Return the session that the key holders' answers to a request for the key begin.

    As many as open a sum have to tell the same key; they are more than half, so no others can. Whoever answers with
    garbage, a failure or another key is named and not in the run.
    """
    if len(replies) < needed:
        raise DropoutError(
            f"{len(replies)} of {len(holders)} key holders answered, {needed} needed. Start them, then run again."
        )
    bodies: dict[ClientId, bytes] = {}
    failed: dict[ClientId, ClientError] = {}
    for holder, reply in sorted(replies.items(), reverse=True):
        try:
            bodies[holder] = bytes(wire.expect(wire.Kind.KEY, SETUP, holder, reply))
        except ClientError as error:
            failed[holder] = error
    told = Counter(body[CHALLENGE_BYTES:] for body in bodies.values())
    agreed = next((key for key, count in told.items() if count >= needed), None)
    if agreed is None and failed:
        raise next(iter(failed.values()))
    if agreed is None:
        raise KeysError(
            f"The key holders {sorted(bodies)} have different public keys. Give all of them shares of one key."
        )
    challenges = {holder: body[:CHALLENGE_BYTES] for holder, body in bodies.items() if body[CHALLENGE_BYTES:] == agreed}
    reasons = [str(error) for error in failed.values()]
    reasons += [f"{party_name(h)} has another public key than the others." for h in bodies if h not in challenges]
    return Session(
        public=unpack_key(agreed),
        keys=keys,
        challenges=challenges,
        needed=needed,
        remarks=[f"{reason} The run goes on without it." for reason in reasons],
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Reply:
    """A client's reply, read.

    Attributes:
        vector: its ciphertexts.
        seal: what binds them to the turn: the nonce of its masks, or its signature.
        borne: what it bears of an authority's check.
        proofs: of its blocks, where holders of shares are shown them.
        claims: what it claims of each.
        tree: their hashes.
    """

    vector: CiphertextVector
    seal: bytes
    borne: Rows | None = None
    proofs: Sequence[bytes] = ()
    claims: Sequence[Claim] = ()
    tree: Tree | None = None


class RunningSum:
    """Takes replies from any thread; holds at most a few vectors at a time, whatever the cohort.

    Those that holders of shares are shown are put aside in a file until then. A reply that can't be used is left out,
    and its client is named: see :class:`Refusals`. The order of arrival changes nothing. Of two replies of a client the
    first counts, and none that comes after :meth:`finish`.
    """

    def __init__(
        self,
        *,
        turn: wire.Turn,
        asked: bytes,
        layout: Layout,
        session: Session,
        cohort: Iterable[ClientId],
        check: Check | None = None,
    ) -> None:
        self._turn, self._asked, self._layout, self._session, self._check = turn, asked, layout, session, check
        self._borne: Rows | None = None  # the product of what clients sent of the check
        self._lock = threading.Lock()
        self._over = False  # where a reply comes too late
        self._waiting: dict[ClientId, Reply] = {}
        self._sum: CiphertextVector | None = None
        self._seals: dict[ClientId, bytes] = {}
        self._trees: dict[ClientId, Tree] = {}
        self._aside = Aside(layout=layout, key=session.key) if session.keys == "threshold" else None
        reasons = {client: session.reasons[client] for client in cohort if client in session.reasons}
        self.refusals = Refusals(round_number=turn.round_number, reasons=reasons)
        self.clients: list[ClientId] = []

    def receive(self, client: ClientId, reply: bytes) -> None:
        """Check a reply and add it, or keep it until there are a few."""
        try:
            read = self._parsed(client, reply)
        except ClientError as error:
            with self._lock:
                if self._over or client in self.clients:
                    return
                self.refusals.add(client, error)
                if error.failure is wire.Failure.NOT_ENROLLED:
                    self._session.forget(client)
            return
        with self._lock:
            if self._over or client in self.clients or client in self.refusals.reasons:
                return
            if self._aside is not None and read.tree is not None:
                self._aside.put(client, read.proofs, read.vector.rows)
                self._trees[client] = read.tree
            self.clients.append(client)
            if read.seal:
                self._seals[client] = read.seal
            if read.borne is not None:
                ring = read.vector.key.ring
                self._borne = read.borne if self._borne is None else ring.multiply(self._borne, read.borne)
            self._waiting[client] = read
            if len(self._waiting) >= min(_BATCH, max(1, _BATCH_BYTES // read.vector.nbytes)):
                self._fold()

    def finish(self) -> CiphertextVector | None:
        """Return the sum of all replies that count, or None where there are none."""
        with self._lock:
            self._over = True
            self._fold()
            self.clients.sort()
            return self._sum

    def close(self) -> None:
        """Forget what was put aside."""
        with self._lock:
            self._over = True
            if self._aside is not None:
                self._aside.close()

    def opening(self, encrypted: CiphertextVector) -> Opening:
        """Return what whoever has the key is asked: to open the sum."""
        check = b""
        if self._check is not None and self._borne is not None:
            key = encrypted.key
            check = self._check.digest + key.ring.multiply(self._borne, key.take(1)).tobytes()
        return Opening(seals=self._listed(), vector=encrypted.pieces(), check=check)

    def block(self, number: int) -> BlockOpening:
        """Return what holders of shares are asked: to open a block of the replies, which they add themselves."""
        assert self._aside is not None, "replies are put aside for holders of shares"
        seals = {client: seal + self._trees[client].root for client, seal in self._listed().items()}
        commitment = Commitment(seals=seals, asked=self._asked, layout=self._layout)
        parts = [self._aside.part(client, number, self._trees[client].way(number)) for client in seals]
        return BlockOpening(commitment=commitment, number=number, parts=parts)

    def _listed(self) -> dict[ClientId, bytes]:
        return {client: self._seals[client] for client in self.clients if client in self._seals}

    def _fold(self) -> None:
        """Add what is waiting, but for vectors whose makers have not proved that they know what is in them."""
        if self._session.keys == "threshold":
            self._leave_out_unproved()
        vectors = [] if self._sum is None else [self._sum]
        vectors += [reply.vector for reply in self._waiting.values()]
        if self._waiting:
            self._sum, self._waiting = total(vectors), {}

    def _leave_out_unproved(self) -> None:
        """Key holders would open nothing of a sum with one of them."""
        claims = [(client, claim) for client, reply in self._waiting.items() for claim in reply.claims]
        places = unproved(self._session.key, [claim for _, claim in claims])
        for client in sorted({claims[place][0] for place in places}):
            self.clients.remove(client)
            del self._waiting[client], self._seals[client], self._trees[client]
            self.refusals.add(client, self._blame(client, "Its proof that it knows what is in it does not hold."))

    def _parsed(self, client: ClientId, reply: bytes) -> Reply:
        """Read a client's reply, or say what is wrong with it."""
        body = wire.expect(wire.Kind.CIPHER, self._turn, client, reply)
        key = self._session.key
        count = 1 if self._session.keys != "threshold" else Blocks(layout=self._layout).count
        size = seal_bytes(self._session.keys, key, count)
        seal, ciphertext = bytes(body[:size]), body[size:]
        borne = None
        try:
            if self._check is not None:
                ciphertext, tail = ciphertext[: -key.ring.width], ciphertext[-key.ring.width :]
                borne = check_row(tail, key)
            vector = CiphertextVector.from_bytes(ciphertext, key)
        except CipherError as error:
            raise self._blame(client, str(error)) from error
        if vector.layout != self._layout or vector.summands != 1:
            raise self._blame(
                client,
                f"It has {vector.layout} and {vector.summands} summands, expected {self._layout} and 1. Check that its "
                "model and settings are the ones of this run.",
            )
        if self._session.keys != "threshold":
            return Reply(vector=vector, seal=seal, borne=borne)
        return self._signed(client, vector, seal[:SIGNATURE_BYTES], seal[SIGNATURE_BYTES:])

    def _signed(self, client: ClientId, vector: CiphertextVector, signature: bytes, shown: bytes) -> Reply:
        """Return a reply that holders of shares will look at, or say what they would not take."""
        occasion = Occasion(run=self._session.run, client=client, turn=self._turn, asked=self._asked)
        blocks, key = Blocks(layout=self._layout), self._session.key
        each = proof_bytes(key)
        proofs = [shown[at : at + each] for at in range(0, len(shown), each)]
        try:
            claims = [
                occasion.claim(number, proof, vector.rows[blocks.rows(number)], key)
                for number, proof in enumerate(proofs)
            ]
        except CipherError as error:
            raise self._blame(client, str(error)) from error
        tree = tree_of(self._layout, proofs, vector.rows)
        if not self._session.signed(occasion, signature, self._layout, tree.root):
            raise self._blame(client, "It is not signed by this client for this round and what it was asked.")
        return Reply(vector=vector, seal=signature, proofs=proofs, claims=claims, tree=tree)

    def _blame(self, client: ClientId, what: str) -> ClientError:
        number = self._turn.round_number
        return ClientError(
            f"Client {client} sent an encrypted vector in round {number} that can't be added. {what}",
            client=client,
            round_number=number,
        )
