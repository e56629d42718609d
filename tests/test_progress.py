from __future__ import annotations

import threading
from contextvars import copy_context

from tacit.progress import telling, told


def test_who_watches_is_told_from_its_threads_and_no_longer_than_it_watches() -> None:
    heard: list[tuple[str, float]] = []
    with telling(lambda what, share: heard.append((what, share))):
        told("here", 0.5)
        own = copy_context()
        for run in (lambda: own.run(told, "a worker of this", 0.25), lambda: told("a stranger", 0.75)):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        with telling(lambda what, share: None):
            told("to another", 0.5)
        told("here", 1.0)
    told("afterwards", 1.0)
    assert heard == [("here", 0.5), ("a worker of this", 0.25), ("here", 1.0)]
