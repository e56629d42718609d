"""What sums under masks cost, beside Flower's SecAgg+, Paillier and CKKS, on one job.

* job: clients with vectors of many numbers, a part of which drop out after they have shared their secrets: processor
  time of a client and of the server, and bytes up per number; the sum is compared with the clear one;
* Flower's SecAgg+ on the same job, with the same number of neighbours and threshold: its own workflow and mod;
* Paillier by `tacit estimate`, and TenSEAL's CKKS (where an interpreter has it) on a part of the vector, likewise;
* rounds: a default round of MNIST under masks over a plain one, in turn;
* scale: thousands of clients in one process, and `tacit estimate` beside it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tacit
from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.flow import ClientId, Frames, Gather, InProcessEngine, drive
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.estimate import estimate
from tacit.modes.estimate_masks import estimate as masked_estimate
from tacit.protocols.masks import MaskedSum
from tacit.randomness import Randomness
from tacit_labs.bench.documented.common import in_a_child
from tacit_labs.bench.environments import first_with

_MODULE = "tacit_labs.bench.documented.masks"
PARTS = ("unsigned", "signed", "secagg", "paillier", "ckks", "rounds", "scale")
_DROP = 0.3
_CKKS = 1 << 16  # numbers that TenSEAL is timed on
_TENSEAL = """
import json, sys, time, tenseal
count, clients = int(sys.argv[1]), 8
context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60], n_threads=1)
context.global_scale = 2**40
parts = [[(number % 97) / 97 for number in range(first, first + 4096)] for first in range(0, count, 4096)]
start = time.process_time()
vectors = [tenseal.ckks_vector(context, part) for part in parts]
data = [vector.serialize() for vector in vectors]
encrypt = time.process_time() - start
start = time.process_time()
for _ in range(clients):
    vectors = [vector + tenseal.ckks_vector_from(context, one) for vector, one in zip(vectors, data)]
add = (time.process_time() - start) / clients
start = time.process_time()
for vector in vectors:
    vector.decrypt()
decrypt = time.process_time() - start
print(json.dumps({"client": encrypt / count, "add": add / count, "open": decrypt / count,
                  "bytes": sum(map(len, data)) / count}))
"""


def _settings(clients: int, drop: float, *, signed: bool) -> RunConfig:
    minimum = clients - round(drop * clients)
    return RunConfig(
        mode="masks",
        federate={"clients": clients, "minimum_clients": minimum, "rounds": 2, "drop": drop},
        masks={"signed": signed},
    )


def _vector(numbers: int) -> NDArray[np.float32]:
    return (2.0 * Randomness.of(seed=1).uniform(numbers, "vector") - 1.0).astype(np.float32)


def job(clients: int, numbers: int, drop: float, *, signed: bool = False) -> dict[str, Any]:
    """Sum vectors in this process and return what each side took."""
    config = _settings(clients, drop, signed=signed)
    protocol = plan_of(resolve(config), clients).protocol
    assert isinstance(protocol, MaskedSum)
    vector = _vector(numbers)
    gone = set(range(0, clients, max(1, round(1 / drop)))) if drop else set()
    gone = set(sorted(gone)[: clients - protocol.hood(clients).minimum])
    states: dict[ClientId, bytes] = {}
    spent, up = dict.fromkeys(range(clients), 0.0), dict.fromkeys(range(clients), 0)

    def step(client: ClientId, request: bytes) -> bytes:
        start = time.process_time()
        frame = wire.unpack(request)
        own = vector if frame.kind is wire.Kind.TASK else None
        states[client], reply = protocol.client(states.get(client, b""), frame, own, number=client)
        spent[client] += time.process_time() - start
        up[client] += len(reply)
        return reply

    def answer(requests: Frames) -> Frames:
        late = wire.unpack(next(iter(requests.values()))).kind not in (wire.Kind.ENROL, wire.Kind.SHARE)
        there = [client for client in requests if not (late and client in gone)]
        if not isinstance(requests, Gather):
            return {client: step(client, requests[client]) for client in there}
        for client in there:
            requests.receive(client, step(client, requests[client]))
        return {}

    engine = InProcessEngine(answer=answer)
    ready = drive(protocol.setup(range(clients)), engine)
    spent, up = dict.fromkeys(range(clients), 0.0), dict.fromkeys(range(clients), 0)
    task = wire.Task(turn=wire.Turn(round_number=1), model=np.zeros(1, np.float32))
    start, wall = time.process_time(), time.perf_counter()
    total = drive(ready.server(range(clients), task, numbers), engine)
    whole = time.process_time() - start
    field = protocol.fields(numbers)
    clear = field.integers(field.encode(vector)) * len(total.clients)
    assert field.step is not None
    assert (total.vector == clear.astype(np.float64) * field.step).all(), "the sum is not the clear one"
    left = [client for client in spent if client not in gone]
    expected = masked_estimate(config, parameters=numbers, clients=clients)
    hood = protocol.hood(clients)
    return {
        "clients": clients,
        "numbers": numbers,
        "dropped": len(gone),
        "signed": signed,
        "neighbours": hood.neighbours,
        "threshold": hood.threshold,
        "client_seconds": float(np.mean([spent[client] for client in left])),
        "slowest_client_seconds": max(spent[client] for client in left),
        "server_seconds": whole - sum(spent.values()),
        "wall_seconds": time.perf_counter() - wall,
        "bytes_per_number": max(up[client] for client in left) / numbers,
        "trips": len(protocol.trips),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "estimated": {"client_seconds": expected.client_seconds, "server_seconds": expected.server_seconds},
    }


def paillier(clients: int, numbers: int) -> dict[str, Any]:
    """Return what Tacit's Paillier sum costs, as `tacit estimate` has it."""
    found = estimate(RunConfig(mode="paillier", federate={"clients": clients}), parameters=numbers, clients=clients)
    return {
        "client_seconds": found.client_seconds,
        "server_seconds": found.aggregate_seconds,
        "open_seconds": found.recover_seconds,
        "bytes_per_number": found.upload_bytes / numbers,
        "trips": 1,
        "backend": found.backend,
    }


def ckks(clients: int, numbers: int, pythons: Sequence[str]) -> dict[str, Any]:
    """Time TenSEAL's CKKS on a part of the vector, or return nothing where no interpreter has it."""
    python = first_with(["tenseal"], pythons)
    if python is None:
        return {}
    done = subprocess.run([python, "-c", _TENSEAL, str(_CKKS)], stdout=subprocess.PIPE, check=True)
    each = json.loads(done.stdout)
    return {
        "client_seconds": each["client"] * numbers,
        "server_seconds": each["add"] * numbers * clients,
        "open_seconds": each["open"] * numbers,
        "bytes_per_number": each["bytes"],
        "trips": 1,
    }


def rounds(repeats: int) -> dict[str, Any]:
    """Time default rounds of MNIST, plain and under masks in turn, without evaluation; the fastest of each counts."""
    times: dict[str, list[float]] = {"plain": [], "masks": []}
    for _ in range(repeats):
        for mode, found in times.items():
            config = RunConfig(mode=mode, seed=1, federate={"rounds": 4}, evaluate={"every": 100, "train": False})
            result = tacit.run(config)
            found.append(min(record.lasted - record.seconds["evaluate"] for record in result.rounds[1:]))
    best = {mode: min(found) for mode, found in times.items()}
    return {"seconds": best, "all": times, "ratio": best["masks"] / best["plain"]}


def measure(*, quick: bool, parts: Sequence[str] = PARTS, pythons: Sequence[str] = ()) -> dict[str, Any]:
    """Return some parts of the measurement, each job in a process of its own."""
    clients, numbers = (20, 20_000) if quick else (100, 1_000_000)
    many, few = (300, 1_000) if quick else (10_000, 100_000)
    config = _settings(clients, _DROP, signed=False)
    rules = plan_of(resolve(config), clients).protocol
    assert isinstance(rules, MaskedSum)
    hood = rules.hood(clients)
    made: dict[str, Callable[[], Any]] = {
        "unsigned": lambda: _in_a_child("unsigned", clients, numbers, _DROP),
        "signed": lambda: _in_a_child("signed", clients, numbers, _DROP),
        "secagg": lambda: _in_a_child(
            "secagg", clients, numbers, clients - hood.minimum, hood.neighbours, hood.threshold
        ),
        "paillier": lambda: paillier(clients, numbers),
        "ckks": lambda: ckks(clients, numbers, pythons),
        "rounds": lambda: rounds(1 if quick else 5),
        "scale": lambda: _in_a_child("unsigned", many, few, 0.1),
    }
    return {part: made[part]() | {"load": os.getloadavg()[0]} for part in parts}


def _in_a_child(kind: str, *numbers: float) -> Any:
    return in_a_child(_MODULE, kind, *map(str, numbers), settings={"OMP_NUM_THREADS": "1"})


def _child(kind: str, clients: int, numbers: int, *more: float) -> dict[str, Any]:
    """Return a job's measurement, in the process that was started for it."""
    if kind != "secagg":
        return job(clients, numbers, more[0], signed=kind == "signed")
    from tacit_labs.bench.documented.secagg import secagg

    dropped, neighbours, threshold = map(int, more)
    return secagg(_vector(numbers), clients=clients, dropped=dropped, neighbours=neighbours, threshold=threshold)


if __name__ == "__main__":
    import sys

    print(json.dumps(_child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:]))))
