"""What a key holder's process answers: its key, whom it admits, and sums that its operator's rules allow.

Nothing here runs code that somebody sent, and no message changes a rule. The key is unlocked once, when the process
starts, and is in its memory alone; everything else that matters is on disk before a reply leaves
(:mod:`tacit.holder.memory`). What was asked for and refused is written down too, for the operator to see who lied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit import foreign, wire
from tacit.crypto import elgamal, keyfile, paillier
from tacit.crypto.threshold import ThresholdPublic
from tacit.errors import CipherError, ConfigError, KeysError, LocalError, WireError
from tacit.flow import ClientId, Stopwatch
from tacit.holder.memory import Memory, Step
from tacit.holder.settings import MEMORY, Settings
from tacit.protocols.paillier import Authority, Caution, Rules, ShareHolder
from tacit.protocols.paillier.binding import encryption_key
from tacit.protocols.paillier.blocks import largest_request
from tacit.protocols.paillier.differences import check
from tacit.protocols.paillier.holders import Holder, NewSum
from tacit.protocols.signatures import read_identities
from tacit.service import LARGEST_BODY, Message

_LOG = logging.getLogger("tacit.holder")
_SPARE = 1 << 26  # bytes beside a block: enrolments of some hundred thousand clients

Secret = paillier.PrivateKey | keyfile.Share
Passphrase = Callable[[Path], str]


@dataclass(frozen=True, kw_only=True)
class ForLife:
    """The operator's limits on a key, over all runs."""

    settings: Settings
    clients: frozenset[bytes]
    step: Step

    def begins(self, rules: Rules) -> None:
        """Refuse a run of smaller sums, or of more rounds."""
        least, most = self.settings.minimum_clients, self.settings.rounds
        if rules.minimum_clients < least:
            raise CipherError(
                f"the run is announced with sums of {rules.minimum_clients} clients or more, and this key holder opens "
                f"none of fewer than {least}"
            )
        if rules.rounds > most:
            raise CipherError(f"the run is announced with {rules.rounds} rounds, and this key holder allows {most}")

    def opens(self, new: NewSum) -> None:
        """Refuse a sum beyond the key's life, or one that tells too much beside those that were opened."""
        if self.step.openings >= self.settings.openings:
            raise CipherError(
                f"{self.step.openings} sums were opened with this key, which is all that its holder allows: make a new "
                "key"
            )
        if not new.clients <= self.clients:
            raise CipherError("a client of the sum is no longer on this key holder's list, and nothing was opened")
        places = self.step.set_of(new.clients)
        check(places, self.step.sets, least=self.settings.minimum_clients, rule=self.settings.differences)
        self.step.note(new, places)


class KeyHolder:
    """Answers frames for one key, by the rules of its folder.

    Args:
        folder: with ``holder.yaml`` and the memory.
        passphrase: finds the words that the key file is sealed with.
    """

    def __init__(self, folder: Path, passphrase: Passphrase | None = None) -> None:
        self.settings = Settings.read(folder)
        file = key_file(self.settings)
        self.public = file.public
        self._clients = known_clients(self.settings)
        self._memory = Memory(folder / MEMORY, memory_identity(file))
        secret = file.unlock(passphrase)
        assert isinstance(secret, Secret), "ElGamal keys are refused when the file is read"
        self._secret = secret

    @property
    def number(self) -> ClientId:
        """The holder's number in a run: below zero, by its share."""
        return -getattr(self._secret, "index", 1)

    @property
    def largest(self) -> int:
        """Bytes of the longest request that is taken: with a share, one block of all clients that are listed.

        So that whoever may speak to the socket can't fill this process's memory with what no honest server sends.
        """
        if isinstance(self._secret, paillier.PrivateKey):
            return LARGEST_BODY
        return _SPARE + largest_request(self._secret.public.key, len(self._clients))

    def message(self, request: Message) -> Message:
        """Answer at a socket; what a relay says beside a frame is not looked at."""
        watch = Stopwatch()
        with watch.measure("recover"):
            body = self.answer(request.body)
        return Message(head={"seconds": {"recover": watch.seconds["recover"]}}, body=body)

    def answer(self, data: bytes) -> bytes:
        """Return the reply to a frame; it leaves when all that it changes is on disk."""
        turn = wire.Turn(round_number=0)
        try:
            frame = wire.unpack(data)
            turn = frame.turn
            return self._introduction() if frame.kind is wire.Kind.HELLO else self._stepped(frame)
        except WireError as error:
            _LOG.warning("refused: %s", error)
            return wire.pack_failure(turn, wire.Failure.REQUEST)
        except LocalError as error:
            _LOG.error("%s", error)
            return wire.pack_failure(turn, wire.Failure.STORAGE)

    def _stepped(self, frame: wire.Frame) -> bytes:
        with self._memory.step() as step:
            before, holder = step.run, self._holder(step)
            reply = holder.answer(frame)
            after = holder.memory
            if after != before:  # it stays as it is while the blocks of a sum are opened
                step.keep(after)
            self._tell(frame, reply, step, new=after != before)
        return reply

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()

    def _holder(self, step: Step) -> Holder:
        """Return the party as its memory on disk has it: what was not written down did not happen."""
        caution = Caution(
            rules=None,
            floor=self.settings.minimum_clients,
            clients=self._clients,
            policy=ForLife(settings=self.settings, clients=self._clients, step=step),
            memory=step.run,
        )
        if isinstance(self._secret, paillier.PrivateKey):
            return Authority(private=self._secret, caution=caution)
        return ShareHolder(share=self._secret, caution=caution, prove=self.settings.prove)

    def _introduction(self) -> bytes:
        """Say who this is, as every node has to before the first round."""
        from tacit.parties.hello import Introduction  # and with it pydantic, which nothing else here needs

        return Introduction(parties=(self.number,)).to_frame()

    def _tell(self, frame: wire.Frame, reply: bytes, step: Step, *, new: bool) -> None:
        """Leave in log and memory what was done; of the blocks of a sum the first is told."""
        answer = wire.unpack(reply)
        kind = frame.kind.name
        if answer.kind is wire.Kind.FAILURE:
            _, reason = wire.unpack_failure(answer)
            step.refused(kind, reason)
            _LOG.warning("refused %s of round %d: %s", kind, frame.turn.round_number, reason)
        elif frame.kind is wire.Kind.OPEN and new:
            _LOG.info("opened a sum of round %d; %d in this key's life", frame.turn.round_number, step.openings)
        elif frame.kind is wire.Kind.KEY:
            _LOG.info("a run begins")


def key_file(settings: Settings) -> keyfile.KeyFile:
    """Return the key file, still closed; one that can't be used here is refused before a passphrase is asked for."""
    file = keyfile.read(settings.key, insecure_key_size=settings.insecure_key_size)
    if file.kind.role == "public" or isinstance(file.public, elgamal.PublicKey):
        raise KeysError(
            f"{settings.key} holds {keyfile.with_article(file.title)}, expected a private Paillier key or a share."
        )
    if not file.sealed and not settings.unsealed:
        raise KeysError(
            f"{settings.key} is not sealed: whoever reads the file has the key. Seal it (tacit keys seal "
            f"{settings.key}), or say unsealed: true in holder.yaml."
        )
    if settings.differences == "chains" and isinstance(file.public, ThresholdPublic):
        needed, holders = file.public.threshold, file.public.shares
        if needed < holders:
            raise ConfigError(
                f"differences: chains needs a holder that sees every sum, and {needed} of {holders} holders of this "
                "key open one without the others. Say pairs, which any two sums are held to, or make a key that all "
                f"holders are needed for (tacit keys new paillier --shares {holders}/{holders})."
            )
    return file


def memory_identity(file: keyfile.KeyFile) -> bytes:
    """Return the identity of the key that encrypts, whose life is remembered."""
    assert not isinstance(file.public, elgamal.PublicKey), "refused when the file is read"
    return encryption_key(file.public).identity


def known_clients(settings: Settings) -> frozenset[bytes]:
    """Return the identities of the true clients."""
    try:
        text = foreign.read_plain(settings.clients, largest=foreign.LARGEST).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise KeysError(f"clients: {settings.clients} can't be read: {reason}.") from error
    found = read_identities(text, where=f"clients: {settings.clients}")
    if len(found) < settings.minimum_clients:
        raise ConfigError(
            f"{settings.clients} lists {len(found)} clients, and sums of fewer than minimum_clients="
            f"{settings.minimum_clients} are not opened. List all clients, or lower the minimum."
        )
    return found
