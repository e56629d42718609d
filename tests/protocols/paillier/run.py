"""A run under attack: honest clients and key holders, and a server that has all frames and asks what it likes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tacit import wire
from tacit.crypto import paillier
from tacit.crypto.paillier import Layout
from tacit.crypto.paillier.knowledge import encrypted, proof_bytes
from tacit.crypto.paillier.vector import HEADER_BYTES, LAYOUT_BYTES
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.flow import ClientId, Frames, InProcessEngine, drive
from tacit.protocols.paillier import Authority, Caution, KeyCopy, PaillierSum, Rules, ShareHolder
from tacit.protocols.paillier.binding import Admission, Occasion, noise_of, seal_bytes
from tacit.protocols.paillier.blocks import HASH_BYTES, BlockOpening, Blocks, Commitment, Part, tree_of
from tacit.protocols.paillier.check import Check
from tacit.protocols.paillier.client import Member, pack_invitation
from tacit.protocols.paillier.holders import Holder, Opening
from tacit.protocols.paillier.session import SETUP, Session
from tacit.protocols.signatures import SIGNATURE_BYTES
from tests.protocols.test_conformance import key_pair, key_shares, layout

LENGTH = 20
Numbers = NDArray[np.float64]
KEYS = ("authority", "threshold")
BORNE: dict[bytes, bytes] = {}  # what a reply bears of the check, by its nonce


def holders_of(keys: str, caution: Caution) -> dict[ClientId, Holder]:
    """Return key holders that go by ``caution``."""
    if keys == "threshold":
        return {-share.index: ShareHolder(share=share, caution=caution) for share in key_shares()}
    kind = Authority if keys == "authority" else KeyCopy
    return {-1: kind(private=key_pair()[1], caution=caution)}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a server makes of replies, or of whatever it likes, for key holders.

    Attributes:
        seals: nonces, or signatures with the proofs of all blocks.
        vectors: the encrypted sum, or each client's ciphertexts.
        check: an authority's, or the hash of what clients were asked.
        key: where ciphertexts of each client are shown.
    """

    seals: Mapping[ClientId, bytes]
    vectors: Sequence[bytes]
    check: bytes
    key: paillier.PublicKey | None = None

    @property
    def layout(self) -> Layout:
        """What the first vector says its layout is."""
        return Layout.from_bytes(bytes(self.vectors[0][HEADER_BYTES - 16 - LAYOUT_BYTES : HEADER_BYTES - 16]))

    @property
    def count(self) -> int:
        """How many blocks there are to ask for."""
        return 1 if self.key is None else Blocks(layout=self.layout).count

    def to_bytes(self, number: int = 0) -> bytes:
        """Return the body of the request for a block, or for all."""
        if self.key is None:
            return b"".join(Opening(seals=self.seals, vector=[self.vectors[0]], check=self.check).pieces())
        return b"".join(self.block(number).pieces())

    def block(self, number: int = 0) -> BlockOpening:
        """Return the request for a block."""
        key, blocks = self.key, Blocks(layout=self.layout)
        assert key is not None
        seals, parts = {client: seal[:SIGNATURE_BYTES] + bytes(HASH_BYTES) for client, seal in self.seals.items()}, []
        for (client, seal), body in zip(self.seals.items(), self.vectors, strict=False):  # a liar's may be fewer
            each = proof_bytes(key)
            proofs = [seal[at : at + each] for at in range(SIGNATURE_BYTES, len(seal), each)]
            rows = np.frombuffer(body, np.uint8, offset=HEADER_BYTES).reshape(-1, key.ring.width)
            tree = tree_of(self.layout, proofs, rows)
            seals[client] = seal[:SIGNATURE_BYTES] + tree.root
            some = rows[blocks.rows(number)].tobytes()
            parts.append(Part(way=tree.way(number), proof=proofs[number], rows=some))
        commitment = Commitment(seals=seals, asked=self.check, layout=self.layout)
        return BlockOpening(commitment=commitment, number=number, parts=parts)


class Run:
    """Clients with secret vectors, key holders with rules, and what a server has of both."""

    def __init__(
        self,
        keys: str,
        *,
        clients: int = 4,
        rules: Rules = Rules(minimum_clients=3, rounds=6),  # noqa: B008
        told: Rules | None = None,
        holders: Mapping[ClientId, Holder] | None = None,
        identities: Mapping[ClientId, Ed25519PrivateKey] | None = None,
        needed: int = 2,
        **caution: Any,
    ) -> None:
        """Set a run up: clients go by ``rules``, key holders by what they were ``told``, which is the same."""
        self.keys = keys
        self.rules = rules
        self.model = np.zeros(1, np.float32)
        self.holders = dict(holders or holders_of(keys, Caution(rules=told or rules, layout=layout, **caution)))
        self.protocol = PaillierSum(
            minimum_clients=rules.minimum_clients,
            rounds=rules.rounds,
            layout=layout,
            keys=keys,  # type: ignore[arg-type]
            holders=tuple(self.holders),
            needed=needed if keys == "threshold" else 1,
            insecure_key_size=True,
        )
        self.identities = identities or {}
        self.states: dict[ClientId, bytes] = {}
        self.check = Check.drawn(self.asked)
        self.vectors = list(np.random.default_rng(7).normal(size=(clients, LENGTH)).astype(np.float32))
        ready = drive(self.protocol.setup(range(clients)), InProcessEngine(answer=self.answer))
        assert ready.session is not None
        self.session: Session = ready.session
        self.ready = ready

    def answer(self, requests: Frames) -> Frames:
        """Answer for all parties."""
        return {party: self._answer(party, request) for party, request in requests.items()}

    def _answer(self, party: ClientId, request: bytes) -> bytes:
        frame = wire.unpack(request)
        if frame.kind in wire.FOR_HOLDERS:
            return self.holders[party].answer(frame)
        vector = self.vectors[party] if frame.kind is wire.Kind.TASK else None
        own = replace(self.protocol, identity=self.identities.get(party))
        self.states[party], reply = own.client(self.states.get(party, b""), frame, vector, number=party)
        return reply

    def reply(self, client: ClientId, round_number: int = 1, attempt: int = 0) -> tuple[bytes, bytes]:
        """Return a client's seal and ciphertext for a turn."""
        request = self.task(round_number, attempt, told=self.check.seed if self.keys == "authority" else b"")
        frame = wire.unpack(self._answer(client, wire.pack(request.kind, request.turn, request.body)))
        assert frame.kind is wire.Kind.CIPHER, bytes(frame.body)
        return self.parted(bytes(frame.body))

    def task(self, round_number: int, attempt: int = 0, told: bytes = b"") -> wire.Frame:
        """Return what clients are asked for; by an attacker, of another model."""
        turn = wire.Turn(round_number=round_number, attempt=attempt)
        return wire.unpack(wire.pack_task(wire.Task(turn=turn, model=self.model, told=told)))

    @property
    def asked(self) -> bytes:
        """What replies are bound to, of what clients are asked."""
        return wire.bound_to(self.task(1), self.protocol.settings)

    def given(self, model: NDArray[np.float32]) -> None:
        """Have clients be asked with this model from now on, and key holders told of it; the seed stays."""
        self.model = model
        self.check = replace(self.check, asked=self.asked)

    def occasion(self, client: ClientId, round_number: int) -> Occasion:
        """Return what a client's ciphertext of a round is for."""
        return Occasion(run=self.session.run, client=client, turn=self.task(round_number).turn, asked=self.asked)

    def parted(self, body: bytes) -> tuple[bytes, bytes]:
        """Return the seal and the ciphertext of a reply; what it bears of the check is kept."""
        form = self.protocol.layout(len(self.vectors[0]), self.session.key.bits)
        size, end = seal_bytes(self.protocol.keys, self.session.key, Blocks(layout=form).count), len(body)
        if self.keys == "authority":
            end -= self.session.key.ring.width
            BORNE[body[:size]] = body[end:]
        return body[:size], body[size:end]

    def replies(self, round_number: int = 1, attempt: int = 0) -> dict[ClientId, tuple[bytes, bytes]]:
        """Return what all clients send for a turn."""
        return {client: self.reply(client, round_number, attempt) for client in range(len(self.vectors))}

    def opening(self, replies: Mapping[ClientId, tuple[bytes, bytes]]) -> Shown:
        """Return what an honest server asks to open of replies."""
        seals = {client: seal for client, (seal, _) in replies.items()}
        bodies = [body for _, body in replies.values()]
        if self.keys == "threshold":
            return Shown(seals=seals, vectors=bodies, check=self.asked, key=self.session.key)
        return Shown(seals=seals, vectors=[self.added(bodies).to_bytes()], check=self.borne_by(seals.values()))

    def borne_by(self, nonces: Iterable[bytes]) -> bytes:
        """Return the check of some replies, as a server asks an authority for it."""
        if self.keys != "authority":
            return b""
        ring = self.session.key.ring
        rows = [np.frombuffer(BORNE[nonce], np.uint8)[None] for nonce in nonces]
        return self.check.digest + ring.product(rows).tobytes()

    def added(self, bodies: Sequence[bytes]) -> paillier.CiphertextVector:
        """Return the sum of ciphertexts."""
        return paillier.total([paillier.CiphertextVector.from_bytes(body, self.session.key) for body in bodies])

    def ask(self, opening: Shown, round_number: int = 1, attempt: int = 0) -> Numbers | str:
        """Return what the key holders open, all blocks in turn, or why they don't."""
        turn = wire.Turn(round_number=round_number, attempt=attempt)
        found = []
        for number in range(opening.count):
            given = self.ask_for(opening.to_bytes(number), turn, functools.partial(self.block, opening, number))
            if isinstance(given, str):
                return given
            found.append(given)
        return np.concatenate(found)

    def ask_for(self, body: bytes, turn: wire.Turn, product: Callable[[], paillier.CiphertextVector]) -> Numbers | str:
        """Return what the key holders open of a request, whose sum is ``product``, or why they don't."""
        request = wire.pack(wire.Kind.OPEN, turn, body)
        frames = {party: wire.unpack(holder.answer(wire.unpack(request))) for party, holder in self.holders.items()}
        parts = [bytes(frame.body) for frame in frames.values() if frame.kind is wire.Kind.OPENED]
        if len(parts) < self.protocol.needed:
            return next(wire.unpack_failure(f)[1] for f in frames.values() if f.kind is wire.Kind.FAILURE)
        public = self.session.public
        if isinstance(public, ThresholdPublic):
            partials = [PartialDecryption.from_bytes(part, public) for part in parts[: public.threshold]]
            return np.asarray(public.combine(product(), partials).value, np.float64)
        units = np.frombuffer(parts[0][: 8 * LENGTH], "<i8").astype(np.int64)
        return np.asarray(layout(LENGTH, 256).worth(units), np.float64)

    def block(self, opening: Shown, number: int = 0) -> paillier.CiphertextVector:
        """Return the sum of what is shown in a block."""
        added = self.added([bytes(body) for body in opening.vectors])
        blocks = Blocks(layout=added.layout)
        return replace(added, layout=blocks.layout_of(number), rows=added.rows[blocks.rows(number)])

    def open(self, clients: Sequence[ClientId], round_number: int = 1) -> Numbers | str:
        """Return the sum of some clients' fresh replies of a round, as key holders open it."""
        replies = {client: self.reply(client, round_number) for client in clients}
        return self.ask(self.opening(replies), round_number)

    def exact(self, clients: Sequence[ClientId]) -> Numbers:
        """Return the true sum."""
        total: Numbers = np.sum([self.vectors[client] for client in clients], axis=0, dtype=np.float64)
        return total

    def admit(self, body: bytes) -> dict[ClientId, wire.Frame]:
        """Tell all key holders of enrolments."""
        request = wire.pack(wire.Kind.ADMIT, SETUP, body)
        return {party: wire.unpack(holder.answer(wire.unpack(request))) for party, holder in self.holders.items()}


def opens(given: Numbers | str, expected: NDArray[np.floating[Any]]) -> None:
    """Check that a sum was opened, and that it is the expected one."""
    assert not isinstance(given, str), given
    assert np.abs(given - expected).max() < 1e-6


def refused(given: Numbers | str, words: str) -> bool:
    """Return whether nothing was opened, for the reason."""
    return isinstance(given, str) and words in given


def enrol(run: Run, clients: tuple[int, ...]) -> bytes:
    """Return what key holders are told of clients that enrol later."""
    invitation = wire.pack(wire.Kind.ENROL, SETUP, pack_invitation(run.session.run, run.session.key))
    bodies = {client: bytes(wire.unpack(run.answer({client: invitation})[client]).body) for client in clients}
    return Admission(challenges=list(run.session.challenges.values()), enrolments=bodies).to_bytes()


# What a client can do for a server that it sides with: client 3, in round 2, under threshold keys

Replies = Mapping[ClientId, tuple[bytes, bytes]]


def less(run: Run, theirs: Sequence[bytes], times: int = 1) -> tuple[bytes, bytes]:
    """Return the ciphertext of zeros less what others sent, and a proof of all that its maker knows: the zeros."""
    key, form = run.session.key, layout(LENGTH, run.session.key.bits)
    packed = form.packed(np.zeros(LENGTH, np.int64), len(theirs) * times + 1)
    zeros, proof = encrypted(key, packed, run.occasion(3, 2).of_block(0), noise=noise_of(key, "threshold"))
    away = key.ring.inverse(key.ring.power(run.added(theirs).rows, times, secret=False))
    forged = paillier.CiphertextVector(key=key, layout=form, summands=1, rows=key.ring.multiply(zeros, away))
    return forged.to_bytes(), proof.to_bytes(key)


def passed_off(run: Run, replies: Replies, forged: bytes, proof: bytes) -> Replies:
    """Return replies with what client 3 signs for the server in place of its own."""
    return {**replies, 3: (signed(run, 3, 2, proof, forged) + proof, forged)}


def signed(run: Run, client: ClientId, round_number: int, proof: bytes, body: bytes) -> bytes:
    """Return a client's signature of a vector of one block, of whatever is in it."""
    member = Member.from_bytes(run.states[client])
    vector = paillier.CiphertextVector.from_bytes(body, run.session.key)
    return member.signature(run.occasion(client, round_number), vector.layout, [proof], vector.rows)


def proof_of(reply: tuple[bytes, bytes]) -> bytes:
    """Return the proof in a reply."""
    return reply[0][SIGNATURE_BYTES:]
