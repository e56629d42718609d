"""A trial of a model and its loss, so that what does not fit is said before training begins."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacit.errors import ConfigError, DataError, TacitError
from tacit.training.evaluation import Still
from tacit.training.made import checksum
from tacit.training.outputs import copy_of, tensor_of
from tacit.training.parameters import leaves, sent
from tacit.training.private.probe import in_full_precision, seeded
from tacit.training.settings import Loss, cross_entropy, gives_logits

_TRIED, _AT_A_TIME = 256, 8  # examples
_BEYOND = ("out of range", "out of bounds")
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # which have no order in torch
_COLUMNS = 128  # numbers of an example whose extremes are looked for one by one: those of a table, or of a short text
_ROWS = (
    " An nn.Embedding needs a row for every whole number from 0 to the largest. Give it more rows, or leave out what "
    "has none."
)
_FLOATS = " Whole numbers stay whole, as an embedding needs them: give features as floats, such as x.astype('float32')."


def check_fit(
    module: nn.Module, loss: Loss, features: Tensor, labels: Tensor, *, whose: str = "the training data"
) -> None:
    """Take two examples through the model and the loss, so that what does not fit is said before a round begins."""
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"Expected a torch.nn.Module as the model, got {getattr(module, '__name__', type(module).__name__)}."
            f"{' Make one of that class first.' if isinstance(module, type) else ''}"
        )
    few = slice(0, 2)
    try:
        own = copy_of(module, features)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            device = next((p.device for p in own.parameters()), features.device)
            still = Still(own, _sent(own), module)
            own.eval()
            still.begin()
            outputs = tensor_of(own(features[few].clone().to(device)))
            still.check()
            if loss is cross_entropy and labels.dtype == torch.int64 and outputs.dim() == 2:
                _check_labels(labels, outputs.shape[1], whose)
            if gives_logits(loss):
                _check_binary(labels, outputs, whose)
            losses = loss(outputs, labels[few].clone().to(device))
    except TacitError:
        raise
    except Exception as error:  # the model and the loss may be somebody else's code
        raise ConfigError(
            f"The model and the loss can't take examples of shape {tuple(features.shape[1:])} ({features.dtype}) with "
            f"labels of {labels.dtype}, as {whose} have: "
            f"{(str(error).splitlines() or [repr(error)])[0].rstrip('.')} ({type(error).__name__})."
            f"{_FLOATS if 'dtype' in str(error) and not features.is_floating_point() else ''}"
            f"{_ROWS if isinstance(error, IndexError) else ''}"
        ) from error
    if not isinstance(losses, Tensor) or losses.shape != labels[few].shape[:1]:
        found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ConfigError(
            f"Expected the loss to return one number per example, shape {tuple(labels[few].shape[:1])}, "
            f"got {found}. Use reduction='none'."
        )
    _check_extremes(own, features, whose)


def _check_extremes(own: nn.Module, features: Tensor, whose: str) -> None:
    """Refuse examples whose numbers a model has no place for: tokens beyond its vocabulary, for instance.

    On a CPU, as a GPU that is asked for what a table doesn't hold is lost to the process.
    """
    looks_up = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in own.modules())
    if features.is_complex() or features.dtype == torch.bool or not (looks_up or not features.is_floating_point()):
        return
    own = own.cpu().eval()
    first, extremes = torch.zeros(_AT_A_TIME, dtype=torch.int64), _extremes(features)
    for rows in (first, *(extremes[start : start + _AT_A_TIME] for start in range(0, len(extremes), _AT_A_TIME))):
        batch = torch.cat([rows, first[len(rows) :]])  # some models take no example alone
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                own(features[batch].cpu())
        except Exception as error:  # the model may be somebody else's code, and bear other batches only
            beyond = isinstance(error, IndexError) or any(words in str(error) for words in _BEYOND)
            if rows is first or not beyond:
                return
            ends = _in_order(features)
            told = (str(error).splitlines() or [repr(error)])[0].rstrip(".")
            raise ConfigError(
                f"The model ({type(own).__name__}) can't take all examples of {whose}, whose numbers run from "
                f"{ends.min()} to {ends.max()}: {told} ({type(error).__name__}).{_ROWS}"
            ) from error


def _extremes(features: Tensor) -> Tensor:
    """Return the places of examples that hold the least and the most of each number, or of all where there are many.

    >>> _extremes(torch.tensor([[1, 5], [0, 9], [7, 5], [3, 6]]))
    tensor([0, 1, 2])
    """
    rows = _in_order(features.reshape(len(features), -1))
    if rows.shape[1] > _COLUMNS:
        rows = torch.stack([rows.amin(1), rows.amax(1)], 1)
    ends = torch.cat([rows.argmin(0), rows.argmax(0)]) if rows.numel() else torch.zeros(0, dtype=torch.int64)
    places: Tensor = torch.unique(ends)
    return places.cpu()


def _in_order(numbers: Tensor) -> Tensor:
    return numbers.long() if numbers.dtype in _UNSIGNED else numbers


def check_trains(module: nn.Module, loss: Loss, features: Tensor, labels: Tensor) -> None:
    """Refuse a model that nothing but noise would move: no gradient reaches what trains, or every loss is NaN.

    Where nothing is frozen it is enough that the loss depends on something that trains: a model may have nothing left
    to learn. The examples are taken from all over, a few at a time, until some tell.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        return
    partly = len(trained) < len(list(module.parameters()))
    if partly or not all(part.training for part in module.modules()):
        _check_modes(copy_of(module, features), module)
    own = copy_of(module, features)
    finite = False
    for training in (True, False):
        own.train(training)
        for number, rows in enumerate(_spread(len(labels))):
            learns, told = _learns(own, loss, features[rows], labels[rows], seed=number, partly=partly)
            if learns:
                return
            finite |= told
    numbers, name = f"{sum(p.numel() for p in trained):,}", type(module).__name__
    if not finite:
        raise ConfigError(
            f"The loss of {name} or its gradient is NaN for all of the {len(_places(len(labels)))} examples that were "
            "tried, so nothing would be learnt. Look for what divides by zero, or takes the logarithm or the root of "
            "a negative number, in the model and the loss."
        )
    why = (
        "the examples that were tried give zeros for all of them. Adapters that are switched off, not among the layers "
        "that run, or zero in both of their factors never learn. Switch them on, or let other parameters train "
        "(requires_grad_())."
        if partly
        else "its outputs are computed without them, or in a way that autograd does not follow. Look for "
        "torch.no_grad(), .detach(), .data and NumPy in the forward pass and the loss."
    )
    raise ConfigError(f"No gradient reaches the {numbers} numbers of {name} that are to train: {why}")


def _learns(
    own: nn.Module, loss: Loss, features: Tensor, labels: Tensor, *, seed: int, partly: bool
) -> tuple[bool, bool]:
    """Return whether examples tell that something trains, and whether what they told were numbers."""
    trained = [p for p in own.parameters() if p.requires_grad]
    device = trained[0].device
    try:
        with torch.enable_grad(), seeded(device, seed), in_full_precision():
            losses = loss(tensor_of(own(features.to(device))), labels.to(device))
            if bool(losses.isnan().all()):
                return False, False
            total = losses.sum()
            if not total.requires_grad:
                return False, True
            if not partly:
                known = {id(p) for p in trained}
                return any(id(leaf) in known for leaf in leaves(total)), True
            found = [own for own in torch.autograd.grad(total, trained, allow_unused=True) if own is not None]
    except ValueError:  # batch norm of one example
        return False, True
    numbers = [own.nan_to_num(posinf=0.0, neginf=0.0) for own in found]
    told = not found or any(bool(own.isfinite().any()) for own in found)
    return any(bool(own.count_nonzero()) for own in numbers), told


def _places(count: int) -> list[int]:
    """Return the places of the examples that are tried, of so many."""
    places = torch.linspace(0, count - 1, min(count, _TRIED), dtype=torch.float64)
    return [*dict.fromkeys(places.long().tolist())]


def _spread(count: int) -> Iterator[list[int]]:
    """Yield places of a few examples at a time, each time from the first to the last client's.

    >>> [*_spread(20)]
    [[0, 2, 4, 6, 8, 10, 12, 14, 16, 18], [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]]
    """
    places = _places(count)
    parts = max(1, len(places) // _AT_A_TIME)
    yield from (places[first::parts] for first in range(parts))


def _check_modes(own: nn.Module, module: nn.Module) -> None:
    """Refuse a model whose adapters are merged into other weights, or stay in frozen ones after ``train()``.

    Numbers in a copy's adapters show it: those that begin with zeros add nothing to what they are merged into.
    """
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in own.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
        held = {**dict(own.named_parameters()), **dict(own.named_buffers())}
        before = {name: checksum(tensor) for name, tensor in held.items()}
        own.train()
        moved = next((name for name, tensor in held.items() if checksum(tensor) != before[name]), None)
        if moved is not None:
            raise ConfigError(
                f"train() of the model ({type(module).__name__}) changes {moved!r}: eval() has merged adapters into "
                "it. Call model.train() before the run."
            )
        still = Still(own, _sent(own), module)
        own.eval()
        still.begin()
        still.put_back(own)


def _sent(module: nn.Module) -> list[str]:
    return [name for name, _, _ in sent(module)]


def lone_norms(module: nn.Module, features: Tensor) -> list[nn.Module]:
    """Return the batch norms of a model that can't train on a batch of one example, which has nothing to compare with.

    >>> len(lone_norms(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), torch.zeros(1, 2)))
    1
    """
    if not any(isinstance(part, _BatchNorm) for part in module.modules()):
        return []
    own = copy.deepcopy(module).train()  # in which some norms may stay as they are, by the model's own train()
    pairs = zip(module.modules(), own.modules(), strict=True)
    norms: list[nn.Module] = [part for part, other in pairs if isinstance(part, _BatchNorm) and other.training]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            own(features[:1].clone().to(next(module.parameters()).device))
    except ValueError:
        return norms
    return []


def check_batches(module: nn.Module, features: Tensor, sizes: Sequence[int], batch_size: int) -> None:
    """Refuse a batch of one example where batch norm keeps no running statistics that could stand in for the batch's.

    Args:
        module: the model.
        features: some examples.
        sizes: how many examples each client holds.
        batch_size: how many a step takes; the last step of a pass takes what is left.
    """
    alone = next((client for client, size in enumerate(sizes) if size % batch_size == 1 or batch_size == 1), None)
    if alone is None or all(getattr(norm, "track_running_stats", True) for norm in lone_norms(module, features)):
        return
    raise DataError(
        f"Client {alone} holds {sizes[alone]} examples: in batches of {batch_size} one is left alone, which batch norm "
        "without running statistics can't train on. Choose another train.batch_size, or put group norm in its place: "
        "model = tacit.fix(model)."
    )


def _check_labels(labels: Tensor, outputs: int, whose: str) -> None:
    if not 0 <= labels.min() <= labels.max() < outputs:
        raise ConfigError(
            f"The model has {outputs} outputs, but labels run from {labels.min()} to {labels.max()} in {whose}. "
            "Number the classes from 0, and give the model one output per class."
        )


def _check_binary(labels: Tensor, outputs: Tensor, whose: str) -> None:
    if outputs[0].numel() != 1 or labels[0].numel() != 1:
        raise ConfigError(
            f"The loss binary-cross-entropy takes one output per example, the model has {outputs[0].numel()}. Use "
            "loss='cross-entropy', or a model with one output."
        )
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise ConfigError(
            f"The loss binary-cross-entropy takes labels 0 and 1, but labels run from {labels.min()} to {labels.max()} "
            f"in {whose}."
        )
