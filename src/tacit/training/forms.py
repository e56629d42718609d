"""Chooses the fastest form of training that a model allows.

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
from typing import Literal

import numpy as np
import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.limits import cores
from tacit.training.captured import CapturedTrainer
from tacit.training.cohort import ChunkTrainer, CohortTrainer, Holdings, Network, StackedTrainer
from tacit.training.dropout import use_keys
from tacit.training.grouped import GroupedNetwork
from tacit.training.hooks import Hooks
from tacit.training.lanes.network import LANES, LaneTrainer, prefers_clients
from tacit.training.lanes.network import check as check_lanes
from tacit.training.loop import LoopTrainer
from tacit.training.parameters import Parameters
from tacit.training.private.probe import calm
from tacit.training.program import NoProgram, Program, graph_of, trace
from tacit.training.settings import LocalTraining, Loss
from tacit.training.vmapped import VmappedNetwork

Form = Literal["auto", "lanes", "grouped", "vmap", "loop"]

_VMAP_PAYS_BELOW = 32  # on CPUs vmap loses to the loop at larger batches


def cohort_trainer(
    *,
    module: nn.Module,
    holdings: Holdings,
    settings: LocalTraining,
    loss: Loss,
    form: Form = "auto",
    workers: int | None = None,
    hooks: Hooks | None = None,
) -> CohortTrainer:
    """Return what trains cohorts of a model in the fastest form it allows, or in the one asked for.

    Args:
        module: the model; a copy of it trains.
        holdings: who holds which examples.
        settings: local SGD.
        loss: one loss per example.
        form: the form; ``auto`` takes the fastest.
        workers: how many chunks train at the same time; one per core, or one on a GPU, if None.
        hooks: extension points; with hooks of one's own clients train in a loop.

    Raises:
        ConfigError: the form that was asked for does not fit the model.
    """
    choice = _Choice(module=module, holdings=holdings, settings=settings, loss=loss, asked=form, hooks=hooks)
    chosen, device = choice.form, holdings.features.device
    many = 1 if chosen == "loop" else workers or (1 if device.type == "cuda" else cores())
    lanes = LANES if chosen == "lanes" and prefers_clients(settings.batch_size, LANES) else 0
    return CohortTrainer(
        form=chosen,
        reason=choice.reason,
        layout=choice.layout,
        trainers=[choice.trainer() for _ in range(many)],
        holdings=holdings,
        settings=settings,
        lanes=lanes,
    )


class _Choice:
    """The form that was chosen, why not a faster one, and a trainer of it for each worker."""

    def __init__(
        self,
        *,
        module: nn.Module,
        holdings: Holdings,
        settings: LocalTraining,
        loss: Loss,
        asked: Form,
        hooks: Hooks | None,
    ) -> None:
        self._device = holdings.features.device
        self._holdings = holdings
        self._settings = settings
        self._loss = loss
        self._hooks = hooks or Hooks.for_training()
        self._module = copy.deepcopy(module).to(self._device).train()
        self.layout = Parameters.of(self._module)
        self._program, self.reason = self._trace()
        self.form = self._choose(asked)

    def trainer(self) -> ChunkTrainer:
        """Return a trainer for one worker, with a model of its own."""
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
        captured = self._device.type == "cuda" and settings.is_sgd
        return CapturedTrainer(stacked, settings) if captured else stacked

    def _trace(self) -> tuple[Program | None, str]:
        """Follow the model and return its program, or why there is none."""
        use_keys(self._module)
        if self._hooks.changed:  # hooks are shown the user's own module, not a traced one
            return None, "hooks see one client at a time"
        if self._settings.factory is not None:
            return None, "an optimiser of your own sees one client at a time"
        try:
            traced = graph_of(self._module)
            program = trace(traced, self.layout, self._holdings.features[0])
        except NoProgram as error:
            return None, str(error)
        self._module = traced
        return program, ""

    def _choose(self, asked: Form) -> Form:
        allowed: list[Form] = ["loop"]
        if not self._hooks.changed and self._settings.factory is None:
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
        if not self._settings.is_sgd:
            self.reason = f"the fast lanes know SGD, not {self._settings.name}"
        elif self._device.type == "cpu":
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
