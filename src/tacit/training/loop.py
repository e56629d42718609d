"""One client after another with :mod:`torch.optim`: the form every model can take, and the one the others equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.errors import ConfigError
from tacit.training.batchable import places_in
from tacit.training.batches import Holdings, Schedule, schedule
from tacit.training.cohort import Chunk, Trained, on_host
from tacit.training.cpu import innermost
from tacit.training.dropout import KeyedDropout
from tacit.training.hooks import Context, Hooks
from tacit.training.made import AsMade
from tacit.training.optimizers import Sgd, optimizer_of
from tacit.training.parameters import Parameters, reads
from tacit.training.settings import LocalTraining, Loss
from tacit.training.stacked import gradients_of
from tacit.training.straight import StraightStep
from tacit.training.trial import lone_norms


class LoopTrainer:
    """Trains clients one by one on one module that is written over for each; no copies are made.

    A module that draws random numbers of its own (``torch.rand`` in its forward pass) draws them from torch's global
    generator, which is seeded by the client's key (``draws``); only one such loop may run at a time. Others run side by
    side, one thread each: small operations gain nothing from a second thread, and wait for it.

    Every client begins with the module as it was made: what passes leave in it, in counters and caches too, goes with
    the client. Where a pass changes what attributes hold inside (``keeps``), they are copied anew for every client, and
    there is no straight program, which would take for granted what they hold.

    Batch norm can't compare a batch of one example with anything: in such a step it uses its running statistics.

    Where Python's calls tell, full batches become a straight program (:mod:`tacit.training.straight`). With
    ``innermost`` the model sees images with their channels innermost.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        layout: Parameters,
        settings: LocalTraining,
        loss: Loss,
        hooks: Hooks,
        draws: bool = True,
        keeps: bool = False,
        straight: StraightStep | None = None,
        innermost: bool = False,
    ) -> None:
        self._innermost = innermost
        self.module = module.train()
        self._layout = layout
        self._settings = settings
        self._loss = loss
        self._hooks = hooks
        self._draws = draws
        self._tensors = layout.tensors(module)
        self._trained = [p for p in module.parameters() if p.requires_grad]
        self._names = [name for name, p in module.named_parameters() if p.requires_grad]
        self._made = AsMade(self.module, self._tensors, keeps=keeps)
        self._dropouts = [m for m in module.modules() if isinstance(m, KeyedDropout)]
        self._lone_norms: list[nn.Module] | None = None  # found out where a batch of one comes up
        self._straight = None if keeps else straight
        self._descends = self._straight is not None and settings.descends
        moving = {id(tensor) for tensor in self._trained}
        self._kept = [*(tensor for tensor in self._tensors if id(tensor) not in moving), *self._made.counters]
        own = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
        self._places = places_in(module, [own[id(tensor)] for tensor in (*self._trained, *self._kept)])
        self._keys = [f"{name}.key" for name, part in module.named_modules() if isinstance(part, KeyedDropout)]

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        settings, parts = self._settings, self._layout.split(model)
        plan = schedule(holdings, chunk.clients, chunk.keys, epochs=settings.epochs, batch_size=settings.batch_size)
        size = len(chunk.clients), len(model)  # NumPy asks for large pages, which are there sooner
        updates = model.new_empty(size) if model.is_cuda else torch.from_numpy(np.empty(size, np.float32))
        losses = np.empty(len(chunk.clients))
        with torch.random.fork_rng([model.device] if model.is_cuda else []) if self._draws else nullcontext():
            for place, update in enumerate(updates):
                losses[place] = self._fit(parts, holdings, plan, chunk, place)
                self._leave(update, parts)
        return Trained(updates=on_host(updates), losses=losses)

    def _fit(self, model: list[Tensor], holdings: Holdings, plan: Schedule, chunk: Chunk, place: int) -> float:
        """Train a client from ``model`` and return its mean loss."""
        if self._draws:
            torch.manual_seed(int(chunk.keys[place]))
        self._made.begin()
        with torch.no_grad():
            torch._foreach_copy_(self._tensors, model)
        loss = self._steps(holdings, plan, chunk, place) if self.unseen else self._hooked(holdings, plan, chunk, place)
        self._made.check()
        return loss

    def _leave(self, update: Tensor, model: list[Tensor]) -> None:
        """Write what a client's training changed."""
        with torch.no_grad():
            for after, before, own in zip(self._tensors, model, self._layout.split(update), strict=True):
                torch.sub(after, before, out=own)

    @property
    def unseen(self) -> bool:
        """Whether steps are those of SGD alone, with nobody to look at them."""
        settings = self._settings
        return not self._hooks.changed and settings.is_sgd and not settings.mu and settings.grad_clip is None

    def _steps(self, holdings: Holdings, plan: Schedule, chunk: Chunk, place: int) -> float:
        """Take a client's steps as the built-in hooks take them, and return the mean loss."""
        settings = self._settings
        counts: list[int] = plan.counts[:, place].tolist()
        sgd = Sgd(self._trained, lr=chunk.rate, momentum=settings.momentum, weight_decay=settings.weight_decay)
        total = torch.zeros((), dtype=torch.float64, device=holdings.features.device)
        done = self._descent(holdings, plan, chunk.rate, place, total)
        losses: list[Tensor] = [total.view(1)]
        for step, features, labels in _batches(holdings, plan.rows[:, place], counts, done):
            count = counts[step]
            known = self._known(features, labels, plan, step, place)
            if known is not None:
                mean, *gradients = known
                sgd.move(gradients)
                losses.append(count * mean.view(1))
                continue
            for dropout in self._dropouts:
                dropout.key.copy_(plan.keys[step, place])
            lone = self._alone(features) if count == 1 else []
            for norm in lone:
                norm.eval()
            each = self._loss(self.module(self._seen(features)), labels)
            # The gradient of a mean, which itself need not be computed; new every time, as the loss may write to it.
            mean = torch.full_like(each, 1.0 / count, requires_grad=False)
            sgd.move(self._gradients(each, mean))
            self._made.settle()
            losses.append(each.detach().reshape(-1))
            for norm in lone:
                norm.train()
        return float(torch.cat(losses).sum(dtype=torch.float64)) / sum(counts)

    def _seen(self, features: Tensor) -> Tensor:
        """Return features as they lie in memory where the model sees them."""
        return innermost(features) if self._innermost else features

    def _gradients(self, each: Tensor, mean: Tensor) -> Sequence[Tensor | None]:
        try:
            return gradients_of(each, self._trained, mean, unused=True)
        except RuntimeError as error:
            frozen = next((name for name, p in zip(self._names, self._trained, strict=True) if not p.requires_grad), "")
            if not frozen:
                raise
            raise ConfigError(
                f"A pass froze {frozen!r} (requires_grad_(False)), which trains: what trains is the same in every step "
                "of every client. Freeze it before the run, or let the forward pass take it as a constant (.detach())."
            ) from error

    def differentiated(self, *given: Tensor | None) -> list[Tensor]:
        """Return the mean loss of a step and its gradients, given what changes, features, labels, None and a key.

        It is :meth:`_steps` without the module's own tensors, for a straight program to follow.
        """
        parts: Any = given
        *own, features, labels, _, key = parts
        count = len(self._trained)
        own[:count] = trained = [part.detach().requires_grad_() for part in own[:count]]
        each = self._loss(self._outputs(own, features, key), labels)
        mean = torch.full_like(each, 1.0 / len(labels), requires_grad=False)
        loss = each.detach().sum(dtype=torch.float64) / len(labels)
        return [loss, *gradients_of(each, trained, mean)]

    def _outputs(self, own: Sequence[Tensor], features: Tensor, key: Tensor) -> Tensor:
        """Return the module's outputs with other tensors in the place of its own."""
        state = {name: own[number] for name, number in self._places} | dict.fromkeys(self._keys, key)
        outputs: Tensor = functional_call(self.module, state, (self._seen(features),), tie_weights=False)
        with torch.no_grad():  # a pass may have put others in the place of buffers
            for name, number in self._places:
                if state[name] is not own[number]:
                    own[number].copy_(state[name])
        return outputs

    def reaches_past(self, features: Tensor) -> bool:
        """Return whether a pass reads its tensors by another way than their names, which no program would follow."""
        own = [*self._trained, *self._kept]
        given = [part.detach().clone() for part in own]
        return reads(own, lambda: self._outputs(given, features, torch.zeros((), dtype=torch.int64)))

    def _known(self, features: Tensor, labels: Tensor, plan: Schedule, step: int, place: int) -> list[Tensor] | None:
        """Return what :meth:`differentiated` returns where there is a program for it."""
        if self._straight is None or len(labels) == 1:
            return None
        key = plan.keys[step, place] if self._keys else plan.rows.new_zeros(())
        return self._straight(*self._trained, *self._kept, features, labels, None, key)

    def _descent(self, holdings: Holdings, plan: Schedule, rate: float, place: int, total: Tensor) -> int:
        """Take a client's first steps in one call, as many as are full, and return how many.

        The losses of their examples are added to ``total``.
        """
        if self._straight is None or not self._descends:
            return 0
        full = plan.counts[:, place] == plan.rows.shape[2]
        count = len(full) if full.all() else int(full.argmin())
        keys = plan.keys[:count, place] if self._keys else plan.rows.new_zeros(count)
        given = holdings.features, holdings.labels, plan.rows[:count, place], keys, rate, total
        return count if count and self._straight.descent(self._trained, *given, self._kept) else 0

    def _hooked(self, holdings: Holdings, plan: Schedule, chunk: Chunk, place: int) -> float:
        """Take a client's steps by the hooks, and return the mean loss."""
        settings, hooks, parameters = self._settings, self._hooks, self._trained
        context = Context(
            model=self.module.train(),
            loss_function=self._loss,
            training=True,
            client=chunk.clients[place],
            round_number=chunk.round_number,
            settings=settings,
            optimizer=self._optimizer(chunk.rate),
            parameters=parameters,
            origin=[p.detach().clone() for p in parameters] if settings.mu else [],
        )
        total = torch.zeros((), dtype=torch.float64, device=holdings.features.device)
        hooks.run("on_fit_start", context)
        counts: list[int] = plan.counts[:, place].tolist()
        for step, features, labels in _batches(holdings, plan.rows[:, place], counts):
            context.epoch, context.batch = divmod(step, plan.steps_per_epoch)
            count = counts[step]
            if context.batch == 0:
                hooks.run("on_epoch_start", context)
            for dropout in self._dropouts:
                dropout.key.copy_(plan.keys[step, place])
            context.features, context.labels = self._seen(features), labels
            lone = self._alone(context.features) if count == 1 else []
            for norm in lone:
                norm.eval()
            hooks.run("on_batch_start", context)
            hooks.run("on_batch_forward", context)
            hooks.run("on_batch_backward", context)
            if context.loss is not None:
                total.add_(context.loss.detach(), alpha=count)
            hooks.run("on_batch_end", context)
            for norm in lone:
                norm.train()
            if context.batch == plan.steps_per_epoch - 1 or not counts[step + 1]:  # others may take more steps
                hooks.run("on_epoch_end", context)
        hooks.run("on_fit_end", context)
        return float(total) / sum(counts)

    def _optimizer(self, rate: float) -> torch.optim.Optimizer | Sgd:
        """Return a new optimiser: torch's own where hooks may look at it."""
        settings = self._settings
        if self._hooks.changed or not settings.is_sgd:
            return optimizer_of(settings, self._trained, rate)
        return Sgd(self._trained, lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay)

    def _alone(self, features: Tensor) -> list[nn.Module]:
        if self._lone_norms is None:
            self._lone_norms = lone_norms(self.module, features)
        return self._lone_norms


def _batches(
    holdings: Holdings, rows: Tensor, counts: Sequence[int], first: int = 0
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each step of a client that has examples, their features and their labels, which a model may write over."""
    for step, (own, count) in enumerate(zip(rows[first:].unbind(), counts[first:], strict=True), first):
        if count:
            own = own[:count]  # noqa: PLW2901 - the rest is padding
            yield step, holdings.features.index_select(0, own), holdings.labels.index_select(0, own)
