r"""What binds a ciphertext to its run, round and client: masks for an authority, signatures for holders of shares.

A server that lies could have key holders open what no round asked for: a part of a round's sum, the same ciphertexts
again as another round's, or one client's. And it could ask clients for different things: give all but one a model from
which nothing is learnt, so that their updates are zero and the sum is that one's (Pasquini, Francati and Ateniese
2022), or settings by which nothing is. Both ways below leave it one thing to open a round: the sum of exactly the
replies of a list of clients, made for that round of that run, for the same model and by the same settings.

**Masks** (``paillier.keys=authority``). The authority could read single ciphertexts, so it is shown sums only, and a
sum does not tell what it is of. Each client shares a secret :math:`k_i` with the authority and encrypts
:math:`m_{ij} + M_{ij} \bmod n` in place of its row :math:`m_{ij}`, where the mask
:math:`M_{ij} = F(k_i; \text{round}, \text{attempt}, \text{nonce}, \text{check}, j)` is uniform modulo n to everybody
else, and independent for every reply: the nonce is drawn afresh. The server names a round, a check, which stands for
what was asked too (:mod:`tacit.protocols.paillier.check`), and a list of clients and nonces; the authority decrypts and
takes off the masks of exactly that list. Whatever the server makes of ciphertexts, in a row it has
:math:`\sum_i a_i (m_{ij} + M_{ij}) + b` with factors it knows. Unless :math:`a_i = 1` for every reply on the list, in
the place it was made for, and :math:`a_i = 0` for every other, a mask is left over, and the result is uniform modulo n:
it tells nothing of any :math:`m`. (A factor that cancels only modulo a prime of n would factor n.) Nothing else that is
worth reading is a ciphertext of this key: enrolments are none, else a server could add one to a sum; and the key must
encrypt nothing else. Masks cost no byte per number, and a thousandth of the time that encryption takes.

**Signatures** (``paillier.keys=threshold``). No holder of a share can read anything alone, so each is shown the
ciphertexts themselves, a block at a time (:mod:`tacit.protocols.paillier.blocks`). A client signs run, round, attempt,
its number, the hash of what it was asked, the key, the layout and the root of the hashes of its blocks; a holder checks
all signatures, for the one hash that the server names, forms the product of each block itself and gives its part of
that product alone.

**Proofs** go with signatures, which don't show that a client knows what it has encrypted. One that sides with the
server could sign :math:`E(0) \prod_{j \ne i} c_j^{-1}`, of this round or of an earlier one, and take all but client i
out of the sum. So each block comes with a proof that its maker knows what is in it
(:mod:`tacit.crypto.paillier.knowledge`), for the same run, round, attempt, client and place. Then a sum is
:math:`\sum_i m_i + M` over its honest clients, with an M that those who side with the server know: whatever they send,
they learn the sum of all honest clients on the list, and nothing else. Masks need no proofs: of whatever else is taken
out of a sum, or put in, masks are left over.

Masks are HMAC-SHA256 and ChaCha20 (RFC 8439), signatures Ed25519 (RFC 8032). The idea of masks that cancel in the sum
is of Bonawitz et al. (2017); here the one who opens takes them off, so that nobody's drop-out has to be repaired.

**Enrolment** is how a client and the key holders come to share what binds its ciphertexts to the run, through the
server. A key holder draws a challenge for each run, and the run is known by the digest of all challenges. A client
answers with a key for that run alone:

* to an authority, :math:`y = \rho^n \bmod n` for a random :math:`\rho`, and a tag. The tag, and the secret of the
  client's masks, are :math:`\mathrm{SHAKE256}(\text{statement}, \rho)`. The authority takes the root and compares the
  tag, so it accepts nothing that was not made of :math:`\rho` for this statement: neither a part of a client's update
  nor another's enrolment passes for a new one, and whether something was accepted tells nothing of any other
  (RSA-KEM with key confirmation, Shoup 2001). To take roots is at least as hard as to read ciphertexts (Paillier 1999).
  It is no Paillier ciphertext on purpose: the authority opens sums for the server, and a server could hide a
  ciphertext in a row of a sum whose content it knows, and read it there;
* to holders of shares, the public half of a signature key, and its signature of the statement.

The statement names run, client and rules. A holder that has forgotten a run has forgotten its challenge, so nothing
that was made for that run can be opened any more, and a run that begins anew needs new enrolments and new replies.

Who a client is, none of this shows: a server could invent clients, and see what is left of a sum without them. Where
that is to be ruled out, a client also signs with a lasting identity, and each holder's operator lists the identities
of the true clients. Without a list the guarantee holds while the clients that were enrolled are the true ones.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tacit import foreign
from tacit.crypto.paillier import Layout, NoisePool, PrivateKey, PublicKey
from tacit.crypto.paillier.knowledge import Claim, KnownNoise, Proof, proof_bytes
from tacit.crypto.paillier.public import Noise
from tacit.crypto.ring import Rows
from tacit.crypto.threshold import ThresholdPublic
from tacit.errors import KeysError, TacitError, WireError
from tacit.flow import ClientId
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified
from tacit.wire import Turn

KeyUse = Literal["authority", "threshold", "shared"]  # who holds the private key
Public = PublicKey | ThresholdPublic

RUN_BYTES = CHALLENGE_BYTES = SECRET_BYTES = 32
NONCE_BYTES = 16

_SPARE_BYTES = 16  # beyond n: so that reducing modulo n leaves numbers within 2^-128 of uniform
_TAG_BYTES = 32
_IDENTIFIED_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES
_RULES = struct.Struct(">QQ")
_STATEMENT = struct.Struct(">32sQQQ")  # run, client, minimum, rounds
_OCCASION = struct.Struct(">32sQIH32s")  # run, client, round, attempt, what was asked
_NUMBER = struct.Struct(">Q")  # of a block
_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">QI")  # client, length
_CLIENT = struct.Struct(">Q")
_MASK = struct.Struct(">IH16sI")  # round, attempt, nonce, rows


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What clients and key holders have to agree on before anything is opened.

    A client states them when it enrols, so that a server can't tell clients that sums have ninety summands, for which
    they size their noise, and key holders that two will do.

    Attributes:
        minimum_clients: how many a sum needs.
        rounds: how many there will be.
    """

    minimum_clients: int
    rounds: int

    def to_bytes(self) -> bytes:
        """Return the rules as a server announces them, when it asks for the key."""
        return _RULES.pack(self.minimum_clients, self.rounds)

    @classmethod
    def from_bytes(cls, data: bytes) -> Rules:
        """Read what :meth:`to_bytes` wrote."""
        if len(data) != _RULES.size:
            raise WireError(f"Expected a run's smallest sum and rounds in {_RULES.size} bytes, got {len(data)}.")
        minimum, rounds = _RULES.unpack(data)
        return cls(minimum_clients=minimum, rounds=rounds)


def run_of(challenges: Iterable[bytes]) -> bytes:
    """Return the identity of a run: a digest of what its key holders drew for it, so that no run has it twice."""
    return hashlib.sha256(b"tacit paillier run 1\n" + b"".join(sorted(challenges))).digest()


def statement(run: bytes, client: ClientId, rules: Rules) -> bytes:
    """Return what a client's enrolment says."""
    return b"tacit paillier enrolment 1\n" + _STATEMENT.pack(run, client, rules.minimum_clients, rules.rounds)


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """What a client's ciphertext is for, and what its signature and its proof are bound to.

    Attributes:
        run: the identity of the run.
        client: whose it is.
        turn: round and try.
        asked: the hash of what the client was asked for, see :func:`tacit.wire.bound_to`.
    """

    run: bytes
    client: ClientId
    turn: Turn
    asked: bytes

    def of_block(self, number: int) -> bytes:
        """Return what the proof of a block is bound to."""
        return self._to_bytes() + _NUMBER.pack(number)

    def signed(self, key: PublicKey, layout: Layout, root: bytes) -> bytes:
        """Return what a client signs: what its vector is for, how to read it, and the root of the hashes of blocks."""
        return self._to_bytes() + key.identity + layout.to_bytes() + root

    def _to_bytes(self) -> bytes:
        facts = _OCCASION.pack(self.run, self.client, self.turn.round_number, self.turn.attempt, self.asked)
        return b"tacit paillier contribution 4\n" + facts

    def claim(self, number: int, proof: bytes | memoryview, rows: Rows, key: PublicKey) -> Claim:
        """Return what a client claims of a block; raise CipherError where the proof can't be read."""
        return Claim(rows=rows, context=self.of_block(number), proof=Proof.from_bytes(proof, key))


def seal_bytes(keys: KeyUse, key: PublicKey, blocks: int = 1) -> int:
    """Return how long what binds a vector is: a nonce, or a signature and a proof for each block."""
    if keys == "threshold":
        return SIGNATURE_BYTES + blocks * proof_bytes(key)
    return NONCE_BYTES if keys == "authority" else 0


def masks(secret: bytes, turn: Turn, nonce: bytes, digest: bytes, key: PublicKey, count: int) -> Rows:
    """Return the masks of a reply's rows and its check, a little wider than n; whoever uses them reduces them."""
    facts = _MASK.pack(turn.round_number, turn.attempt, nonce, count) + digest
    seed = hmac.digest(secret, b"tacit paillier masks 2\n" + facts + key.identity, "sha256")
    width = _width(key) + _SPARE_BYTES
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update(bytes(count * width))
    return np.frombuffer(stream, np.uint8).reshape(count, width)


def unmasked(rows: Rows, taken_off: Iterable[Rows], key: PublicKey, *, workers: int | None = None) -> Rows:
    """Return opened rows less masks, modulo n."""
    for some in taken_off:  # one client's at a time: a long vector's masks take as much memory as it does
        rows = key.residues.affine([(rows, 1), (some, key.n - 1)], 0, workers=workers)
    return rows


def _width(key: PublicKey) -> int:
    return (key.bits + 7) // 8


def signing_key(seed: bytes) -> Ed25519PrivateKey:
    """Return the key of a seed of 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(seed)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What a client and an authority share: a number that travels as its n-th power, and what both derive from it.

    Attributes:
        key: the authority's.
        number: below n.
        secret: of the client's masks.
        tag: shows that whoever sent the power knows the number, and for what it was sent.
    """

    key: PublicKey
    number: int = field(repr=False)
    secret: bytes = field(repr=False)
    tag: bytes = field(repr=False)

    @classmethod
    def of(cls, root: bytes, key: PublicKey, stated: bytes) -> Agreement:
        """Return the agreement that a client's root secret gives for what it states."""
        drawn = hashlib.shake_256(b"tacit paillier enrolment number 1\n" + root).digest(_width(key) + _SPARE_BYTES)
        return cls.on(int.from_bytes(drawn, "big") % key.n, key, stated)

    @classmethod
    def on(cls, number: int, key: PublicKey, stated: bytes) -> Agreement:
        """Return the agreement on a number."""
        label = b"tacit paillier enrolment 1\n" + key.identity + stated
        drawn = hashlib.shake_256(label + number.to_bytes(_width(key), "big")).digest(SECRET_BYTES + _TAG_BYTES)
        return cls(key=key, number=number, secret=drawn[:SECRET_BYTES], tag=drawn[SECRET_BYTES:])

    @property
    def enrolment(self) -> bytes:
        """What tells an authority, and nobody else, the number."""
        return self.key.power(self.number).to_bytes(_width(self.key), "big") + self.tag


def secrets_of(enrolments: Mapping[ClientId, tuple[bytes, bytes]], private: PrivateKey) -> dict[ClientId, bytes]:
    """Return the masks' secrets of the clients whose enrolments are right, given what each has to state."""
    key = private.public
    found = {}
    for client, (body, stated) in enrolments.items():
        power, tag = int.from_bytes(body[: _width(key)], "big"), body[_width(key) :]
        if power < key.n and len(body) == length_of(key, signs=False):
            agreed = Agreement.on(private.root(power), key, stated)
            if hmac.compare_digest(agreed.tag, tag):
                found[client] = agreed.secret
    return found


def shown_to_shares(seed: bytes, stated: bytes) -> bytes:
    """Return an enrolment at holders of shares."""
    own = signing_key(seed)
    return own.public_key().public_bytes_raw() + own.sign(stated)


def signer_of(body: bytes, stated: bytes) -> bytes | None:
    """Return the public key of an enrolment at holders of shares, or None where it is not right."""
    public, signature = body[:PUBLIC_BYTES], body[PUBLIC_BYTES:]
    return public if len(signature) == SIGNATURE_BYTES and verified(public, signature, stated) else None


def identified(body: bytes, stated: bytes, identity: Ed25519PrivateKey) -> bytes:
    """Return an enrolment that a lasting identity has signed."""
    return body + identity.public_key().public_bytes_raw() + identity.sign(_vouched(body, stated))


def identity_of(body: bytes, stated: bytes, length: int) -> tuple[bytes, bytes | None]:
    """Return the first ``length`` bytes of an enrolment, and the identity that rightly vouches for them, if any."""
    own, rest = body[:length], body[length:]
    public, signature = rest[:PUBLIC_BYTES], rest[PUBLIC_BYTES:]
    right = len(rest) == _IDENTIFIED_BYTES and verified(public, signature, _vouched(own, stated))
    return (own, public) if right else (body, None)


def length_of(key: PublicKey, *, signs: bool) -> int:
    """Return how long an enrolment is without an identity."""
    return PUBLIC_BYTES + SIGNATURE_BYTES if signs else _width(key) + _TAG_BYTES


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What a key holder is told of a run: the challenges it is known by, and clients with their enrolments."""

    challenges: Sequence[bytes]
    enrolments: Mapping[ClientId, bytes]

    def to_bytes(self) -> bytes:
        """Return the body of an ADMIT frame."""
        entries = [_ENTRY.pack(client, len(body)) + body for client, body in sorted(self.enrolments.items())]
        return b"".join([_COUNT.pack(len(self.challenges)), *self.challenges, *entries])

    @classmethod
    def from_bytes(cls, body: bytes) -> Admission:
        """Read what :meth:`to_bytes` wrote."""
        try:
            (count,) = _COUNT.unpack_from(body)
            place = _COUNT.size + count * CHALLENGE_BYTES
            if place > len(body):
                raise WireError(f"Expected {count} challenges, got {len(body)} bytes.")
            challenges = [body[at : at + CHALLENGE_BYTES] for at in range(_COUNT.size, place, CHALLENGE_BYTES)]
            enrolments: dict[ClientId, bytes] = {}
            while place < len(body):
                client, length = _ENTRY.unpack_from(body, place)
                place += _ENTRY.size + length
                if client in enrolments or place > len(body):
                    raise WireError("Expected every client once, with an enrolment as long as it says.")
                enrolments[client] = body[place - length : place]
        except struct.error as error:
            raise WireError(f"Expected challenges and enrolments, got {len(body)} bytes: {error}.") from error
        return cls(challenges=challenges, enrolments=enrolments)


def pack_seals(seals: Mapping[ClientId, bytes]) -> bytes:
    """Return the clients of a sum, each with what binds its ciphertexts."""
    return b"".join([_COUNT.pack(len(seals)), *(_CLIENT.pack(client) + seal for client, seal in seals.items())])


def unpack_seals(body: memoryview, seal_bytes: int, least: int) -> tuple[dict[ClientId, bytes], memoryview]:
    """Read what :func:`pack_seals` wrote, and return what is behind it too: at least so many bytes."""
    if len(body) < _COUNT.size:
        raise WireError(f"Expected the clients of a sum, got {len(body)} bytes.")
    (count,) = _COUNT.unpack_from(body)
    entry = _CLIENT.size + seal_bytes
    start = _COUNT.size + count * entry
    if start + least > len(body):
        raise WireError(f"Expected {count} clients with {entry} bytes each and {least} more, got {len(body)} bytes.")
    seals: dict[ClientId, bytes] = {}
    for at in range(_COUNT.size, start, entry):
        (client,) = _CLIENT.unpack_from(body, at)
        if client in seals:
            raise WireError(f"Expected every client once in a sum, got client {client} twice.")
        seals[client] = bytes(body[at + _CLIENT.size : at + entry])
    return seals, body[start:]


def pack_clients(clients: Sequence[ClientId]) -> bytes:
    """Return clients' numbers as they travel."""
    return b"".join(map(_CLIENT.pack, clients))


def unpack_clients(body: bytes | memoryview) -> list[ClientId]:
    """Read what :func:`pack_clients` wrote."""
    if len(body) % _CLIENT.size:
        raise WireError(f"Expected clients' numbers of {_CLIENT.size} bytes each, got {len(body)} bytes.")
    return [number for (number,) in _CLIENT.iter_unpack(body)]


def _vouched(body: bytes, stated: bytes) -> bytes:
    return b"tacit paillier identity 1\n" + stated + hashlib.sha256(body).digest()


@functools.lru_cache(maxsize=8)
def laid_out(make: Callable[[int, int], Layout], length: int, key_bits: int) -> Layout:
    """Return the layout that a party's own settings make for a vector's length and a key's bits, made once per run."""
    return make(length, key_bits)


def encryption_key(public: Public) -> PublicKey:
    """Return the key that encrypts."""
    return public if isinstance(public, PublicKey) else public.key


def pack_key(public: Public) -> bytes:
    """Return a public key as it travels."""
    kind = "paillier" if isinstance(public, PublicKey) else "threshold"
    return json.dumps({"kind": kind, "key": public.to_dict()}, separators=(",", ":")).encode()


@functools.lru_cache(maxsize=4)
def unpack_key(data: bytes) -> Public:
    """Read and check a public key; the same bytes give the same object, so that its tables are made once."""
    try:
        plain = foreign.json_object(data)
        kinds: dict[str, type[PublicKey] | type[ThresholdPublic]] = {
            "paillier": PublicKey,
            "threshold": ThresholdPublic,
        }
        read: Public = kinds[plain["kind"]].from_dict(plain["key"])
    except (WireError, ValueError, KeyError, TypeError) as error:
        raise WireError(f"The public key that arrived can't be read: {error!r}.") from error
    return read


def unpack_encryption_key(data: bytes) -> PublicKey:
    """Read and check a key that encrypts."""
    key = unpack_key(data)
    if not isinstance(key, PublicKey):
        raise WireError("Expected the key that encrypts, got one of a threshold scheme.")
    return key


def noise_of(key: PublicKey, keys: KeyUse) -> Noise:
    """Return the source of a client's noise; with its exponents where the client has to prove what it encrypts."""
    return KnownNoise(key=key) if keys == "threshold" else key


@functools.lru_cache(maxsize=4)
def pool_of(key: PublicKey, keys: KeyUse) -> NoisePool:
    """Return the pool of noise for a key; an entry is used once, by whichever client here comes first."""
    return NoisePool(noise_of(key, keys))


def check_key(pin: bytes, key: PublicKey, *, insecure_key_size: bool) -> None:
    """Refuse any key but the pinned one, which is the first that a client saw unless it was given one.

    A server that hands out a key of its own could read everything: whoever runs a client should compare the
    fingerprint with the key holder's over another channel, and give it to the client as its pin.
    """
    if pin and pin != key.identity:
        raise KeysError(
            f"the server sent key {key.fingerprint[:23]}…, and {pin.hex(':')[:23]}… is pinned. Nothing was encrypted. "
            "Ask the key holder for the fingerprint; if the key was changed on purpose, pin the new one"
        )
    if key.insecure and not insecure_key_size:
        raise KeysError(
            f"the server sent a key of {key.bits} bits, expected at least 2048. Nothing was encrypted. For an "
            "experiment set paillier.insecure_key_size=true"
        )


def reason(error: TacitError) -> str:
    """Return an error as the reason in a frame."""
    return str(error).rstrip(".") + "."
