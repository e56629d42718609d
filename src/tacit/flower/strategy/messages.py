"""Flower's messages as a strategy sends and gets them: the model that goes out, the frames that come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, Message, MessageType

from tacit.errors import ConfigError, WireError
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.strategy.pairing import without_mod

_LONGEST_REASON = 300


def broadcast(messages: list[Message]) -> tuple[str, ArrayRecord]:
    """Return the one model that all messages carry, and its key."""
    key: str | None = None
    sent: ArrayRecord | None = None
    for message in messages:
        records = message.content.array_records
        if message.metadata.message_type != MessageType.TRAIN or len(records) != 1:
            raise ConfigError(
                f"Expected train messages with one ArrayRecord, got {message.metadata.message_type!r} with "
                f"{len(records)}. Such a strategy can't be wrapped."
            )
        (name, record) = next(iter(records.items()))
        if sent is not None and record is not sent and record != sent:
            raise ConfigError("The strategy sends clients different models, whose updates have no common mean.")
        key, sent = name, record
    if len({message.metadata.dst_node_id for message in messages}) < len(messages):
        raise ConfigError("The strategy asks a client twice in a round, which would count it twice.")
    assert key is not None
    assert sent is not None
    return key, sent


def frames_of(
    replies: Iterable[Message], cohort: frozenset[ClientId], note: Callable[[str, int], None]
) -> dict[ClientId, bytes]:
    """Return each client's first frame; who answered with an error, or not at all, has dropped out."""
    frames: dict[ClientId, bytes] = {}
    for message in replies:
        node = message.metadata.src_node_id
        if node not in cohort or node in frames:
            said = "answered twice; its first answer counts" if node in frames else "answered, though nobody asked it"
            note(f"node {node} {said}", logging.WARNING)
        elif message.has_error():
            reason = (message.error.reason or f"error {message.error.code}").strip()[:_LONGEST_REASON]
            note(f"node {node} has dropped out: {reason}", logging.WARNING)
        else:
            try:
                frames[node] = envelope.frame_of(message)
            except WireError as error:
                raise without_mod(node, f"it sent {', '.join(message.content) or 'nothing'}") from error
    return frames
