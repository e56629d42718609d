"""What a model and its loss do when they train, found out by trying: forms of training go by it.

They are anybody's code. What is tried is a copy of the model, with examples whose numbers are calm and with random
numbers that are put back; where a trial fails, the answer is the one that leaves the model to train as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from tacit.training.batches import Holdings
from tacit.training.cost import Met
from tacit.training.cpu import innermost
from tacit.training.dropout import watched_generators
from tacit.training.native.attention import Natively
from tacit.training.parameters import CHANGES, REACHES_PAST, attributes_of, in_one_piece, reads
from tacit.training.private.probe import calm, in_full_precision
from tacit.training.program import alike
from tacit.training.settings import Loss, is_apart
from tacit.training.stacked import StackedTrainer
from tacit.training.state import state_of
from tacit.training.vmapped import Unhooked, VmappedNetwork

_RESCALES = "a table's gradient goes by how often a row is in a batch, and a batch may be padded"
_MIXES = "what it computes of an example depends on the batch, and a batch may be padded"
_ELSE = "vmap maps it to something else"
_MIXES_LOSSES = "the loss of an example depends on the others beside it, and a batch may be padded"
_NEAR = {torch.float64: 1e-4, torch.float32: 1e-2}  # of norms; batches of other sizes differ by less than maps
_MIXED, _PULLED = 64, 8  # examples of the batch by which it is found out if a model mixes them, or their gradients
_LOOKED_THROUGH, _KINDS = 256, 8  # labels, for some that differ
_AT_A_TIME = 1 << 18  # numbers of labels that are looked at
_LOGITS = 3.0  # times normal numbers


class OfLoss(NamedTuple):
    """What a loss does."""

    changes: bool = False
    """Whether a call changes what it holds."""

    draws: bool = False
    """Whether it draws random numbers."""

    why_alone: str = ""
    """Why it can't be asked about many clients at once, if it can't."""


def of_loss(loss: Loss, module: nn.Module, features: Tensor, labels: Tensor) -> OfLoss:
    """Try a loss with outputs that are nobody's, and with labels that the data have, each of them twice.

    The outputs lie between 0 and 1 first, as some losses take probabilities.
    """
    device, draw, found = features.device, torch.Generator(features.device).manual_seed(0), list[OfLoss]()
    try:
        labels = calm(labels[_unlike(labels)])
        with torch.no_grad(), watched_generators(device):
            shape = (len(labels), *in_one_piece(module)(calm(features[:2])).shape[1:])
        for outputs in (
            torch.rand(shape, device=device, generator=draw),
            _LOGITS * torch.randn(shape, device=device, generator=draw),
        ):
            found.append(_of(loss, outputs, labels))
    except Exception as error:  # what is wrong is said where it trains; some losses take probabilities only
        if not (found or is_apart(loss)):
            return OfLoss(why_alone=f"its loss can't be tried ({_first_line(error)})")
    return OfLoss(
        changes=any(own.changes for own in found),
        draws=any(own.draws for own in found),
        why_alone=next((own.why_alone for own in found if own.why_alone), ""),
    )


def _of(loss: Loss, outputs: Tensor, labels: Tensor) -> OfLoss:
    count = len(labels)

    def of(rows: list[int]) -> tuple[Tensor, Tensor]:
        """Return losses, and the gradients of their sum."""
        return _pulled(lambda given: loss(given, labels[rows].clone()), outputs[rows])

    def apart(rows: list[int]) -> bool:
        return alike([own[rows] for own in whole], of(rows))

    with watched_generators(labels.device) as drawn:
        held = state_of(loss)
        whole = of(list(range(count)))
        kept = all(map(apart, [list(range(count))[::-1], [0], *([i, i + 1] for i in range(count - 1))]))
        why = "" if kept else _MIXES_LOSSES
        why = why or ("" if is_apart(loss) else _why_unmapped(loss, outputs, labels, whole))
        return OfLoss(changes=state_of(loss) != held, draws=drawn(), why_alone=why)


def _pulled(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        given = outputs.clone().requires_grad_()
        losses = loss(given.clone())
        (pulled,) = torch.autograd.grad(losses.sum() + 0.0 * given.sum(), given)
    return losses.detach().reshape(len(outputs)), pulled


def _why_unmapped(loss: Loss, outputs: Tensor, labels: Tensor, whole: tuple[Tensor, Tensor]) -> str:
    """Return why two clients' losses can't be mapped by vmap, and nothing where they can."""
    clients = labels.view(2, -1, *labels.shape[1:])

    def mapped(given: Tensor) -> Tensor:
        found: Tensor = vmap(loss, randomness="error")(given.view(2, -1, *given.shape[1:]), clients.clone())
        return found.reshape(len(given))

    try:
        with Unhooked():
            return "" if alike(whole, _pulled(mapped, outputs)) else _MIXES_LOSSES
    except Exception as error:
        return f"vmap can't map its loss ({_first_line(error)})"


def _unlike(labels: Tensor) -> list[int]:
    """Return the places of a few labels that differ, as far as they do, each of them twice.

    Among them are those that stand out: that hold the least, the most, the smallest sum, ...
    """
    places = torch.linspace(0, len(labels) - 1, min(len(labels), _LOOKED_THROUGH)).long().tolist()
    kinds: dict[bytes, int] = {}
    for place in places:
        kinds.setdefault(labels[place].detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes(), place)
    ends = _ends(labels.detach().reshape(len(labels), -1)) if labels.numel() else []
    return [*dict.fromkeys([*ends, *[*kinds.values()][:_KINDS]])] * 2


def _ends(rows: Tensor) -> list[int]:
    """Return the places of rows that stand out; a few rows at a time are converted."""
    least, some = rows.min(), max(1, _AT_A_TIME // rows.shape[1])
    wide = torch.float64 if rows.is_floating_point() else torch.int64
    told = torch.empty(4, len(rows), dtype=wide, device=rows.device)
    for start in range(0, len(rows), some):
        own, place = rows[start : start + some], slice(start, start + some)
        for line, one in enumerate((own.amin(1), own.amax(1), own.sum(1, dtype=wide), (own == least).sum(1))):
            told[line, place] = one
    ends: list[int] = torch.cat([told.argmin(1), told.argmax(1)]).tolist()
    return ends


def computes(module: nn.Module, features: Tensor) -> bool:
    """Return whether a training pass of a model comes to an end."""
    try:
        with torch.no_grad(), watched_generators(features.device):
            in_one_piece(module)(features)
    except Exception:
        return False
    return True


def draws(module: nn.Module, features: Tensor) -> bool:
    """Return whether a training pass of a model draws random numbers."""
    own = in_one_piece(module)
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

    own = in_one_piece(module)
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
    own = in_one_piece(module)
    try:  # with gradients, as it trains: a mask that learns is not native, and there may be a view that doesn't fit
        with Natively() as mode:
            outputs = own(batch)
        torch.autograd.grad(outputs.sum(), _trained(own), allow_unused=True)
    except Exception:
        return False
    return bool(mode.met)


def bears_innermost(module: nn.Module, batches: Sequence[Tensor]) -> bool:
    """Return whether a model computes the same of images whose channels lie innermost on a CPU, and faster."""
    own, draw = in_one_piece(module), torch.Generator().manual_seed(0)
    trained = _trained(own)
    with torch.no_grad():
        for part in trained:  # what begins with zeros hides what it is given
            part.add_(0.1 * torch.randn(part.shape, generator=draw))

    def computed(given: Tensor) -> list[Any]:
        outputs = own(given)
        return [outputs.detach(), *torch.autograd.grad(outputs.sum(), trained, allow_unused=True)]

    try:
        for batch in batches:
            with Met() as met:  # type: ignore[no-untyped-call]  # torch gives it no types
                plain = computed(batch.clone())
            image = plain[0].dim() == 4  # a loss may ask for a view of it
            if image or not met.convolves or met.normalises:
                return False
            turned = computed(innermost(batch.clone()))
            if plain[0].stride() != turned[0].stride() or not alike(plain, turned):  # it may ask for a view, as above
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
            in_one_piece(module)(features.clone())
        trainer.step(state, few, rows, None, keys, 0.0)
        with Unhooked():
            network.outputs(state.parameters, features[rows], keys)
        with in_full_precision():
            mixes = _mixes(network, state.parameters, holdings.features, size)
        with torch.no_grad():
            held = state_of(network.module, state.parameters)
            past = reads(_trained(network.module), lambda: network.outputs(state.parameters, features[rows], keys))
    except Exception as error:  # whatever vmap can't do, in whatever words it says so
        return f"vmap can't map it ({_first_line(error)})"
    if met.rescales:
        return _RESCALES
    if mixes or past:
        return mixes or REACHES_PAST
    return CHANGES if state_of(network.module, state.parameters) != held else ""


def _mixes(network: VmappedNetwork, parameters: list[Tensor], features: Tensor, size: int) -> str:
    """Return why a model is not mapped whose gradient or output, of one example, depends on what is beside that.

    That may be the rest of its batch, how many there are, or another client under the map. It is computed in double
    precision where the model bears that, so that nothing else than rounding is taken for rounding, nor rounding for
    anything else. Layers that are given numbers of both precisions may do what they like; then single precision has
    the say.
    """
    draw = torch.Generator().manual_seed(0)
    places = torch.linspace(0, len(features) - 1, max(2, min(size, _MIXED)), device=features.device).long()
    given = parameters, calm(features[places]), draw
    try:
        why = _differs(network, *given, precision=torch.float64)
    except Exception:  # it has numbers of its own in single precision, or asks for them
        why = _ELSE
    return _differs(network, *given, precision=torch.float32) if why == _ELSE else why


def _differs(
    network: VmappedNetwork, parameters: list[Tensor], examples: Tensor, draw: torch.Generator, precision: torch.dtype
) -> str:
    """Return what :func:`_mixes` returns; parameters are moved, as they will be: what begins at zero would hide it."""
    away = (torch.randn(part.shape, generator=draw, dtype=part.dtype, device="cpu") for part in parameters)
    own = [
        (part.detach() + 0.1 * step.to(part.device)).to(precision) for part, step in zip(parameters, away, strict=True)
    ]
    examples = examples.to(precision) if examples.is_floating_point() else examples
    near = _NEAR[precision]

    def outputs(count: int, clients: int = 2) -> Tensor:
        some = examples[:count].expand(clients, *examples[:count].shape).clone()  # a model may write to it
        return network.outputs([part[:clients] for part in own], some, some.new_zeros(clients, dtype=torch.int64))

    with torch.no_grad():
        whole = outputs(len(examples))
        if not all(_near([whole[:, :count]], [outputs(count)], 0.1 * near) for count in (len(examples) // 2, 1)):
            return _MIXES
    own, size = [part.requires_grad_() for part in own], min(len(examples), _PULLED)
    pull = torch.randn(whole[:, :size].shape, generator=draw, device="cpu").to(whole)
    whole = outputs(size)

    def behind(found: Tensor, count: int) -> list[Tensor | None]:
        """Return the outputs of the first examples, and gradients that pull them somewhere."""
        clients = len(found)
        part = found[:, :count]
        pulled = (part * pull[:clients, :count]).sum()
        gradients = torch.autograd.grad(pulled, own, retain_graph=True, allow_unused=True)
        return [part.detach(), *(own if own is None else own[:clients] for own in gradients)]

    for count in (size // 2, 1):
        if not _near(behind(whole, count), behind(outputs(count), count), 0.3 * near):
            return _MIXES
    alone = outputs(size, clients=1)
    mapped = [part if part is None else part[:1] for part in behind(whole, size)]
    return "" if _near(behind(alone, size), mapped, near) else _ELSE


def _near(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None], share: float) -> bool:
    """Return whether outputs, and gradients behind them, differ by no more than a share of their norms.

    Of gradients by a share of that of all: what cancels, such as that of a bias before a norm, is rounding alone.
    """
    away, norms = [], []
    for one, other in zip(ours, theirs, strict=True):
        ends = [own for own in (one, other) if own is not None]
        if not ends or not ends[0].numel():
            continue
        first, last = (torch.zeros_like(ends[0]) if own is None else own for own in (one, other))
        if first.shape != last.shape or not torch.equal(first.isfinite(), last.isfinite()):
            return False
        told = first.isfinite()
        away.append(((first - last).double() * told).nan_to_num().norm())
        norms.append((first.double() * told).nan_to_num().norm())
    most = max(map(float, norms[1:]), default=0.0)
    pairs = enumerate(zip(away, norms, strict=True))
    return all(float(gap) <= share * (float(norm) + (0.1 * most if number else 0.0)) for number, (gap, norm) in pairs)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [own for own in module.parameters() if own.requires_grad]


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
