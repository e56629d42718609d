"""A cohort of clients trains: in chunks, on all cores, and what comes of it.

Describe the clients' data (:class:`~tacit.training.batches.Holdings`) and local SGD
(:class:`~tacit.training.settings.LocalTraining`), let :func:`tacit.training.forms.cohort_trainer` choose the fastest
form of training that the model allows, and call :meth:`CohortTrainer.train` once per round. It cuts the cohort into
chunks; a chunk's trainer, mostly a :class:`~tacit.training.stacked.StackedTrainer`, follows one table of batches
(:func:`~tacit.training.batches.schedule`), so that a client's result does not depend on who trains beside it.

Nothing here costs time in proportion to the population: a round touches the rows of its cohort only.
"""

from __future__ import annotations

import functools
import heapq
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError
from tacit.training import cpu, native
from tacit.training.batches import Holdings
from tacit.training.parameters import Parameters
from tacit.training.settings import LocalTraining
from tacit.vectors import Vector

Finish = Callable[[int, Vector, float], None]  # client, update, mean loss
Given = ParamSpec("Given")
Result = TypeVar("Result")

_EXAMPLES_PER_STEP = {"cpu": 320, "cuda": 4_096}  # where a larger chunk stops paying
_MOST_CLIENTS = {"cpu": 16, "cuda": 1_024}
_SIMILAR = 0.75  # clients whose numbers of steps differ by more don't share a chunk: the shorter would idle
_PROCESS = os.getpid()
_LOOKED_AT = 1_000  # clients, by whose sizes a form is chosen
_HANDED_OVER = 2e-3  # seconds until workers have begun, and torch's threads of the caller have ended and begun again
_UNEVEN = 4  # chunks per core; with more of them no core is idle for long
_TABLE = 1 << 18  # steps of all clients of a chunk; on a GPU the table is all that those who leave it early cost
_AT_ONCE = 1 << 26  # numbers of updates that are computed with at a time
_HELD = 1 / 16  # of a GPU's memory, for updates that are to be summed


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of training K clients."""

    updates: NDArray[np.float32]  # (K, size): the new model minus the one sent
    losses: NDArray[np.float64]  # (K,): the mean loss over the client's examples and epochs


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The same, with the updates still on the device that trained; they are a mechanism's rows."""

    updates: Tensor  # (K, size)
    losses: NDArray[np.float64]

    def norms(self) -> NDArray[np.float64]:
        """Return the norm of each update in double precision."""
        squares = [part.double().square().sum(1) for part in torch.split(self.updates, self._few)]
        norms: NDArray[np.float64] = torch.cat(squares).sqrt().cpu().numpy()
        return norms

    def weighted_sum(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of updates times factors, each product rounded to float32; zero leaves an update out."""
        each = torch.from_numpy(factors).to(self.updates.device)[:, None]
        total = torch.zeros(self.updates.shape[1], dtype=torch.float64, device=self.updates.device)
        for part, own in zip(torch.split(self.updates, self._few), torch.split(each, self._few), strict=True):
            total += torch.where(own == 0.0, 0.0, part.double() * own).float().sum(0, dtype=torch.float64)
        return on_host(total)

    def row(self, place: int) -> Vector:
        """Return one update."""
        return on_host(self.updates[place])

    @property
    def _few(self) -> int:
        """How many updates are computed with at a time: in double precision they take twice the memory."""
        return max(1, _AT_ONCE // max(self.updates.shape[1], 1))


def on_host(values: Tensor) -> NDArray[Any]:
    """Return values as an array; those on a GPU come into pinned memory, which torch keeps and gives out again.

    Into fresh memory a copy waits for the system to find every page: for a large model as long as its steps take.
    """
    if not values.is_cuda:
        return values.numpy()
    room = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return room.copy_(values).numpy()


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Clients that train together in a round."""

    clients: Sequence[int]
    keys: NDArray[np.int64]  # one per client: its batches and dropout masks in this round
    rate: float
    round_number: int

    def filled(self, multiple: int) -> Chunk:
        """Return the chunk filled up to a multiple with copies of its last client, whose results are to be left out."""
        empty = -len(self.clients) % multiple
        clients = [*self.clients, *[self.clients[-1]] * empty]
        return replace(self, clients=clients, keys=np.concatenate([self.keys, self.keys[-1:].repeat(empty)]))

    def only(self, place: int) -> Chunk:
        """Return one client of the chunk."""
        return replace(self, clients=[self.clients[place]], keys=self.keys[place : place + 1])


class ChunkTrainer(Protocol):
    """A form of training."""

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        ...


def as_workers(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function compute in its caller's thread as workers do in theirs, which know nothing of the caller's modes.

    Without gradients nothing would train, and with autocast a client's numbers would depend on who trains it where.
    """

    @functools.wraps(function)
    def called(*given: Given.args, **named: Given.kwargs) -> Result:
        with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            return function(*given, **named)

    return called


class CohortTrainer:
    """Trains many clients at once; made by :func:`tacit.training.forms.cohort_trainer`.

    Attributes:
        form: the form that was chosen.
        reason: why not a faster one; empty where the fastest was taken.
        layout: the model's vector.
        workers: how many chunks train at the same time.
    """

    def __init__(
        self,
        *,
        form: str,
        reason: str,
        layout: Parameters,
        trainers: Sequence[ChunkTrainer],
        holdings: Holdings,
        settings: LocalTraining,
        lanes: int = 0,
        at_once: int | None = None,
        at_least: int = 1,
        shared: float = 1.0,
        step: float = 0.0,
        threads: int | None = None,
        between: Callable[[], object] | None = None,
    ) -> None:
        """Start the workers.

        Args:
            form: the name of the form.
            reason: why not a faster one.
            layout: the model's vector.
            trainers: one for each chunk that may train at the same time.
            holdings: who holds which examples.
            settings: local SGD.
            lanes: how many clients fill one chunk exactly, where their number matters; 0 elsewhere.
            at_once: how many clients a chunk may have at most, where the form sets a limit.
            at_least: how many clients a chunk has before there is a second one, where calls cost more than they do.
            shared: how many times as fast as on one core a chunk trains on all of them.
            step: how long one of a client's steps takes on one core, in seconds; 0 if nobody knows.
            threads: of torch's for each worker on a CPU; if None all of them, in equal shares.
            between: is called before each round, when nobody trains; None if nothing is to be done.
        """
        self.form = form
        self.reason = reason
        self.layout = layout
        self.workers = len(trainers)
        self._idle: SimpleQueue[ChunkTrainer] = SimpleQueue()
        for trainer in trainers:
            self._idle.put(trainer)
        self._holdings = holdings
        self._settings = settings
        self._lanes = lanes
        self._at_once = at_once
        self._at_least = at_least
        self._shared = shared
        self._step = step
        self._between = between
        self._device = holdings.features.device
        self._threads_before = torch.get_num_threads()
        self._threads = threads or max(1, self._threads_before // self.workers)
        self._threads_here = threads or self._threads_before
        if self._device.type == "cpu":
            cpu.keep_pages(self.workers)
        self._pool = ThreadPoolExecutor(self.workers, "tacit-train", initializer=self._start_worker)

    @as_workers
    def train(
        self,
        model: Vector,
        clients: Sequence[int],
        keys: NDArray[np.int64],
        round_number: int,
        finish: Finish,
    ) -> None:
        """Train ``clients`` from ``model``; ``finish`` is called for each, in the thread that trained it.

        On a CPU whoever trains on all cores does so in the caller's thread, where torch's other threads wait for it.
        Once it has failed nobody's update is handed over any more.

        Args:
            model: the global model.
            clients: whom to train.
            keys: one 62-bit key per client: its batches and dropout masks in this round.
            round_number: the round, for the learning rate.
            finish: takes a client's update.
        """
        if self._between is not None:
            self._between()
        start = torch.from_numpy(np.array(model)).to(self._device)
        rate, broken = learning_rate(self._settings, round_number), Event()

        def work(places: Sequence[int]) -> None:
            names = [clients[place] for place in places]
            chunk = Chunk(clients=names, keys=keys[list(places)], rate=rate, round_number=round_number)
            trainer = self._idle.get()
            try:
                trained = trainer.train(start, self._holdings, chunk)
            finally:
                self._idle.put(trainer)
            for line, client in enumerate(names):
                if broken.is_set():
                    return
                finish(client, trained.updates[line], float(trained.losses[line]))

        chunks = list(self._chunks(clients))
        here = self._on_all(clients, chunks)
        seen = copy_context()  # whoever watches this thread watches the workers too
        if self._device.type == "cpu" and here < len(chunks):
            _rest()
        there = [self._pool.submit(seen.copy().run, work, places) for places in chunks[here:]]
        try:
            for own in there:
                own.result()
            with _threads(self._threads_here):
                for places in chunks[:here]:
                    work(places)
        except BaseException:
            broken.set()  # nobody is told of a client any more: whoever trains again would take him for one of theirs
            for own in there:
                own.cancel()
            wait(there)
            raise

    @property
    def adds(self) -> bool:
        """Whether :meth:`train_rows` is there, and worth it: where updates are on a GPU and to come to the host."""
        return self._device.type == "cuda" and self.form in ("grouped", "vmap")

    @as_workers
    def train_rows(
        self,
        model: Vector,
        clients: Sequence[int],
        keys: NDArray[np.int64],
        round_number: int,
        take: Callable[[Sequence[int], Moved, NDArray[np.float64]], None],
    ) -> None:
        """Train ``clients``; ``take`` is given those of a chunk, their updates where they are, and their losses."""
        start = torch.from_numpy(np.array(model)).to(self._device)
        rate = learning_rate(self._settings, round_number)
        trainer: Any = self._idle.get()
        names: list[int] = []
        held: list[Moved] = []
        room = _HELD * torch.cuda.get_device_properties(self._device).total_memory / 4 if start.is_cuda else _AT_ONCE

        def hand_over() -> None:
            if not held:
                return
            losses = np.concatenate([moved.losses for moved in held])
            updates = held[0].updates if len(held) == 1 else torch.cat([moved.updates for moved in held])
            held.clear()
            take(tuple(names), Moved(updates=updates, losses=losses), losses)
            names.clear()

        try:
            for places in self._chunks(clients):
                own = [clients[place] for place in places]
                if held and (len(names) + len(own)) * self.layout.size > room:  # few sums come to the host
                    hand_over()
                chunk = Chunk(clients=own, keys=keys[places], rate=rate, round_number=round_number)
                held.append(trainer.train_there(start, self._holdings, chunk))
                names += own
            hand_over()
        finally:
            self._idle.put(trainer)

    def close(self) -> None:
        """Stop the workers and give torch its threads back."""
        self._pool.shutdown()
        torch.set_num_threads(self._threads_before)

    def _chunks(self, clients: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions in ``clients``, those of similar size together, the largest first."""
        steps = -(-self._holdings.sizes[np.asarray(clients)] // self._settings.batch_size)
        limit = chunk_size(self._settings.batch_size, self._device.type)
        limit = min(limit, self._at_once or limit)
        rounds = -(-len(clients) // (limit * self.workers))
        size = -(-len(clients) // (rounds * self.workers))  # as many chunks as keep all workers busy to the end
        size = max(size, min(limit, self._at_least))
        if self._lanes and len(clients) >= self._lanes * self.workers:
            size = self._lanes
        room = _TABLE if self._device.type == "cuda" else 0  # in a loop nobody waits for the longest
        chunk: list[int] = []
        for position in np.argsort(-steps, kind="stable").tolist():
            longest = steps[chunk[0]] if chunk else 0
            apart = steps[position] < _SIMILAR * longest and (len(chunk) + 1) * longest > room and self.form != "loop"
            if chunk and (len(chunk) == size or apart):
                yield chunk
                chunk = []
            chunk.append(position)
        yield chunk

    def _on_all(self, clients: Sequence[int], chunks: Sequence[Sequence[int]]) -> int:
        """Return how many chunks, the largest first, train on all cores, one after another, when the others are done.

        Three clients on two cores would leave one idle for the time of a client, a large one beside small ones too; and
        clients of a few milliseconds are done before workers have taken over.
        """
        if self._device.type != "cpu":
            return 0
        if self.workers == 1 or len(chunks) == 1:
            return len(chunks)
        if not (self._shared > 1.0 or self._step) or len(chunks) > _UNEVEN * self.workers:
            return 0
        steps = -(-self._holdings.sizes[np.asarray(clients)] // self._settings.batch_size) * self._settings.epochs
        work = [float(steps[list(places)].sum()) for places in chunks]
        over = _HANDED_OVER / self._step if self._step else 0.0
        ends = [
            sum(work[:first]) / self._shared + (_last_end(work[first:], self.workers) + over if work[first:] else 0.0)
            for first in range(len(work) + 1)
        ]
        return ends.index(min(ends))

    def _start_worker(self) -> None:
        if self._device.type == "cpu":
            torch.set_num_threads(self._threads)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Give this thread so many of torch's for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rest() -> None:
    """End the threads that wait for this one's next parallel operation; that starts new ones.

    They go on asking for work for some milliseconds, each on a core that a worker would have. In a process that was
    forked there are none, and OpenMP would wait for them for ever.
    """
    if native.kernels is not None and os.getpid() == _PROCESS:
        native.kernels.rest()


def _last_end(work: Sequence[float], workers: int) -> float:
    """Return when all work is done, by workers of whom each takes the next piece as soon as it is free."""
    ends = [0.0] * workers
    for piece in work:
        heapq.heapreplace(ends, ends[0] + piece)
    return max(ends)


def usual_chunk(sizes: NDArray[np.int64], batch_size: int, most: int) -> int:
    """Return how many clients of such sizes train together, as far as those of similar size go.

    >>> usual_chunk(np.array([60, 60, 55, 50]), 10, 16), usual_chunk(np.array([300, 100, 40]), 10, 16)
    (4, 1)
    """
    steps = np.sort(-(-sizes[:_LOOKED_AT] // batch_size))[::-1]
    chunks, longest = 1, steps[0]
    for own in steps:
        if own < _SIMILAR * longest:
            chunks, longest = chunks + 1, own
    return max(1, min(most, len(sizes), -(-len(steps) // chunks)))


def chunk_size(batch_size: int, device: str) -> int:
    """Return how many clients train as one program on a CPU or a GPU: as many as pay."""
    kind = "cuda" if device == "cuda" else "cpu"
    return min(_MOST_CLIENTS[kind], max(1, _EXAMPLES_PER_STEP[kind] // batch_size))


def learning_rate(settings: LocalTraining, round_number: int) -> float:
    """Return the learning rate of a round; rounds count from 1."""
    if settings.own_schedule is not None:
        return _own_rate(settings.own_schedule, round_number)
    share = (round_number - 1) / max(settings.rounds - 1, 1)
    rate = float(settings.lr * fall(settings, share) * settings.decay ** (round_number - 1))
    return rate * round_number / (settings.warmup + 1) if round_number <= settings.warmup else rate


def fall(settings: LocalTraining, share: float) -> float:
    """Return what is left of the rate after a share of the training, from 0 to 1."""
    if settings.schedule == "cosine":
        return settings.final + (1.0 - settings.final) * (1.0 + math.cos(math.pi * share)) / 2.0
    return 1.0 if settings.schedule == "constant" else 1.0 - (1.0 - settings.final) * share


def _own_rate(schedule: Callable[[int], float], round_number: int) -> float:
    try:
        rate = float(schedule(round_number))
    except Exception as error:  # it is somebody else's code
        raise ConfigError(f"The schedule raised {type(error).__name__} in round {round_number}: {error}.") from error
    if not 0.0 < rate < math.inf:
        raise ConfigError(f"Expected the schedule to return a rate above 0 for round {round_number}, got {rate}.")
    return rate
