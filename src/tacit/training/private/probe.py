"""A probe for models in which one example changes what is computed of another.

DP-SGD bounds what an example adds to the sum through its own gradient. Where layers mix the examples of a batch (a
batch statistic, attention over the batch) an example also moves the gradients of the others, and nothing bounds that.
The probe runs a few examples together, in other company, and alone; what it can't see is a mixture that shows up
for other values only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from tacit.errors import ConfigError

_FEW = 4


def check_examples_apart(model: nn.Module, features: Tensor) -> None:
    """Raise ConfigError where an example's output depends on the rest of its batch, or a buffer on the data."""
    device = next(model.parameters()).device
    few = features[:_FEW].to(device)
    if len(few) == 1:
        few = torch.cat([few, few.flip(-1) if few.dim() > 1 else few])
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _without_dropout(model):
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        together = _outputs(model, few)
        if not _alike(together, _outputs(model, few)):  # it draws random numbers of its own: probe it as evaluated
            model.eval()
            together = _outputs(model, few)
        changed = [name for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name])]
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
        if changed:
            raise ConfigError(
                f"The buffer {changed[0]!r} changes with the data in a forward pass, where no clip bounds what one "
                "example does to it. Remove it, or put the layer that keeps it in evaluation mode for good."
            )
        company = _outputs(model, torch.cat([few[:1], few[1:].flip(0) * 0 if few.is_floating_point() else few[1:]]))
        alone = _outputs(model, few[:1])
    if not (_alike(together[:1], company[:1]) and _alike(together[:1], alone)):
        raise ConfigError(
            f"{_culprit(model, few)} mixes the examples of a batch: an example's output changes with the others beside "
            "it, so that clipping each example's gradient bounds nothing. Use layers that treat each example by "
            "itself, such as nn.GroupNorm or nn.LayerNorm for normalisation."
        )


def _culprit(model: nn.Module, few: Tensor) -> str:
    """Return the first layer whose output for an example differs though its input does not."""
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
    handles = []
    for name, layer in model.named_modules():
        if next(layer.children(), None) is None:

            def listen(_: nn.Module, inputs: tuple[object, ...], output: object, name: str = name) -> None:
                value = inputs[0] if inputs else None
                if isinstance(value, Tensor) and isinstance(output, Tensor) and value.dim() and output.dim():
                    seen.setdefault(name, []).append((value[:1], output[:1]))

            handles.append(layer.register_forward_hook(listen))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _without_dropout(model):
        for batch in (few, few[:1]):
            _outputs(model, batch)
    for handle in handles:
        handle.remove()
    for name, calls in seen.items():
        half = len(calls) // 2
        for (value, output), (own, single) in zip(calls[:half], calls[half:], strict=False):
            if _alike(value, own) and not _alike(output, single):
                return f"The layer {name!r} ({type(model.get_submodule(name)).__name__})"
    return f"The model ({type(model).__name__})"


def _outputs(model: nn.Module, features: Tensor) -> Tensor:
    output: Tensor = model(features)
    return output


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), rtol=1e-3, atol=1e-4, equal_nan=True)


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Put the model in training mode, its dropout aside, and bring it back as it was."""
    modes = {part: part.training for part in model.modules()}
    try:
        model.train()
        for part in model.modules():
            if isinstance(part, _DropoutNd):
                part.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training
