"""Clients that train with DP-SGD, one after another: what each sends is private by its own noise."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.randomness import Randomness
from tacit.training.holdings import Holdings
from tacit.training.parameters import Parameters
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.sampling import PoissonBatches
from tacit.training.private.sgd import Sgd
from tacit.training.private.training import PrivateSteps
from tacit.training.settings import LocalTraining, Loss
from tacit.vectors import Vector

Finish = Callable[[int, Vector, float], None]  # client, update, mean loss


class PrivateClients:
    """Trains a cohort with DP-SGD.

    Attributes:
        layout: the model's vector.
        form: how gradients are clipped.
        reason: why not faster; empty where it is the fastest form.
        workers: one; a step uses all of torch's threads.
    """

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
    ) -> None:
        """Make the clients ready.

        Args:
            module: the model; a copy of it trains.
            holdings: who holds which examples.
            settings: learning rate, momentum, weight decay and proximal term; epochs and batch size are not used.
            loss: one loss an example.
            clipping: how an example's gradient is bounded.
            noise_multiplier: z, the same for every client.
            batches: how each client draws its batches.
            steps: how many steps each client takes in a round.
            randomness: draws batches and noise.
            micro_batch: how many examples go through the model at once.
        """
        self._holdings = holdings
        self._settings = settings
        self._clipping = clipping
        self._noise_multiplier = noise_multiplier
        self._batches = batches
        self._steps = steps
        self._randomness = randomness
        self._micro_batch = micro_batch
        self._module = copy.deepcopy(module).to(holdings.features.device).train()
        self.layout = Parameters.of(self._module)
        self._gradient = PrivateGradient(
            model=self._module,
            loss=loss,
            clipping=clipping,
            example=(holdings.features[:8], holdings.labels[:8]),
        )
        self.form, self.reason = f"dp-sgd, {self._gradient.form}", self._gradient.reason
        self.workers = 1

    def train(
        self,
        model: Vector,
        clients: Sequence[int],
        keys: NDArray[np.int64],
        round_number: int,
        finish: Finish,
    ) -> None:
        """Train ``clients`` from ``model``; ``finish`` is called for each. A key names a client's turn in a round."""
        start = torch.from_numpy(np.array(model)).to(self._holdings.features.device)
        rate = self._settings.rate(round_number)
        devices = [start.device] if start.is_cuda else []
        for client, key in zip(clients, keys.tolist(), strict=True):
            with torch.random.fork_rng(devices):
                torch.manual_seed(key)  # dropout
                update, loss = self._fit(start, client, key, rate)
            finish(client, update, loss)

    def _fit(self, start: Tensor, client: int, key: int, rate: float) -> tuple[Vector, float]:
        settings, parameters = self._settings, self._gradient.parameters
        self.layout.write(self._module, start)
        rows = torch.from_numpy(self._holdings.rows[client]).to(start.device)
        optimizer = Sgd(parameters, lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay)
        steps = PrivateSteps(
            gradient=self._gradient,
            optimizer=optimizer,
            features=self._holdings.features[rows],
            labels=self._holdings.labels[rows],
            batches=self._batches[client],
            noise_multiplier=self._noise_multiplier,
            clip_bound=self._clipping.bound,
            randomness=self._randomness.within("examples", client, key),
            micro_batch=self._micro_batch,
            pull=settings.mu,
        )
        total, count = torch.zeros((), device=start.device), 0
        for step in range(self._steps[client]):
            losses = steps.take(step)
            total += losses.sum()
            count += len(losses)
        update = (self.layout.read(self._module) - start).cpu().numpy()
        return update, float(total) / max(count, 1)

    def close(self) -> None:
        """Nothing to stop: there are no workers."""
