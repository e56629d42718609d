"""The client's half of a protected app: a mod, which is handed each message before the app and each reply after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, RecordDict

from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.errors import WireError
from tacit.federated.plan import Plan
from tacit.flower import envelope
from tacit.flower import key_holder as holder
from tacit.flower.envelope import in_simulation
from tacit.flower.memory import InFile, InState, Keeper, Memory, announce, digest, kept_in
from tacit.flower.operator import identity_of, key_of, pin_of, refuse_predictable
from tacit.flower.refusals import RefusalError, failure, without_details
from tacit.flower.settings import promise
from tacit.flower.strategy import settings
from tacit.flower.strategy.arrays import Shape
from tacit.flower.strategy.pairing import Introduction, Terms, without_strategy
from tacit.mechanisms.mechanism import Work
from tacit.modes.catalogue import mode_of
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.protocol import SumProtocol
from tacit.randomness import Randomness
from tacit.vectors import Vector, first_not_finite

App = Callable[[Message, Context], Message]

_LOG = logging.getLogger("flwr")
_FAILED_PRECONDITION = 6  # Flower's code for a mod that could not do its work
_APP_RAISED = 2  # and for an app that raised something
_APP_FAILED = "The app failed; what it said is in the node's log."
_STATE = "tacit.private"
_COUNTS = "clients, of a round, and rounds"


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
    call = message.content.config_records.get(envelope.CALL)
    if call is None or envelope.FRAME not in message.content.array_records:
        _LOG.error("tacit: %s", without_strategy())
        return Message(Error(code=_FAILED_PRECONDITION, reason=without_strategy()), reply_to=message)
    turn = wire.Turn(round_number=0)
    memory = _memory(context)
    try:
        frame = wire.unpack(envelope.frame_of(message))
        turn = frame.turn
        terms, config = Terms.read(call, context.run_config)
        if not is_simulated(context.node_config):
            refuse_predictable(config.seed, context.node_config)
        _hold(terms, config, memory)
        if frame.kind is wire.Kind.HELLO:
            return envelope.reply(message, _introduction(context, config).to_frame(), {})
        plan = _plan(terms, turn, memory, frame.kind)
        if frame.kind in wire.FOR_HOLDERS or frame.kind is wire.Kind.ENROL:
            answer = _enrolled if frame.kind is wire.Kind.ENROL else _opened
            return envelope.reply(message, answer(frame, context, config, plan, memory), {})
        return _worked(
            message, context, call_next, frame, config=config, plan=plan, weighted_by=terms.weighted_by, memory=memory
        )
    except Exception as error:  # whatever it is, its words could tell of this node's data
        return envelope.reply(message, failure(turn, error), {})
    finally:
        if isinstance(memory, InState):
            _keep(context, memory=memory.data)


def _hold(terms: Terms, config: RunConfig, memory: Keeper) -> None:
    """Hold the server to what it says of the run."""
    said = {"settings": terms.settings, "weights by": terms.weighted_by}
    announced, about = config, "settings"
    if terms.numbers is not None:
        announced, about = settings.with_numbers(config, terms.numbers), _COUNTS
        said[about] = terms.numbers.to_text()
    announce(memory, said, lambda: promise(announced), about=about)


def _plan(terms: Terms, turn: wire.Turn, memory: Keeper, kind: wire.Kind) -> Plan:
    """Return the plan of the run; a task is noted before anything is computed for it."""
    if terms.numbers is None:
        raise WireError("The server asks for work before it has said how many take part")
    plan, rounds = settings.plan(terms.settings, terms.numbers), terms.numbers.rounds
    if kind is wire.Kind.TASK:
        memory.change(lambda kept: kept.answering(turn, rounds=rounds, retries=0))
    return plan


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Return whether this is a virtual node of Flower's simulation, or one whose operator takes part in simulations."""
    return node.get("tacit-simulation") is True or in_simulation()


def _memory(context: Context) -> InFile | InState:
    """Return what this node remembers of the run; Flower hands its state on from run to run of a series."""
    if is_simulated(context.node_config):
        return InState(_kept(context, "memory"))
    return kept_in(context.node_config, f"run-{context.run_id}-node-{context.node_id}")


def _kept(context: Context, name: str) -> bytes:
    kept = context.state.config_records.get(_STATE, ConfigRecord()).get(f"{context.run_id}.{name}", b"")
    return kept if isinstance(kept, bytes) else b""


def _keep(context: Context, **data: bytes) -> None:
    kept = context.state.config_records.get(_STATE, ConfigRecord())
    run = f"{context.run_id}."
    mine = {name: kept[name] for name in kept if name.startswith(run)}
    context.state[_STATE] = ConfigRecord({**mine, **{f"{run}{name}": value for name, value in data.items()}})


def _introduction(context: Context, config: RunConfig) -> Introduction:
    node, simulated = context.node_config, is_simulated(context.node_config)
    number, encrypted = None, mode_of(config.mode).encrypted
    if "tacit-key" in node and encrypted and config.paillier.keys != "shared":
        number = holder.number_of(key_of(node, config.paillier), config.paillier)
    client = number is None or "partition-id" in node
    if client and encrypted and not simulated:
        pin_of(node, config.paillier)  # what is wrong with it is better told before the first round
    return Introduction(client=client, holder=number, simulated=simulated)


def _opened(request: wire.Frame, context: Context, config: RunConfig, plan: Plan, memory: Keeper) -> bytes:  # noqa: ARG001
    if not isinstance(plan.protocol, PaillierSum):
        raise WireError(f"A key or an opening was asked for, and mode {config.mode!r} has none")
    return holder.answer(
        request,
        key=key_of(context.node_config, config.paillier),
        settings=config.paillier,
        protocol=plan.protocol,
        run_id=context.run_id,
        node=context.node_config,
    )


def _enrolled(request: wire.Frame, context: Context, config: RunConfig, plan: Plan, memory: Keeper) -> bytes:
    """Enrol this client under the number that Flower knows its node by."""
    protocol = _protocol(plan.protocol, config, context)
    replies: list[bytes] = []

    def step(kept: Memory) -> Memory:
        state, reply = protocol.client(kept.state, request, None, number=context.node_id)
        replies.append(reply)
        return replace(kept, state=state)

    memory.change(step)
    return without_details(replies[0])


def _worked(
    message: Message,
    context: Context,
    call_next: App,
    request: wire.Frame,
    *,
    config: RunConfig,
    plan: Plan,
    weighted_by: str,
    memory: Keeper,
) -> Message:
    """Let the app train, and answer with what protects its update."""
    task = wire.unpack_task(request)
    protocol = _protocol(plan.protocol, config, context)
    state = memory.change(lambda kept: kept)[0].state  # which a task does not change
    content = {name: record for name, record in message.content.items() if name not in (envelope.FRAME, envelope.CALL)}
    message.content = RecordDict(content)
    if len(message.content.array_records) != 1:
        raise WireError(f"Expected one model in the message, got {len(message.content.array_records)}")
    sent = next(iter(message.content.array_records.values())).copy()  # the app may change the record it is handed
    shape = Shape.of(sent)
    memory.change(lambda kept: kept.held_to({"the model's arrays": digest(repr(shape).encode())}))
    mechanism = plan.mechanism.with_state(task.extras).fitted(shape.layers)
    protocol.prepare(state, mechanism.length(sum(shape.layers)))
    reply = _trained(message, context, call_next)
    if reply.has_error():
        return reply
    start = time.perf_counter()
    arrays = reply.content.array_records
    if len(arrays) != 1:
        raise RefusalError(wire.Failure.APP, f"Expected one ArrayRecord in the app's answer, got {len(arrays)}")
    work = Work(
        update=_update(shape, next(iter(arrays.values())), sent, plan),
        examples=_examples(reply, weighted_by, needed=mode_of(config.mode).weighs(config)),
        loss=0.0,
        sent=shape.vector(sent),
    )
    number, turn = context.node_config.get("partition-id"), task.turn
    who = number if isinstance(number, int) else context.node_id  # node numbers differ from simulation to simulation
    own = Randomness.of(seed=config.seed).within("client", turn.round_number, turn.attempt, who)
    _, frame = protocol.client(state, request, mechanism.on_client(work, own), number=context.node_id)
    _LOG.debug("tacit: update protected (%s) in %.2f s", plan.mode, time.perf_counter() - start)
    # No seconds: they would tell how many examples were trained on.
    return envelope.reply(message, without_details(frame), {})


def _trained(message: Message, context: Context, call_next: App) -> Message:
    """Return the app's answer; of an error that it made or raised, no more than that there was one."""
    try:
        reply = call_next(message, context)
    except Exception:
        _LOG.exception("tacit: the app raised an exception")
        return Message(Error(code=_APP_RAISED, reason=_APP_FAILED), reply_to=message)
    if not reply.has_error():
        return reply
    _LOG.error("tacit: the app answered with error %s: %s", reply.error.code, reply.error.reason)
    return Message(Error(code=reply.error.code, reason=_APP_FAILED), reply_to=message)


def _update(shape: Shape, trained: ArrayRecord, sent: ArrayRecord, plan: Plan) -> Vector:
    """Return what training changed; where nothing hides that it is not finite, that is refused."""
    update = shape.update(trained, sent)
    if not plan.private and first_not_finite(update) is not None:
        raise RefusalError(
            wire.Failure.NOT_FINITE, "Training gave numbers that are not finite. Lower the learning rate"
        )
    return update


def _protocol(protocol: SumProtocol, config: RunConfig, context: Context) -> SumProtocol:
    """Return the protocol as this client runs it: with its pin, its identity, and its copy of a key that all share."""
    node = context.node_config
    if not isinstance(protocol, PaillierSum):
        return protocol
    if "tacit-pin" in node or not is_simulated(node):
        protocol = replace(protocol, pin=pin_of(node, config.paillier), identity=identity_of(node))
    if config.paillier.keys == "shared" and "tacit-key" in node:
        return replace(
            protocol, own=holder.own_key(str(key_of(node, config.paillier)), config.paillier.insecure_key_size)
        )
    return protocol


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
