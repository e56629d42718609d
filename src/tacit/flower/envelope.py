"""How a frame travels in a Flower message, and how it reaches whoever answers at a node.

A frame is the data of an Array, which Flower sends in chunks; the records beside it are small::

    tacit.frame      ArrayRecord   frame: uint8
    tacit.call       ConfigRecord  party: whom of a node a request is for, and the run's terms, see hello.py (requests)
    tacit.seconds    MetricRecord  train, protect, ...: how long the node worked (replies)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from tacit.errors import WireError
from tacit.flow import ClientId
from tacit.parties.calls import Answer, Call

MESSAGE_TYPE = "train.tacit"
ACTION = MESSAGE_TYPE.partition(".")[2]
FRAME, CALL = "tacit.frame", "tacit.call"
_SECONDS, _MEMORY = "tacit.seconds", "tacit.memory"


def record_of(frame: bytes) -> ArrayRecord:
    """Return the record that carries a frame; requests that say the same can share it, and it is sent once."""
    return ArrayRecord({"frame": Array(dtype="uint8", shape=(len(frame),), stype=FRAME, data=frame)})


def request(
    record: ArrayRecord,
    *,
    party: ClientId,
    node: int,
    ttl: float,
    message_type: str = MESSAGE_TYPE,
    terms: Mapping[str, ConfigRecordValues] | None = None,
) -> Message:
    """Return the message that asks one party of a node; the run's ``terms`` stand beside the party's number."""
    content = RecordDict({FRAME: record, CALL: ConfigRecord({"party": party, **(terms or {})})})
    return Message(content, node, message_type, ttl=ttl)


def reply(message: Message, frame: bytes, seconds: Mapping[str, float]) -> Message:
    """Return the answer to a request."""
    content = RecordDict({FRAME: record_of(frame), _SECONDS: MetricRecord(dict(seconds))})
    return Message(content, reply_to=message)


def party_of(message: Message) -> ClientId:
    """Return whom of this node a request is for."""
    try:
        party = message.content.config_records[CALL]["party"]
    except KeyError:
        raise WireError(f"Expected a message that says whom it is for ({CALL}), got {_names(message)}.") from None
    if not isinstance(party, int):
        raise WireError(f"Expected a party's number, got {party!r}.")
    return party


def frame_of(message: Message) -> bytes:
    """Return the frame that a message carries."""
    try:
        return message.content.array_records[FRAME]["frame"].data
    except KeyError:
        raise WireError(
            f"Expected a message with a frame of Tacit's ({FRAME}), got {_names(message)}. "
            "Does the node run an app of Tacit's?"
        ) from None


def seconds_of(message: Message) -> dict[str, float]:
    """Return how long the node worked, by stage; what makes no sense is left out."""
    found = message.content.metric_records.get(_SECONDS, MetricRecord())
    return {stage: float(value) for stage, value in found.items() if isinstance(value, float) and value >= 0}


def _names(message: Message) -> str:
    return ", ".join(message.content) or "nothing"


Handler = Callable[[Call], Answer]


def client_app(handler: Handler) -> ClientApp:
    """Return the app that hands every request to ``handler``."""
    app = ClientApp()

    @app.train(ACTION)
    def answer(message: Message, context: Context) -> Message:
        return answered(message, context, handler, party=party_of(message))

    return app


def answered(message: Message, context: Context, handler: Handler, *, party: ClientId) -> Message:
    """Hand a request to ``handler``, keep what is to be remembered, and return the reply.

    Args:
        message: Flower's.
        context: Flower's, with the node's settings, the run's and the state.
        handler: what answers.
        party: whom of this node the request is for.
    """
    who = f"{context.run_id}.{party}"  # Flower hands a state on from run to run of a series
    call = Call(
        party=party,
        frame=frame_of(message),
        said={name: value for name, value in message.content.config_records[CALL].items() if name != "party"},
        memory=_kept(context, who),
        node=dict(context.node_config),
        run=dict(context.run_config),
        run_id=context.run_id,
        simulated=in_simulation(),
    )
    given = handler(call)
    if given.memory != call.memory:
        _keep(context, who, given.memory)
    if given.error is not None:
        return Message(Error(code=given.error, reason=given.reason), reply_to=message)
    return reply(message, given.frame, given.seconds)


def _kept(context: Context, who: str) -> bytes:
    """Return what a party remembers in this run."""
    kept = context.state.config_records.get(_MEMORY, ConfigRecord()).get(who, b"")
    return kept if isinstance(kept, bytes) else b""


def _keep(context: Context, who: str, data: bytes) -> None:
    """Keep it, and forget what was kept for other runs."""
    run = f"{context.run_id}."
    kept = context.state.config_records.get(_MEMORY, ConfigRecord())
    context.state[_MEMORY] = ConfigRecord({**{one: kept[one] for one in kept if one.startswith(run)}, who: data})


def in_simulation() -> bool:
    """Return whether this process is a worker of Ray, which simulates nodes; a real node's settings can't say so."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
