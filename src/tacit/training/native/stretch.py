"""Native layers in a row as one step of autograd: convolutions, group norms with what is behind them, small heads.

For each set of shapes what runs is written down once, forwards and backwards, as lists of calls
(:mod:`tacit.training.native.calls`). Values between the layers, channels last, are places in one tensor, and so are
their gradients: where several layers use a value, each adds its gradient to what is there.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training import native
from tacit.training.native import LANES
from tacit.training.native.calls import Calls, Kind, Place, Room, floats_before, place, tensor_of
from tacit.training.program import Pair

Way = Literal["tiles", "windows", "apart"]
Relu = Literal[0, 1, 2]  # none, of all that is above zero, of what is up to six
Shape = tuple[int, ...]

MOST_PAD = 2  # of tiles
_LAST = torch.channels_last
_CPU = torch.device("cpu")  # by its name a device costs more than an empty tensor


@dataclass(kw_only=True)
class Sheet:
    """A list that is being written, and where everything is."""

    shapes: dict[int, Shape]  # of values,
    values: dict[int, Place]  # which are here
    sizes: dict[int, Shape]  # of parameters,
    parameters: dict[int, Place]  # which are here
    moments: dict[int, Place]  # of a group norm, by the value that it makes
    room: Room
    calls: Calls = field(default_factory=Calls)

    def parameter(self, number: int | None) -> Place | None:
        """Return the place of a parameter; None where a layer has none."""
        return None if number is None else self.parameters[number]


@dataclass(kw_only=True)
class Back(Sheet):
    """The same on the way back, with the gradients; ``room`` is for these."""

    asked: frozenset[int]  # values and
    wanted: frozenset[int]  # parameters whose gradients are asked for
    gradients: dict[int, Place]  # of values
    made: dict[int, Place]  # where gradients of wanted parameters go
    begun: set[int] = field(default_factory=set)  # those of them that were written to
    users: Counter[Place] = field(default_factory=Counter)  # of places in the room

    def new(self, floats: int) -> Place:
        """Return a place with one user."""
        at = self.room.take(floats)
        self.users[at] = 1
        return at

    def writable(self, at: Place) -> bool:
        """Return whether a gradient may be changed: nobody else uses it, and it was not given from outside."""
        return self.users[at] == 1

    def release(self, at: Place) -> None:
        """Take one user away."""
        if at in self.users:
            self.users[at] -= 1
            if not self.users[at]:
                del self.users[at]
                self.room.give_back(at)

    def share(self, at: Place) -> Place:
        """Add a user."""
        if at in self.users:
            self.users[at] += 1
        return at

    def target(self, value: int) -> tuple[Place, int]:
        """Return where the gradient of a value goes, and whether it is to be added to what is there."""
        floats, held = math.prod(self.shapes[value]), self.gradients.get(value)
        if held is None:
            self.gradients[value] = self.new(floats)
            return self.gradients[value], 0
        if not self.writable(held):
            self.gradients[value] = self.new(floats)
            self.calls.add(Kind.ADD, (held, None, self.gradients[value]), (floats,))
            self.release(held)
        return self.gradients[value], 1

    def add(self, value: int, gradient: Place) -> None:
        """Add to the gradient of a value; the place's user is this value from now on."""
        if value not in self.asked:
            self.release(gradient)
        elif value not in self.gradients:
            self.gradients[value] = gradient
        else:
            own, _ = self.target(value)
            self.calls.add(Kind.ADD, (own, gradient, own), (math.prod(self.shapes[value]),))
            self.release(gradient)

    def of_parameter(self, number: int | None, floats: int) -> Place:
        """Return where a layer may write the gradient of a parameter, to be given to :meth:`hand` afterwards."""
        first = number is not None and number in self.wanted and number not in self.begun
        return self.made[number] if first and number is not None else self.new(floats)

    def hand(self, number: int | None, gradient: Place, floats: int) -> None:
        """Add to the gradient of a parameter, where there is one and it is asked for."""
        if number is None or number not in self.wanted:
            self.release(gradient)
        elif number not in self.begun:
            self.begun.add(number)
        else:
            self.calls.add(Kind.ADD, (self.made[number], gradient, self.made[number]), (floats,))
            self.release(gradient)


@dataclass(frozen=True, kw_only=True)
class Convolve:
    """``F.conv2d``: by Winograd's method on tiles, by products of windows, or each channel for itself (apart).

    Tiles are for kernels of 3 x 3 without a stride, padded by up to two, and for channels in multiples of 16; windows
    for outputs in multiples of 16, and inputs too where their gradient is asked for; apart for groups of one channel,
    in multiples of 16.
    """

    source: int  # the value that it takes
    target: int  # the value that it makes
    weight: int  # the number of a parameter
    bias: int | None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    way: Way

    @property
    def parameters(self) -> tuple[int | None, ...]:
        """The numbers of its parameters."""
        return self.weight, self.bias

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.source,)

    def write(self, own: Sheet) -> None:
        """Write down what makes the outputs."""
        self._check(own)
        n, inputs, *image = own.shapes[self.source]
        outputs, _, *kernel = own.sizes[self.weight]
        sides = zip(image, kernel, self.stride, self.padding, strict=True)
        shape = (n, outputs, *((side + 2 * pad - k) // stride + 1 for side, k, stride, pad in sides))
        own.shapes[self.target] = shape
        own.values[self.target] = own.room.take(math.prod(shape))
        arrays = own.values[self.source], own.parameters[self.weight], own.parameter(self.bias), own.values[self.target]
        if self.way == "tiles":
            sizes = (n, *image, inputs, outputs, self.padding[0], 9, 9 * inputs, 0, 0)
            own.calls.add(Kind.CONVOLVE, arrays, sizes)
        else:
            own.calls.add(Kind.APART if self.way == "apart" else Kind.SLIDE, arrays, self._sizes(own))

    def write_back(self, own: Back, grad: Place) -> None:
        """Write down what makes the gradients of what it takes."""
        x, weight, sizes = own.values[self.source], own.parameters[self.weight], self._sizes(own)
        n, _, *result = own.shapes[self.target]
        outputs, inputs, apart = own.sizes[self.weight][0], own.shapes[self.source][1], self.way == "apart"
        if self.bias is not None and self.bias in own.wanted:
            made = own.of_parameter(self.bias, outputs)
            own.calls.add(Kind.TOTAL, (grad, made), (n, math.prod(result), outputs))
            own.hand(self.bias, made, outputs)
        if self.weight in own.wanted:
            floats = math.prod(own.sizes[self.weight])
            made = own.of_parameter(self.weight, floats)
            if self.way == "tiles":
                own.calls.add(Kind.KERNEL, (x, grad, made), (*sizes[:5], self.padding[0]))
            else:
                own.calls.add(Kind.APART_KERNEL if apart else Kind.SLIDE_KERNEL, (x, grad, made), sizes)
            own.hand(self.weight, made, floats)
        if self.source not in own.asked:
            return
        room, add = own.target(self.source)
        if self.way == "tiles":
            back = (n, *result, outputs, inputs, MOST_PAD - self.padding[0], 9 * inputs, 9, 1, add)
            own.calls.add(Kind.CONVOLVE, (grad, weight, None, room), back)
        else:
            own.calls.add(Kind.APART_BACK if apart else Kind.SLIDE_BACK, (grad, weight, room), (*sizes, add))

    def _sizes(self, own: Sheet) -> tuple[int, ...]:
        n, inputs, *image = own.shapes[self.source]
        outputs, _, *kernel = own.sizes[self.weight]
        return n, *image, inputs, outputs, *kernel, *self.stride, *self.padding

    def _check(self, own: Sheet) -> None:
        """Raise ValueError for what would lead a kernel beyond its memory."""
        shape, weight = own.shapes[self.source], own.sizes[self.weight]
        outputs, inputs, *kernel = weight
        tiles = self.way == "tiles"
        if self.way == "apart":  # each kernel has one input, and makes one output
            inputs = outputs if inputs == 1 else 0
        if len(shape) != 4 or shape[1] != inputs or outputs % LANES or (tiles and inputs % LANES):
            raise ValueError(
                f"Images {shape} and kernels {weight} don't fit: expected (N, C, H, W) and (O, C, kernel), or "
                f"(C, 1, kernel) apart, and native channels in multiples of {LANES}."
            )
        plain = kernel == [3, 3] and self.stride == (1, 1) and self.padding[0] == self.padding[1] <= MOST_PAD
        if tiles and not plain:
            raise ValueError(
                f"Tiles are for kernels of 3 x 3 without a stride and with a padding of up to {MOST_PAD}; got "
                f"{kernel}, stride {self.stride}, padding {self.padding}."
            )
        sides = zip(shape[2:], self.padding, kernel, strict=True)
        if not shape[0] or any(side + 2 * pad < k for side, pad, k in sides):
            raise ValueError(f"A kernel of {kernel} and padding {self.padding} leave no output of {shape}.")
        if self.bias is not None and math.prod(own.sizes[self.bias]) != outputs:
            raise ValueError(f"The bias is {own.sizes[self.bias]}, expected {outputs} numbers.")


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
    relu: Relu

    @property
    def parameters(self) -> tuple[int | None, ...]:
        """The numbers of its parameters."""
        return self.weight, self.bias

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.source,) if self.added is None else (self.source, self.added)

    def write(self, own: Sheet) -> None:
        """Write down what makes the outputs."""
        self._check(own)
        shape = own.shapes[self.target] = own.shapes[self.source]
        out = own.values[self.target] = own.room.take(math.prod(shape))
        moments = own.moments[self.target] = own.room.take(2 * shape[0] * self.groups)
        x, added = own.values[self.source], None if self.added is None else own.values[self.added]
        arrays = x, added, own.parameter(self.weight), own.parameter(self.bias), out, moments
        own.calls.add(Kind.NORM, arrays, (*self._sizes(shape), *struct.unpack("q", struct.pack("d", self.epsilon))))

    def write_back(self, own: Back, grad: Place) -> None:
        """Write down what makes the gradients of what it takes."""
        shape = own.shapes[self.source]
        floats, channels = math.prod(shape), shape[1]
        x, out = own.values[self.source], None if self.added is None else own.values[self.target]
        weight, bias = own.parameter(self.weight), own.parameter(self.bias)
        over = own.writable(grad) and (self.relu or self.added is None)
        below = own.share(grad) if over else own.new(floats)
        masked = own.new(floats) if self.added is not None and self.relu else None
        scales, shifts = (own.of_parameter(number, channels) for number in self.parameters)
        arrays = grad, x, out, weight, bias, own.moments[self.target], below, masked, scales, shifts
        own.calls.add(Kind.NORM_BACK, arrays, self._sizes(shape))
        own.add(self.source, below)
        if self.added is not None:
            own.add(self.added, own.share(grad) if masked is None else masked)
        own.hand(self.weight, scales, channels)
        own.hand(self.bias, shifts, channels)

    def _check(self, own: Sheet) -> None:
        """Raise ValueError for what would lead a kernel beyond its memory."""
        shape = own.shapes[self.source]
        if len(shape) != 4 or shape[1] % LANES or shape[1] % self.groups or not math.prod(shape):
            raise ValueError(
                f"Images are {shape}, expected (N, C, H, W) with C a multiple of {LANES} and of {self.groups}."
            )
        if any(number is not None and math.prod(own.sizes[number]) != shape[1] for number in self.parameters):
            raise ValueError(f"A group norm's weight and bias must have {shape[1]} numbers each.")
        if self.added is not None and own.shapes[self.added] != shape:
            raise ValueError(f"{own.shapes[self.added]} can't be added to {shape}.")

    def _sizes(self, shape: Shape) -> tuple[int, ...]:
        n, channels, high, wide = shape
        return n, high * wide, channels, self.groups, self.relu


@dataclass(frozen=True, kw_only=True)
class Average:
    """The mean over height and width of channels in multiples of 16; ``flat`` where it makes rows."""

    source: int
    target: int
    flat: bool

    parameters: ClassVar[tuple[int | None, ...]] = ()

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.source,)

    def write(self, own: Sheet) -> None:
        """Write down what makes the outputs."""
        n, channels, *image = own.shapes[self.source]
        if channels % LANES or len(image) != 2:
            raise ValueError(f"Images are {own.shapes[self.source]}, expected channels in multiples of {LANES}.")
        own.shapes[self.target] = (n, channels) if self.flat else (n, channels, 1, 1)
        own.values[self.target] = own.room.take(n * channels)
        arrays = own.values[self.source], own.values[self.target]
        own.calls.add(Kind.MEAN, arrays, (n, math.prod(image), channels))

    def write_back(self, own: Back, grad: Place) -> None:
        """Write down what makes the gradient of what it takes."""
        if self.source in own.asked:
            n, channels, *image = own.shapes[self.source]
            room, add = own.target(self.source)
            own.calls.add(Kind.MEAN_BACK, (grad, room), (n, math.prod(image), channels, add))


@dataclass(frozen=True, kw_only=True)
class Line:
    """``F.linear`` of rows, or of images of one pixel, with inputs in multiples of 16 and few outputs."""

    source: int
    target: int
    weight: int
    bias: int | None

    @property
    def parameters(self) -> tuple[int | None, ...]:
        """The numbers of its parameters."""
        return self.weight, self.bias

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.source,)

    def write(self, own: Sheet) -> None:
        """Write down what makes the outputs."""
        shape, size = own.shapes[self.source], math.prod(own.sizes[self.weight])
        n, inputs, outputs = self._sizes(own)
        if inputs % LANES or math.prod(shape[2:]) != 1 or outputs * inputs != size:
            raise ValueError(f"A layer of {size} weights doesn't fit {shape}; native inputs are multiples of {LANES}.")
        if self.bias is not None and math.prod(own.sizes[self.bias]) != outputs:
            raise ValueError(f"The bias is {own.sizes[self.bias]}, expected {outputs} numbers.")
        own.shapes[self.target] = (n, outputs)
        own.values[self.target] = own.room.take(n * outputs)
        arrays = own.values[self.source], own.parameters[self.weight], own.parameter(self.bias), own.values[self.target]
        own.calls.add(Kind.LINEAR, arrays, (n, inputs, outputs))

    def write_back(self, own: Back, grad: Place) -> None:
        """Write down what makes the gradients of what it takes."""
        n, inputs, outputs = self._sizes(own)
        room, add = own.target(self.source) if self.source in own.asked else (None, 0)
        sizes = (inputs * outputs, outputs)
        made = [own.of_parameter(number, size) for number, size in zip(self.parameters, sizes, strict=True)]
        arrays = grad, own.values[self.source], own.parameters[self.weight], room, *made
        own.calls.add(Kind.LINEAR_BACK, arrays, (n, inputs, outputs, add))
        for number, gradient, size in zip(self.parameters, made, sizes, strict=True):
            own.hand(number, gradient, size)

    def _sizes(self, own: Sheet) -> tuple[int, int, int]:
        n, inputs = own.shapes[self.source][:2]
        return n, inputs, math.prod(own.sizes[self.weight]) // inputs


Layer = Convolve | Normalise | Average | Line


def write_back(layers: Sequence[Layer], back: Back) -> None:
    """Write down the way back through layers, from the gradients that there are."""
    for layer in reversed(layers):
        grad = back.gradients.pop(layer.target, None)
        if grad is not None:
            layer.write_back(back, grad)
            back.release(grad)


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
        self.places = list(dict.fromkeys(n for layer in layers for n in layer.parameters if n is not None))
        self._plans: dict[tuple[torch.Size, ...], _Plan] = {}

    def __call__(self, values: Mapping[int, Tensor], parameters: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return the values that are used behind the layers.

        Args:
            values: images ``(N, C, H, W)`` or rows ``(1, N, C)`` by their number, float32 on the CPU.
            parameters: by their number; axes of one in front are left as they are.
        """
        if not native.available():
            raise RuntimeError("The native kernels are not there; check available() first.")
        given = [*(values[value] for value in self.inputs), *(parameters[number] for number in self.places)]
        for tensor in given:
            if tensor.dtype != torch.float32 or not tensor.is_cpu:
                raise ValueError(f"Expected float32 on the CPU, got {tensor.dtype} on {tensor.device}.")
        shapes = tuple(tensor.shape for tensor in given)
        plan = self._plans.get(shapes)
        if plan is None:
            plan = self._plans[shapes] = _Plan(self, shapes)
        plan.check(given)
        made: tuple[Tensor, ...] = _Run.apply(plan, *given)  # type: ignore[no-untyped-call]  # torch gives it no types
        return dict(zip(self.outputs, made, strict=True))


class _Plan:
    """A stretch written down for tensors of given shapes.

    The tensors of its places are the room of the values, the stretch's inputs and parameters; on the way back also the
    room of the gradients, one for the gradients of all parameters, and the gradients that are given.
    """

    def __init__(self, stretch: Stretch, shapes: Sequence[torch.Size]) -> None:
        self._stretch = stretch
        self.count = len(stretch.inputs)
        values = {value: place(1 + i) for i, value in enumerate(stretch.inputs)}
        own = {number: place(1 + self.count + i) for i, number in enumerate(stretch.places)}
        self._sheet = Sheet(
            shapes={v: _each(shape) for v, shape in zip(stretch.inputs, shapes[: self.count], strict=True)},
            values=values,
            sizes={n: without_clients(shape) for n, shape in zip(stretch.places, shapes[self.count :], strict=True)},
            parameters=own,
            moments={},
            room=Room(0),
        )
        for layer in stretch.layers:
            layer.write(self._sheet)
        self._backs: dict[tuple[tuple[bool, ...], tuple[bool, ...]], _Written] = {}
        narrow = {layer.source for layer in stretch.layers if isinstance(layer, Convolve)}
        self._still = [i for i, v in enumerate(stretch.inputs) if v in narrow and self._sheet.shapes[v][1] % LANES]

    def check(self, given: Sequence[Tensor]) -> None:
        """Raise ValueError where a gradient is asked for that no kernel makes."""
        if any(given[i].requires_grad for i in self._still):
            raise ValueError(f"Native gradients are of images with channels in multiples of {LANES}.")

    def forward(self, given: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the room of all values, and those that are used behind the stretch."""
        room = _empty(self._sheet.room.floats)
        self._sheet.calls.run([room, *given])
        return room, [self._seen(room, value, self._sheet.values[value]) for value in self._stretch.outputs]

    def backward(
        self, room: Tensor, given: Sequence[Tensor], grads: Sequence[Tensor | None], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        """Return the gradients of inputs and parameters, given those of outputs, where they are needed."""
        key = tuple(needs), tuple(grad is not None for grad in grads)
        written = self._backs.get(key)
        if written is None:
            written = self._backs[key] = self._back(*key)
        outside = [_laid_out(grad) for grad in grads if grad is not None]
        spare, made = _empty(written.spare), _empty(sum(written.floats))
        tensors = [room, *given, spare, made, *outside]
        written.calls.run(tensors)
        inputs = (
            None if at is None else self._seen(tensors[tensor_of(at)], value, at)
            for value, at in zip(self._stretch.inputs, written.inputs, strict=True)
        )
        parts = zip(given[self.count :], torch.split(made, written.floats), written.reached, strict=True)
        return [*inputs, *(part.view(parameter.shape) if own else None for parameter, part, own in parts)]

    def _back(self, needs: tuple[bool, ...], came: tuple[bool, ...]) -> _Written:
        """Write the way back down."""
        stretch, sheet, first = self._stretch, self._sheet, 1 + self.count + len(self._stretch.places)
        asked = {value for value, need in zip(stretch.inputs, needs[: self.count], strict=True) if need}
        wanted = [number for number, need in zip(stretch.places, needs[self.count :], strict=True) if need]
        floats = [math.prod(sheet.sizes[number]) if number in wanted else 0 for number in stretch.places]
        begins = {number: sum(floats[:i]) for i, number in enumerate(stretch.places)}
        given = [value for value, own in zip(stretch.outputs, came, strict=True) if own]
        back = Back(
            shapes=sheet.shapes,
            values=sheet.values,
            sizes=sheet.sizes,
            parameters=sheet.parameters,
            moments=sheet.moments,
            room=Room(first),
            asked=frozenset(asked | {layer.target for layer in stretch.layers}),
            wanted=frozenset(wanted),
            gradients={value: place(first + 2 + i) for i, value in enumerate(given)},
            made={number: place(first + 1, begins[number]) for number in wanted},
        )
        write_back(stretch.layers, back)
        return _Written(
            calls=back.calls,
            spare=back.room.floats,
            floats=floats,
            reached=[number in back.begun for number in stretch.places],
            inputs=[back.gradients.get(value) for value in stretch.inputs],
        )

    def _seen(self, tensor: Tensor, value: int, at: Place) -> Tensor:
        """Return a value, or its gradient, that is somewhere in a tensor, which may be a part of another."""
        shape, first = self._sheet.shapes[value], tensor.storage_offset() + floats_before(at)
        if len(shape) == 2:
            return torch.as_strided(tensor, (1, *shape), (math.prod(shape), shape[1], 1), first)
        _, channels, high, wide = shape
        return torch.as_strided(tensor, shape, (high * wide * channels, 1, wide * channels, channels), first)


@dataclass(frozen=True, kw_only=True)
class _Written:
    """The way back, for those who need gradients."""

    calls: Calls
    spare: int  # floats of its room
    floats: list[int]  # of the gradient of each parameter, none where it is not asked for
    reached: list[bool]  # whether there is one
    inputs: list[Place | None]  # where the gradients of the inputs are


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, *given: Tensor) -> tuple[Tensor, ...]:
        images = (_laid_out(tensor) for tensor in given[: plan.count])
        own = [*images, *(tensor.contiguous() for tensor in given[plan.count :])]
        ctx.plan = plan
        ctx.room, outputs = plan.forward(own)
        ctx.save_for_backward(*own)
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.plan.backward(ctx.room, ctx.saved_tensors, grads, ctx.needs_input_grad[1:])


def _empty(floats: int) -> Tensor:
    return torch.empty(floats, dtype=torch.float32, device=_CPU)


def _laid_out(tensor: Tensor) -> Tensor:
    """Return images channels last, and rows as they are."""
    return tensor.contiguous(memory_format=_LAST) if tensor.dim() == 4 else tensor.contiguous()


def _each(shape: Sequence[int]) -> Shape:
    """Return the shape of images, or of rows without a client's axis."""
    return tuple(shape[1:]) if len(shape) == 3 else tuple(shape)


def without_clients(shape: Sequence[int]) -> Shape:
    """Return the shape of a parameter without a client's axis: the last four axes of a kernel, all of a vector."""
    return tuple(shape[-4:]) if len(shape) > 3 else (math.prod(shape),)
