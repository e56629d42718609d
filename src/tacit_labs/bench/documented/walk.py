"""How far one walks to understand a round: the files of Tacit in which something is called while a round runs.

A run in this process, with a folder, is watched by an observer that turns tracing on after the third round and off
after the fourth, in every thread. What is imported or defined does not count, what is called does: functions, methods,
properties, generators, lambdas. The observer itself is no part of Tacit, so neither is what a terminal would print.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import tacit
from tacit.runs.observer import Silent
from tacit.runs.result import RoundRecord

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dp": {"mode": "dp", "dp": {"noise": 1.0}, "federate": {"clients": 20}},
    "paillier with dp": {
        "mode": "paillier",
        "paillier": {"dp": True, "bits": 512, "insecure_key_size": True},
        "dp": {"epsilon": 8.0},
        "federate": {"clients": 10},
    },
}
_STEADY = 4  # the round that is traced: what the first ones alone do (programs are made) is no part of a round
_ROOT = f"{Path(tacit.__file__).parent}/"


class Tracer(Silent):
    """Notes which functions are called in the steady round of the run that it watches."""

    def __init__(self) -> None:
        self.called: defaultdict[str, set[str]] = defaultdict(set)
        self._tracing = False

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Begin, where the steady round is the first."""
        self._tracing = len(done) + 1 == _STEADY

    def doing(self, what: str, share: float | None = None) -> None:
        """Say nothing, from a file of its own."""

    def progress(self, *, replied: int, asked: int) -> None:
        """Say nothing."""

    def round_done(self, record: RoundRecord) -> None:
        """Trace what comes next, if that is the steady round."""
        self._tracing = record.round + 1 == _STEADY

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Take in an event of the interpreter."""
        code = frame.f_code
        if self._tracing and event == "call" and code.co_filename.startswith(_ROOT) and code.co_name != "<module>":
            self.called[code.co_filename.removeprefix(_ROOT)].add(code.co_name)


def walk(settings: dict[str, Any]) -> dict[str, list[str]]:
    """Return what is called in the fourth of five rounds on digits, by file."""
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder:
        federate = {"rounds": 5} | settings.get("federate", {})
        given = {"data": {"name": "digits"}, "seed": 1, "out": Path(folder) / "run"}
        config = tacit.RunConfig(**(given | settings | {"federate": federate}))
        threading.setprofile(tracer)  # threads of this run are all started later
        sys.setprofile(tracer)
        try:
            tacit.run(config, observer=tracer)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return {path: sorted(names) for path, names in sorted(tracer.called.items())}


def main() -> None:
    """Print the walk of the settings that are named, or of all, as JSON."""
    print(json.dumps({name: walk(SETTINGS[name]) for name in sys.argv[1:] or SETTINGS}))


if __name__ == "__main__":
    main()
