"""A log for TensorBoard: event files in the run's folder, which ``tensorboard --logdir runs`` finds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.logs.log import About, Ending, Step

FOLDER = "tensorboard"
PATTERN = "events.out.tfevents.*"


class TensorBoardLog:
    """Writes scalars by round and texts.

    A run that is resumed is written anew from its first round, so that no round is missing or there twice.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._writer: Any = None

    def begin(self, about: About, done: Sequence[Step]) -> None:
        """Replace the event files."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        clear(self._folder.parent)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(self._folder))
        first = done[0].at if done else time.time()
        self._text("run", f"{about.title}\n\n" + _table(about.tags), at=first)
        self._text("configuration", f"```yaml\n{about.config}\n```", at=first)
        for step in done:
            self._scalars(step)
        self._writer.flush()

    def step(self, step: Step) -> None:
        """Write one round, to the disk."""
        self._scalars(step)
        self._writer.flush()

    def end(self, ending: Ending) -> None:
        """Write the texts and close the file."""
        if self._writer is None:
            return
        for name, text in ending.texts.items():
            self._text(name, text)
        self._writer.close()

    def _scalars(self, step: Step) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in step.values.items()]
        self._writer.add_event(Event(wall_time=step.at, step=step.number, summary=Summary(value=values)))

    def _text(self, name: str, text: str, *, at: float | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto

        plugin = SummaryMetadata.PluginData(plugin_name="text")
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        value = Summary.Value(tag=name, metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)
        self._writer.add_event(Event(wall_time=at or time.time(), step=0, summary=Summary(value=[value])))


def clear(folder: Path) -> None:
    """Take the event files of a run's folder away, and nothing else."""
    for path in (folder / FOLDER).glob(PATTERN):
        path.unlink()


def _table(values: Any) -> str:
    return "\n".join(["| | |", "|-|-|", *(f"| {name} | {value} |" for name, value in values.items())])
