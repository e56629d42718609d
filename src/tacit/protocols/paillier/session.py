"""The server's side of enrolment: the key, the run, and which clients the key holders have admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tacit import wire
from tacit.crypto.paillier import PublicKey
from tacit.errors import ClientError, DropoutError, KeysError, WireError
from tacit.flow import ClientId, Flow, party_name
from tacit.protocols.paillier.binding import CHALLENGE_BYTES, PUBLIC_BYTES, contribution, run_of, verified
from tacit.protocols.paillier.enrolment import Admission, unpack_clients
from tacit.protocols.paillier.member import pack_invitation
from tacit.protocols.paillier.terms import KeyUse, Public, encryption_key, unpack_key

SETUP = wire.Turn(round_number=0)


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

    def signed(self, client: ClientId, turn: wire.Turn, signature: bytes, ciphertext: bytes | memoryview) -> bool:
        """Return whether an enrolled client has signed a ciphertext for this turn."""
        public = self.enrolments[client][:PUBLIC_BYTES]
        return verified(public, signature, contribution(self.run, client, turn, ciphertext))

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
