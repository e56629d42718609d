"""A cohort of clients trains: who holds which examples, in which batches, one step for many clients, over all cores.

Describe the clients' data (:class:`Holdings`) and local SGD (:class:`~tacit.training.settings.LocalTraining`), let
:func:`tacit.training.forms.cohort_trainer` choose the fastest form of training that the model allows, and call
:meth:`CohortTrainer.train` once per round. It cuts the cohort into chunks; a chunk's trainer, mostly a
:class:`StackedTrainer`, follows one table of batches (:func:`schedule`), so that a client's result does not depend on
who trains beside it.

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
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Event
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.shares import Rows, Shares
from tacit.training import cpu, native
from tacit.training.parameters import Parameters
from tacit.training.settings import LocalTraining, Loss
from tacit.vectors import Vector

Finish = Callable[[int, Vector, float], None]  # client, update, mean loss
Given = ParamSpec("Given")
Result = TypeVar("Result")
Whole = TypeVar("Whole", Tensor, NDArray[np.int64])

_EXAMPLES_PER_STEP = {"cpu": 320, "cuda": 4_096}  # where a larger chunk stops paying
_MOST_CLIENTS = {"cpu": 16, "cuda": 1_024}
_SIMILAR = 0.75  # clients whose numbers of steps differ by more don't share a chunk: the shorter would idle
_PROCESS = os.getpid()
_LOOKED_AT = 1_000  # clients, by whose sizes a form is chosen
_HANDED_OVER = 2e-3  # seconds until workers have begun, and torch's threads of the caller have ended and begun again
_UNEVEN = 4  # chunks per core; with more of them no core is idle for long
_TABLE = (
    1 << 18
)  # steps of all clients of a chunk; on a GPU shorter ones leave it, and the table of rows is all they cost
_AT_ONCE = 1 << 26  # numbers of updates that are computed with at a time
_HELD = 1 / 16  # of a GPU's memory, for updates that are to be summed
_ORDER, _DROPOUT = 0, 1  # what a client's key is used for
_LOW, _HALF = 0xFFFFFFFF, 1 << 31
_BEHIND, _PLACE_BITS = 1 << 33, 29  # padding comes behind all that is drawn; both fit 63 bits
_ONE = np.array(1, np.uint64)  # arrays wrap around silently, scalars warn
_GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """The examples of all clients, on the device that trains."""

    features: Tensor
    labels: Tensor
    rows: Sequence[Rows]  # of each client
    shares: Shares = field(init=False)  # the same as one index
    sizes: NDArray[np.int64] = field(init=False)  # how many examples each client holds

    def __post_init__(self) -> None:
        shares = Shares.of(self.rows)
        sizes = shares.sizes
        if not sizes.all():
            raise DataError(
                f"Client {int(np.argmin(sizes))} holds no example. Use fewer clients or another split, "
                "such as data.split=iid, or leave empty clients out."
            )
        for name, value in (("rows", shares), ("shares", shares), ("sizes", sizes)):
            object.__setattr__(self, name, value)

    def padded_rows(self, clients: Sequence[int], longest: int) -> Tensor:
        """Return the rows of ``clients``, one client per line, padded with the client's own first row.

        Padding has no weight in a loss, and yet a gradient of 0 times infinity is NaN: with somebody else's example for
        padding, what that holds could spoil a client's update.
        """
        table, shares = np.empty((len(clients), longest), np.int64), self.shares
        for line, client in enumerate(clients):
            own = shares.order[shares.starts[client] : shares.ends[client]]
            table[line, : len(own)], table[line, len(own) :] = own, own[0]
        return torch.from_numpy(table).to(self.features.device)


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


class Network(Protocol):
    """A model that computes the outputs of K clients, each with its own weights."""

    @property
    def name(self) -> str:
        """The name of the form in reports."""
        ...

    @property
    def client_axis(self) -> int:
        """Where the client axis of a stacked parameter is: 0 or -1."""
        ...

    def arranged(self, parameter: Tensor) -> Tensor:
        """Return a stacked parameter in the order of memory in which the network computes with it."""
        ...

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the outputs, ``(K, batch, ...)``, of features ``(K, batch, ...)``."""
        ...


class Straight(Protocol):
    """Computes steps without autograd, where it knows how to."""

    def __call__(self, *given: Tensor | None) -> list[Tensor] | None:
        """Return what :meth:`StackedTrainer.differentiated` returns, or None where that is to compute it."""
        ...

    def descent(
        self,
        parameters: list[Tensor],
        features: Tensor,
        labels: Tensor,
        rows: Tensor,
        keys: Tensor,
        rate: float,
        total: Tensor,
    ) -> bool:
        """Take many steps of plain SGD; return whether it did. Parameters are moved, losses added to ``total``."""
        ...


class StackedTrainer:
    """Trains chunks of clients in one tensor program: every parameter has a client axis, and a step moves all of them.

    The networks that run here (grouped, vmapped, lanes) differ in how they compute the outputs; the schedule, the loss,
    clipping, the proximal term and the optimiser are the same code for all.
    """

    def __init__(
        self,
        *,
        network: Network,
        layout: Parameters,
        settings: LocalTraining,
        loss: Loss,
        straight: Straight | None = None,
    ) -> None:
        """Say what trains, and how.

        Args:
            network: computes the outputs.
            layout: the model's vector.
            settings: local SGD.
            loss: one loss per example.
            straight: computes what :meth:`differentiated` computes, where it knows how to.
        """
        self.network = network
        self._straight = straight
        self._places = [(slice(slot.start, slot.start + slot.size), slot.shape) for slot in layout.trained]
        self._settings = settings
        self._adam = not settings.is_sgd
        self._loss = loss
        self._alone: Stack | None = None  # of one client on a CPU, written over by the next
        self._descends = straight is not None and settings.descends

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        moved = self.train_there(model, holdings, chunk)
        return Trained(updates=on_host(moved.updates), losses=moved.losses)

    def train_there(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Moved:
        """Train the clients of a chunk from ``model`` and return their updates where they are."""
        settings = self._settings
        plan = schedule(holdings, chunk.clients, chunk.keys, epochs=settings.epochs, batch_size=settings.batch_size)
        state = self.start(model, len(chunk.clients))
        total = model.new_zeros(len(chunk.clients))
        counts = torch.from_numpy(plan.counts).to(model.device)
        part = state
        done = self._descent(state, holdings, plan, chunk.rate, total)
        for step, live in enumerate(plan.live.tolist()[done:], done):
            if model.is_cuda and live != len(part.steps):  # on a CPU those of a chunk are of similar size
                part = state.first(live)
            own = plan.counts[step, : len(part.steps)]
            width = int(own.max())
            real = counts[step, : len(own)]
            rows, keys = plan.rows[step, : len(own), :width], plan.keys[step, : len(own)]
            losses = self.step(part, holdings, rows, None if int(own.min()) == width else real, keys, chunk.rate)
            total[: len(own)] += losses * real
        return self.moved(model, state, total, plan)

    def _descent(self, state: Stack, holdings: Holdings, plan: Schedule, rate: float, total: Tensor) -> int:
        """Take the first steps in one call, as many as are full, and return how many; none where there is no program.

        Their losses are added to ``total``.
        """
        if self._straight is None or not self._descends:
            return 0
        full = (plan.counts == plan.rows.shape[2]).all(1)
        count = len(full) if full.all() else int(full.argmin())
        given = holdings.features, holdings.labels, plan.rows[:count], plan.keys[:count], rate, total
        return count if count and self._straight.descent(state.parameters, *given) else 0

    def start(self, model: Tensor, clients: int) -> Stack:
        """Return K copies of the model, ready to train; one client's on a CPU is the one before it, written over."""
        axis, flat = self.network.client_axis, None
        if clients == 1 and axis == 0 and not model.is_cuda:
            if self._alone is not None:
                self.restart(self._alone, model)
                return self._alone
            flat = model[: self._places[-1][0].stop].clone()
            stacked = [part[None] for part in self._trained_parts(flat)]
        else:
            stacked = [self.network.arranged(_stack(part, clients, axis)) for part in self._trained_parts(model)]
        state = Stack(
            flat=flat,
            momentum=[torch.zeros_like(p) for p in stacked] if self._settings.momentum or self._adam else [],
            second=[torch.zeros_like(p) for p in stacked] if self._adam else [],
            steps=model.new_zeros(clients),
            origin=[p.select(axis, 0).unsqueeze(axis).clone() for p in stacked] if self._settings.mu else [],
            parameters=[p.requires_grad_() for p in stacked],
        )
        self._alone = self._alone if flat is None else state
        return state

    def restart(self, state: Stack, model: Tensor) -> None:
        """Write ``model`` over the copies in ``state``, in place."""
        axis, parts = self.network.client_axis, self._trained_parts(model) if state.flat is None or state.origin else []
        with torch.no_grad():
            if state.flat is not None:
                state.flat.copy_(model[: len(state.flat)])
            for number, part in enumerate(parts):
                if state.flat is None:
                    state.parameters[number].copy_(part.unsqueeze(axis))
                if state.origin:
                    state.origin[number].copy_(part.unsqueeze(axis))
            for moment in (*state.momentum, *state.second, state.steps):
                moment.zero_()

    def _trained_parts(self, model: Tensor) -> list[Tensor]:
        return [model[place].view(shape) for place, shape in self._places]

    def step(
        self,
        state: Stack,
        holdings: Holdings,
        rows: Tensor,
        counts: Tensor | None,
        keys: Tensor,
        rate: float | Tensor,
    ) -> Tensor:
        """Take one step with every client and return their mean losses.

        Args:
            state: the clients' models; moved in place.
            holdings: where the rows point.
            rows: ``(K, B)``.
            counts: ``(K,)``, how many rows of each client are real, or None where all are.
            keys: ``(K,)``, the dropout keys of the step.
            rate: the learning rate; a tensor inside a captured graph, where a number would be frozen.
        """
        given = (*state.parameters, holdings.features[rows], holdings.labels[rows], counts, keys)
        known = None if self._straight is None else self._straight(*given)
        losses, *gradients = known or self.differentiated(*given)
        with torch.no_grad():
            self._move(state, gradients, None if counts is None else (counts > 0).to(torch.float32), rate)
        return losses

    def differentiated(self, *given: Tensor | None) -> list[Tensor]:
        """Return the clients' mean losses and their gradients, given parameters, features, labels, counts and keys."""
        parts: Any = given
        *parameters, features, labels, counts, keys = parts
        clients, width = labels.shape[:2]
        parameters = [p if p.requires_grad else p.detach().requires_grad_() for p in parameters]
        outputs = self.network.outputs(parameters, features, keys)
        each = self._loss(outputs.flatten(0, 1), labels.flatten(0, 1)).view(clients, width)
        if counts is None:
            losses = each.mean(1)
        else:
            real = torch.arange(width, device=labels.device)[None, :] < counts[:, None]
            losses = torch.where(real, each, 0.0).sum(1) / counts.clamp(min=1)
        return [losses.detach(), *gradients_of(losses, parameters, torch.ones_like(losses))]

    def _move(self, state: Stack, gradients: list[Tensor], active: Tensor | None, rate: float | Tensor) -> None:
        """Move the models; gradients stay as they are, as two parameters may have one and the same tensor."""
        settings, axis, parameters = self._settings, self.network.client_axis, state.parameters
        if settings.mu:
            away = torch._foreach_sub(
                parameters, [o.expand_as(p) for o, p in zip(state.origin, parameters, strict=True)]
            )
            gradients = list(torch._foreach_add(gradients, away, alpha=settings.mu))
        if settings.grad_clip is not None:
            norms = torch.stack([_per_client(g, axis).square().sum(1) for g in gradients]).sum(0).sqrt()
            scale = (settings.grad_clip / (norms + 1e-6)).clamp(max=1.0)
            gradients = [g * _spread(scale, g, axis) for g in gradients]
        if self._adam:
            self._adapt(state, gradients, active, rate)
            return
        if settings.weight_decay:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=settings.weight_decay))
        if active is not None and len(active) == 1 and isinstance(rate, Tensor) and not settings.momentum:
            rate, active = rate * active[0], None  # one number for all of them
        if active is not None:  # a client that has run out of examples stands still, its momentum too
            gradients = [g * _spread(active, g, axis) for g in gradients]
        if settings.momentum:
            if active is None:
                torch._foreach_mul_(state.momentum, settings.momentum)
            else:
                keep = 1.0 - active * (1.0 - settings.momentum)
                for m in state.momentum:
                    m.mul_(_spread(keep, m, axis))
            torch._foreach_add_(state.momentum, gradients)
            gradients = state.momentum if active is None else [m * _spread(active, m, axis) for m in state.momentum]
        if isinstance(rate, Tensor):
            gradients = [_alike(g, p) for g, p in zip(gradients, parameters, strict=True)]
            torch._foreach_sub_(parameters, torch._foreach_mul(gradients, rate))
        else:
            torch._foreach_add_(parameters, gradients, alpha=-rate)

    def _adapt(self, state: Stack, gradients: list[Tensor], active: Tensor | None, rate: float | Tensor) -> None:
        """Step as :class:`torch.optim.Adam` or AdamW does; a client that has run out of examples stands still."""
        settings, axis = self._settings, self.network.client_axis
        moves = torch.ones_like(state.steps) if active is None else active
        state.steps.add_(moves)
        bias1, bias2 = (1.0 - beta ** state.steps.clamp(min=1) for beta in (settings.beta1, settings.beta2))
        for place, (parameter, gradient) in enumerate(zip(state.parameters, gradients, strict=True)):
            own = _spread(moves, parameter, axis)
            if settings.weight_decay and settings.name == "adam":
                gradient = gradient + settings.weight_decay * parameter  # noqa: PLW2901 - the step's own gradient goes on
            elif settings.weight_decay:
                parameter.sub_(own * rate * settings.weight_decay * parameter)
            first, second = state.momentum[place], state.second[place]
            first.add_(own * (1.0 - settings.beta1) * (gradient - first))
            second.add_(own * (1.0 - settings.beta2) * (gradient.square() - second))
            scale = (second / _spread(bias2, second, axis)).sqrt_().add_(settings.eps)
            parameter.sub_(own * rate * (first / _spread(bias1, first, axis)) / scale)

    def moved(self, model: Tensor, state: Stack, total: Tensor, plan: Schedule) -> Moved:
        """Return the updates and mean losses of a chunk."""
        axis, clients = self.network.client_axis, plan.rows.shape[1]
        trained = self._places[-1][0].stop
        if state.flat is not None:  # NumPy asks for large pages, which are there sooner
            updates, after = torch.from_numpy(np.empty((1, len(model)), np.float32)), state.flat[None]
        else:
            updates = model.new_empty(clients, len(model))
            after = torch.cat([_per_client(p.detach(), axis)[:clients] for p in state.parameters], dim=1)
        torch.sub(after, model[:trained], out=updates[:, :trained])
        updates[:, trained:] = 0.0
        return Moved(updates=updates, losses=total.double().cpu().numpy() / plan.counts.sum(0))


def gradients_of(values: Tensor, inputs: Sequence[Tensor], weights: Tensor, *, unused: bool = False) -> Sequence[Any]:
    """Return the gradients of the sum of values times weights; with ``unused`` None where an input has none.

    What :func:`torch.autograd.grad` does before it asks its engine takes a seventh of a tiny model's step.
    """
    engine: Any = torch.autograd.Variable._execution_engine
    found: Sequence[Any] = engine.run_backward((values,), (weights,), False, False, tuple(inputs), unused, False)
    return found


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The models of a chunk while it trains."""

    parameters: list[Tensor]
    momentum: list[Tensor]  # Adam's first moments too
    origin: list[Tensor]  # the model that was sent, with a client axis of one
    second: list[Tensor]  # Adam's second moments
    steps: Tensor  # (K,): how many steps each client has taken, for Adam
    flat: Tensor | None  # the parameters of one client as one vector

    def first(self, clients: int) -> Stack:
        """Return the models of the first so many clients, in the same memory; the client axis has to lead."""
        return self._of(slice(clients))

    def only(self, place: int) -> Stack:
        """Return the model of one client in the same way."""
        return self._of(slice(place, place + 1))

    def _of(self, clients: slice) -> Stack:
        parts = (self.parameters, self.momentum, self.second)
        parameters, momentum, second = ([own.detach()[clients] for own in part] for part in parts)
        return replace(
            self,
            parameters=[own.requires_grad_() for own in parameters],
            momentum=momentum,
            second=second,
            steps=self.steps[clients],
        )


def _alike(gradient: Tensor, parameter: Tensor) -> Tensor:
    """Return a gradient with the strides of its parameter where both lie alike.

    Those of axes of one number mean nothing, and yet parameters are moved one by one where any of them differs.
    """
    steps = zip(gradient.stride(), parameter.stride(), parameter.shape, strict=True)
    alike = gradient.shape == parameter.shape and all(one == other or size == 1 for one, other, size in steps)
    return gradient.as_strided(parameter.shape, parameter.stride()) if alike else gradient


def _stack(part: Tensor, clients: int, axis: int) -> Tensor:
    shape = (clients, *part.shape) if axis == 0 else (*part.shape, clients)
    return part.unsqueeze(axis).expand(shape).clone(memory_format=torch.contiguous_format)


def _per_client(values: Tensor, axis: int) -> Tensor:
    """Return ``values`` as one row per client."""
    clients = values.shape[axis]
    return values.reshape(clients, -1) if axis == 0 else values.reshape(-1, clients).t()


def _spread(each: Tensor, like: Tensor, axis: int) -> Tensor:
    """Return one number per client in a shape that multiplies ``like``."""
    return each.view(-1, *(1,) * (like.dim() - 1)) if axis == 0 else each


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """S steps of K clients in batches of B.

    A client with fewer examples than the largest has steps with fewer than B, or no, examples: ``counts`` says how
    many of the B rows are real; the others are padding.
    """

    rows: Tensor  # (S, K, B)
    counts: NDArray[np.int64]  # (S, K)
    steps_per_epoch: int
    own_keys: NDArray[np.int64]  # (K,): of the clients in this round

    @functools.cached_property
    def keys(self) -> Tensor:
        """Keys of the dropout masks, (S, K)."""
        numbers = np.arange(len(self.rows))[:, None]
        places = numbers // self.steps_per_epoch, numbers % self.steps_per_epoch
        return torch.from_numpy(derive_keys(self.own_keys, _DROPOUT, *places)).to(self.rows.device)

    @property
    def live(self) -> NDArray[np.int64]:
        """The first so many clients hold all examples of each step; the fewest where clients come by size."""
        live: NDArray[np.int64] = self.counts.shape[1] - (self.counts[:, ::-1] > 0).argmax(1)
        return live

    @property
    def ragged(self) -> bool:
        """Whether any batch has padding."""
        return bool((self.counts != self.rows.shape[2]).any())


def schedule(
    holdings: Holdings,
    clients: Sequence[int],
    keys: NDArray[np.int64],
    *,
    epochs: int,
    batch_size: int,
) -> Schedule:
    """Lay out ``epochs`` passes, each in a new random order, for ``clients`` with their keys of the round."""
    device = holdings.features.device
    sizes = holdings.sizes[np.asarray(clients)]
    width = min(batch_size, int(sizes.max()))
    steps = -(-int(sizes.max()) // width)
    longest = steps * width
    table = holdings.padded_rows(clients, longest)
    size_tensor = torch.from_numpy(sizes).to(device)
    passes = []
    for epoch in range(epochs):
        order_keys = torch.from_numpy(derive_keys(keys, _ORDER, epoch)).to(device)
        shuffled = table.gather(1, shuffled_positions(order_keys, size_tensor, longest))
        passes.append(shuffled.view(len(clients), steps, width).transpose(0, 1))
    starts = (np.arange(epochs * steps)[:, None] % steps) * width
    return Schedule(
        rows=torch.cat(passes).contiguous(),
        counts=(sizes[None, :] - starts).clip(0, width),
        steps_per_epoch=steps,
        own_keys=keys,
    )


def random_bits(key: Whole, index: Whole) -> Whole:
    """Return 32 random bits (as int64) for each pair of ``key`` and ``index`` (int64, broadcast together).

    A generator with a state gives different numbers on a CPU and on a GPU, and its numbers depend on how many were
    drawn before. A counter-based one (Salmon et al. 2011) has no state: the order of a client's batches and its dropout
    masks are functions of the client's key for the round, so that training gives the same result one client at a time,
    a hundred at once, over any number of workers, and on a GPU. It is for training only; nothing that protects anybody
    comes from here. Two rounds of MurmurHash3's finaliser, the halves of the key entering before each.

    >>> random_bits(torch.tensor(5), torch.arange(3)).tolist() == random_bits(torch.tensor(5), torch.arange(3)).tolist()
    True
    """
    mixed = _mix((index + (key & _LOW)) & _LOW)
    return _mix(mixed ^ ((key >> 32) & _LOW))


def _mix(x: Whole) -> Whole:
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


def derive_keys(keys: NDArray[np.int64], *path: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a new 62-bit key for every key and the given path (SplitMix64's finaliser, once per step).

    >>> derive_keys(np.array([1, 2]), np.arange(3)[:, None], 7).shape
    (3, 2)
    """
    state = np.asarray(keys).astype(np.uint64)
    for step in path:
        state = state + (np.asarray(step).astype(np.uint64) + _ONE) * _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    derived: NDArray[np.int64] = (state >> np.uint64(2)).astype(np.int64)
    return derived


def keep_mask(key: Tensor, index: Tensor, drop_probability: float) -> Tensor:
    """Return the dropout mask: True where an element stays."""
    dropped = round(drop_probability * 2**32)
    if index.is_cuda or dropped > _LOW:
        return random_bits(key, index) >= dropped
    # The same bits by numbers of 32 bits, which a CPU multiplies several times as fast.
    low, high = key.to(torch.int32), (key >> 32).to(torch.int32)
    mixed = _mix_halves(index.to(torch.int32) + low)
    return (_mix_halves(mixed ^ high) ^ -_HALF) >= dropped - _HALF


def _mix_halves(x: Tensor) -> Tensor:
    """Return what :func:`_mix` returns, as numbers with a sign."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * (0x85EBCA6B - 2 * _HALF)
    x = (x ^ ((x >> 13) & 0x7FFFF)) * (0xC2B2AE35 - 2 * _HALF)
    return x ^ ((x >> 16) & 0xFFFF)


def shuffled_positions(key: Tensor, sizes: Tensor, longest: int) -> Tensor:
    """Return, for each client, its positions in random order, and then the padding.

    Args:
        key: one key per client, shape (K,).
        sizes: how many examples each client has, shape (K,).
        longest: the width of the result; a client with fewer examples has its padding at the end.
    """
    if not key.is_cuda:  # NumPy is called in a fifth of the time, which a client of a few steps would wait for
        places = np.arange(longest)
        mixed = random_bits(key.numpy()[:, None], places[None, :])
        mixed = np.where(places < sizes.numpy()[:, None], mixed, _BEHIND) << _PLACE_BITS | places
        mixed.sort(axis=1)
        return torch.from_numpy(mixed & ((1 << _PLACE_BITS) - 1))
    positions = torch.arange(longest, device=key.device)
    drawn = random_bits(key[:, None], positions[None, :])
    drawn = torch.where(positions[None, :] < sizes[:, None], drawn, _BEHIND)
    return drawn.sort(dim=1, stable=True).indices
