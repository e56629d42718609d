"""Many steps of plain SGD of one client's images in one call: batches, losses, gradients and moves, no Python between.

It is for models of which every layer is native, with cross-entropy as the loss. The steps of other models, and those of
batches that are not full, go through autograd, layer after layer or stretch by stretch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from tacit.training.native.calls import Calls, Kind, Room, place
from tacit.training.native.stretch import Back, Layer, Sheet, without_clients, write_back

Layers: TypeAlias = Callable[[Sequence[torch.Size], int], Sequence[Layer] | None]

_ROOM, _SPARE, _MADE, _FEATURES, _LABELS, _ROWS, _TOTAL, _RATE, _FIRST = range(9)  # tensors; parameters come behind
_STEPS = 8  # of a call: between calls whoever wants to stop a run is heard


class Descent:
    """Takes the steps of one client at a time; called in one thread.

    Args:
        layers: returns the layers, given the shapes of parameters and how many examples a batch has; None where not all
            are native.
        last: the number of the value that is the model's output.
    """

    def __init__(self, layers: Layers, last: int) -> None:
        self._layers, self._last = layers, last
        self._plans: dict[tuple[torch.Size, ...], _Plan | None] = {}
        self._rooms = [torch.empty(0, dtype=torch.float32, device="cpu")] * 3

    def __call__(self, *given: Tensor | None) -> list[Tensor] | None:
        """Return None: a single step is computed plainly."""
        return None

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
        """Take many steps as :meth:`tacit.training.straight.StraightStep.descent` does; return whether it did."""
        tensors = (features, labels, rows, *parameters)
        plain = all(own.is_contiguous() and own.is_cpu for own in tensors) and rows.shape[1] == 1
        kinds = features.dtype, labels.dtype, labels.dim(), features.dim()
        if not plain or kinds != (torch.float32, torch.int64, 1, 4) or not rows.numel():
            return False
        shapes = (torch.Size((rows.shape[2], *features.shape[1:])), *(own.shape for own in parameters))
        if shapes not in self._plans:
            layers = self._layers([shape[1:] for shape in shapes[1:]], rows.shape[2])
            self._plans[shapes] = None if layers is None else _Plan(layers, shapes, self._last)
        plan = self._plans[shapes]
        used = labels[rows.flatten()]
        if plan is None or int(used.min()) < 0 or int(used.max()) >= plan.classes:  # torch says what is wrong
            return False
        step = torch.tensor([rate], dtype=torch.float32, device="cpu")
        rooms = self._rooms_for(plan.floats)
        for some in torch.split(rows, _STEPS):
            plan.calls.run([*rooms, features, labels, some, total, step, *parameters], times=len(some))
        return True

    def _rooms_for(self, floats: Sequence[int]) -> list[Tensor]:
        """Return the memory of values and gradients, which all plans share."""
        for number, (room, size) in enumerate(zip(self._rooms, floats, strict=True)):
            if len(room) < size:
                self._rooms[number] = torch.empty(size, dtype=torch.float32, device="cpu")
        return self._rooms


class _Plan:
    """A step written down for batches and parameters of given shapes."""

    def __init__(self, layers: Sequence[Layer], shapes: Sequence[torch.Size], last: int) -> None:
        batch, parameters = tuple(shapes[0]), [without_clients(shape) for shape in shapes[1:]]
        floats = [math.prod(shape) for shape in parameters]
        calls, room = Calls(), Room(_ROOM)
        sheet = Sheet(
            shapes={0: batch},
            values={0: room.take(math.prod(batch))},
            sizes=dict(enumerate(parameters)),
            parameters={number: place(_FIRST + number) for number in range(len(parameters))},
            moments={},
            room=room,
            calls=calls,
        )
        n, channels, *image = batch
        calls.add(Kind.GATHER, (place(_FEATURES), place(_ROWS), sheet.values[0]), (n, channels, math.prod(image)))
        for layer in layers:
            layer.write(sheet)
        self.classes = sheet.shapes[last][1]
        back = Back(
            shapes=sheet.shapes,
            values=sheet.values,
            sizes=sheet.sizes,
            parameters=sheet.parameters,
            moments=sheet.moments,
            room=Room(_SPARE),
            calls=calls,
            asked=frozenset(layer.target for layer in layers),
            wanted=frozenset(range(len(parameters))),
            gradients={},
            made={number: place(_MADE, sum(floats[:number])) for number in range(len(parameters))},
        )
        grad, _ = back.target(last)
        arrays = sheet.values[last], place(_LABELS), place(_ROWS), grad, place(_TOTAL)
        calls.add(Kind.ENTROPY, arrays, (n, self.classes))
        write_back(layers, back)
        for number in sorted(back.begun):
            calls.add(Kind.STEP, (back.made[number], place(_RATE), sheet.parameters[number]), (floats[number],))
        self.calls = calls
        self.floats = (room.floats, back.room.floats, sum(floats))
