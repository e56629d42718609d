r"""One data holder's DP-SGD (Abadi et al. 2016).

A step draws a Poisson batch S of rate q, and hands the optimiser

.. math:: \tilde g = \frac{1}{qn} \Bigl( \sum_{i \in S} \mathrm{clip}_C(g_i) + \mathcal{N}(0, (zC)^2 I) \Bigr)

with the *expected* batch qn as divisor, never the realised one. A step on an empty batch is a step on noise: to leave
it out would tell that nobody was drawn. Whatever the optimiser makes of :math:`\tilde g` costs no further privacy.

Sums are in double precision, and sum and noise are rounded to one grid before they meet (:mod:`tacit.grid`): no bit of
:math:`\tilde g` depends on the data but through the noisy sum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError
from tacit.grid import Grid
from tacit.limits import cores
from tacit.randomness import Randomness
from tacit.training import cpu
from tacit.training.optimizers import Sgd
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.joint import unflattened, vector_of

_ahead = ThreadPoolExecutor(1, "tacit-noise")  # draws noise while a GPU computes
_COPIED = 1 << 20  # numbers of noise that go to a GPU at a time
_FOR_OTHERS = 8  # of so many cores, or fewer, one draws no noise beside a GPU: it calls what that computes
_SENT = 1 << 24  # numbers at most that go there as soon as they are drawn, where there are more than those


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The examples of one step, as the Poisson sampler drew them."""

    step: int
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


class Canaries(Protocol):
    """Made-up examples, and who looks for them in what is released.

    Their gradients lie in numbers behind the model's, which no other example moves: noise is drawn for the whole.
    """

    @property
    def numbers(self) -> int:
        """How many numbers they have."""
        ...

    def added(self, step: int) -> NDArray[np.float64]:
        """Return the sum of the gradients of those that a step draws, in their own numbers."""
        ...

    def saw(self, released: NDArray[np.float64]) -> None:
        """Look at the noisy sum of a step, in their own numbers."""
        ...


class PrivateSteps:
    """Takes DP-SGD steps with any optimiser of :mod:`torch.optim`.

    Args:
        gradient: what is summed, and how it is clipped.
        optimizer: moves the model; its parameters are the model's.
        features: of all examples, on the device that trains.
        labels: one per example.
        batches: how examples are drawn.
        noise_multiplier: z; the noise on the sum has standard deviation z C.
        clip_bound: C.
        randomness: draws batches and noise.
        micro_batch: how many examples go through the model at once; if None, as :meth:`PrivateGradient.at_once` says.
        pull: the weight of a proximal term towards the weights of now (FedProx); it sees no data and costs nothing.
        before_part: called with the step and the number of the micro-batch before each goes through the model.
        canaries: made-up examples that take part in every step; the model does not notice them.
    """

    def __init__(
        self,
        *,
        gradient: PrivateGradient,
        optimizer: torch.optim.Optimizer | Sgd,
        features: Tensor,
        labels: Tensor,
        batches: PoissonBatches,
        noise_multiplier: float,
        clip_bound: float,
        randomness: Randomness,
        micro_batch: int | None = None,
        pull: float = 0.0,
        before_part: Callable[[int, int], None] = lambda _step, _part: None,
        canaries: Canaries | None = None,
    ) -> None:
        if not 0.0 <= noise_multiplier < math.inf:
            raise ConfigError(f"Expected a noise multiplier of 0 or more, got {noise_multiplier}.")
        if micro_batch is not None and micro_batch < 1:
            raise ConfigError(f"Expected a micro-batch of 1 example or more, got {micro_batch}.")
        self._gradient = gradient
        self._optimizer = optimizer
        self._features = features
        self._labels = labels
        self.batches = batches
        self._std = noise_multiplier * clip_bound
        self._randomness = randomness
        self._micro_batch = micro_batch
        self._sizes = [p.numel() for p in gradient.parameters]
        kinds = {p.dtype for p in gradient.parameters}
        self._kind = kinds.pop() if len(kinds) == 1 else None
        device = gradient.parameters[0].device
        if device.type == "cpu":
            cpu.keep_pages()
        self._grid = Grid.of(bound=clip_bound, size=sum(self._sizes))
        more = 0 if canaries is None else canaries.numbers
        self._noise = StepNoise(
            size=sum(self._sizes) + more, std=self._std, grid=self._grid, randomness=randomness, device=device
        )
        self._held: tuple[int, Tensor] | None = None  # the step, and what it has accumulated
        self._room: Tensor | None = None  # memory for that, while nobody uses it; a GPU's is at hand for others too
        self._pull = pull
        self._before_part = before_part
        self._canaries = canaries
        self._origin = [p.detach().clone() for p in gradient.parameters] if pull else []

    def draw(self, step: int) -> Batch:
        """Draw the batch of a step."""
        return Batch(step=step, rows=self.batches.draw(self._randomness.secret("batch", step)))

    def accumulate(self, batch: Batch) -> Tensor:
        """Add the clipped gradients of a batch to the sum of its step, in micro-batches, and return the losses.

        A call that fails adds nothing, and what an earlier step left without a release is forgotten: a release never
        holds an example twice. The losses are those of the examples that have a finite one. They are the data holder's
        own: no noise protects them.
        """
        rows = torch.from_numpy(batch.rows).to(self._labels.device)
        whole = self.batches.expected == self.batches.examples  # every step sees all: nothing to gather
        before = self._of_step(batch.step)
        losses = []
        total: Tensor | None = None
        at_once = self._micro_batch or self._gradient.at_once(len(rows))
        parts = [rows] if len(rows) <= at_once else torch.split(rows, at_once)
        for number, part in enumerate(parts):
            self._before_part(batch.step, number)
            everything = whole and len(part) == len(self._labels)
            features = self._features if everything else self._features.index_select(0, part)
            labels = self._labels if everything else self._labels.index_select(0, part)
            sums, each = self._gradient.sums(features, labels)
            losses.append(each)
            if total is not None:
                torch._foreach_add_(unflattened(total, self._gradient.parameters), sums)
                continue
            # An empty batch has a part too, of no example. What the passes through the model took is free again.
            total = vector_of(sums)
            if total is None:
                total = self._empty()
                torch._foreach_copy_(unflattened(total, self._gradient.parameters), sums)
        assert total is not None  # there is always a part
        if before is None:
            self._held, self._room = (batch.step, total), None
        else:
            before += total
        together = losses[0] if len(losses) == 1 else torch.cat(losses)
        return together[together.isfinite()]

    def release(self, step: int) -> None:
        """Add the noise to what the step accumulated, divide by the expected batch, and let the optimiser step."""
        parameters = self._gradient.parameters
        total = self._of_step(step)
        total = self._empty().zero_() if total is None else total
        self._held = None  # before its memory is anybody's: an interrupted release leaves nothing behind
        self._room = total if total.is_cpu else None
        if self._canaries is not None:
            total = torch.cat([total, torch.from_numpy(self._canaries.added(step)).to(total.device)])
        expected = float(self.batches.expected)
        at_once = total.is_cpu and self._kind == torch.float32 and self._std > 0.0
        divided = torch.empty_like(total, dtype=torch.float32) if at_once else None
        if self._std > 0.0:
            self._noise.add(total, step, over=expected, into=divided)
        if self._canaries is not None:
            self._canaries.saw(total[sum(self._sizes) :].cpu().numpy())
            total = total[: sum(self._sizes)]
            divided = None if divided is None else divided[: len(total)]
        if divided is None:
            total = total.div_(expected)
            divided = None if self._kind is None else total.to(self._kind)
        if divided is not None:
            sums = unflattened(divided, parameters)
        else:
            sums = [own.to(p.dtype) for own, p in zip(unflattened(total, parameters), parameters, strict=True)]
        if self._pull:
            away = torch._foreach_sub([p.detach() for p in parameters], self._origin)
            torch._foreach_add_(sums, away, alpha=self._pull)
        for parameter, own in zip(parameters, sums, strict=True):
            parameter.grad = own
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._std > 0.0:
            self._noise.begin(step + 1)

    def _empty(self) -> Tensor:
        """Return memory for a sum, whatever it holds."""
        if self._room is not None:
            return self._room
        return torch.empty(sum(self._sizes), dtype=torch.float64, device=self._gradient.parameters[0].device)

    def _of_step(self, step: int) -> Tensor | None:
        """Return what a step has accumulated so far, or None."""
        return self._held[1] if self._held is not None and self._held[0] == step else None

    def take(self, step: int) -> Tensor:
        """Draw, accumulate and release: one whole step. Returns the losses of its examples."""
        losses = self.accumulate(self.draw(step))
        self.release(step)
        return losses


@dataclass(frozen=True, kw_only=True)
class PoissonBatches:
    """Poisson batches of ``expected`` examples on average, out of ``examples``; any size may come, none at all too.

    Each example is drawn by its own coin, which is what the accounting of DP-SGD assumes.
    The size is drawn first, Binomial(n, q), and then that many examples without replacement: the same law as n coins
    at a cost that depends on the batch.

    >>> PoissonBatches(examples=1000, expected=10).rate
    0.01
    """

    examples: int  # n
    expected: int  # qn

    def __post_init__(self) -> None:
        if self.expected < 1:
            raise ConfigError(f"Expected a batch size of 1 or more, got {self.expected}.")
        if self.expected > self.examples:
            raise ConfigError(
                f"A batch size of {self.expected} is larger than the data, which have {self.examples} examples. "
                f"Use {self.examples} (every step sees all examples) or less."
            )

    @property
    def rate(self) -> float:
        """The probability q of each coin."""
        return self.expected / self.examples

    def steps(self, epochs: float) -> int:
        """Return how many steps see as many examples, on average, as ``epochs`` passes."""
        return max(1, -(-round(epochs * self.examples) // self.expected))

    def draw(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the examples of a batch, in ascending order."""
        if self.expected == self.examples:
            return np.arange(self.examples)
        size = int(generator.binomial(self.examples, self.rate))
        return np.sort(generator.choice(self.examples, size, replace=False, shuffle=False))


class StepNoise:
    """Normal vectors of one standard deviation, one for each step, in double precision and on the grid.

    They come from :meth:`tacit.randomness.Randomness.on_grid`: on a CPU while a cache holds both the noise and what it
    is added to, beside a GPU a step ahead, which would wait for them: from the moment on at which it was told all of a
    step, as whoever tells it needs a core too.
    """

    def __init__(self, *, size: int, std: float, grid: Grid, randomness: Randomness, device: torch.device) -> None:
        grid.check(std)
        self._size = size
        self._std = std
        self._step = grid.step
        self._randomness = randomness
        self._device = device
        self._next: tuple[int, Future[tuple[Tensor, Tensor]]] | None = None

    def add(self, total: Tensor, step: int, *, over: float = 1.0, into: Tensor | None = None) -> None:
        """Round a sum to the grid and add the noise of a step; in a simulation that depends on the step alone.

        Args:
            total: the sum.
            step: whose noise.
            over: what the noisy sum is divided by
            into: where it goes so, on a CPU in the same pass through memory.
        """
        if self._device.type != "cuda":
            room = None if into is None else into.numpy()
            self._randomness.on_grid(total.numpy(), "noise", step, std=self._std, step=self._step, over=over, into=room)
            return
        sent, drawn = self._drawn_ahead(step)
        total.div_(self._step).round_().mul_(self._step)
        if len(sent):
            stream = torch.cuda.current_stream(self._device)
            stream.wait_stream(_copying(self._device))
            sent.record_stream(stream)
            total[: len(sent)].add_(sent)
        for own, part in zip(torch.split(total[len(sent) :], _COPIED), torch.split(drawn, _COPIED), strict=True):
            own.add_(part.to(self._device, non_blocking=True))

    def _drawn_ahead(self, step: int) -> tuple[Tensor, Tensor]:
        ready, self._next = self._next, None
        return ready[1].result() if ready is not None and ready[0] == step else self._draw(step)

    def begin(self, step: int) -> None:
        """Draw the noise of a step beside a GPU from now on: once it has been told all there is to compute."""
        if self._device.type == "cuda":
            self._next = step, _ahead.submit(self._draw, step)

    def _draw(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the noise of a step: what lies on the GPU already, or will soon, and the rest."""
        drawn = torch.empty(self._size, dtype=torch.float64, pin_memory=True)
        threads = max(1, cores() - max(1, cores() // _FOR_OTHERS))
        self._randomness.on_grid(
            drawn.numpy(), "noise", step, std=self._std, step=self._step, alone=True, threads=threads
        )
        first, rest = drawn.tensor_split([_SENT if self._size > _COPIED else 0])
        with torch.cuda.stream(_copying(self._device)):
            return first.to(self._device, non_blocking=True), rest


@functools.cache
def _copying(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which noise goes to a GPU while that computes.

    Streams are lent out in turn, 32 of each priority. One that a graph is captured on by another thread would have a
    copy recorded and not made, so that this one is of those that nothing is captured on.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]  # torch gives it no types
