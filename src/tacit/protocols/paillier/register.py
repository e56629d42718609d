"""A key holder's book of one run: who takes part, what binds their replies, and which sum of which round was opened."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit import foreign, wire
from tacit.crypto.paillier import Layout
from tacit.errors import CipherError, KeysError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier.binding import CHALLENGE_BYTES, Admission, Rules, run_of
from tacit.randomness import system_bytes

NO_RUN = Rules(minimum_clients=1, rounds=0)  # nothing is opened by these
FLOOR = 2  # a sum of one is that client's vector, whatever a run's settings say

_LARGEST = 1 << 28  # bytes of a memory: some hundred per client
_CLIENT = struct.Struct(">Q")


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

    def same(self, rules: Rules | None) -> None:
        """Refuse rules that are not those the run began with."""
        if rules is not None and rules != self.rules:
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

    def identity_of(self, client: ClientId) -> bytes:
        """Return the lasting identity of a client, or its number where it has none."""
        return self.identities.get(client) or _CLIENT.pack(client)

    def opened(self, turn: wire.Turn, body: bytes | memoryview) -> bool:
        """Return whether it is this sum that was opened last: ``body`` is what tells it from all others."""
        return (turn, hashlib.sha256(body).digest()) == (self.last, self.digest)

    def allow(self, turn: wire.Turn, body: bytes | memoryview, *, summands: int, layout: Layout) -> bool:
        """Return whether a sum is new, and not asked for again (a lost answer, another block); or raise CipherError."""
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
        again = self.opened(turn, body)
        if self.last is not None and number <= self.last.round_number and not again:
            raise CipherError(
                f"a second sum for round {number} was not opened: one was, for round {self.last.round_number}, and two "
                "sums of a round could expose a client by their difference"
            )
        return not again

    def note(self, turn: wire.Turn, body: bytes | memoryview, layout: Layout) -> None:
        """Record an opening."""
        self.last, self.digest, self.layout = turn, hashlib.sha256(body).digest(), layout

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
    def remembered(cls, memory: bytes, *, rules: Rules | None, floor: int) -> Register:
        """Read what :meth:`to_bytes` wrote; nothing is the memory of a holder that knows of no run yet."""
        if not memory:
            return cls(rules=rules or NO_RUN, floor=floor)
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
