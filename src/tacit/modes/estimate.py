"""What hiding updates will cost a round, before the run: the arithmetic timed for a second on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tacit.config.run_config import RunConfig
from tacit.config.sections import Paillier
from tacit.crypto import paillier
from tacit.crypto.backend import backend
from tacit.crypto.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.crypto.paillier import Layout
from tacit.crypto.paillier.public import Noise
from tacit.crypto.paillier.vector import HEADER_BYTES
from tacit.crypto.ring import Rows, random_below
from tacit.crypto.threshold.partial import partial_bytes
from tacit.crypto.threshold.public import lift, spare_bits
from tacit.errors import ConfigError
from tacit.limits import cores
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.modes.estimate_masks import MaskedEstimate
from tacit.modes.estimate_masks import estimate as masked_estimate
from tacit.modes.keys import holder_numbers, key_options
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.paillier.binding import noise_of, seal_bytes
from tacit.protocols.paillier.blocks import Blocks, shown_bytes
from tacit.protocols.paillier.check import DIGEST_BYTES, SEED_BYTES
from tacit.randomness import system_bytes
from tacit.wire import Kind, Task, Turn, pack, pack_task

_SECONDS = 0.2  # of timing, for each of the operations
_SAMPLE = 128  # ciphertexts that each operation is timed on, at most: together about a second
_BATCH = 8  # vectors that wait at the server to be added
_EFFICIENCY = 0.85  # of processes that share the powers of a table


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds per ciphertext, measured here."""

    encrypt: float  # by one client that has a core to itself
    encrypt_together: float  # by clients that share all cores, mean of all
    add: float  # parsed, checked and added by the server
    open: float  # by the key holders, all cores
    check: float  # of a proof; in one process each is checked once


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of a round beyond training."""

    parameters: int
    clients: int
    ciphertexts: int  # of one client
    slots: int  # numbers in one
    backend: str
    client_seconds: float  # to encrypt, on a machine of its own
    protect_seconds: float  # all clients on this machine
    aggregate_seconds: float
    recover_seconds: float
    upload_bytes: int  # per client
    download_bytes: int  # per client
    holder_bytes: int  # between the server and the key holders
    memory_bytes: int  # of the server with all clients in its process, beyond a plain round

    @property
    def round_seconds(self) -> float:
        """What encryption adds to a round with all parties on this machine, one after another."""
        return self.protect_seconds + self.aggregate_seconds + self.recover_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"round_seconds": self.round_seconds}


def estimate_of(config: RunConfig, *, parameters: int, clients: int) -> Estimate | MaskedEstimate:
    """Return what a round of a mode that hides updates costs beyond training, for a model of ``parameters``."""
    mode = mode_of(config.mode)
    if not mode.hidden:
        raise ConfigError(
            f"Mode {config.mode!r} hides no update, so there is nothing to estimate. Use --mode paillier or masks."
        )
    return (estimate if mode.encrypted else masked_estimate)(config, parameters=parameters, clients=clients)


def estimate(config: RunConfig, *, parameters: int, clients: int) -> Estimate:
    """Return what a round of mode paillier costs beyond training, for a model of ``parameters``."""
    if not mode_of(config.mode).encrypted:
        raise ConfigError(
            f"Mode {config.mode!r} encrypts nothing, so there is nothing to estimate. Use --mode paillier."
        )
    if parameters < 1 or clients < 1:
        raise ConfigError(f"Expected at least one parameter and one client, got {parameters} and {clients}.")
    plan = plan_of(resolve(config), clients)
    protocol = plan.protocol
    assert isinstance(protocol, PaillierSum)
    settings, length = config.paillier, plan.mechanism.length(parameters)
    layout = protocol.layout(length, settings.bits)
    public, (private,) = replace(key_options(settings), shares=None).make()  # shares are timed without slow primes
    assert isinstance(public, paillier.PublicKey)
    assert isinstance(private, paillier.PrivateKey)
    rows, width = layout.rows, public.ring.width
    speed = _measure(public, private, settings, min(rows, _SAMPLE))
    cohort = round(plan.sampler.expected)
    blocks = Blocks(layout=layout).count
    checked = settings.keys == "authority"  # its answers bear a check
    vector = _upload(public, layout) + seal_bytes(settings.keys, public, blocks) + checked * width
    shown = vector  # to a key holder
    holders, needed = holder_numbers(settings)
    answer = 8 * length + checked * DIGEST_BYTES
    proofs = cohort * rows * speed.check  # all of a round's
    if settings.keys == "threshold":
        spare = spare_bits(len(holders), needed)
        beside = partial_bytes(public, 0, proved=settings.prove, spare_bits=spare)  # the numbers in each answer
        answer = rows * public.residues.width + blocks * beside
        shown = shown_bytes(layout, public, cohort)
    return Estimate(
        parameters=parameters,
        clients=clients,
        ciphertexts=rows,
        slots=layout.slots,
        backend=backend().name,
        client_seconds=rows * speed.encrypt,
        protect_seconds=cohort * rows * speed.encrypt_together,
        aggregate_seconds=cohort * rows * speed.add + rows * speed.encrypt + proofs,
        recover_seconds=rows * speed.open,
        upload_bytes=vector,
        download_bytes=_download(parameters) + checked * SEED_BYTES,
        holder_bytes=needed * (shown + answer) if holders else 0,
        memory_bytes=(cohort + 1 + _BATCH + 4) * rows * width + 24 * length,
    )


def _measure(public: paillier.PublicKey, private: paillier.PrivateKey, settings: Paillier, count: int) -> Speed:
    source: Noise = private if settings.keys == "shared" else noise_of(public, settings.keys)
    rows = public.take(64)
    alone = _timed(lambda some: source.take(some, workers=1), count)
    shared = alone / (_EFFICIENCY * cores())  # by helper processes, which are not started for this
    with ThreadPoolExecutor(cores()) as pool:

        def together(some: int) -> None:
            list(pool.map(lambda part: source.take(part, workers=1), [some] * cores()))

        if backend().name == "native":
            shared = _timed(together, count) / cores()

    def add(some: int) -> None:
        part = _repeated(rows, some)
        public.ring.fold(part)
        public.ring.product([part, part])

    def proved(some: int) -> None:
        exponents = coefficients(system_bytes(some * COEFFICIENT_BYTES))
        combined(public.ring, _repeated(rows, some), exponents)

    return Speed(
        encrypt=alone,
        encrypt_together=shared,
        add=_timed(add, count),
        open=_timed(_opening(public, private, settings, rows), count),
        check=_timed(proved, count) if settings.keys == "threshold" else 0.0,
    )


def _opening(
    public: paillier.PublicKey, private: paillier.PrivateKey, settings: Paillier, rows: Rows
) -> Callable[[int], object]:
    """Return what opens so many ciphertexts; shares are timed by powers of their length, without safe primes."""
    if settings.keys != "threshold":
        return lambda count: private.open(_repeated(rows, count))
    holders, needed = holder_numbers(settings)
    share = int.from_bytes(random_below(public.n, 1).tobytes(), "big") | 1 << (public.bits - 2)
    exponent = 2 * math.factorial(len(holders)) * share * lift(len(holders))

    def shares(count: int) -> None:
        part = public.residues.affine([(_repeated(rows, count), 1)], 0)
        for _ in range(needed):
            public.residues.power(part, exponent, secret=True)
        public.ring.power(_repeated(rows, count), public.n, secret=False)

    return shares


def _timed(action: Callable[[int], object], count: int) -> float:
    """Return seconds per ciphertext, for as many as a vector has (small numbers are slower each): the best of a few."""
    action(2)
    trials: list[float] = []
    while sum(trials) < _SECONDS and len(trials) < 5:
        start = time.perf_counter()
        action(count)
        trials.append(time.perf_counter() - start)
    return min(trials) / count


def _repeated(rows: Rows, count: int) -> Rows:
    return rows.repeat(-(-count // len(rows)), axis=0)[:count]


def _upload(public: paillier.PublicKey, layout: Layout) -> int:
    return len(pack(Kind.CIPHER, Turn(round_number=1), b"")) + HEADER_BYTES + layout.rows * public.ring.width


def _download(parameters: int) -> int:
    empty = Task(turn=Turn(round_number=1), model=np.zeros(0, np.float32))
    return len(pack_task(empty)) + 4 * parameters
