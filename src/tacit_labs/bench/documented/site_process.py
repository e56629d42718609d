"""What it costs that a site's data live in a process of their own: a frame's way over the socket, and a MNIST round.

Requests are timed as whoever asks at the socket sees them, and the same requests inside the service, so that what is
between the two is the relay's, however busy the machine is.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.limits import cores
from tacit.modes.catalogue import resolve
from tacit.parties.hello import Terms
from tacit.service import SOCKET, Message, Service, call
from tacit.site.contract import LEDGER
from tacit.site.ledger import Ledger
from tacit.site.process import Site, Workshop
from tacit.site.trial import new_site
from tacit.tasks import models
from tacit_labs.bench.documented.common import keep, wall

FRAME = 1 << 20
REPEATS, ROUNDS, SITES = 200, 3, 10


@contextmanager
def served(path: Path, answer: Callable[[Message], Message]) -> Iterator[Callable[[Message], Message]]:
    """Answer at a socket, and yield what asks there."""
    with Service(path=path, answer=answer) as service:
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            yield lambda message: call(path, message)
        finally:
            service.stop()
            thread.join()


class Watched:
    """A site's answers, and how long each took inside its process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.inside = 0.0

    def answer(self, message: Message) -> Message:
        """Answer a request."""
        start = time.perf_counter()
        try:
            return self._site.answer(message)
        finally:
            self.inside += time.perf_counter() - start


def frames(folder: Path) -> dict[str, Any]:
    """Return how long a request of 1 MB and a reply of 1 MB take together."""
    request, reply = Message(body=os.urandom(FRAME)), Message(body=os.urandom(FRAME))
    with served(folder / "echo" / SOCKET, lambda _: reply) as ask:
        ask(request)
        seconds = sorted(wall(lambda: ask(request)) for _ in range(REPEATS))
    both = [1e3 * value for value in seconds]  # two frames
    return {
        "repeats": REPEATS,
        "bytes": FRAME,
        "ms_per_frame_median": statistics.median(both) / 2,
        "ms_per_frame_90th": both[int(0.9 * REPEATS)] / 2,
    }


def rounds(folder: Path) -> dict[str, Any]:
    """Return the seconds of MNIST rounds of ten sites: inside the sites, and what is around it for whoever asks."""
    config = resolve(
        RunConfig(
            mode="local-dp",
            engine="flower",
            dp={"noise": 1.0},
            data={"split_seed": 0},
            model={"name": "cnn"},
            federate={"clients": SITES, "rounds": ROUNDS + 1},
            train={"local_epochs": 1},
        )
    )
    said = dict(Terms.of(config).to_record())
    module = models.build("cnn", shape=(1, 28, 28), classes=10, seed=1)
    model = np.concatenate([one.detach().numpy().ravel() for one in module.parameters()]).astype(np.float32)
    inside, around = [0.0] * ROUNDS, [0.0] * ROUNDS
    workshop: Workshop | None = None  # one copy of the data, of which each site trains its part
    for number in range(SITES):
        place = folder / f"site-{number}"
        contract = new_site(place, config, number=number)
        workshop = workshop or Workshop(contract, None)
        with Ledger.open(place / LEDGER, contract) as ledger:
            watched = Watched(Site(folder=place, contract=contract, ledger=ledger, workshop=workshop))
            with served(place / SOCKET, watched.answer) as ask:
                for turn in range(ROUNDS + 1):
                    task = wire.Task(turn=wire.Turn(round_number=turn + 1), model=model)
                    head = {"run": 1, "party": number, "said": said, "partition": None}
                    message = Message(head=head, body=wire.pack_task(task))
                    before, start = watched.inside, time.perf_counter()
                    reply = ask(message)
                    lasted, worked = time.perf_counter() - start, watched.inside - before
                    assert wire.unpack(reply.body).kind is wire.Kind.VECTOR
                    if turn:  # the first loads the data and the kernels
                        inside[turn - 1] += worked
                        around[turn - 1] += lasted - worked
    return {
        "sites": SITES,
        "rounds": ROUNDS,
        "request_bytes": len(message.body),
        "inside_seconds": [round(value, 4) for value in inside],
        "relay_seconds": [round(value, 6) for value in around],
        "relay_ms_per_request": 1e3 * sum(around) / (SITES * ROUNDS),
        "relay_share": sum(around) / sum(inside),
    }


def table(found: dict[str, Any]) -> str:
    """Return the results for a page."""
    frame, mnist = found["frames"], found["rounds"]
    return (
        "| | measured |\n|---|---|\n"
        f"| a frame of 1 MB over the socket | {frame['ms_per_frame_median']:.2f} ms (90th percentile "
        f"{frame['ms_per_frame_90th']:.2f} ms) |\n"
        f"| the relay in a MNIST round of {mnist['sites']} sites (one pass over 6,000 images each) | "
        f"{mnist['relay_ms_per_request']:.1f} ms per request, {100 * mnist['relay_share']:.2f}% of the round |"
    )


def measure(*, results: Path, page: Path) -> None:
    """Measure both, write the results as they come, and put the table between the marks of a page."""
    found: dict[str, Any] = {"cores": cores(), "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(prefix="tacit-site-") as place:
        for name, taken in (("frames", frames), ("rounds", rounds)):
            found[name] = taken(Path(place))
            keep(found, results)
            print(name, json.dumps(found[name]))
    marks = re.compile(r"(<!-- site:begin -->\n).*(<!-- site:end -->)", re.DOTALL)
    page.write_text(marks.sub(lambda mark: f"{mark[1]}\n{table(found)}\n\n{mark[2]}", page.read_text()))
