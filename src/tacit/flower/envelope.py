"""How a frame travels in a Flower message.

A frame is the data of an Array, which Flower sends in chunks; the records beside it are small::

    tacit.frame      ArrayRecord   frame: uint8
    tacit.call       ConfigRecord  party: whom of a node the request is for, and what else the sides agree on (requests)
    tacit.seconds    MetricRecord  train, protect, ...: how long the node worked (replies)
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Message, MetricRecord, RecordDict

from tacit.errors import WireError
from tacit.flow import ClientId

MESSAGE_TYPE = "train.tacit"
ACTION = MESSAGE_TYPE.partition(".")[2]
FRAME, CALL = "tacit.frame", "tacit.call"
_SECONDS = "tacit.seconds"


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
    more: Mapping[str, ConfigRecordValues] | None = None,
) -> Message:
    """Return the message that asks one party of a node; ``more`` stands beside the party's number."""
    content = RecordDict({FRAME: record, CALL: ConfigRecord({"party": party, **(more or {})})})
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
