"""What a forward pass costs: how much arithmetic there is in an operation.

Mapping over clients saves the cost of calling operations, some five microseconds each, forwards and backwards. Where an
operation of one client alone keeps a core busy for longer there is nothing to save, and clients that train one by one,
each on a core of its own, stay in its cache. It is the same on a GPU, where an operation begins in a few microseconds,
in which a GPU computes a hundred million operations of floating point: a client that keeps it busy for longer trains
alone, by a captured graph, with the kernels that its layers have for one model. The rule goes by shapes alone, so that
a repeated run takes the same form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.training.native.recurrent import RECUR

# Operations of floating point per call. Of a loop's speed, per core: a GRU with 0.02e6 had 3.2, one with 0.1e6 1.2, an
# encoder with 2.3e6 1.3, a decoder with 3.3e6 1, a ResNet-8 with 8e6 and an encoder with 15e6 0.9.
_PAYS_BELOW = 3e6
# On two cores a ResNet-18's step (1.4e8, batches of 10) is as fast on both as two steps on one core each.
_FILLS_A_CORE = 5e7
# On an H200 a ResNet-18's step for many clients at once, whose convolutions are products of copied windows, took 0.8 of
# the time of four side by side, each with convolutions of its own, at 1.7e8 (batches of 10), 1.2 at 5.3e8 (32) and 1.3
# at 1.1e9 (64); a ResNet-8's 0.8 at 5e7 (64).
_FILLS_A_GPU = 1e8
_FILLS_BY_PRODUCTS = 4e8
MAPPED = 2.5  # what a call costs through vmap, of a plain one
# An MLP with embeddings has 2e4 and 25 operations, and a straight program had 3 times a mapped step's speed; parameters
# used directly 2e5, and 1.5 times. Of an encoder (2e6) nothing was gained, and a GRU's 600 operations take seconds to
# follow. Clients of encoders train faster one after another, by native attention, from 5e5 on (1.4 times; at 3e5 0.5).
_TINY, _FEW = 5e5, 200
# A plain loop on two threads had 1.1 times its speed on one over a perceptron (3e6), 1.2 to 1.6 times at 6e6 to 3e7,
# 1.9 at 1e8, and 0.4 to 1.1 below 1e6, unless operations wrote many numbers each: a CNN with batch norm (1.4e6, and 8e4
# numbers) had 1.8, pointwise layers (6e5, and 4e5) 1.7, parameters used directly (3e5, and 3e4) 1.2.
_SHARED, _WRITTEN = 4e6, 5e4
# Of the time in calls, in which one thread keeps Python's lock, and of that in operations: two loops side by side had
# 0.6 times the speed of one over an MLP with batch norm (0), 0.8 over a layer of 784 features (0.1), 0.9 over MLPs
# of two layers (1 and 1.6), 1.2 over a layer of 30,000 (1.8), 1.7 over a CNN with batch norm (2.8).
_PYTHONS = 1.5
_TELL = 40.0  # the same, where a straight program of a client's step is worth the tenth of a second that it takes
# Lanes of an MNIST lab's CNN (4e5) had about the speed of a straight program for 20 clients, 1.1 to 1.9 times it for
# 64; of one for images of 8 x 8 (8e3) two thirds of it for 20, and a third for five.
_LANES = 1e5
# Microseconds of a step, and of each operation in it and floating-point operation of the forward pass: of one client in
# a loop, and of as many as train together by a straight program, whose products of few columns are slow. Single layers
# of 784 to 30,000 inputs and perceptrons of two and three, in batches of 10 and 32, took about as long as these say.
_LOOP, _WRITES, _READS = (125.0, 12.0, 8e-5), 1e-3, 5e-4  # and of a number that is written, or gathered to be read
_STRAIGHT, _FOR_EACH, _FOR_EACH_THIN = (130.0, 8.0), 1e-4, 2e-4
# Numbers, 16 MB: a layer of 30,000 features had 0.4 times a loop's speed for five clients of 32 (4.8e6) at once.
_CACHE = 1 << 22
# Numbers, 4 MB, and weights per call. An MLP with 1.3e6 weights in 5 calls had 0.3 times a loop's speed for sixteen
# clients of 8 at once, one with 4e5 0.8 for sixteen and for five; a deep one with 3e5 in 42 calls had 1.8.
_COPIES, _WEIGHTS = 1 << 20, 65_536
_NARROW = 16  # channels; PyTorch's convolutions of fewer leave most of a register empty, one with groups does not

_PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one forward pass of one batch.

    Attributes:
        flops: operations of floating point in matrix products and convolutions.
        narrow: those of them in convolutions of fewer channels than a register has lanes.
        thin: those of them in products with fewer columns than that.
        operations: how many calls there were.
        numbers: how many numbers the largest operand or result has, weights aside.
        weights: how many weights matrix products and convolutions read.
        written: how many numbers all results have together.
    """

    flops: float
    narrow: float
    operations: int
    numbers: int = 0
    weights: int = 0
    written: int = 0
    thin: float = 0.0

    @property
    def small(self) -> bool:
        """Whether calling an operation costs as much as computing it, or PyTorch computes it slowly for one client."""
        return self.flops < _PAYS_BELOW * self.operations or 2.0 * self.narrow > self.flops

    @property
    def light(self) -> bool:
        """Whether nearly all of a step goes on calling operations, or on products that lanes have nothing to add to."""
        return self.flops < (_PAYS_BELOW if self.is_thin else _TINY) * self.operations

    @property
    def is_thin(self) -> bool:
        """Whether most of the arithmetic is in products of few columns, such as a single layer's of many inputs."""
        return 2.0 * self.thin > self.flops

    @property
    def tiny(self) -> bool:
        """The same of a few operations: then a straight program for many clients pays."""
        return self.light and self.operations <= _FEW

    @property
    def waits_for_python(self) -> bool:
        """Whether nearly all of a step is Python's: threads would wait for each other at its lock."""
        return self._work < _PYTHONS * self._calls and self.operations <= _FEW

    @property
    def calls_tell(self) -> bool:
        """Whether calling one client's operations takes a good part of its step, and they can be followed soon."""
        return self._work < _TELL * self._calls and self.operations <= _FEW

    @property
    def seconds(self) -> float:
        """How long a step of one client takes on one core, about."""
        return 1e-6 * (self._calls + self._work)

    @property
    def _calls(self) -> float:
        step, call, _ = _LOOP
        return step + call * self.operations

    @property
    def _work(self) -> float:
        return _LOOP[2] * self.flops + _WRITES * self.written + _READS * self.numbers

    @property
    def leaves_lanes_idle(self) -> bool:
        """Whether there is so little arithmetic in convolutions that calling them takes longer."""
        return self.flops < _LANES * self.operations

    def shared(self, cores: int) -> float:
        """Return how many times as fast as on one core a step is on all of them."""
        worth = self.flops / _SHARED + self.written / _WRITTEN
        return max(1.0, min((cores + 1) / 2, worth / self.operations))

    def spills(self, clients: int) -> bool:
        """Return whether what so many clients hold at once is out of a cache that holds one's, and calls cost less."""
        copies = 2 * clients * self.weights > _COPIES and self.weights > _WEIGHTS * self.operations
        return copies or clients * self.numbers > _CACHE

    def fills_cores(self, count: int) -> bool:
        """Return whether an operation is worth so many cores, which then need not hold a model of their own each."""
        return self.flops >= _FILLS_A_CORE * count * self.operations

    def fills_a_gpu(self, *, products: bool = False) -> bool:
        """Return whether one client's operations keep a GPU busy, even beside the copies that products need."""
        return self.flops >= (_FILLS_BY_PRODUCTS if products else _FILLS_A_GPU) * self.operations

    def program_pays(self, clients: int, cores: int) -> bool:
        """Return whether a straight program for so many clients is faster than a loop, of a lone one on all cores."""
        step, call, product = _LOOP
        alone = step + call * self.operations + product * self.flops
        alone = alone / self.shared(cores) if clients == 1 else alone
        step, call = _STRAIGHT
        product = _FOR_EACH_THIN if self.is_thin else _FOR_EACH
        return step + call * self.operations + clients * product * self.flops < clients * alone

    def mapping_pays(self, calls: float, clients: int) -> bool:
        """Return whether one program for many clients is faster than one client after the other on each core.

        Args:
            calls: what the program's calls cost, in plain ones (a recurrent layer is one call, and many if mapped).
            clients: how many train as one.
        """
        return self.small and calls < clients * self.operations


def cost_of(module: nn.Module, features: Tensor) -> Cost:
    """Count what a forward pass of ``features`` costs."""
    weights = {parameter.untyped_storage()._cdata for parameter in module.parameters()}
    with torch.no_grad(), _Counter(weights) as counter:
        module(features)
    return Cost(
        flops=counter.flops,
        narrow=counter.narrow,
        operations=max(counter.operations, 1),
        numbers=counter.numbers,
        weights=counter.read,
        written=counter.written,
        thin=counter.thin,
    )


class Met(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """Says what is in a pass, of which the modules need not tell.

    These are convolutions, group norms, and tables whose gradient is divided by how often a row is looked up.
    """

    convolves = normalises = rescales = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.convolves |= func is torch.ops.aten.convolution.default
        self.normalises |= func is torch.ops.aten.native_group_norm.default
        self.rescales |= func is torch.ops.aten.embedding.default and bool((*args, False, False)[3])
        self.rescales |= func is torch.ops.aten._embedding_bag.default and bool((*args, False)[3])
        return func(*args, **(kwargs or {}))


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    def __init__(self, weights: Collection[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.flops = self.narrow = self.thin = 0.0
        self.operations = self.numbers = self.read = self.written = 0
        self._weights = weights

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        from torch.utils.flop_counter import flop_registry  # loads more of torch than a run without this question needs

        result = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in flop_registry:
            own = float(flop_registry[packet](*args, **(kwargs or {}), out_val=result))
            self.flops += own
            self.read += sum(part.numel() for part in args if isinstance(part, Tensor) and self._is_weight(part))
            if packet is torch.ops.aten.convolution and min(args[1].shape[:2]) < _NARROW:
                self.narrow += own
            elif packet in _PRODUCTS and result.shape[-1] < _NARROW:
                self.thin += own
        elif packet is torch.ops.aten.mkldnn_rnn_layer:
            steps, batch = args[0].shape[:2]
            self.flops += 2.0 * steps * batch * (args[1].numel() + args[2].numel())
        elif func is RECUR:
            clients, batch, steps, _ = args[0].shape
            self.flops += 2.0 * clients * batch * steps * (args[1][0].numel() + args[3][0].numel())
        elif packet is torch.ops.aten._cudnn_rnn:  # a list of weights, matrices and biases; steps first, or examples
            steps, batch = args[0].shape[:2]
            self.flops += 2.0 * steps * batch * sum(weight.numel() for weight in args[1] if weight.dim() > 1)
        self.operations += not func.is_view
        if not func.is_view:
            results = result if isinstance(result, tuple | list) else (result,)
            self.written += sum(part.numel() for part in results if isinstance(part, Tensor))
        values = (part for part in (*args, result) if isinstance(part, Tensor) and not self._is_weight(part))
        self.numbers = max(self.numbers, *(part.numel() for part in values), 0)
        return result

    def _is_weight(self, part: Tensor) -> bool:
        return part.layout == torch.strided and part.untyped_storage()._cdata in self._weights
