"""The client's half of a protected app: a mod, which is handed each message before the app and each reply after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict

from tacit import wire
from tacit.config.resolved import Resolved
from tacit.errors import WireError
from tacit.federated.plan import Plan
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.relay import SETTING, relay
from tacit.flower.strategy import settings
from tacit.flower.strategy.arrays import Shape
from tacit.flower.strategy.settings import CLASSIC, MOD, STRATEGY
from tacit.mechanisms.mechanism import Work
from tacit.modes.catalogue import mode_of, resolve
from tacit.parties import key_holder
from tacit.parties.calls import Answer, Call
from tacit.parties.hello import Terms
from tacit.parties.memory import digest
from tacit.parties.party import Party, Request
from tacit.parties.refusals import RefusalError, without_details
from tacit.protocols.protocol import SumProtocol
from tacit.randomness import Randomness
from tacit.vectors import Vector, first_not_finite

App = Callable[[Message, Context], Message]

_LOG = logging.getLogger("flwr")
_FAILED_PRECONDITION = 6  # Flower's code for a mod that could not do its work
_APP_RAISED = 2  # and for an app that raised something
_WITHOUT_STRATEGY = (
    f"This node's app has {MOD}, and the server's message does not come from {STRATEGY}. Nothing was trained or "
    f"sent. Wrap the server's strategy: {STRATEGY}(strategy, config=context.run_config)."
)
_ADVICE = (
    f"The server's are those of {STRATEGY}; this node's are under {settings.PREFIX} in the run's config, where {MOD} "
    f"reads them. Use {STRATEGY}(..., config=context.run_config)"
)


def private_mod(message: Message, context: Context, call_next: App) -> Message:
    """Protect what the app answers to a train message of :class:`tacit.flower.Private`.

    The app trains on the arrays it is sent, and never sees the protocol's records. Of its answer only the protected
    update leaves the node: no array in the clear, no metric, and of what goes wrong a code. What the first message said
    of the run holds to its end: a message that says otherwise, or asks for a round again, is refused (see memory.py).
    Evaluate and query messages pass untouched. It has to be the first mod in the list, so that nothing changes what it
    made.
    """
    if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
        return call_next(message, context)
    try:
        envelope.frame_of(message)
        envelope.party_of(message)
    except WireError:
        classic = any(name.startswith("fitins.") for name in message.content)
        why = f"{_WITHOUT_STRATEGY} The server's app is a classic one. {CLASSIC}" if classic else _WITHOUT_STRATEGY
        _LOG.error("tacit: %s", why)
        return Message(Error(code=_FAILED_PRECONDITION, reason=why), reply_to=message)
    if SETTING in context.node_config:  # a key holder's process answers, and the app is not asked
        return envelope.answered(message, context, relay, party=context.node_id)
    guard = Guard(message=message, context=context, call_next=call_next)
    return envelope.answered(message, context, guard, party=context.node_id)


@dataclass(frozen=True, kw_only=True)
class Guard(Party):
    """A node whose app is somebody else's.

    The settings come with every message, as the app knows nothing of them; where the run's config has them too, they
    have to agree. A client's number is the one that Flower knows its node by. What is trained is the app's affair.

    Attributes:
        message: Flower's, with the model beside the frame.
        context: Flower's.
        call_next: the app, or the next mod.
    """

    message: Message
    context: Context
    call_next: App
    in_app: ClassVar[bool] = True

    def _answer(self, request: Request) -> Answer:
        if request.terms.numbers is None and request.frame.kind is not wire.Kind.HELLO:
            raise WireError("The server asks for work before it has said how many take part")
        return super()._answer(request)

    def _who(self, call: Call) -> str:
        return f"node-{call.party}"  # which Flower says, and no message

    def _pins(self, call: Call) -> bool:
        return "tacit-pin" in call.node or not call.plays

    def _config(self, call: Call, terms: Terms) -> Resolved:
        try:
            theirs = settings.from_text(terms.settings)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"The settings that {STRATEGY} sent can't be read: {error!r}") from error
        ours = settings.from_run(call.run)
        if ours is not None:
            terms.agree(ours, theirs=theirs, advice=_ADVICE)
        return resolve(theirs if terms.numbers is None else settings.with_numbers(theirs, terms.numbers))

    def _counted(self, terms: Terms) -> bool:
        return terms.numbers is not None  # the server counts after it has greeted

    def _parties(self, request: Request) -> tuple[ClientId, ...]:
        holds = key_holder.numbers(request.call.node, request.config)
        client = not holds or "partition-id" in request.call.node
        return (*((self.context.node_id,) if client else ()), *holds)

    def _protocol(self, request: Request) -> SumProtocol:
        return _plan(request.terms).protocol

    def _work(self, request: Request) -> Answer:
        """Let the app train, and answer with what protects its update."""
        plan, config, memory = _plan(request.terms), request.config, request.memory
        task = wire.unpack_task(request.frame)
        protocol = self._as_client(request, plan.protocol)
        before = memory.change(lambda kept: kept)[0].state
        own = (envelope.FRAME, envelope.CALL)
        self.message.content = RecordDict({name: one for name, one in self.message.content.items() if name not in own})
        models = self.message.content.array_records
        if len(models) != 1:
            raise WireError(f"Expected one model in the message, got {len(models)}")
        sent = next(iter(models.values())).copy()  # the app may change the record it is handed
        shape = Shape.of(sent)
        memory.change(lambda kept: kept.held_to({"the model's arrays": digest(repr(shape).encode())}))
        mechanism = plan.mechanism.with_state(task.extras).fitted(shape.layers)
        protocol.prepare(before, mechanism.length(sum(shape.layers)))
        reply = self._trained()
        if isinstance(reply, Error):
            return Answer(error=reply.code)
        start = time.perf_counter()
        arrays = reply.content.array_records
        if len(arrays) != 1:
            raise RefusalError(wire.Failure.APP, f"Expected one ArrayRecord in the app's answer, got {len(arrays)}")
        work = Work(
            update=_update(shape, next(iter(arrays.values())), sent, plan),
            examples=_examples(reply, request.terms.weighted_by, needed=mode_of(config.mode).weighs(config)),
            loss=0.0,
            sent=shape.vector(sent),
        )
        number, turn = request.call.node.get("partition-id"), task.turn
        who = number if isinstance(number, int) else self.context.node_id  # which differs between simulations
        randomness = Randomness.of(seed=config.seed).within("client", turn.round_number, turn.attempt, who)
        contribution = mechanism.on_client(work, randomness)
        state, frame = protocol.client(before, request.frame, contribution, number=self.context.node_id)
        memory.change(lambda kept: kept.worked(before, state))
        _LOG.debug("tacit: update protected (%s) in %.2f s", plan.mode, time.perf_counter() - start)
        return Answer(frame=without_details(frame))  # no seconds: they would tell how many examples were trained on

    def _trained(self) -> Message | Error:
        """Return the app's answer, or its error, of which no more than its code leaves the node."""
        try:
            reply = self.call_next(self.message, self.context)
        except Exception as error:
            if isinstance(error, KeyError) and "fitins" in str(error):
                _LOG.error("tacit: this node's app is a classic one (client_fn, NumPyClient). %s", CLASSIC)
            else:
                _LOG.exception("tacit: the app raised an exception")
            return Error(code=_APP_RAISED)
        if not reply.has_error():
            return reply
        _LOG.error("tacit: the app answered with error %s: %s", reply.error.code, reply.error.reason)
        return reply.error


def _plan(terms: Terms) -> Plan:
    """Return the plan of the run, the same at the server and at every client."""
    assert terms.numbers is not None, "nothing but a greeting comes before them"
    return settings.plan(terms.settings, terms.numbers)


def _update(shape: Shape, trained: ArrayRecord, sent: ArrayRecord, plan: Plan) -> Vector:
    """Return what training changed; where nothing hides that it is not finite, that is refused."""
    update = shape.update(trained, sent)
    if not plan.private and first_not_finite(update) is not None:
        raise RefusalError(
            wire.Failure.NOT_FINITE, "Training gave numbers that are not finite. Lower the learning rate"
        )
    return update


def _examples(reply: Message, weighted_by: str, *, needed: bool) -> int:
    if not needed:
        return 1
    found = [record[weighted_by] for record in reply.content.metric_records.values() if weighted_by in record]
    if len(found) != 1 or isinstance(found[0], list) or not found[0] > 0 or int(found[0]) != found[0]:
        raise RefusalError(
            wire.Failure.APP,
            f"Clients are weighted by {weighted_by!r}, and the app's metrics have {found or 'no such key'}: expected "
            "one whole number above zero. Return it with the arrays, or set federate.weighting=uniform",
        )
    return int(found[0])
