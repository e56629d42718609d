"""A party at a node: the one way in which requests are answered, by Tacit's own app and by the mod around another's.

A request may come in a process of its own each time, so nothing here outlives an answer but what the node remembers
(:mod:`tacit.parties.memory`) and the files that the node's own settings name (:mod:`tacit.parties.operator`). Whatever
is asked for, the same is done in the same order::

    1. read the frame, and the terms of the run beside it; another version is refused    hello.py
    2. compare the settings with the node's own; refuse noise that can be predicted      operator.py
    3. hold the server to what it said first, on disk before anything else               memory.py
    4. HELLO              say who this node is, and what is wrong with its pin, before the first round
       KEY, ADMIT, OPEN   answer as a key holder, who knows what it has opened           key_holder.py
       ENROL              enrol as the client that this node is, and as nobody else
       SHARE, LIST, REVEAL  take a step of the protocol, which is on disk before the answer leaves
       TASK               note the turn, which is answered once; train and protect       flower/node.py, the mod

Of what goes wrong a code leaves the node, and the rest is in its log (:mod:`tacit.parties.refusals`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from tacit import wire
from tacit.config.resolved import Resolved
from tacit.errors import WireError
from tacit.flow import ClientId, Stopwatch
from tacit.modes.catalogue import mode_of
from tacit.parties import key_holder
from tacit.parties.calls import Answer, Call
from tacit.parties.hello import Introduction, Terms
from tacit.parties.memory import InFile, InState, Memory, announce, kept_in
from tacit.parties.operator import clients_of, identity_of, key_of, pin_of, refuse_predictable
from tacit.parties.refusals import RefusalError, failure, without_details
from tacit.parties.settings import promise
from tacit.protocols.masks import MaskedSum
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.protocol import SumProtocol

_STEPS = (wire.Kind.ENROL, wire.Kind.SHARE, wire.Kind.LIST, wire.Kind.REVEAL)  # what a client answers beside a task
_COUNTS = "the numbers of clients, of clients per round, and of rounds are"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request whose terms were read, compared and are held to.

    Attributes:
        call: as it came.
        frame: what is asked for.
        terms: what the server says of the run.
        config: the run's settings, with what the server counted.
        memory: what this party remembers.
    """

    call: Call
    frame: wire.Frame
    terms: Terms
    config: Resolved
    memory: InFile | InState


class Party(ABC):
    """Answers for the parties at one node; who derives from it says how it is set up, who it is, and how it trains.

    Attributes:
        in_app: whether it trains where the app that a server sends runs, and can reach the data.
    """

    in_app: ClassVar[bool] = False

    def __call__(self, call: Call) -> Answer:
        """Answer a request; of what is wrong on this side a code is told, and the rest is in the node's log."""
        turn = wire.Turn(round_number=0)
        memory = self._memory(call)
        try:
            frame = wire.unpack(call.frame)
            turn = frame.turn
            terms = Terms.read(call.said)
            config = self._config(call, terms)
            if not self._plays(call):
                refuse_predictable(config.seed)
            _hold(terms, config, memory, counted=self._counted(terms))
            answer = self._answer(Request(call=call, frame=frame, terms=terms, config=config, memory=memory))
        except Exception as error:  # whatever it is, its words could tell of this node's data
            answer = Answer(frame=failure(turn, error))
        return answer if isinstance(memory, InFile) else replace(answer, memory=memory.data)

    def _memory(self, call: Call) -> InFile | InState:
        """Return what this node remembers of the run."""
        if self._plays(call):
            return InState(call.memory)
        return kept_in(call.node, f"run-{call.run_id}-{self._who(call)}")

    def _answer(self, request: Request) -> Answer:
        kind = request.frame.kind
        if kind is wire.Kind.HELLO:
            return Answer(frame=self._introduction(request).to_frame())
        if kind in wire.FOR_HOLDERS:
            return self._hold_key(request)
        if request.call.party not in self._parties(request):
            raise RefusalError(
                wire.Failure.PARTY, f"This node was asked as party {request.call.party}, which it is not"
            )
        if kind in _STEPS:
            return self._step(request)
        if kind is not wire.Kind.TASK:
            raise WireError(f"Expected a request, got a {kind.name} frame")
        federate, mode = request.config.federate, mode_of(request.config.mode)
        request.memory.change(
            lambda kept: kept.answering(
                request.frame.turn,
                rounds=federate.rounds,
                retries=federate.retries,
                separation=federate.separation or 1,
                most=federate.rounds if mode.budgeted(request.config) and not mode.central else None,
            )
        )
        return self._work(request)

    def _introduction(self, request: Request) -> Introduction:
        """Say who this node is."""
        parties = self._parties(request)
        client = max(parties, default=-1) >= 0
        if client and mode_of(request.config.mode).encrypted and self._pins(request.call):
            pin_of(request.call.node, request.config.paillier)  # better told before the first round
        examples = self._examples(request) if client else None
        return Introduction(
            parties=parties, examples=examples, simulated=self._plays(request.call), in_app=client and self.in_app
        )

    def _hold_key(self, request: Request) -> Answer:
        watch = Stopwatch()
        with watch.measure("recover"):
            frame = key_holder.answer(
                request.frame,
                key=key_of(request.call.node, request.config.paillier),
                settings=request.config.paillier,
                protocol=self._encrypted(request),
                run_id=request.call.run_id,
                node=request.call.node,
            )
        return Answer(frame=frame, seconds={"recover": watch.seconds["recover"]})

    def _step(self, request: Request) -> Answer:
        """Answer as the client that this node is by its own settings: as nobody else, so that it counts once."""
        protocol = self._as_client(request, self._protocol(request))
        replies: list[bytes] = []

        def stepped(kept: Memory) -> Memory:
            state, reply = protocol.client(kept.state, request.frame, None, number=request.call.party)
            replies.append(reply)
            return replace(kept, state=state)

        request.memory.change(stepped)
        return Answer(frame=without_details(replies[0]))

    def _encrypted(self, request: Request) -> PaillierSum:
        """Return the protocol of a run that has keys."""
        protocol = self._protocol(request)
        if not isinstance(protocol, PaillierSum):
            raise WireError(f"Keys are asked for or handed out, and mode {request.config.mode!r} has none")
        return protocol

    def _as_client(self, request: Request, protocol: SumProtocol) -> SumProtocol:
        """Return the protocol with what this client's operator gave it: its pin, its identity, a key that all share."""
        node, settings = request.call.node, request.config.paillier
        if isinstance(protocol, MaskedSum):
            return replace(protocol, identity=identity_of(node), known=clients_of(node))
        if not isinstance(protocol, PaillierSum):
            return protocol
        if self._pins(request.call):
            protocol = replace(protocol, pin=pin_of(node, settings), identity=identity_of(node))
            if settings.keys == "shared":
                protocol = replace(protocol, own=key_holder.own_key(key_of(node, settings), settings))
        return protocol

    def _plays(self, call: Call) -> bool:
        """Return whether this node only plays: its memory is Flower's, and a seed is no danger."""
        return call.plays

    def _pins(self, call: Call) -> bool:
        """Return whether this client encrypts to the key that its operator pinned, and to no other."""
        return True

    def _counted(self, terms: Terms) -> bool:
        """Return whether the settings already say how many clients and rounds there are."""
        return True

    def _examples(self, request: Request) -> int | None:
        """Return how many examples this client holds, where that has to be public."""
        return None

    @abstractmethod
    def _who(self, call: Call) -> str:
        """Return the name of this node's memory: no word of the server's."""

    @abstractmethod
    def _config(self, call: Call, terms: Terms) -> Resolved:
        """Return the run's settings, or refuse terms that are not this node's own."""

    @abstractmethod
    def _parties(self, request: Request) -> tuple[ClientId, ...]:
        """Return whom this node answers for: a client's number, and below zero the key that it holds."""

    @abstractmethod
    def _protocol(self, request: Request) -> SumProtocol:
        """Return the protocol as the settings give it, before anything is trained."""

    @abstractmethod
    def _work(self, request: Request) -> Answer:
        """Train and answer what protects the update; the turn is on disk already."""


def _hold(terms: Terms, config: Resolved, memory: InFile | InState, *, counted: bool) -> None:
    """Hold the server to what it said of the run first, and leave that in the node's log once it is complete."""
    said, about = {"settings": terms.settings}, "settings" if counted else _COUNTS
    if terms.weighted_by:
        said["weights by"] = terms.weighted_by
    if terms.numbers is not None:
        about = _COUNTS
        said[about] = terms.numbers.to_text()
    announce(memory, said, lambda: promise(config), about=about)
