"""One step for many clients: every parameter has a client axis, and a step moves all of them.

The networks that run here (grouped, mapped, native ones for images) differ in how they compute the outputs; the
schedule, the loss, clipping, the proximal term and the optimiser are the same code for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from tacit.training.batches import Holdings, Schedule, schedule
from tacit.training.cohort import Chunk, Moved, Trained, on_host
from tacit.training.made import Frozen
from tacit.training.parameters import Parameters
from tacit.training.settings import LocalTraining, Loss, is_apart


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
        frozen: Frozen | None = None,
    ) -> None:
        """Say what trains, and how.

        Args:
            network: computes the outputs.
            layout: the model's vector.
            settings: local SGD.
            loss: one loss per example.
            straight: computes what :meth:`differentiated` computes, where it knows how to.
            frozen: what has to be the same after a chunk has trained, where the network runs somebody's module.
        """
        self.network = network
        self._frozen = frozen
        self._straight = straight
        self._places = [(slice(slot.start, slot.start + slot.size), slot.shape) for slot in layout.trained]
        self._settings = settings
        self._adam = not settings.is_sgd
        self._loss, self._apart = loss, is_apart(loss)
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
        width = labels.shape[1]
        parameters = [p if p.requires_grad else p.detach().requires_grad_() for p in parameters]
        outputs = self.network.outputs(parameters, features, keys)
        each = self._each(outputs, labels)
        if counts is None:
            losses = each.mean(1)
        else:
            real = torch.arange(width, device=labels.device)[None, :] < counts[:, None]
            losses = torch.where(real, each, 0.0).sum(1) / counts.clamp(min=1)
        return [losses.detach(), *gradients_of(losses, parameters, torch.ones_like(losses))]

    def _each(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each example; somebody's loss sees those of one client, so that it can't mix clients."""
        if self._apart:
            return self._loss(outputs.flatten(0, 1), labels.flatten(0, 1)).view(labels.shape[:2])
        outputs = outputs.contiguous()  # it may ask for a view
        if len(labels) == 1:
            return self._loss(outputs[0], labels[0]).view(labels.shape[:2])
        each: Tensor = vmap(self._loss, randomness="error")(outputs, labels)
        return each.reshape(labels.shape[:2])

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
        """Return the updates and mean losses of a chunk, and refuse one that moved what is frozen."""
        if self._frozen is not None:
            self._frozen.check()
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
