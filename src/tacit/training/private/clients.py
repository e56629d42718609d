"""Clients that train with DP-SGD, one per core: what each sends is private by its own noise.

A step is a hundred small operations. With several threads in each of them every operation waits for the slowest thread,
and on cores that other programs use too most of the time goes on waiting; clients that train side by side, each in one
thread, wait for nobody.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.limits import cores
from tacit.randomness import Randomness
from tacit.training import cpu
from tacit.training.batches import Holdings, derive_keys
from tacit.training.cohort import Finish, fall, learning_rate
from tacit.training.dropout import KeyedDropout, use_keys
from tacit.training.made import AsMade
from tacit.training.optimizers import Sgd, optimizer_of
from tacit.training.parameters import Parameters
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.steps import Canaries, PoissonBatches, PrivateSteps
from tacit.training.settings import LocalTraining, Loss
from tacit.vectors import Vector

_MOMENTUM = "momentum"  # the name of the state that a holder keeps


@dataclass(frozen=True, kw_only=True)
class _Seat:
    """Where one client at a time trains: a model, and the gradient that is taken of it."""

    module: nn.Module
    made: AsMade
    gradient: PrivateGradient
    dropouts: list[KeyedDropout]


class PrivateClients:
    """Trains a cohort with DP-SGD.

    Attributes:
        layout: the model's vector.
        form: how gradients are clipped.
        reason: why not faster; empty where it is the fastest form.
        workers: how many clients train at the same time. One on a GPU, and where the model draws random numbers from
            torch's only generator; a step then uses all of torch's threads.
    """

    _side_by_side = True

    def __init__(
        self,
        *,
        module: nn.Module,
        holdings: Holdings,
        settings: LocalTraining,
        loss: Loss,
        clipping: Clipping,
        noise_multiplier: float,
        batches: Sequence[PoissonBatches],
        steps: Sequence[int],
        randomness: Randomness,
        micro_batch: int | None = None,
        workers: int | None = None,
    ) -> None:
        """Make the clients ready.

        Args:
            module: the model; a copy of it trains.
            holdings: who holds which examples.
            settings: learning rate, momentum, weight decay and proximal term; epochs and batch size are not used.
            loss: one loss per example.
            clipping: how an example's gradient is bounded.
            noise_multiplier: z, the same for every client.
            batches: how each client draws its batches.
            steps: how many steps each client takes in a round.
            randomness: draws batches and noise.
            micro_batch: how many examples go through the model at once.
            workers: how many clients may train at the same time; one per core if None.
        """
        self._holdings = holdings
        self._settings = settings
        self._clipping = clipping
        self._noise_multiplier = noise_multiplier
        self._batches = batches
        self._steps = steps
        self._randomness = randomness
        self._micro_batch = micro_batch
        self._loss = loss
        self._module = copy.deepcopy(module).to(holdings.features.device).train()
        self.layout = Parameters.of(self._module)
        made = AsMade(self._module, self.layout.tensors(self._module), keeps=True)  # before any pass
        self._gradient = self._gradient_of(self._module)
        self.form, self.reason = f"dp-sgd, {self._gradient.form}", self._gradient.reason
        keyed = self._keyed()
        self.workers = 1 if keyed is None else workers or min(cores(), len(holdings.rows))
        self._seats: SimpleQueue[_Seat] = SimpleQueue()
        for _ in range(self.workers):
            own = self._module if keyed is None else copy.deepcopy(keyed)
            if keyed is not None:
                made = AsMade(own, self.layout.tensors(own), keeps=True)
            gradient = self._gradient if keyed is None else self._gradient_of(own)
            dropouts = [part for part in own.modules() if isinstance(part, KeyedDropout)]
            self._seats.put(_Seat(module=own, made=made, gradient=gradient, dropouts=dropouts))
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

        A key names a client's turn in a round. What a client computes does not depend on who trains beside it.
        """
        start = torch.from_numpy(np.array(model)).to(self._holdings.features.device)
        rate = learning_rate(self._settings, round_number)
        devices = [start.device] if start.is_cuda else []

        def work(turn: tuple[int, int]) -> None:
            client, key = turn
            seat = self._seats.get()
            try:
                if self.workers > 1:
                    update, loss = self._fit(seat, start, client, key, rate)
                else:
                    with torch.random.fork_rng(devices):
                        torch.manual_seed(key)  # dropout, where it has no key of its own
                        update, loss = self._fit(seat, start, client, key, rate)
            finally:
                self._seats.put(seat)
            finish(client, update, loss)

        turns = zip(clients, keys.tolist(), strict=True)
        longest_first = sorted(turns, key=lambda turn: -self._steps[turn[0]] * self._batches[turn[0]].expected)
        list(self._pool.map(work, longest_first))

    def _fit(self, seat: _Seat, start: Tensor, client: int, key: int, rate: float) -> tuple[Vector, float]:
        settings, parameters = self._settings, seat.gradient.parameters

        def rekey(step: int, part: int) -> None:
            for dropout in seat.dropouts:
                dropout.key.fill_(int(derive_keys(np.array([key]), step, part)[0]))

        seat.made.begin()
        self.layout.write(seat.module, start)
        rows = torch.from_numpy(self._holdings.rows[client]).to(start.device)
        optimizer: Any = (
            Sgd(parameters, lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay)
            if settings.is_sgd
            else optimizer_of(settings, parameters, rate)
        )
        steps = PrivateSteps(
            gradient=seat.gradient,
            optimizer=optimizer,
            features=self._holdings.features[rows],
            labels=self._holdings.labels[rows],
            batches=self._batches[client],
            noise_multiplier=self._noise_multiplier,
            clip_bound=self._clipping.bound,
            randomness=self._randomness.within("examples", client, key),
            micro_batch=self._micro_batch,
            pull=settings.mu,
            before_part=rekey,
        )
        total, count = torch.zeros((), device=start.device), 0
        for step in range(self._steps[client]):
            losses = steps.take(step)
            total += losses.sum()
            count += len(losses)
        seat.made.check()
        update = (self.layout.read(seat.module) - start).cpu().numpy()
        return update, float(total) / max(count, 1)

    def close(self) -> None:
        """Stop the workers and give torch its threads back."""
        self._pool.shutdown()
        torch.set_num_threads(self._threads_before)

    def _gradient_of(self, module: nn.Module) -> PrivateGradient:
        few = self._holdings.features[:8], self._holdings.labels[:8]
        return PrivateGradient(model=module, loss=self._loss, clipping=self._clipping, example=few)

    def _keyed(self) -> nn.Module | None:
        """Return the model with dropout by keys where clients may train side by side, or None.

        The functional form maps over examples, each of which a keyed layer would take for the first of its batch.
        """
        features = self._holdings.features
        if not self._side_by_side or features.is_cuda or self._gradient.form != "book-keeping":
            return None
        keyed = copy.deepcopy(self._module)
        use_keys(keyed)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            try:
                keyed(features[:2])
            except Exception:  # it needs something of its dropout layers that a keyed one has not
                return None
            return keyed if torch.equal(before, torch.get_rng_state()) else None

    def _start_worker(self) -> None:
        if self._holdings.features.device.type == "cpu":
            cpu.keep_pages()
            if self.workers > 1:
                torch.set_num_threads(max(1, cores() // self.workers))


class PrivateHolder(PrivateClients):
    """One data holder that trains alone, in stretches; its state between them is a model and a momentum."""

    _side_by_side = False

    def first_state(self, parameters: int) -> dict[str, Vector]:
        """Return the optimiser's state before the first step, for a model of so many numbers."""
        return {_MOMENTUM: np.zeros(parameters, np.float32)}

    def advance(
        self,
        model: Vector,
        state: Mapping[str, Vector],
        *,
        first: int,
        last: int,
        total: int,
        on_step: Callable[[int], None] = lambda _: None,
        canaries: Canaries | None = None,
    ) -> tuple[Vector, dict[str, Vector], float]:
        """Take the steps from ``first`` up to ``last`` of ``total``.

        The learning rate falls in a line from ``lr`` at the first step to ``final * lr`` at the last. Draws are named
        by the step, so that a simulation that was interrupted goes on as if it had not been. ``canaries`` are in every
        step, where there are any.

        Returns:
            The new model, the optimiser's state, and the mean loss, which no noise protects.
        """
        device, settings = self._holdings.features.device, self._settings
        made = AsMade(self._module, self.layout.tensors(self._module))
        self.layout.write(self._module, torch.from_numpy(np.array(model)).to(device))
        parameters = self._gradient.parameters
        optimizer = Sgd(parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
        momentum = self.layout.split(torch.from_numpy(np.array(state[_MOMENTUM])).to(device))
        for own, part in zip(optimizer.velocity, momentum, strict=False):  # trained slots come first
            own.copy_(part)
        steps = PrivateSteps(
            gradient=self._gradient,
            optimizer=optimizer,
            features=self._holdings.features,
            labels=self._holdings.labels,
            batches=self._batches[0],
            noise_multiplier=self._noise_multiplier,
            clip_bound=self._clipping.bound,
            randomness=self._randomness.within("alone"),
            micro_batch=self._micro_batch,
            canaries=canaries,
        )
        loss, count = torch.zeros((), device=device), 0
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            for step in range(first, last):
                torch.manual_seed(self._randomness.number("dropout", step))
                share = step / max(total - 1, 1)
                optimizer.lr = settings.lr * fall(settings, share)
                losses = steps.take(step)
                loss += losses.sum()
                count += len(losses)
                on_step(step + 1)
        made.check()
        after = self.layout.read(self._module).cpu().numpy()
        kept = self.first_state(self.layout.size)
        if optimizer.velocity:
            velocity = torch.cat([part.reshape(-1) for part in optimizer.velocity]).cpu().numpy()
            kept[_MOMENTUM][: len(velocity)] = velocity
        return after, kept, float(loss) / max(count, 1)
