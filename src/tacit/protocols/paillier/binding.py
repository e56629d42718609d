r"""What binds a ciphertext to its run, round and client: masks for an authority, signatures for holders of shares.

A server that lies could have key holders open what no round asked for: a part of a round's sum, the same ciphertexts
again as another round's, or one client's. Both ways below leave it one thing to open a round: the sum of exactly the
replies of a list of clients, made for that round of that run.

**Masks** (``paillier.keys=authority``). The authority could read single ciphertexts, so it is shown sums only, and a
sum does not tell what it is of. Each client shares a secret :math:`k_i` with the authority and encrypts
:math:`m_{ij} + M_{ij} \bmod n` in place of its row :math:`m_{ij}`, where the mask
:math:`M_{ij} = F(k_i; \text{round}, \text{attempt}, \text{nonce}, j)` is uniform modulo n to everybody else, and
independent for every reply: the nonce is drawn afresh. The server names a round and a list of clients and nonces; the
authority decrypts and takes off the masks of exactly that list. Whatever the server makes of ciphertexts, in a row it
has :math:`\sum_i a_i (m_{ij} + M_{ij}) + b` with factors it knows. Unless :math:`a_i = 1` for every reply on the list,
in the place it was made for, and :math:`a_i = 0` for every other, a mask is left over, and the result is uniform
modulo n: it tells nothing of any :math:`m`. (A factor that cancels only modulo a prime of n would factor n.) Nothing
else that is worth reading is a ciphertext of this key: enrolments are none, else a server could add one to a sum. Masks
cost no byte a number, and a thousandth of the time that encryption takes.

**Signatures** (``paillier.keys=threshold``). No holder of a share can read anything alone, so each is shown the
ciphertexts themselves. A client signs run, round, attempt, its number and its ciphertext's digest; a holder checks all
signatures, forms the product itself and gives its part of that product alone.

Masks are HMAC-SHA256 and ChaCha20 (RFC 8439), signatures Ed25519 (RFC 8032). The idea of masks that cancel in the sum
is of Bonawitz et al. (2017); here the one who opens takes them off, so that nobody's drop-out has to be repaired.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tacit.crypto.paillier import PublicKey
from tacit.crypto.ring import Rows
from tacit.flow import ClientId
from tacit.wire import Turn

RUN_BYTES = CHALLENGE_BYTES = SECRET_BYTES = 32
NONCE_BYTES = 16
PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64
_SPARE_BYTES = 16  # beyond n: so that reducing modulo n leaves masks within 2^-128 of uniform
_STATEMENT = struct.Struct(">32sQQQ")  # run, client, minimum, rounds
_CONTRIBUTION = struct.Struct(">32sQIH")  # run, client, round, attempt
_PRIME = 2**255 - 19
_HEIGHT = 2**255 - 1  # without the sign of the other coordinate
_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826  # of a point of order 8
_SMALL_ORDER = {0, 1, _EIGHTH, _PRIME - _EIGHTH, _PRIME - 1, _PRIME, _PRIME + 1}
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


def run_of(challenges: Iterable[bytes]) -> bytes:
    """Return the identity of a run: a digest of what its key holders drew for it, so that no run has it twice."""
    return hashlib.sha256(b"tacit paillier run 1\n" + b"".join(sorted(challenges))).digest()


def statement(run: bytes, client: ClientId, rules: Rules) -> bytes:
    """Return what a client's enrolment says."""
    return b"tacit paillier enrolment 1\n" + _STATEMENT.pack(run, client, rules.minimum_clients, rules.rounds)


def contribution(run: bytes, client: ClientId, turn: Turn, ciphertext: bytes | memoryview) -> bytes:
    """Return what a client signs of a ciphertext."""
    facts = _CONTRIBUTION.pack(run, client, turn.round_number, turn.attempt)
    return b"tacit paillier contribution 1\n" + facts + hashlib.sha256(ciphertext).digest()


def masks(secret: bytes, turn: Turn, nonce: bytes, key: PublicKey, count: int) -> Rows:
    """Return the masks of a reply's rows, a little wider than n; whoever uses them reduces them."""
    facts = _MASK.pack(turn.round_number, turn.attempt, nonce, count)
    seed = hmac.digest(secret, b"tacit paillier masks 1\n" + facts + key.identity, "sha256")
    width = (key.bits + 7) // 8 + _SPARE_BYTES
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update(bytes(count * width))
    return np.frombuffer(stream, np.uint8).reshape(count, width)


def unmasked(rows: Rows, taken_off: Iterable[Rows], key: PublicKey, *, workers: int | None = None) -> Rows:
    """Return opened rows less masks, modulo n."""
    for some in taken_off:  # one client's at a time: a long vector's masks take as much memory as it does
        rows = key.residues.affine([(rows, 1), (some, key.n - 1)], 0, workers=workers)
    return rows


def signing_key(seed: bytes) -> Ed25519PrivateKey:
    """Return the key of a seed of 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def verified(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature is right, by a key of the group's full order: others sign anything."""
    if int.from_bytes(public, "little") & _HEIGHT in _SMALL_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
