"""Key holders: who may open an encrypted sum, and which sums they refuse to open."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from tacit import foreign, wire
from tacit.crypto.layout import Layout
from tacit.crypto.paillier import CiphertextVector, PrivateKey
from tacit.crypto.threshold import KeyShare
from tacit.errors import CipherError, KeysError, WireError
from tacit.protocols.paillier.terms import Public, encryption_key, pack_key, reason


@dataclass(kw_only=True)
class Openings:
    """What a key holder has opened, and the rule by which it opens more.

    One sum a round, of rounds in order, with at least ``minimum_clients`` summands. The same sum may be asked for
    again, as an answer may be lost.

    The number of summands is the server's word: a ciphertext does not show what it is the sum of, and to be shown
    the summands would let the holder of the key read each. So a server that lies about the number could have one
    client's vector opened. Against such a server clients need noise of their own: differential privacy under
    encryption.
    """

    minimum_clients: int
    last: wire.Turn | None = None
    digest: bytes = b""
    layout: Layout | None = None

    def allow(self, turn: wire.Turn, body: bytes, vector: CiphertextVector) -> None:
        """Record an opening, or raise CipherError."""
        if vector.summands < self.minimum_clients:
            raise CipherError(
                f"a sum of {vector.summands} vectors was not opened, expected at least {self.minimum_clients}: fewer "
                "could expose one client"
            )
        if self.layout is not None and vector.layout != self.layout:
            raise CipherError("the sum has another layout than those of earlier rounds, and was not opened")
        digest = hashlib.sha256(body).digest()
        if self.last is not None and turn.round_number <= self.last.round_number and digest != self.digest:
            raise CipherError(
                f"a second sum for round {turn.round_number} was not opened: one was, for round "
                f"{self.last.round_number}, and two sums of a round could expose a client by their difference"
            )
        self.last, self.digest, self.layout = turn, digest, vector.layout

    def to_bytes(self) -> bytes:
        """Return what must not be forgotten, so that a holder that starts anew opens no second sum of a round."""
        if self.last is None or self.layout is None:
            return b""
        record = {
            "round": self.last.round_number,
            "attempt": self.last.attempt,
            "digest": self.digest.hex(),
            "layout": self.layout.to_bytes().hex(),
        }
        return json.dumps(record).encode()

    @classmethod
    def remembered(cls, memory: bytes, *, minimum_clients: int) -> Openings:
        """Read what :meth:`to_bytes` wrote; nothing is the memory of a holder that has opened nothing yet."""
        if not memory:
            return cls(minimum_clients=minimum_clients)
        try:
            record = foreign.json_object(memory)
            return cls(
                minimum_clients=minimum_clients,
                last=wire.Turn(round_number=int(record["round"]), attempt=int(record["attempt"])),
                digest=bytes.fromhex(record["digest"]),
                layout=Layout.from_bytes(bytes.fromhex(record["layout"])),
            )
        except (ValueError, KeyError, TypeError, WireError, CipherError) as error:
            raise KeysError(
                f"The key holder's memory of what it has opened can't be read: {error!r}. Without it a sum could be "
                "opened twice. Restore it, or make new keys."
            ) from error


class Authority:
    """A key authority apart from the server: it has the private key, and sees nothing but the sums it opens."""

    def __init__(
        self, *, private: PrivateKey, minimum_clients: int, workers: int | None = None, memory: bytes = b""
    ) -> None:
        self._private = private
        self._workers = workers
        self._openings = Openings.remembered(memory, minimum_clients=minimum_clients)

    @property
    def memory(self) -> bytes:
        """What the holder must remember of its openings, should it start anew."""
        return self._openings.to_bytes()

    def answer(self, request: bytes) -> bytes:
        """Tell the public key, or open a sum."""
        return _answer(request, self._private.public, self._openings, self._opened)

    def _opened(self, vector: CiphertextVector) -> bytes:
        rows = self._private.open(vector.rows, workers=self._workers)
        try:
            sums = vector.layout.sums(rows, vector.summands)
        except CipherError:  # whose words would tell the server a number of what it may have forged
            raise CipherError(
                "what was to be opened is no sum of honest vectors, and nothing of it is told. A client sent numbers "
                "beyond its layout, or the sum was forged"
            ) from None
        return sums.astype("<i8").tobytes()


class ShareHolder:
    """One of several who hold a share of the key each: only ``threshold`` of them together open a sum."""

    def __init__(
        self,
        *,
        share: KeyShare,
        minimum_clients: int,
        prove: bool = False,
        workers: int | None = None,
        memory: bytes = b"",
    ) -> None:
        self._share = share
        self._prove = prove
        self._workers = workers
        self._openings = Openings.remembered(memory, minimum_clients=minimum_clients)

    @property
    def memory(self) -> bytes:
        """What the holder must remember of its openings, should it start anew."""
        return self._openings.to_bytes()

    def answer(self, request: bytes) -> bytes:
        """Tell the public key, or give this holder's share of a decryption."""
        return _answer(request, self._share.public, self._openings, self._part)

    def _part(self, vector: CiphertextVector) -> bytes:
        return self._share.partial(vector, prove=self._prove, workers=self._workers).to_bytes()


def _answer(request: bytes, public: Public, openings: Openings, content: Callable[[CiphertextVector], bytes]) -> bytes:
    """Answer a request by the rules that all key holders keep; ``content`` is what is told of a sum they may open."""
    frame = wire.unpack(request)
    if frame.kind is wire.Kind.KEY:
        return wire.pack(wire.Kind.KEY, frame.turn, pack_key(public))
    if frame.kind is not wire.Kind.OPEN:
        raise WireError(f"Expected a KEY or OPEN frame, got {frame.kind.name}: a key holder does nothing else.")
    body = bytes(frame.body)
    try:
        vector = CiphertextVector.from_bytes(body, encryption_key(public))
        openings.allow(frame.turn, body, vector)
        return wire.pack(wire.Kind.OPENED, frame.turn, content(vector))
    except CipherError as error:
        return wire.pack_failure(frame.turn, wire.Failure.REFUSED, reason(error))
