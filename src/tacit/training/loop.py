"""One client after another with :mod:`torch.optim`: the form every model can take, and the one the others equal."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.errors import ConfigError
from tacit.training.batchable import places_in
from tacit.training.batches import Holdings, Schedule, schedule
from tacit.training.cohort import Chunk, Trained, on_host
from tacit.training.dropout import KeyedDropout
from tacit.training.hooks import Context, Hooks
from tacit.training.optimizers import Sgd, optimizer_of
from tacit.training.parameters import OF_TORCH, Parameters, attributes_of, reads
from tacit.training.settings import LocalTraining, Loss
from tacit.training.stacked import gradients_of
from tacit.training.straight import StraightStep
from tacit.training.trial import lone_norms

_AT_ONCE = {"cpu": 1 << 15, "cuda": 1 << 20}  # numbers of a checksum; on a CPU they stay in its cache
_MARKS = attrgetter("requires_grad", "_backward_hooks")
_TELLING = {"training", "_parameters", "_buffers", "_modules"}


class LoopTrainer:
    """Trains clients one by one on one module that is written over for each; no copies are made.

    A module that draws random numbers of its own (``torch.rand`` in its forward pass) draws them from torch's global
    generator, which is seeded by the client's key (``draws``); only one such loop may run at a time. Others run side by
    side, one thread each: small operations gain nothing from a second thread, and wait for it.

    Every client begins with the module as it was made: what passes leave in it, in counters and caches too, goes with
    the client. Where a pass changes what attributes hold inside (``keeps``), they are copied anew for every client, and
    there is no straight program, which would take for granted what they hold.

    Batch norm can't compare a batch of one example with anything: in such a step it uses its running statistics.

    Where Python's calls tell, full batches become a straight program (:mod:`tacit.training.straight`).
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
    ) -> None:
        self.module = module.train()
        self._layout = layout
        self._settings = settings
        self._loss = loss
        self._hooks = hooks
        self._draws = draws
        self._tensors = layout.tensors(module)
        self._trained = [p for p in module.parameters() if p.requires_grad]
        self._names = [name for name, p in module.named_parameters() if p.requires_grad]
        self._made = _Made(self.module)
        self._dropouts = [m for m in module.modules() if isinstance(m, KeyedDropout)]
        self._lone_norms: list[nn.Module] | None = None  # found out where a batch of one comes up
        known = {id(tensor) for tensor in self._tensors}
        still = [*module.named_parameters(), *module.named_buffers()]
        self._still = {n: t for n, t in still if id(t) not in known and (t.is_floating_point() or t.is_complex())}
        self._sums = {name: _sums(tensor) for name, tensor in self._still.items()}
        self._counters = [b for name, b in module.named_buffers() if name.endswith("num_batches_tracked")]
        self._buffers = [
            (part, name, tensor)
            for part in module.modules()
            for name, tensor in part._buffers.items()
            if tensor is not None
        ]
        own_counters = {id(tensor) for tensor in (*self._counters, *(part.key for part in self._dropouts))}
        whole = (b for b in module.buffers() if not (b.is_floating_point() or b.is_complex() or id(b) in own_counters))
        self._whole = [(buffer, buffer.clone()) for buffer in whole]
        self._shared = {id(part): part for part in (*module.modules(), *module.parameters(), *module.buffers())}
        self._begins = copy.deepcopy(attributes_of(module), dict(self._shared)) if keeps else {}
        self._straight = None if keeps else straight
        self._descends = self._straight is not None and settings.descends
        moving = {id(tensor) for tensor in self._trained}
        self._kept = [*(tensor for tensor in self._tensors if id(tensor) not in moving), *self._counters]
        own = {id(tensor): name for name, tensor in still}
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
        self._begin()
        with torch.no_grad():
            torch._foreach_copy_(self._tensors, model)
        loss = self._steps(holdings, plan, chunk, place) if self.unseen else self._hooked(holdings, plan, chunk, place)
        self._settle()
        self._check_still()
        return loss

    def _begin(self) -> None:
        """Put back what passes of the client before have left in the module and is no part of the model."""
        self._made.put_back()
        for counter in self._counters:
            counter.zero_()
        for buffer, before in self._whole:  # a version would not tell: it stays when .data is written to
            if not torch.equal(buffer, before):
                buffer.copy_(before)
        if self._begins:  # a copy takes its time
            for part, own in copy.deepcopy(self._begins, dict(self._shared)).items():
                vars(part).update(own)

    def _settle(self) -> None:
        """Copy a buffer that a pass put in the place of another to where that one was."""
        for part, name, tensor in self._buffers:
            found = part._buffers.get(name)
            if found is tensor:
                continue
            if found is None or found.shape != tensor.shape:
                raise ConfigError(
                    f"A pass put something of another shape in the place of the buffer {name!r} of "
                    f"{type(part).__name__}: what a model is made of has to stay as it is."
                )
            with torch.no_grad():
                tensor.copy_(found)
            part._buffers[name] = tensor

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
            each = self._loss(self.module(features), labels)
            # The gradient of a mean, which itself need not be computed; new every time, as the loss may write to it.
            mean = torch.full_like(each, 1.0 / count, requires_grad=False)
            sgd.move(self._gradients(each, mean))
            self._settle()
            losses.append(each.detach().reshape(-1))
            for norm in lone:
                norm.train()
        return float(torch.cat(losses).sum(dtype=torch.float64)) / sum(counts)

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
        outputs: Tensor = functional_call(self.module, state, (features,), tie_weights=False)
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
            context.features, context.labels = features, labels
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

    def _check_still(self) -> None:
        """Refuse a pass that moved what is frozen: it is no part of the update, and the next client would start there.

        No clip bounds what comes to others that way.
        """
        moved = next((name for name, tensor in self._still.items() if _sums(tensor) != self._sums[name]), None)
        if moved is not None:
            raise ConfigError(
                f"{moved!r} is frozen, and a client's training changed it: what is frozen is neither sent nor clipped, "
                "and has to stay as it is. Let it train (requires_grad_()), register a buffer that is to be sent with "
                "persistent=True, keep hooks and forward passes from writing to it, and put group norm in the place of "
                "batch norm before adapters are added: tacit.fix(model)."
            )

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


class _Made:
    """What a module is besides numbers, as it was made: names, attributes, modes of its parts, and what trains.

    Attributes are told from others by what they are, not by what they hold inside. To look takes a microsecond for a
    part.
    """

    def __init__(self, module: nn.Module) -> None:
        parts = [vars(part) for part in module.modules()]
        self._parameters = list(module.parameters())
        self._tensors = [*self._parameters, *module.buffers()]
        self._marks = [_MARKS(tensor) for tensor in self._tensors]
        inside: list[Any] = [own for part in parts for name, own in part.items() if name in OF_TORCH]
        tables = [*parts, *map(vars, self._tensors), *(own for own in inside if isinstance(own, dict | set))]
        self._before = [(table, table.copy()) for table in tables]
        self._sizes = [*map(len, tables)]
        self._tables = tables
        # Torch's own dictionaries of hooks stay the same objects.
        telling = [[name for name in part if name not in OF_TORCH or name in _TELLING] for part in parts]
        self._attributes = [(itemgetter(*names), part) for names, part in zip(telling, parts, strict=True)]
        self._filled = [own for own in tables[len(parts) :] if own]
        self._names = [*chain.from_iterable(self._filled)]
        self._values = [*self._found()]

    def put_back(self) -> None:
        """Make the module what it was."""
        if not self._same():
            for table, before in self._before:
                table.clear()
                table.update(before)
        if [*map(_MARKS, self._tensors)] != self._marks:
            for tensor, marks in zip(self._tensors, self._marks, strict=True):
                if _MARKS(tensor) != marks:
                    trains, tensor._backward_hooks = marks
                    tensor.detach_().requires_grad_(trains)
        for parameter in self._parameters:
            parameter.grad = None

    def _same(self) -> bool:
        """Return whether the same names stand for the same objects."""
        if [*map(len, self._tables)] != self._sizes or [*chain.from_iterable(self._filled)] != self._names:
            return False
        try:
            return all(map(is_, self._found(), self._values))
        except KeyError:  # there is another in the place of a name
            return False

    def _found(self) -> Iterator[Any]:
        inside = (own.values() for own in self._filled if not isinstance(own, set))
        return chain(chain.from_iterable([get(own) for get, own in self._attributes]), chain.from_iterable(inside))


def _sums(tensor: Tensor) -> list[int]:
    """Return sums of a tensor's bytes, taken as whole numbers times odd ones that tell where they lie.

    One of them changes wherever one number does, and where numbers change places.
    """
    flat = tensor.detach().reshape(-1)
    size = flat.element_size()
    wide = not flat.numel() * size % 8 and not flat.storage_offset() * size % 8  # half as many, and none is converted
    whole = torch.int64 if wide else {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(size, torch.int64)
    numbers, places = flat.view(whole), _places(flat.device)
    sums = [(part * places[: len(part)]).sum() for part in torch.split(numbers, len(places))]
    found: list[int] = torch.stack(sums).tolist()
    return found


@functools.cache
def _places(device: torch.device) -> Tensor:
    """Return an odd number for each place; times an odd number, no two whole numbers of 64 bits are the same."""
    count = _AT_ONCE.get(device.type, _AT_ONCE["cuda"])
    draw = torch.Generator().manual_seed(0)
    return (2 * torch.randint(0, 1 << 62, (count,), generator=draw) + 1).to(device)
