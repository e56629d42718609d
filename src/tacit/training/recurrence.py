r"""Recurrent layers for many clients at once: LSTM, GRU and plain cells, step by step over all clients' batches.

A recurrent layer of torch's is one opaque call that nothing can map over clients. :class:`Recurrence` computes the
same in parts: the inputs' share of all gates is one matrix product over all steps (``ih``), and what remains of a step
is one batched product with the state and a few pointwise functions (``hh``). Its gradient is written out: per step one
product and two or three pointwise functions; derivatives of the gates and gradients of the weights come over all steps
at once.

With :math:`p_t = W_{ih} x_t + b_{ih}` and :math:`a_t = W_{hh} h_{t-1} + b_{hh}`:

* LSTM: :math:`(i, f, o) = \sigma(p + a)`, :math:`g = \tanh(p + a)`, :math:`c_t = f c_{t-1} + i g`,
  :math:`h_t = o \tanh c_t`;
* GRU: :math:`(r, z) = \sigma(p + a)`, :math:`n = \tanh(p + r a)`, :math:`h_t = n + z (h_{t-1} - n)`;
* plain: :math:`h_t = \tanh(p + a)`, or the rectifier of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tacit.training.native import LANES, available
from tacit.training.native.recurrent import among_clients, recur, recur_heard, suits, unseen
from tacit.training.parameters import hooked

Kind = Literal["lstm", "gru", "tanh", "relu"]
State = Tensor | tuple[Tensor, Tensor]
_TOLD = ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
_PARAMETER = re.compile(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?")
GATES: dict[Kind, int] = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


class _Steps(torch.autograd.Function):
    """All steps of one layer in one direction, for K clients.

    Inputs: ``pre`` (K, B, T, G H), the inputs' share; ``tap`` of the same shape, the hidden bias at every position;
    ``weight`` (K, G H, H); ``hidden`` and ``cell`` (K, B, H). Outputs: all states (K, B, T, H) and the last cell.
    The gradient of ``tap`` is that of what the state adds to the gates, position by position.
    """

    @staticmethod
    def forward(
        kind: Kind, pre: Tensor, tap: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, ...]:
        clients, batch, steps, _ = pre.shape
        size, turned = weight.shape[2], weight.mT
        whole = pre.permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)  # never a view: it is written over
        gates = whole.view(steps, clients, batch, GATES[kind], size)
        bias = tap[:, :1, 0]  # the same at all positions
        states = gates.new_empty(steps + 1, clients, batch, size)
        states[0] = hidden
        if kind == "gru":
            kept = gates.new_empty(steps, clients, batch, size)  # what the state gives to n
            for t in range(steps):
                own = torch.baddbmm(bias, states[t], turned).view(clients, batch, 3, size)
                reset = gates[t, :, :, :2].add_(own[:, :, :2]).sigmoid_()[:, :, 0]
                new = gates[t, :, :, 2].addcmul_(reset, own[:, :, 2]).tanh_()
                kept[t] = own[:, :, 2]
                torch.lerp(new, states[t], gates[t, :, :, 1], out=states[t + 1])
            return _by_client(states[1:]), cell.clone(), gates, states, kept
        gates += bias.view(clients, bias.shape[1], GATES[kind], size)  # none where there are no examples
        if kind == "lstm":
            cells = gates.new_empty(steps + 1, clients, batch, size)
            cells[0] = cell
            new = gates.new_empty(clients, batch, size)
            for t in range(steps):
                own = gates[t].view(clients, batch, 4 * size)
                own.baddbmm_(states[t], turned)
                torch.tanh(gates[t, :, :, 2], out=new)
                gates[t].sigmoid_()
                gates[t, :, :, 2] = new
                torch.mul(gates[t, :, :, 1], cells[t], out=cells[t + 1])
                cells[t + 1].addcmul_(gates[t, :, :, 0], new)
                torch.mul(gates[t, :, :, 3], torch.tanh(cells[t + 1]), out=states[t + 1])
            return _by_client(states[1:]), cells[-1].clone(), gates, states, cells
        for t in range(steps):
            own = torch.baddbmm(gates[t, :, :, 0], states[t], turned)
            torch.tanh(own, out=states[t + 1]) if kind == "tanh" else torch.clamp(own, min=0.0, out=states[t + 1])
        return _by_client(states[1:]), cell.clone(), gates, states, states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.kind = inputs[0]
        ctx.save_for_backward(inputs[3], *output[2:])
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, gates, states, kept = ctx.saved_tensors
        steps, clients, batch, count, size = gates.shape
        out = torch.zeros_like(states[1:]) if outputs[0] is None else outputs[0].permute(2, 0, 1, 3).contiguous()
        moved = gates.new_empty(steps, clients, batch, count * size)  # the gradient of what the state adds
        each = moved.view_as(gates)
        back = out[-1]
        inputs, cell = moved, outputs[1]
        if ctx.kind == "gru":
            r, z, n = gates.unbind(3)
            along = (1.0 - z) * (1.0 - n.square())
            slope = torch.stack([along * kept * r * (1.0 - r), (states[:-1] - n) * z * (1.0 - z), along * r], 3)
            inner = torch.empty_like(out)
            for t in reversed(range(steps)):
                inner[t] = back
                torch.mul(back[:, :, None], slope[t], out=each[t])
                rest = torch.mul(back, z[t]) if t == 0 else torch.addcmul(out[t - 1], back, z[t])
                back = torch.baddbmm(rest, moved[t], weight)
            inputs = moved.clone()
            inputs.view_as(gates)[:, :, :, 2] = inner * along
        elif ctx.kind == "lstm":
            i, f, g, o = gates.unbind(3)
            curved = torch.tanh(kept[1:])
            along = o * (1.0 - curved.square())
            slope = torch.stack([g * i * (1.0 - i), kept[:-1] * f * (1.0 - f), i * (1.0 - g.square())], 3)
            last = curved * o * (1.0 - o)
            cell = torch.zeros_like(back) if cell is None else cell
            for t in reversed(range(steps)):
                cell = torch.addcmul(cell, back, along[t])
                torch.mul(cell[:, :, None], slope[t], out=each[t, :, :, :3])
                torch.mul(back, last[t], out=each[t, :, :, 3])
                cell = cell * f[t]
                back = torch.bmm(moved[t], weight) if t == 0 else torch.baddbmm(out[t - 1], moved[t], weight)
        else:
            slope = 1.0 - states[1:].square() if ctx.kind == "tanh" else (states[1:] > 0).to(out.dtype)
            for t in reversed(range(steps)):
                torch.mul(back, slope[t], out=moved[t])
                back = torch.bmm(moved[t], weight) if t == 0 else torch.baddbmm(out[t - 1], moved[t], weight)
        whole = _by_client(moved)
        before = _by_client(states[:-1]).flatten(1, 2)
        own = torch.bmm(whole.flatten(1, 2).mT, before) if ctx.needs_input_grad[3] else None
        return None, whole if inputs is moved else _by_client(inputs), whole, own, back, cell

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], kind: Kind, *values: Tensor) -> tuple[Any, Any]:
        """Return the same with the mapped axis among the clients'."""
        found = _Steps.apply(kind, *among_clients(info, in_dims[1:], values))  # type: ignore[no-untyped-call]  # torch gives it no types
        axes = [0, 0, 1, 1, 1]
        return tuple(
            value.unflatten(axis, (info.batch_size, -1)) for value, axis in zip(found, axes, strict=True)
        ), tuple(axes)


def _by_client(values: Tensor) -> Tensor:
    """Return (T, K, B, ...) as (K, B, T, ...), a copy in any case: models may write over it."""
    return values.permute(1, 2, 0, *range(3, values.dim())).clone(memory_format=torch.contiguous_format)


def steps_by_autograd(kind: Kind, pre: Tensor, bias: Tensor, weight: Tensor, state: Tensor, cell: Tensor) -> Any:
    """Return what :class:`_Steps` returns first, for one model ``(B, T, G H)``, in operations that anything can map."""
    states = []
    for given in pre.unbind(1):
        own = state @ weight.t() + bias
        if kind == "gru":
            (r, z, n), (p, q, m) = own.chunk(3, -1), given.chunk(3, -1)
            new = torch.tanh(m + torch.sigmoid(p + r) * n)
            state = new + torch.sigmoid(q + z) * (state - new)
        elif kind == "lstm":
            i, f, g, o = (given + own).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
        else:
            state = torch.tanh(given + own) if kind == "tanh" else torch.relu(given + own)
        states.append(state)
    return torch.stack(states, 1), cell


class Hidden(nn.Module):
    """The state's share of a recurrent layer in one direction; ``weight`` and ``bias`` are the layer's own.

    Attributes:
        unrolled: steps are left to autograd, which is slower, for whoever maps over gradients.
        listens: keep what is heard.
        heard: after a pass with ``listens``, for a weight what it met, and what has the gradient of its outputs at
            every position. It is this layer's own; by native kernels that of the inputs' layer too, which is not called
            then.
    """

    def __init__(self, kind: Kind, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self._kind = kind
        self.weight = weight
        self.bias = bias
        self.unrolled = self.listens = False
        self.heard: list[tuple[nn.Module, Tensor, Tensor]] = []

    def forward(self, ih: nn.Linear, values: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return all states, ``(B, T, H)``, and the last cell, ``(B, H)``, given the inputs' layer and the inputs."""
        if self.listens and not self.unrolled:
            given = (*layers_of(values, ih, self), hidden, cell)
            if unseen() and suits(self._kind, self.weight.shape[1], values, *given):
                return self._heard_natively(ih, values, given)
        return self._in_parts(ih(values), hidden, cell)

    def _heard_natively(self, ih: nn.Linear, values: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        kind: Any = self._kind
        nothing = values.new_zeros((), requires_grad=True)
        shape = (*values.shape[:2], len(self.weight))
        taps = nothing.expand(shape), nothing.expand(shape)  # two places to listen at
        states, last = recur_heard(kind, values, taps, [*(own.detach() for own in given[:4]), *given[4:]])
        self.heard = [(ih, values.detach(), taps[0]), (self, _before(given[4], states), taps[1])]
        return states, last

    def _in_parts(self, pre: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        weight: Tensor = self.weight
        bias: Tensor = pre.new_zeros(pre.shape[-1:]) if self.bias is None else self.bias
        if self.unrolled:
            found: tuple[Tensor, Tensor] = steps_by_autograd(self._kind, pre, bias, weight, hidden, cell)
            return found
        if self.listens:  # somebody else makes the weight's gradient of what is heard
            weight, bias = weight.detach(), bias.detach().requires_grad_()
        tap = bias.expand_as(pre)
        batched = (part[None] for part in (pre, tap, weight, hidden, cell))
        states, last = _Steps.apply(self._kind, *batched)[:2]  # type: ignore[no-untyped-call]  # torch gives it no types
        states, last = states[0], last[0]
        if self.listens:
            self.heard = [(self, _before(hidden, states), tap)]
        return states, last


def _before(hidden: Tensor, states: Tensor) -> Tensor:
    """Return the state before each step."""
    return torch.cat([hidden[:, None], states[:, :-1]], 1).detach()


def layers_of(values: Tensor, ih: nn.Linear, hh: Hidden) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights and biases of a layer's two parts, zeros where there is no bias."""
    biases: list[Tensor] = [values.new_zeros(len(hh.weight)) if own.bias is None else own.bias for own in (ih, hh)]
    return ih.weight, biases[0], hh.weight, biases[1]


class NotInPartsError(TypeError):
    """A layer that stands in for one of torch's is given what it does not take."""


class Recurrence(nn.Module):
    """Computes what an ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` computes, with its own parameters; it can be mapped.

    >>> layer = nn.GRU(3, 4, batch_first=True)
    >>> values = torch.randn(2, 5, 3)
    >>> torch.allclose(Recurrence(layer)(values)[0], layer(values)[0], atol=1e-6)
    True
    """

    hidden_size: int
    num_layers: int
    batch_first: bool

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self._kind = kind_of(layer)
        self._ways = 2 if layer.bidirectional else 1
        for name in _TOLD:  # models ask their layers, to make first states for instance
            setattr(self, name, getattr(layer, name))
        self.ih, self.hh = nn.ModuleList(), nn.ModuleList()
        for number in range(layer.num_layers):
            for way in ("", "_reverse")[: self._ways]:
                named: list[Any] = [
                    getattr(layer, f"{part}_l{number}{way}", None)
                    for part in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
                ]
                self.ih.append(linear_of(named[0], named[1]))
                self.hh.append(Hidden(self._kind, named[2], named[3]))
        self.drop = nn.Dropout(layer.dropout) if layer.dropout and layer.num_layers > 1 else None

    @property
    def native(self) -> bool:
        """Whether native kernels may compute it on a CPU, and so faster than torch's own layer."""
        return self._kind in ("lstm", "gru") and self.hidden_size % LANES == 0 and available()

    def __getattr__(self, name: str) -> Any:
        """Return a parameter by the name that torch's layer has for it; a model may ask where it lies, or use it."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            found = _PARAMETER.fullmatch(name)
            if found is None:
                raise
            kind, part, number, reverse = found.groups()
            place = int(number) * self._ways + (reverse is not None)
            own = getattr(self, part)
            value = getattr(own[place], kind) if place < len(own) else None
            if value is None:
                raise
            return value

    def flatten_parameters(self) -> None:
        """Do nothing: it is for cuDNN, which is not used."""

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:  # noqa: A002 - torch's names
        """Return the states of the last layer at all steps, and all layers' last ones, as torch's layers do."""
        if not isinstance(input, Tensor) or input.dim() != 3:
            raise NotInPartsError("a recurrent layer of packed or single sequences has no rule")
        values = input if self.batch_first else input.transpose(0, 1)
        zeros = torch.zeros(len(values), self.hidden_size, device=values.device, dtype=values.dtype)
        lasts: list[Tensor] = []
        cells: list[Tensor] = []
        for number in range(self.num_layers):
            ways = []
            for way in range(self._ways):
                place = number * self._ways + way
                hidden, cell = self._first(hx, place, zeros)
                states, last = self._steps(place, values.flip(1) if way else values, hidden, cell)
                lasts.append(states[:, -1])
                cells.append(last)
                ways.append(states.flip(1) if way else states)
            values = ways[0] if self._ways == 1 else torch.cat(ways, 2)
            if self.drop is not None and number < self.num_layers - 1:
                values = self.drop(values)
        values = values if self.batch_first else values.transpose(0, 1)
        after = torch.stack(lasts)
        return values, ((after, torch.stack(cells)) if self._kind == "lstm" else after)

    def _steps(self, place: int, values: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return all states and the last cell of one layer in one direction, by native kernels where nobody listens."""
        ih: Any = self.ih[place]
        hh: Any = self.hh[place]
        given = (values, *layers_of(values, ih, hh), hidden, cell)
        if not (hh.unrolled or hh.listens or hooked((ih, hh))) and suits(self._kind, self.hidden_size, *given):
            kind: Any = self._kind
            batched = (own[None] for own in given)
            states, last = recur(kind, *batched)
            return states.squeeze(0), last.squeeze(0)  # a selection's gradient would be written into zeros first
        found: tuple[Tensor, Tensor] = hh(ih, values, hidden, cell)
        return found

    def _first(self, state: State | None, place: int, zeros: Tensor) -> tuple[Tensor, Tensor]:
        if state is None:
            return zeros, zeros
        if isinstance(state, Tensor):
            return state[place], zeros
        return state[0][place], state[1][place]


def kind_of(layer: nn.RNNBase) -> Kind:
    """Return which cell a layer has."""
    kinds: dict[str, Kind] = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "tanh", "RNN_RELU": "relu"}
    return kinds[layer.mode]


def linear_of(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    """Return a linear layer of parameters that are somebody else's too."""
    layer = nn.Linear(1, 1, bias=False, device="meta")
    layer.out_features, layer.in_features = weight.shape
    layer.weight = weight
    layer.register_parameter("bias", bias)
    return layer
