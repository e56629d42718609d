"""Trains K clients in one tensor program: every parameter has a client axis, and a step moves all of them.

The networks that run here (grouped, vmapped, lanes) differ in how they compute the outputs; the schedule, the loss,
clipping, the proximal term and the optimiser are the same code for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.training.cohort import Chunk, Holdings, LocalTraining, Loss, Schedule, Trained, schedule
from tacit.training.parameters import Parameters


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

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the outputs, ``(K, batch, ...)``, of features ``(K, batch, ...)``."""
        ...


class StackedTrainer:
    """Trains chunks of clients on one network."""

    def __init__(self, *, network: Network, layout: Parameters, settings: LocalTraining, loss: Loss) -> None:
        self.network = network
        self._places = [(slice(slot.start, slot.start + slot.size), slot.shape) for slot in layout.trained]
        self._settings = settings
        self._loss = loss

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        settings = self._settings
        plan = schedule(holdings, chunk.clients, chunk.keys, epochs=settings.epochs, batch_size=settings.batch_size)
        state = self.start(model, len(chunk.clients))
        total = torch.zeros(len(chunk.clients), device=model.device)
        counts = torch.from_numpy(plan.counts).to(model.device)
        for step in range(len(plan.rows)):
            width = int(plan.counts[step].max())
            full = int(plan.counts[step].min()) == width
            rows = plan.rows[step, :, :width]
            losses = self.step(state, holdings, rows, None if full else counts[step], plan.keys[step], chunk.rate)
            total += losses * counts[step]
        return self.finish(model, state, total, plan)

    def start(self, model: Tensor, clients: int) -> Stack:
        """Return K copies of the model, ready to train."""
        axis = self.network.client_axis
        stacked = [_stack(part, clients, axis) for part in self._trained_parts(model)]
        return Stack(
            momentum=[torch.zeros_like(p) for p in stacked] if self._settings.momentum else [],
            origin=[p.select(axis, 0).unsqueeze(axis).clone() for p in stacked] if self._settings.mu else [],
            parameters=[p.requires_grad_() for p in stacked],
        )

    def restart(self, state: Stack, model: Tensor) -> None:
        """Write ``model`` over the copies in ``state``, in place."""
        axis = self.network.client_axis
        with torch.no_grad():
            for number, part in enumerate(self._trained_parts(model)):
                state.parameters[number].copy_(part.unsqueeze(axis))
                if state.origin:
                    state.origin[number].copy_(part.unsqueeze(axis))
            for momentum in state.momentum:
                momentum.zero_()

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
        clients, width = rows.shape
        features = holdings.features[rows]
        labels = holdings.labels[rows]
        outputs = self.network.outputs(state.parameters, features, keys)
        each = self._loss(outputs.flatten(0, 1), labels.flatten(0, 1)).view(clients, width)
        if counts is None:
            losses, active = each.mean(1), None
        else:
            real = torch.arange(width, device=rows.device)[None, :] < counts[:, None]
            losses = torch.where(real, each, 0.0).sum(1) / counts.clamp(min=1)
            active = (counts > 0).to(torch.float32)
        gradients = list(torch.autograd.grad(losses.sum(), state.parameters))
        with torch.no_grad():
            self._move(state, gradients, active, rate)
        return losses.detach()

    def _move(self, state: Stack, gradients: list[Tensor], active: Tensor | None, rate: float | Tensor) -> None:
        settings, axis, parameters = self._settings, self.network.client_axis, state.parameters
        if settings.mu:
            away = torch._foreach_sub(
                parameters, [o.expand_as(p) for o, p in zip(state.origin, parameters, strict=True)]
            )
            torch._foreach_add_(gradients, away, alpha=settings.mu)
        if settings.grad_clip is not None:
            norms = torch.stack([_per_client(g, axis).square().sum(1) for g in gradients]).sum(0).sqrt()
            scale = (settings.grad_clip / (norms + 1e-6)).clamp(max=1.0)
            gradients = [g * _spread(scale, g, axis) for g in gradients]
        if settings.weight_decay:
            torch._foreach_add_(gradients, parameters, alpha=settings.weight_decay)
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
            torch._foreach_sub_(parameters, torch._foreach_mul(gradients, rate))
        else:
            torch._foreach_add_(parameters, gradients, alpha=-rate)

    def finish(self, model: Tensor, state: Stack, total: Tensor, plan: Schedule) -> Trained:
        """Return the updates and mean losses of a chunk."""
        axis, clients = self.network.client_axis, plan.rows.shape[1]
        after = torch.cat([_per_client(p.detach(), axis)[:clients] for p in state.parameters], dim=1)
        updates = torch.zeros(clients, len(model), device=model.device)
        torch.sub(after, model[: after.shape[1]], out=updates[:, : after.shape[1]])
        return Trained(
            updates=updates.cpu().numpy(),
            losses=total.double().cpu().numpy() / plan.counts.sum(0),
        )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The models of a chunk while it trains."""

    parameters: list[Tensor]
    momentum: list[Tensor]
    origin: list[Tensor]  # the model that was sent, with a client axis of one


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
