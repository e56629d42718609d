"""Native layers in a row as one step of autograd: convolutions, and group norms with what is behind them.

A stretch holds the values between its layers itself, channels last, and walks back through them: where several layers
use a value, each adds its gradient to what is there. For small batches what autograd does around every layer costs as
much as a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training import native
from tacit.training.native import LANES, addresses
from tacit.training.program import Pair

Way = Literal["tiles", "windows", "torch"]

MOST_PAD = 2  # of tiles
_LAST = torch.channels_last
_CPU = torch.device("cpu")  # by its name a device costs more than an empty tensor


@dataclass(frozen=True, kw_only=True)
class _Held:
    """What a stretch was given and made, and is to find again on the way back."""

    values: dict[int, Tensor]
    parameters: dict[int, Tensor]
    moments: dict[int, Tensor]  # of a group norm, by the value that it makes
    checked: bool = False  # whether tensors of these shapes have gone through before

    def parameter(self, place: int | None) -> Tensor | None:
        """Return a parameter; None where a layer has none."""
        return None if place is None else self.parameters[place]


@dataclass(frozen=True, kw_only=True)
class _Back(_Held):
    """The same on the way back, with the gradients."""

    asked: frozenset[int]  # values and
    wanted: frozenset[int]  # places of parameters whose gradients are asked for
    gradients: dict[int, Tensor]  # of values
    made: dict[int, Tensor]  # gradients of parameters
    own: set[int]  # values whose gradient nobody else holds, so that it may be added to

    def room(self, value: int) -> tuple[Tensor, int]:
        """Return where the gradient of a value goes, and whether it is to be added to what is there."""
        held = self.gradients.get(value)
        if held is None:
            self.own.add(value)
            self.gradients[value] = _empty(self.values[value].shape)
            return self.gradients[value], 0
        if value not in self.own:
            self.own.add(value)
            self.gradients[value] = held.clone(memory_format=_LAST)
        return self.gradients[value], 1

    def add(self, value: int, gradient: Tensor, *, shared: bool = False) -> None:
        """Add to the gradient of a value; what is ``shared`` stays as it is."""
        if value not in self.asked:
            return
        if value in self.gradients:
            self.room(value)[0].add_(gradient)
            return
        self.gradients[value] = gradient
        if not shared:
            self.own.add(value)

    def hand(self, place: int | None, gradient: Tensor) -> None:
        """Add to the gradient of a parameter, where there is one and it is asked for."""
        if place is not None and place in self.wanted:
            self.made[place] = self.made[place] + gradient if place in self.made else gradient


def _empty(shape: Sequence[int]) -> Tensor:
    return torch.empty(tuple(shape), dtype=torch.float32, device=_CPU, memory_format=_LAST)


@dataclass(frozen=True, kw_only=True)
class Convolve:
    """``F.conv2d``: by Winograd's method on tiles, by products of windows, or by PyTorch.

    Tiles are for kernels of 3 x 3 without a stride, padded by up to two, and for channels in multiples of 16; windows
    for outputs in multiples of 16 without groups or dilation.
    """

    source: int  # the value that it takes
    target: int  # the value that it makes
    weight: int  # the place of a parameter
    bias: int | None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    way: Way

    @property
    def parameters(self) -> tuple[int | None, ...]:
        """The places of its parameters."""
        return self.weight, self.bias

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.source,)

    def forward(self, own: _Held) -> Tensor:
        """Return the outputs."""
        x, weight, bias = own.values[self.source], own.parameters[self.weight], own.parameter(self.bias)
        outputs, inputs, *kernel = weight.shape[-4:]
        n, _, *image = x.shape
        if not own.checked:
            self._check(x, weight, bias)
        if self.way == "torch":
            flat, shift = weight.view(weight.shape[-4:]), None if bias is None else bias.view(-1)
            convolved = torch.conv2d(x, flat, shift, self.stride, self.padding, self.dilation, self.groups)
            return convolved.contiguous(memory_format=_LAST)
        (high, wide), (kh, kw), (sh, sw), (ph, pw) = image, kernel, self.stride, self.padding
        out = _empty((n, outputs, (high + 2 * ph - kh) // sh + 1, (wide + 2 * pw - kw) // sw + 1))
        if self.way == "tiles":
            sizes = (n, *image, inputs, outputs, self.padding[0], 9, 9 * inputs)
            native.kernels.convolve(*addresses(x, weight, bias, out), *sizes, 0, 0, 1)
        else:
            sizes = (n, *image, inputs, outputs, *kernel, *self.stride, *self.padding)
            native.kernels.slide(*addresses(x, weight, bias, out), *sizes)
        return out

    def backward(self, own: _Back, grad: Tensor) -> None:
        """Hand on the gradients of what it takes."""
        x, weight = own.values[self.source], own.parameters[self.weight]
        outputs, inputs, *kernel = weight.shape[-4:]
        n, _, *image = x.shape
        sizes = (n, *image, inputs, outputs, *kernel, *self.stride, *self.padding)
        if self.bias is not None and self.bias in own.wanted:
            own.hand(self.bias, grad.sum((0, 2, 3)).view(own.parameters[self.bias].shape))
        if self.weight in own.wanted:
            if self.way == "torch":
                made = self._by_torch(grad, x, weight)[1].view(weight.shape)
            else:
                made = torch.empty_like(weight)
                if self.way == "tiles":
                    native.kernels.kernel(*addresses(x, grad, made), *sizes[:5], self.padding[0])
                else:
                    native.kernels.slide_kernel(*addresses(x, grad, made), *sizes)
            own.hand(self.weight, made)
        if self.source not in own.asked:
            return
        if self.way == "torch" or inputs % LANES:
            own.add(self.source, self._by_torch(grad, x, weight)[0].contiguous(memory_format=_LAST))
            return
        room, add = own.room(self.source)
        if self.way == "tiles":
            back = (n, *grad.shape[2:], outputs, inputs, MOST_PAD - self.padding[0], 9 * inputs, 9)
            native.kernels.convolve(*addresses(grad, weight, None, room), *back, 1, add, 1)
        else:
            native.kernels.slide_back(*addresses(grad, weight, room), *sizes, add)

    def _check(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        """Raise ValueError for what would lead a kernel beyond its memory."""
        if self.way == "torch":
            return
        outputs, inputs, *kernel = weight.shape[-4:]
        tiles = self.way == "tiles"
        if x.dim() != 4 or x.shape[1] != inputs or self.groups != 1 or outputs % LANES or (tiles and inputs % LANES):
            raise ValueError(
                f"Images {tuple(x.shape)} and kernels {tuple(weight.shape)} don't fit: expected (N, C, H, W) and "
                f"(O, C, kernel) without groups, and native channels in multiples of {LANES}."
            )
        plain = kernel == [3, 3] and self.stride == (1, 1) and self.padding[0] == self.padding[1] <= MOST_PAD
        if self.dilation != (1, 1) or (tiles and not plain):
            raise ValueError(
                f"Tiles are for kernels of 3 x 3 without a stride and with a padding of up to {MOST_PAD}, windows for "
                f"those without dilation; got {kernel}, stride {self.stride}, padding {self.padding}."
            )
        if not len(x) or any(
            side + 2 * pad < k for side, pad, k in zip(x.shape[2:], self.padding, kernel, strict=True)
        ):
            raise ValueError(f"A kernel of {kernel} and padding {self.padding} leave no output of {tuple(x.shape)}.")
        if bias is not None and bias.numel() != outputs:
            raise ValueError(f"The bias is {tuple(bias.shape)}, expected {outputs} numbers.")

    def _by_torch(self, grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        """Return PyTorch's gradients of images and kernels."""
        moves = (self.stride, self.padding, self.dilation, False, (0, 0), self.groups, (True, True, False))
        flat = weight.view(weight.shape[-4:])
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(grad, x, flat, None, *moves)
        return found


@dataclass(frozen=True, kw_only=True)
class Normalise:
    """``F.group_norm``, plus another value, if any, and rectified, if asked; channels come in multiples of 16."""

    source: int
    added: int | None
    target: int
    groups: int
    weight: int | None
    bias: int | None
    epsilon: float
    relu: bool

    @property
    def parameters(self) -> tuple[int | None, ...]:
        """The places of its parameters."""
        return self.weight, self.bias

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.source,) if self.added is None else (self.source, self.added)

    def forward(self, own: _Held) -> Tensor:
        """Return the outputs."""
        x, added = own.values[self.source], None if self.added is None else own.values[self.added]
        if not own.checked:
            self._check(x, added, own.parameter(self.weight), own.parameter(self.bias))
        out, moments = torch.empty_like(x), x.new_empty((len(x), self.groups, 2))
        own.moments[self.target] = moments
        given = (x, added, own.parameter(self.weight), own.parameter(self.bias), out, moments)
        native.kernels.norm(*addresses(*given), *self._sizes(x), 1, self.epsilon)
        return out

    def backward(self, own: _Back, grad: Tensor) -> None:
        """Hand on the gradients of what it takes."""
        x, out = own.values[self.source], None if self.added is None else own.values[self.target]
        weight, bias = own.parameter(self.weight), own.parameter(self.bias)
        below = grad if self.target in own.own and (self.relu or self.added is None) else torch.empty_like(x)
        masked = torch.empty_like(x) if self.added is not None and self.relu else None
        scales, shifts = (x.new_empty(x.shape[1]) if p is None else torch.empty_like(p) for p in (weight, bias))
        given = (grad, x, out, weight, bias, own.moments[self.target], below, masked, scales, shifts)
        native.kernels.norm_back(*addresses(*given), *self._sizes(x), 0, 1)
        own.add(self.source, below)
        if self.added is not None:
            own.add(self.added, grad if masked is None else masked, shared=masked is None)
        own.hand(self.weight, scales)
        own.hand(self.bias, shifts)

    def _check(self, x: Tensor, added: Tensor | None, *parameters: Tensor | None) -> None:
        """Raise ValueError for what would lead a kernel beyond its memory."""
        if x.dim() != 4 or x.shape[1] % LANES or x.shape[1] % self.groups or not x.numel():
            raise ValueError(
                f"Images are {tuple(x.shape)}, expected (N, C, H, W) with C a multiple of {LANES} and of {self.groups}."
            )
        if any(own is not None and own.numel() != x.shape[1] for own in parameters):
            raise ValueError(f"A group norm's weight and bias must have {x.shape[1]} numbers each.")
        if added is not None and added.shape != x.shape:
            raise ValueError(f"{tuple(added.shape)} can't be added to {tuple(x.shape)}.")

    def _sizes(self, x: Tensor) -> tuple[int, ...]:
        n, channels, high, wide = x.shape
        return n, high * wide, channels, self.groups, int(self.relu)


Layer = Convolve | Normalise


class Stretch:
    """Layers in their order; call it with the values and the parameters that there are to get the values they make."""

    def __init__(self, layers: Sequence[Layer], *, used: frozenset[int]) -> None:
        """Say what runs.

        Args:
            layers: which, in their order.
            used: the values that are used behind them.
        """
        self.layers = tuple(layers)
        made = [layer.target for layer in layers]
        taken = dict.fromkeys(source for layer in layers for source in layer.sources)
        self.inputs = [value for value in taken if value not in made]
        self.outputs = [value for value in made if value in used]
        places = dict.fromkeys(place for layer in layers for place in layer.parameters if place is not None)
        self.places = list(places)
        self._seen: set[tuple[torch.Size, ...]] = set()

    def __call__(self, values: Mapping[int, Tensor], parameters: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return the values that are used behind the layers.

        Args:
            values: images ``(N, C, H, W)`` by their number, float32 on the CPU.
            parameters: by their place; axes of one in front are left as they are.
        """
        if not native.available():
            raise RuntimeError("The native kernels are not there; check available() first.")
        given = [*(values[value] for value in self.inputs), *(parameters[place] for place in self.places)]
        for tensor in given:
            if tensor.dtype != torch.float32 or not tensor.is_cpu:
                raise ValueError(f"Expected float32 on the CPU, got {tensor.dtype} on {tensor.device}.")
        shapes = tuple(tensor.shape for tensor in given)
        made: tuple[Tensor, ...] = _Run.apply(self, shapes in self._seen, *given)  # type: ignore[no-untyped-call]  # torch gives it no types
        self._seen.add(shapes)
        return dict(zip(self.outputs, made, strict=True))


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stretch: Stretch, checked: bool, *given: Tensor) -> tuple[Tensor, ...]:
        count = len(stretch.inputs)
        values = [tensor.contiguous(memory_format=_LAST) for tensor in given[:count]]
        held = _Held(
            values=dict(zip(stretch.inputs, values, strict=True)),
            parameters=dict(zip(stretch.places, (tensor.contiguous() for tensor in given[count:]), strict=True)),
            moments={},
            checked=checked,
        )
        for layer in stretch.layers:
            held.values[layer.target] = layer.forward(held)
        outputs = tuple(held.values[value] for value in stretch.outputs)
        outside = (*stretch.inputs, *stretch.outputs)  # autograd has to hold these, or they would hold each other
        ctx.save_for_backward(*(held.values.pop(value) for value in outside), *held.parameters.values())
        held.parameters.clear()
        ctx.stretch, ctx.held = stretch, held
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        stretch: Stretch = ctx.stretch
        held, saved, count = ctx.held, ctx.saved_tensors, len(stretch.inputs)
        outside, needs = (*stretch.inputs, *stretch.outputs), ctx.needs_input_grad[2:]
        asked = {value for value, need in zip(stretch.inputs, needs[:count], strict=True) if need}
        given = zip(stretch.outputs, grads, strict=True)
        back = _Back(
            values=held.values | dict(zip(outside, saved[: len(outside)], strict=True)),
            parameters=dict(zip(stretch.places, saved[len(outside) :], strict=True)),
            moments=held.moments,
            asked=frozenset(asked | {layer.target for layer in stretch.layers}),
            wanted=frozenset(place for place, need in zip(stretch.places, needs[count:], strict=True) if need),
            gradients={value: grad.contiguous(memory_format=_LAST) for value, grad in given if grad is not None},
            made={},
            own=set(),
        )
        for layer in reversed(stretch.layers):
            grad = back.gradients.pop(layer.target, None)
            if grad is not None:
                layer.backward(back, grad)
        inputs = (back.gradients.get(value) for value in stretch.inputs)
        return None, None, *inputs, *(back.made.get(place) for place in stretch.places)
