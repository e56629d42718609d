"""A log that is written by a thread of its own, so that it never slows or breaks a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from tacit.logs.log import About, Ending, Log, Step

PATIENCE = 10.0  # seconds that the end of a run waits for a log


class Background:
    """Passes calls on to a log in order, from a thread; the first failure ends the log, and is kept for a note."""

    def __init__(self, log: Log, *, name: str) -> None:
        self._log = log
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._work, name=f"log to {name}", daemon=True)
        self._thread.start()

    def begin(self, about: About, done: Sequence[Step]) -> None:
        """Open the log."""
        self._calls.put(lambda: self._log.begin(about, done))

    def step(self, step: Step) -> None:
        """Write one round."""
        self._calls.put(lambda: self._log.step(step))

    def end(self, ending: Ending, *, patience: float = PATIENCE) -> None:
        """Write the end, and wait for it, but not for ever."""
        self._calls.put(lambda: self._log.end(ending))
        self._calls.put(None)
        self._thread.join(patience)
        if self._thread.is_alive() and self._failure is None:
            self._failure = f"did not answer within {patience:g} s"

    def failure(self) -> str | None:
        """Return what went wrong, once."""
        text, self._failure = self._failure, None
        return None if text is None else f"The log to {self._name} is not complete: it {text}. The run is not affected."

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            try:
                call()
            except Exception as error:  # whatever a dashboard's library raises, the run goes on
                first = next(iter(str(error).splitlines()), "")
                self._failure = f"failed with {type(error).__name__}: {first}".rstrip(": .")
                return
