r"""What masks will cost a round, before the run: the protocol's own steps, timed for a second on this machine.

With n clients of which :math:`\bar n` are left, k neighbours, t that open a secret, and d numbers,

.. math::
    \text{client} &= (k + 1) d\, m + d\, e + k\, a, \\
    \text{server} &= n d\, u + n k\, s + \bigl(\bar n + (n - \bar n) k \bar n / n\bigr) (d\, m + o),

where m is the time to make and add a number of a mask, o to open its seed, e to round and pack a number, u to add one,
and a and s what a client and the server do for each neighbour of a client: keys, shares, seals. Signed lists add a
signature's check for more than half of the clients to each client's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.flow import ClientId, Frames, Gather, InProcessEngine, drive
from tacit.modes.catalogue import plan_of, resolve
from tacit.protocols.masks import Field, MaskedSum
from tacit.protocols.masks.field import add_masks
from tacit.protocols.masks.graph import pack_clients
from tacit.protocols.masks.member import mask_seed, wrapping
from tacit.protocols.masks.secrets import ENTRY_BYTES, SEALED_BYTES, SHARE_BYTES, Identity, crossed
from tacit.protocols.masks.sum import DEALT_BYTES
from tacit.protocols.protocol import Contribution
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified

_SECONDS = 0.1  # of timing, for each of the operations
_FEW = 36  # clients of the federation that the steps are timed in
_SAMPLE = 1 << 19  # numbers of a vector, at most
_MASKS = 8


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds, measured here, each on one core."""

    mask: float  # per number of a mask
    seed: float  # per mask that is taken off
    encode: float  # per number
    add: float  # per number
    client: float  # of a client, per neighbour
    server: float  # of the server, per client and neighbour
    check: float  # of a signature


@dataclass(frozen=True, kw_only=True)
class MaskedEstimate:
    """The cost of a round beyond training."""

    parameters: int
    clients: int
    dropped: int  # after they have shared their secrets
    neighbours: int
    threshold: int
    bits: int  # of a sum
    trips: int
    client_seconds: float  # on a core of its own
    server_seconds: float
    upload_bytes: int  # per client
    download_bytes: int  # per client
    memory_bytes: int  # of the server with all clients in its process, beyond a plain round

    @property
    def round_seconds(self) -> float:
        """What masks add to a round with all parties on one core of this machine, one after another."""
        return self.clients * self.client_seconds + self.server_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"round_seconds": self.round_seconds}


def estimate(config: RunConfig, *, parameters: int, clients: int) -> MaskedEstimate:
    """Return what a round of mode masks costs beyond training, for a model of ``parameters``.

    As many clients as ``federate.drop`` says share their secrets and send no vector.
    """
    if parameters < 1:
        raise ConfigError(f"Expected at least one parameter, got {parameters}.")
    plan = plan_of(resolve(config), clients)
    protocol, length = plan.protocol, plan.mechanism.length(parameters)
    assert isinstance(protocol, MaskedSum)
    n = protocol.expected
    dropped = round(config.federate.drop * n)
    hood, inside = protocol.hood(n), protocol.fields(length)
    speed, k = _measure(protocol, inside, min(length, _SAMPLE)), hood.neighbours
    left = n - dropped
    removed = left + dropped * k * left / n
    checks = hood.quorum * speed.check if protocol.signed else 0.0
    return MaskedEstimate(
        parameters=parameters,
        clients=n,
        dropped=dropped,
        neighbours=k,
        threshold=hood.threshold,
        bits=inside.bits,
        trips=len(protocol.trips),
        client_seconds=((k + 1) * speed.mask + speed.encode) * length + k * speed.client + checks,
        server_seconds=n * (length * speed.add + k * speed.server) + removed * (length * speed.mask + speed.seed),
        upload_bytes=_upload(protocol, inside, k, length),
        download_bytes=_download(protocol, k, n, parameters),
        memory_bytes=2 * length * inside.word.itemsize + n * k * (DEALT_BYTES + 4 * SHARE_BYTES),
    )


def _upload(protocol: MaskedSum, inside: Field, k: int, length: int) -> int:
    bodies = 2 * SHARE_BYTES + k * DEALT_BYTES + inside.wire_bytes * length + k * SHARE_BYTES
    return bodies + len(protocol.trips) * _frame() + (SIGNATURE_BYTES if protocol.signed else 0)


def _download(protocol: MaskedSum, k: int, n: int, parameters: int) -> int:
    members, listed = (n + 7) // 8, len(pack_clients(np.arange(n, dtype=np.uint64)))
    sharing = _frame() + listed + k * ENTRY_BYTES + (n * PUBLIC_BYTES if protocol.signed else 0)
    task = wire.task_bytes(parameters, extras=members)
    revealing = _frame() + members + k * SEALED_BYTES
    if not protocol.signed:
        return sharing + task + revealing
    proof = members + n * PUBLIC_BYTES + n * SIGNATURE_BYTES
    return sharing + task + _frame() + members + revealing + proof


def _frame() -> int:
    return len(wire.pack(wire.Kind.SHARE, wire.Turn(round_number=1), b""))


def _measure(protocol: MaskedSum, inside: Field, count: int) -> Speed:
    total = np.zeros(count, inside.word)
    values: Contribution = np.zeros(count, np.float32) if inside.step else np.zeros(count, np.int64)
    seeds = [bytes([number]) * 32 for number in range(_MASKS)]
    packed = inside.pack(inside.encode(values))

    def add() -> None:
        np.add(total, inside.unpack(packed, count), out=total)

    def take_off() -> None:
        pairs = [crossed(seed, wrapping(seed, 1)) for seed in seeds]
        add_masks(total[:1], [mask_seed(pair, bytes(1)) for pair in pairs])

    signer = Identity(secret=bytes(32)).signing
    public, signature = signer.public_key().public_bytes_raw(), signer.sign(b"a list")
    client, server = _steps(replace(protocol, minimum_clients=_FEW // 2, expected=_FEW, signed=False))
    return Speed(
        mask=_timed(lambda: add_masks(total, seeds)) / (_MASKS * count),
        seed=_timed(take_off) / _MASKS,
        encode=_timed(lambda: inside.pack(inside.encode(values))) / count,
        add=_timed(add) / count,
        client=client,
        server=server,
        check=_timed(lambda: verified(public, signature, b"a list")),
    )


def _steps(protocol: MaskedSum) -> tuple[float, float]:
    """Return what a client, and what the server, does for a neighbour, by summing vectors of one number."""
    half = replace(protocol, rounds=2, fields=lambda _: Field(bound=1, summands=_FEW))
    states: dict[ClientId, bytes] = {}
    spent = 0.0

    def answer(requests: Frames) -> Frames:
        nonlocal spent
        start = time.process_time()
        replies = {}
        for client, request in requests.items():
            frame = wire.unpack(request)
            vector = np.ones(1, np.int64) if frame.kind is wire.Kind.TASK else None
            states[client], replies[client] = half.client(states.get(client, b""), frame, vector, number=client)
        spent += time.process_time() - start
        if not isinstance(requests, Gather):
            return replies
        for client, reply in replies.items():
            requests.receive(client, reply)
        return {}

    engine, cohort = InProcessEngine(answer=answer), range(_FEW)
    ready = drive(half.setup(cohort), engine)
    best: list[tuple[float, float]] = []
    for number in (1, 2):
        task = wire.Task(turn=wire.Turn(round_number=number), model=np.zeros(1, np.float32))
        start, spent = time.process_time(), 0.0
        drive(ready.server(cohort, task, 1), engine)
        best.append((spent, time.process_time() - start - spent))
    pairs = _FEW * (_FEW - 1)
    return min(client for client, _ in best) / pairs, min(server for _, server in best) / pairs


def _timed(action: Callable[[], object]) -> float:
    """Return the seconds of an action: the best of a few."""
    action()
    trials: list[float] = []
    while sum(trials) < _SECONDS and len(trials) < 20:
        start = time.perf_counter()
        action()
        trials.append(time.perf_counter() - start)
    return min(trials)
