"""Between Flower's named arrays and one flat vector.

Only floating-point arrays are in the vector. Whole numbers and booleans, such as the counters of batch normalisation,
are left out: a mean of them is no whole number, and noise would ruin them. They stay as the server sent them, and a
client's own never leave it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import ConfigError, RunError, WireError
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.engine import reason_of
from tacit.flower.strategy.settings import without_mod
from tacit.parties.refusals import RefusalError
from tacit.vectors import Vector


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The names, shapes and types of a model's arrays.

    Attributes:
        arrays: of each array its name, its shape and its type.
    """

    arrays: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, record: ArrayRecord) -> Shape:
        """Return the shape of a record, or say which array can't be protected."""
        shape = cls(arrays=tuple((name, tuple(array.shape), array.dtype) for name, array in record.items()))
        for name, _, dtype in shape.arrays:
            if _kind(name, dtype) not in "fiub":
                raise RunError(f"Array {name!r} holds {dtype}, expected real numbers: it can't be protected.")
        if not shape.layers:
            raise RunError("The model has no array of floating-point numbers, so there is nothing to protect.")
        return shape

    @property
    def layers(self) -> tuple[int, ...]:
        """How many numbers each floating-point array has."""
        return tuple(int(np.prod(shape)) for _, shape, dtype in self._floating())

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the arrays that are not averaged."""
        floating = {name for name, _, _ in self._floating()}
        return tuple(name for name, _, _ in self.arrays if name not in floating)

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of batch norm's running statistics, which noise would spoil."""
        return tuple(name for name, _, _ in self.arrays if name.endswith(("running_mean", "running_var")))

    def vector(self, record: ArrayRecord) -> Vector:
        """Return all floating-point numbers of a record as one vector."""
        return np.concatenate([self._array(record, name).astype(np.float32).ravel() for name, _, _ in self._floating()])

    def update(self, new: ArrayRecord, sent: ArrayRecord) -> Vector:
        """Return what training changed, or say what is wrong with what came of it."""
        found = {name: tuple(array.shape) for name, array in new.items()}
        expected = {name: shape for name, shape, _ in self.arrays}
        if found != expected:
            differ = sorted(found.keys() ^ expected.keys()) or [name for name in found if found[name] != expected[name]]
            name = differ[0]
            raise RefusalError(
                wire.Failure.APP,
                f"The app's arrays are not those it was sent: {name!r} is {found.get(name, 'missing')}, expected "
                f"{expected.get(name, 'no such array')}. An app has to return the model it was sent, trained",
            )
        parts = []
        for name, _, _ in self._floating():
            with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at what overflows
                change = self._array(new, name).astype(np.float64) - self._array(sent, name).astype(np.float64)
                flat: Vector = change.astype(np.float32).ravel()
            parts.append(flat)
        return np.concatenate(parts)

    def moved(self, sent: ArrayRecord, update: Vector) -> ArrayRecord:
        """Return the arrays that were sent, moved by an update; what is not averaged stays."""
        moved, start = dict(sent.items()), 0
        for name, shape, dtype in self._floating():
            size = int(np.prod(shape))
            array = self._array(sent, name) + update[start : start + size].reshape(shape)
            moved[name] = Array(np.asarray(array.astype(dtype)))
            start += size
        return ArrayRecord(moved)

    def restored(self, record: ArrayRecord, sent: ArrayRecord) -> ArrayRecord:
        """Return a strategy's arrays in their own types; strategies make floats of whole numbers."""
        kept = set(self.kept)
        types = {name: dtype for name, _, dtype in self.arrays}
        restored = {}
        for name, array in record.items():
            if name in kept:
                restored[name] = sent[name]
            elif name in types and array.dtype != types[name]:
                restored[name] = Array(np.asarray(array.numpy().astype(types[name])))
            else:
                restored[name] = array
        return ArrayRecord(restored)

    def _floating(self) -> Iterator[tuple[str, tuple[int, ...], str]]:
        return (array for array in self.arrays if _kind(array[0], array[2]) == "f")

    @staticmethod
    def _array(record: ArrayRecord, name: str) -> NDArray[Any]:
        try:
            return record[name].numpy()
        except (ValueError, TypeError, OSError, EOFError) as error:
            raise RunError(f"Array {name!r} can't be read: {error}") from error


def _kind(name: str, dtype: str) -> str:
    try:
        return np.dtype(dtype).kind
    except TypeError as error:
        raise RunError(f"Array {name!r} is of a type that NumPy does not know: {dtype!r}.") from error


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
            note(f"node {node} has dropped out: {reason_of(message.error)}", logging.WARNING)
        else:
            try:
                frames[node] = envelope.frame_of(message)
            except WireError as error:
                raise without_mod(node, f"it sent {', '.join(message.content) or 'nothing'}") from error
    return frames
