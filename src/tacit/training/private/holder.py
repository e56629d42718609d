"""One data holder that trains alone with DP-SGD, in stretches: its state between them is a model and a momentum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from tacit.training.private.clients import PrivateClients
from tacit.training.private.sgd import Sgd
from tacit.training.private.training import PrivateSteps
from tacit.vectors import Vector

_MOMENTUM = "momentum"


class PrivateHolder(PrivateClients):
    """The only client there is; its optimiser goes on from stretch to stretch."""

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
    ) -> tuple[Vector, dict[str, Vector], float]:
        """Take the steps from ``first`` up to ``last`` of ``total``.

        The learning rate falls in a line from ``lr`` at the first step to ``final * lr`` at the last. Draws are named
        by the step, so that a simulation that was interrupted goes on as if it had not been.

        Returns:
            The new model, the optimiser's state, and the mean loss, which no noise protects.
        """
        device, settings = self._holdings.features.device, self._settings
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
        )
        loss, count = torch.zeros((), device=device), 0
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            for step in range(first, last):
                torch.manual_seed(self._randomness.number("dropout", step))
                share = step / max(total - 1, 1)
                optimizer.lr = settings.lr * (1.0 - (1.0 - settings.final) * share)
                losses = steps.take(step)
                loss += losses.sum()
                count += len(losses)
                on_step(step + 1)
        after = self.layout.read(self._module).cpu().numpy()
        kept = self.first_state(self.layout.size)
        velocity = torch.cat([part.reshape(-1) for part in optimizer.velocity]).cpu().numpy()
        kept[_MOMENTUM][: len(velocity)] = velocity
        return after, kept, float(loss) / max(count, 1)
