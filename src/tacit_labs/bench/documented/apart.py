"""What a round under threshold keys takes at each place: server, key holders and clients in processes of their own.

The parties speak through sockets, as a deployment's do; clients send random vectors instead of training. Peaks of
resident memory are what the system tells of each process.

    python -m tacit_labs.bench.documented.apart '{"parameters": 1000000, "clients": 20, "bits": 2048}'
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tacit import wire
from tacit.crypto import keyfile, threshold
from tacit.crypto.paillier import Layout
from tacit.flow import ClientId, Frames, Gather, drive
from tacit.protocols.paillier import Caution, PaillierSum, Rules, ShareHolder
from tacit.randomness import Randomness
from tacit.service import Message, Service, call

HOLDERS, NEEDED = 3, 2
RULES = Rules(minimum_clients=2, rounds=1)


def _protocol(clients: int) -> PaillierSum:
    return PaillierSum(
        minimum_clients=RULES.minimum_clients,
        rounds=RULES.rounds,
        layout=lambda length, bits: Layout.floats(length=length, clip=1.0, bits=24, summands=clients, key_bits=bits),
        keys="threshold",
        holders=tuple(range(-1, -NEEDED - 1, -1)),  # the others are away
        needed=NEEDED,
        prove=True,
    )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Clients:
    """All clients, one after another: each answers with a vector of its own."""

    def __init__(self, parameters: int, clients: int) -> None:
        self._protocol, self._parameters = _protocol(clients), parameters
        self._states: dict[ClientId, bytes] = {}

    def answer(self, frame: wire.Frame, party: ClientId) -> bytes:
        vector = vector_of(party, self._parameters) if frame.kind is wire.Kind.TASK else None
        state = self._states.get(party, b"")
        self._states[party], reply = self._protocol.client(state, frame, vector, number=party)
        return reply


def vector_of(client: ClientId, parameters: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what a client sends."""
    return Randomness.of(seed=1).stream("vector", client).uniform(-1, 1, parameters).astype(np.float32)


def serve(path: Path, told: dict[str, Any]) -> None:
    """Be a party at a socket until somebody asks for the peak of this process's memory."""
    if "share" in told:
        share = keyfile.load_share(Path(told["share"]))
        holder = ShareHolder(share=share, caution=Caution(rules=RULES), prove=True)
    else:
        clients = _Clients(told["parameters"], told["clients"])

    def answer(request: Message) -> Message:
        if not request.body:
            service.stop()
            return Message(head={"peak": _peak()})
        frame = wire.unpack(request.body)
        reply = holder.answer(frame) if "share" in told else clients.answer(frame, request.head["party"])
        return Message(body=reply)

    service = Service(path=path, answer=answer, patience=600.0)
    with service:
        print("ready", flush=True)
        service.run()


@contextlib.contextmanager
def _party(path: Path, told: dict[str, Any]) -> Iterator[Path]:
    command = [sys.executable, "-P", __file__, str(path), json.dumps(told)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield path
    finally:
        process.terminate()
        process.wait()


class _Sockets:
    """Carries requests to the parties' sockets, and counts seconds and the longest message to a key holder."""

    name = "sockets"

    def __init__(self, paths: dict[ClientId, Path], clients: Path) -> None:
        self._paths, self._clients = paths, clients
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.longest = 0

    def exchange(self, requests: Frames) -> Frames:
        replies: dict[ClientId, bytes] = {}
        for party, request in requests.items():
            start = time.perf_counter()
            reply = call(self._paths.get(party, self._clients), Message(head={"party": party}, body=request)).body
            self.seconds["holders" if party < 0 else "clients"] += time.perf_counter() - start
            if party < 0:
                self.longest = max(self.longest, len(request))
            if isinstance(requests, Gather):
                start = time.perf_counter()
                requests.receive(party, reply)
                self.seconds["server"] += time.perf_counter() - start
            else:
                replies[party] = reply
        return replies


def measure(parameters: int, clients: int, bits: int) -> dict[str, Any]:
    """Return what a round took; this process is the server."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as parties:
        paths: dict[ClientId, Path] = {}
        for share in threshold.generate(shares=HOLDERS, threshold=NEEDED, bits=bits)[1][:NEEDED]:
            file = Path(folder) / f"share-{share.index}.key"
            keyfile.save(file, share)
            socket = Path(folder) / f"holder-{share.index}"
            paths[-share.index] = parties.enter_context(_party(socket, {"share": str(file)}))
        told = {"parameters": parameters, "clients": clients}
        at = parties.enter_context(_party(Path(folder) / "clients", told))
        engine = _Sockets(paths, at)
        ready = drive(_protocol(clients).setup(range(clients)), engine)
        task = wire.Task(turn=wire.Turn(round_number=1), model=np.zeros(parameters, np.float32))
        engine.seconds.clear()
        start = time.perf_counter()
        total = drive(ready.server(range(clients), task, parameters), engine)
        lasted, peak = time.perf_counter() - start, _peak()
        peaks = {party: call(path, Message()).head["peak"] for party, path in {**paths, 0: at}.items()}
    exact = np.zeros(parameters)
    for client in range(clients):
        exact += vector_of(client, parameters)
    if np.abs(total.vector - exact).max() > clients * 1e-6:
        raise AssertionError("The sum that was opened is not that of the clients' vectors.")
    return {
        "parameters": parameters,
        "clients": clients,
        "bits": bits,
        "peak_bytes": peak,
        "holder_bytes": max(peak for party, peak in peaks.items() if party < 0),
        "client_bytes": peaks[0],
        "model_bytes": 4 * parameters,
        "longest_bytes": engine.longest,
        "seconds": {name: round(seconds, 3) for name, seconds in engine.seconds.items()},
        "round_seconds": round(lasted, 3),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(Path(sys.argv[1]), json.loads(sys.argv[2]))
    else:
        print(json.dumps(measure(**json.loads(sys.argv[1]))))
