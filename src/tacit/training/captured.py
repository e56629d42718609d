"""The stacked trainer on a GPU, its step captured once as a CUDA graph and replayed.

A step of a small model is some sixty kernels of a few microseconds; launching them from Python takes longer than
running them. A graph is launched as one. It is captured for each shape (clients, batch, steps up to a power of two) and
reads its batch by a counter on the device, so that a round is a few copies and then nothing but replays. Clients come
by size, the largest first: when half of them have run out of examples, a graph of the others takes over.

Where one client's operations nearly keep a GPU busy, each client of a chunk has operations of its own, as branches of
one graph: while one is at its small layers, others fill the processors that those leave idle.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.training.batches import Holdings, Schedule, schedule
from tacit.training.cohort import Chunk, Moved, Trained, on_host
from tacit.training.parameters import held_by, hooked
from tacit.training.settings import LocalTraining
from tacit.training.stacked import Stack, StackedTrainer
from tacit.training.vmapped import VmappedNetwork

_WARM_UPS = 3
_MULTIPLES = ((64, 32), (16, 8), (1, 1))  # from so many clients on, a chunk is filled up to a multiple of
_MOST_SHAPES = 8  # of cohorts; old ones are dropped
ASIDE = 4  # clients whose operations run side by side


@dataclass(frozen=True, kw_only=True)
class _Capture:
    graphs: dict[int, torch.cuda.CUDAGraph]  # by how many of the clients take the step
    rate: Tensor
    rows: Tensor
    keys: Tensor
    counts: Tensor
    step: Tensor
    total: Tensor
    state: Stack


@contextmanager
def _steady_kernels() -> Iterator[None]:
    """Let cuDNN choose kernels that add up in one order, unsearched; TF32 is as torch's own switch has it."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


@contextmanager
def no_garbage() -> Iterator[None]:
    """Leave garbage for later: a graph in it that were freed while another is captured would spoil that."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@functools.cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which graphs are captured: one, because matrix products keep 32 MB for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch gives it no types


def here(device: torch.device) -> torch.cuda.StreamContext:
    """Return what leads back to the stream that computes now: a capture that fails would stay on its own."""
    return torch.cuda.stream(torch.cuda.current_stream(device))


def settle(device: torch.device) -> None:
    """Let torch's generator know that a capture that failed is over, or nobody draws from it any more.

    It takes note of the end of one that goes well: of a capture that is nobody's.
    """
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    own = torch.cuda.graph(graph, stream=capture_stream(device), capture_error_mode="thread_local")
    with suppress(RuntimeError):  # there may be no memory even for this
        nothing = torch.zeros(1, device=device)
        with here(device), no_garbage(), own:
            nothing.add_(1.0)


class CapturedTrainer:
    """Trains chunks of clients by replaying graphs; the same arithmetic as the trainer it captures."""

    def __init__(self, trainer: StackedTrainer, settings: LocalTraining, *, apart: bool = False) -> None:
        """Say what is captured.

        Args:
            trainer: takes the steps.
            settings: local SGD.
            apart: whether each client of a chunk, of at most :data:`ASIDE`, has operations of its own.
        """
        self._trainer = trainer
        self._settings = settings
        self._apart = apart
        self._captures: dict[tuple[int, int, int, bool], _Capture] = {}
        self._pool: Any = None  # graphs never run at the same time, and share what is theirs while they run
        network = trainer.network
        self._parts = list(network.module.modules()) if isinstance(network, VmappedNetwork) else []
        # Once something could not be captured, steps are taken one by one. Of hooks a graph would know nothing.
        self._fails = hooked(self._parts)

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        moved = self.train_there(model, holdings, chunk)
        return Trained(updates=on_host(moved.updates), losses=moved.losses)

    def train_there(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Moved:
        """Train the clients of a chunk from ``model`` and return their updates where they are."""
        with torch.cuda.device(model.device):  # of which streams and graphs are, unless they are told otherwise
            return self._train_there(model, holdings, chunk)

    def _train_there(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Moved:
        # Poisson cohorts differ in size every round: rounded up, they share a few graphs. Copies of the last client
        # fill up, and their results are left out.
        if self._fails:
            return self._plainly(model, holdings, chunk)
        count = len(chunk.clients)
        filled = chunk.filled(next(multiple for least, multiple in _MULTIPLES if count >= least))
        settings = self._settings
        plan = schedule(holdings, filled.clients, filled.keys, epochs=settings.epochs, batch_size=settings.batch_size)
        room = 1 << (len(plan.rows) - 1).bit_length()  # for steps: clients of similar sizes share a graph
        shape = (room, *plan.rows.shape[1:], plan.ragged)
        widths = [_width(live, len(filled.clients)) for live in plan.live.tolist()]
        capture = self._captures.get(shape)
        if capture is None and len(self._captures) >= _MOST_SHAPES:
            if self._apart:  # of so few clients each chunk may have a shape of its own
                return self._plainly(model, holdings, chunk)
            self._captures.pop(next(iter(self._captures)))
        try:
            if capture is None:
                capture = self._captures[shape] = self._room(model, plan, room)
            with _steady_kernels():
                for width in {*widths} - capture.graphs.keys():
                    capture.graphs[width] = self._capture(capture, holdings, width, ragged=plan.ragged)
        except BaseException as error:  # a step that asks the device something while it computes, or counts
            self._captures.clear()
            settle(model.device)
            full = isinstance(error, torch.cuda.OutOfMemoryError) and not self._apart  # one after another take less
            if full or not isinstance(error, Exception):
                raise
            self._fails = True
            return self._plainly(model, holdings, chunk)
        self._load(capture, model, plan, chunk.rate)
        for width in widths:
            capture.graphs[width].replay()
        moved = self._trainer.moved(model, capture.state, capture.total, plan)
        return Moved(updates=moved.updates[:count], losses=moved.losses[:count])

    def _plainly(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Moved:
        """Train a chunk step by step, clients that have operations of their own one after another."""
        chunks = [chunk.only(place) for place in range(len(chunk.clients))] if self._apart else [chunk]
        moved = [self._trainer.train_there(model, holdings, own) for own in chunks]
        if len(moved) == 1:
            return moved[0]
        losses = np.concatenate([own.losses for own in moved])
        return Moved(updates=torch.cat([own.updates for own in moved]), losses=losses)

    def _room(self, model: Tensor, plan: Schedule, room: int) -> _Capture:
        clients = plan.rows.shape[1]
        return _Capture(
            graphs={},
            rate=model.new_zeros(()),
            rows=_roomy(plan.rows, room),
            keys=_roomy(plan.keys, room),
            counts=_roomy(torch.from_numpy(plan.counts).to(model.device), room),
            step=torch.zeros(1, dtype=torch.int64, device=model.device),
            total=model.new_zeros(clients),
            state=self._trainer.start(model, clients),
        )

    def _capture(self, capture: _Capture, holdings: Holdings, width: int, *, ragged: bool) -> torch.cuda.CUDAGraph:
        state = capture.state if width == len(capture.total) else capture.state.first(width)

        def step() -> None:
            rows, keys, counts = (
                t.index_select(0, capture.step)[0, :width] for t in (capture.rows, capture.keys, capture.counts)
            )
            take = self._side_by_side if self._apart and width > 1 else self._trainer.step
            losses = take(state, holdings, rows, counts if ragged else None, keys, capture.rate)
            capture.total[:width].add_(losses * counts)
            capture.step.add_(1)

        capture.rate.zero_()
        # Warm-ups run on a side stream, as capture asks, with a rate of zero so that nothing moves.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch gives it no types
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                capture.step.zero_()
                step()
        torch.cuda.current_stream().wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        held, graph = held_by(self._parts), torch.cuda.CUDAGraph()
        own = torch.cuda.graph(graph, pool=self._pool, stream=capture_stream(capture.total.device))
        with here(capture.total.device), no_garbage(), own:
            step()
        if held_by(self._parts) != held:
            raise RuntimeError("a pass changes a number that its module holds, which a graph would repeat")
        return graph

    def _side_by_side(
        self, state: Stack, holdings: Holdings, rows: Tensor, counts: Tensor | None, keys: Tensor, rate: Tensor
    ) -> Tensor:
        """Take one step with every client, each on a stream of its own, and return their mean losses."""
        stem, losses, begun = torch.cuda.current_stream(rows.device), [], list[torch.cuda.Stream]()
        try:
            for place, stream in enumerate(_streams(rows.device)[: len(rows)]):
                own = slice(place, place + 1)
                stream.wait_stream(stem)
                begun.append(stream)
                with torch.cuda.stream(stream):
                    real = None if counts is None else counts[own]
                    losses.append(self._trainer.step(state.only(place), holdings, rows[own], real, keys[own], rate))
        finally:  # a capture with branches left over would hide what went wrong in one of them
            for stream in begun:
                stem.wait_stream(stream)
        return torch.cat(losses)

    def _load(self, capture: _Capture, model: Tensor, plan: Schedule, rate: float) -> None:
        capture.rate.fill_(rate)
        steps = len(plan.rows)
        capture.rows[:steps].copy_(plan.rows)
        capture.keys[:steps].copy_(plan.keys)
        capture.counts[:steps].copy_(torch.from_numpy(plan.counts))
        capture.step.zero_()
        capture.total.zero_()
        self._trainer.restart(capture.state, model)


@functools.cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    """Return streams for clients side by side; always the same, because matrix products keep 32 MB for each."""
    return [torch.cuda.Stream(device) for _ in range(ASIDE)]  # type: ignore[no-untyped-call]  # torch gives it no types


def _roomy(table: Tensor, room: int) -> Tensor:
    """Return a table of ``room`` lines that begins with the lines of another."""
    wider = table.new_zeros(room, *table.shape[1:])
    wider[: len(table)] = table
    return wider


def _width(live: int, clients: int) -> int:
    """Return how many clients take a step in which ``live`` have examples: all, or a power of two.

    >>> [_width(live, 100) for live in (100, 65, 64, 3, 1)]
    [100, 100, 64, 4, 2]
    """
    return min(clients, max(2, 1 << (live - 1).bit_length()))
