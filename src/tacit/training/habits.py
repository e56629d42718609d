"""What a model and its loss do when they train, found out by trying: forms of training go by it.

They are anybody's code. What is tried is a copy of the model, with examples whose numbers are calm and with random
numbers that are put back; where a trial fails, the answer is the one that leaves the model to train as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tacit.training.batches import Holdings
from tacit.training.cost import Met
from tacit.training.cpu import innermost
from tacit.training.dropout import watched_generators
from tacit.training.native.attention import Natively
from tacit.training.parameters import CHANGES, REACHES_PAST, attributes_of, reads
from tacit.training.private.probe import calm
from tacit.training.program import alike
from tacit.training.settings import Loss
from tacit.training.stacked import StackedTrainer
from tacit.training.state import state_of
from tacit.training.vmapped import Unhooked, VmappedNetwork

_RESCALES = "a table's gradient goes by how often a row is in a batch, and a batch may be padded"
_MIXES = "its output for an example depends on the batch, and a batch may be padded"
_MIXED = 64  # examples of the batch by which it is found out if a model mixes them
_LOOKED_THROUGH, _KINDS = 256, 8  # labels, for some that differ


class OfLoss(NamedTuple):
    """What a loss does."""

    apart: bool
    """Whether an example's loss is the same whoever is beside it."""

    changes: bool
    """Whether a call changes what it holds."""

    draws: bool
    """Whether it draws random numbers."""


def of_loss(loss: Loss, module: nn.Module, features: Tensor, labels: Tensor) -> OfLoss:
    """Try a loss with outputs that are nobody's, and with labels that the data have, each of them twice.

    The outputs lie between 0 and 1, as some losses take probabilities.
    """
    device, labels = features.device, calm(labels[_unlike(labels)])
    count = len(labels)
    try:
        with torch.no_grad(), watched_generators(device):
            shape = copy.deepcopy(module)(calm(features[[0] * count])).shape
        outputs = torch.rand(shape, device=device, generator=torch.Generator(device).manual_seed(0))
        with torch.no_grad(), watched_generators(device) as drawn:
            held = state_of(loss)

            def of(rows: list[int]) -> Tensor:
                return loss(outputs[rows].clone(), labels[rows].clone())

            whole, order = of(list(range(count))), list(range(count))[::-1]
            pairs = [(whole[order], of(order)), (whole[:1], of([0]))]
            pairs += [(whole[i : i + 2], of([i, i + 1])) for i in range(count - 1)]
            apart = all(torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True) for a, b in pairs)
            return OfLoss(apart=apart, changes=state_of(loss) != held, draws=drawn())
    except Exception:  # what is wrong is said where it trains
        return OfLoss(apart=True, changes=False, draws=False)


def _unlike(labels: Tensor) -> list[int]:
    """Return the places of a few labels that differ, as far as they do, each of them twice."""
    places = torch.linspace(0, len(labels) - 1, min(len(labels), _LOOKED_THROUGH)).long().tolist()
    kinds: dict[bytes, int] = {}
    for place in places:
        kinds.setdefault(labels[place].cpu().numpy().tobytes(), place)
    return [*kinds.values()][:_KINDS] * 2


def draws(module: nn.Module, features: Tensor) -> bool:
    """Return whether a training pass of a model draws random numbers."""
    own = copy.deepcopy(module)
    with torch.no_grad(), watched_generators(features.device) as drawn:
        try:
            own(features)
        except Exception:  # what is wrong is said where it trains
            return True
        return drawn()


def keeps(module: nn.Module, batch: Tensor) -> bool:
    """Return whether a training pass changes attributes of a model, such as a counter or a cache.

    Which buffers it has and in which mode its parts are count too. Some change on the second pass alone, in batches
    that are not full, or on the way back.
    """

    def held() -> list[object]:
        buffers = [(part.training, *((n, b is None) for n, b in part._buffers.items())) for part in own.modules()]
        return [*state_of(*attributes_of(own).values()), buffers]

    own = copy.deepcopy(module)
    before, trained = held(), _trained(own)
    with watched_generators(batch.device):
        for some in (batch, batch, batch[:2], batch[:1]):
            try:
                outputs = own(some.clone())  # with gradients, as it trains
                if some is not batch and isinstance(outputs, Tensor) and outputs.requires_grad:
                    torch.autograd.grad(outputs.sum(), trained, allow_unused=True)
            except Exception:  # batch norm takes no example alone
                if some is batch or len(some) > 1:
                    return True
            if held() != before:
                return True
    return False


def attends(module: nn.Module, batch: Tensor) -> bool:
    """Return whether native kernels can compute attention in a model."""
    own = copy.deepcopy(module)
    try:  # with gradients, as it trains: a mask that learns is not native, and there may be a view that doesn't fit
        with Natively() as mode:
            outputs = own(batch)
        torch.autograd.grad(outputs.sum(), _trained(own), allow_unused=True)
    except Exception:
        return False
    return bool(mode.met)


def bears_innermost(module: nn.Module, batches: Sequence[Tensor]) -> bool:
    """Return whether a model computes the same of images whose channels lie innermost on a CPU, and faster."""
    own, draw = copy.deepcopy(module), torch.Generator().manual_seed(0)
    trained = _trained(own)
    with torch.no_grad():
        for part in trained:  # what begins with zeros hides what it is given
            part.add_(0.1 * torch.randn(part.shape, generator=draw))

    def computed(given: Tensor) -> list[Tensor | None]:
        outputs = own(given)
        return [outputs.detach(), *torch.autograd.grad(outputs.sum(), trained, allow_unused=True)]

    try:
        for batch in batches:
            with Met() as met:  # type: ignore[no-untyped-call]  # torch gives it no types
                plain = computed(batch.clone())
            image = plain[0] is not None and plain[0].dim() == 4  # a loss may ask for a view of it
            if image or not met.convolves or met.normalises:
                return False
            if not alike(plain, computed(innermost(batch.clone()))):
                return False
    except Exception:  # it may ask for a view that doesn't fit
        return False
    return True


def why_unmapped(
    module: nn.Module, start: Tensor, network: VmappedNetwork, trainer: StackedTrainer, holdings: Holdings, size: int
) -> str:
    """Return why clients of a model can't be mapped by vmap, and nothing where they can: two take a step.

    Args:
        module: what is mapped.
        start: the model's vector.
        network: its network.
        trainer: of that network.
        holdings: the clients' examples.
        size: of a full batch.
    """
    state = trainer.start(start, 2)
    # Calm, so that no number in somebody's data decides about the form, which is told.
    features, labels = (calm(part[[0, -1]]) for part in (holdings.features, holdings.labels))
    few = Holdings(features=features, labels=labels, rows=[np.arange(2)])
    rows = torch.arange(2, device=features.device).repeat(2, 1)
    keys = torch.zeros_like(rows[:, 0])
    try:
        with torch.no_grad(), Met() as met:  # type: ignore[no-untyped-call]  # torch gives it no types
            copy.deepcopy(module)(features.clone())
        trainer.step(state, few, rows, None, keys, 0.0)
        with Unhooked():
            network.outputs(state.parameters, features[rows], keys)
        with torch.no_grad():
            mixes = _mixes(network, state.parameters, holdings.features, size)
            held = state_of(network.module, state.parameters)
            past = reads(_trained(network.module), lambda: network.outputs(state.parameters, features[rows], keys))
    except Exception as error:  # whatever vmap can't do, in whatever words it says so
        return f"vmap can't map it ({(str(error) or type(error).__name__).splitlines()[0]})"
    if met.rescales:
        return _RESCALES
    if mixes:
        return _MIXES
    if past:
        return REACHES_PAST
    return CHANGES if state_of(network.module, state.parameters) != held else ""


def _mixes(network: VmappedNetwork, parameters: list[Tensor], features: Tensor, size: int) -> bool:
    """Return whether an output depends on the other examples of a batch, or on how many there are.

    Parameters are moved, as they will be: what begins at zero would hide it.
    """
    draw = torch.Generator().manual_seed(0)
    away = (torch.randn(part.shape, generator=draw, dtype=part.dtype, device="cpu") for part in parameters)
    own = [part + 0.1 * step.to(part.device) for part, step in zip(parameters, away, strict=True)]
    size = max(2, min(size, _MIXED))
    places = torch.linspace(0, len(features) - 1, size, device=features.device).long()
    examples = calm(features[places])
    rows = (torch.arange(count, device=features.device).repeat(2, 1) for count in (size, size // 2, 1))
    whole, *parts = (network.outputs(own, examples[some], torch.zeros_like(some[:, 0])) for some in rows)
    pairs = [(whole[:, : part.shape[1]], part) for part in parts]
    return not all(torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True) for one, other in pairs)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [own for own in module.parameters() if own.requires_grad]
