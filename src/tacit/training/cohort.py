"""Trains a cohort in the fastest form its model allows, over all cores.

=========  ==========================================================================================
form       for
=========  ==========================================================================================
lanes      convolutions, linear layers, pooling and pointwise layers on a CPU with the native kernels
grouped    models whose every layer has a rule (:mod:`tacit.training.program`), on any device
vmap       other models without control flow on data or random numbers of their own
loop       everything else, and runs with hooks
=========  ==========================================================================================

All forms give the same result for a client (up to the order of floating-point sums), whoever trains beside it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.errors import ConfigError
from tacit.training import allocator
from tacit.training.captured import CapturedTrainer
from tacit.training.cores import cores
from tacit.training.dropout import use_keys
from tacit.training.grouped import GroupedNetwork
from tacit.training.holdings import Holdings
from tacit.training.hooks import Hooks
from tacit.training.lanes.network import LANES, LaneTrainer, prefers_clients
from tacit.training.lanes.network import check as check_lanes
from tacit.training.loop import LoopTrainer
from tacit.training.parameters import Parameters
from tacit.training.private.probe import calm
from tacit.training.program import NoProgram, Program, graph_of, trace
from tacit.training.settings import LocalTraining, Loss
from tacit.training.stacked import Network, StackedTrainer, Trained
from tacit.training.vmapped import VmappedNetwork
from tacit.vectors import Vector

Form = Literal["auto", "lanes", "grouped", "vmap", "loop"]
Finish = Callable[[int, Vector, float], None]  # client, update, mean loss

_EXAMPLES_A_STEP = {"cpu": 320, "cuda": 4_096}  # where a larger chunk stops paying
_MOST_CLIENTS = {"cpu": 16, "cuda": 1_024}
_SIMILAR = 0.75  # clients whose numbers of steps differ by more don't share a chunk: the shorter would idle
_VMAP_PAYS_BELOW = 32  # on CPUs vmap loses to the loop at larger batches


class CohortTrainer:
    """Trains many clients at once.

    Attributes:
        form: the form that was chosen.
        reason: why not a faster one; empty where the fastest was taken.
        workers: how many chunks train at the same time.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        holdings: Holdings,
        settings: LocalTraining,
        loss: Loss,
        form: Form = "auto",
        workers: int | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._device = holdings.features.device
        self._holdings = holdings
        self._settings = settings
        self._loss = loss
        self._hooks = hooks or Hooks.for_training()
        self._module = copy.deepcopy(module).to(self._device).train()
        self.layout = Parameters.of(self._module)
        self._program, self.reason = self._trace()
        self.form = self._choose(form)
        if self.form == "loop":
            self.workers = 1
        else:
            self.workers = workers or (1 if self._device.type == "cuda" else cores())
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(self.workers, "tacit-train", initializer=self._start_worker)
        self._threads_before = torch.get_num_threads()

    def train(
        self,
        model: Vector,
        clients: Sequence[int],
        keys: NDArray[np.int64],
        round_number: int,
        finish: Finish,
    ) -> None:
        """Train ``clients`` from ``model``; ``finish`` is called for each, in the thread that trained it.

        Args:
            model: the global model.
            clients: whom to train.
            keys: one 62-bit key a client: its batches and dropout masks in this round.
            round_number: the round, for the learning rate.
            finish: takes a client's update.
        """
        start = torch.from_numpy(np.array(model)).to(self._device)
        rate = self._settings.rate(round_number)

        def work(chunk: Sequence[int]) -> None:
            names = [clients[i] for i in chunk]
            trained = self._train_chunk(start, names, keys[list(chunk)], rate, round_number)
            for line, client in enumerate(names):
                finish(client, trained.updates[line], float(trained.losses[line]))

        list(self._pool.map(work, self._chunks(clients)))

    def close(self) -> None:
        """Stop the workers and give torch its threads back."""
        self._pool.shutdown()
        torch.set_num_threads(self._threads_before)

    def _chunks(self, clients: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions in ``clients``, those of similar size together, the largest first."""
        steps = -(-self._holdings.sizes(clients) // self._settings.batch_size)
        kind = "cuda" if self._device.type == "cuda" else "cpu"
        batch = self._settings.batch_size
        limit = min(_MOST_CLIENTS[kind], max(1, _EXAMPLES_A_STEP[kind] // batch))
        rounds = -(-len(clients) // (limit * self.workers))
        size = -(-len(clients) // (rounds * self.workers))  # as many chunks as keep all workers busy to the end
        if self.form == "lanes" and prefers_clients(batch, LANES) and len(clients) >= LANES * self.workers:
            size = LANES
        chunk: list[int] = []
        for position in np.argsort(-steps, kind="stable").tolist():
            if chunk and (len(chunk) == size or steps[position] < _SIMILAR * steps[chunk[0]]):
                yield chunk
                chunk = []
            chunk.append(position)
        yield chunk

    def _train_chunk(
        self,
        start: torch.Tensor,
        clients: Sequence[int],
        keys: NDArray[np.int64],
        rate: float,
        round_number: int,
    ) -> Trained:
        trainer = getattr(self._own, "trainer", None)
        if trainer is None:
            trainer = self._own.trainer = self._make_trainer()
        if isinstance(trainer, LoopTrainer):
            return trainer.train(start, self._holdings, clients, keys, rate, round_number)
        trained: Trained = trainer.train(start, self._holdings, clients, keys, rate)
        return trained

    def _make_trainer(self) -> LoopTrainer | LaneTrainer | StackedTrainer | CapturedTrainer:
        layout, settings, loss = self.layout, self._settings, self._loss
        if self.form == "lanes":
            assert self._program is not None
            return LaneTrainer(program=self._program, layout=layout, settings=settings, loss=loss)
        module = copy.deepcopy(self._module)
        if self.form == "loop":
            return LoopTrainer(module=module, layout=layout, settings=settings, loss=loss, hooks=self._hooks)
        network: Network
        if self.form == "grouped":
            assert self._program is not None
            network = GroupedNetwork(self._program)
        else:
            network = VmappedNetwork(module, layout)
        stacked = StackedTrainer(network=network, layout=layout, settings=settings, loss=loss)
        return CapturedTrainer(stacked, settings) if self._device.type == "cuda" else stacked

    def _start_worker(self) -> None:
        if self._device.type == "cpu":
            allocator.keep_pages()
            if self.workers > 1:
                torch.set_num_threads(1)

    def _trace(self) -> tuple[Program | None, str]:
        """Follow the model and return its program, or why there is none."""
        use_keys(self._module)
        if self._hooks.changed:  # hooks are shown the user's own module, not a traced one
            return None, "hooks see one client at a time"
        try:
            traced = graph_of(self._module)
            program = trace(traced, self.layout, self._holdings.features[0])
        except NoProgram as error:
            return None, str(error)
        self._module = traced
        return program, ""

    def _choose(self, asked: Form) -> Form:
        allowed: list[Form] = ["loop"]
        if not self._hooks.changed:
            allowed = self._with_program()
            small = self._device.type == "cuda" or self._settings.batch_size < _VMAP_PAYS_BELOW
            wanted = asked == "vmap" or (small and not allowed)
            if wanted and self._can_vmap():
                allowed.append("vmap")
            allowed.append("loop")
        if asked == "auto":
            return allowed[0]
        if asked not in allowed:
            raise ConfigError(
                f"train.form={asked} does not fit this model: {self.reason or 'it is not available here'}. "
                f"Use train.form=auto, or one of: {', '.join(allowed)}."
            )
        return asked

    def _with_program(self) -> list[Form]:
        """Return the forms that run the model's program, the faster first."""
        if self._program is None:
            return []
        if self._device.type == "cpu":
            try:
                check_lanes(self._program)
            except NoProgram as error:
                self.reason = str(error)
            else:
                return ["lanes", "grouped"]
        return ["grouped"]

    def _can_vmap(self) -> bool:
        """Try one step of two clients, and whether an example's output depends on the rest of its batch."""
        network = VmappedNetwork(copy.deepcopy(self._module), self.layout)
        trainer = StackedTrainer(network=network, layout=self.layout, settings=self._settings, loss=self._loss)
        state = trainer.start(self.layout.read(self._module), 2)
        # Calm, so that no number in somebody's data decides about the form, which is told.
        features, labels = (calm(part[[0, -1]]) for part in (self._holdings.features, self._holdings.labels))
        few = Holdings(features=features, labels=labels, rows=[np.arange(2)])
        rows = torch.arange(2, device=self._device).repeat(2, 1)
        keys = torch.zeros_like(rows[:, 0])
        try:
            trainer.step(state, few, rows, None, keys, 0.0)
            with torch.no_grad():
                pair = network.outputs(state.parameters, features[rows], keys)
                alone = network.outputs(state.parameters, features[rows[:, :1]], keys)
        except Exception as error:  # whatever vmap can't do, in whatever words it says so
            self.reason = self.reason or f"vmap can't map it ({(str(error) or type(error).__name__).splitlines()[0]})"
            return False
        if not torch.allclose(pair[:, :1], alone, rtol=1e-3, atol=1e-4):
            self.reason = self.reason or "its output for an example depends on the batch, and a batch may be padded"
            return False
        return True
