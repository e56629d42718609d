"""Central differential privacy with correlated noise: clip on the client, on the sum noise that later rounds undo."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import Event, GaussianEvent
from tacit.errors import ConfigError, WireError
from tacit.mechanisms.correlated.strategy import Correlation, Memory, Strategy
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector

_PUBLIC = struct.Struct(">dI")


@dataclass(frozen=True, kw_only=True)
class CorrelatedMechanism:
    r"""Clips each update on the client, and adds on the server noise of which later rounds take back the larger part.

    In round t it releases :math:`(\sum_i u_i + zC \hat z_t)/m` with :math:`\hat z = M^{-1} z`, M the strategy's matrix
    and z independent. All rounds together are one Gaussian mechanism (:mod:`tacit.mechanisms.correlated.strategy`): a
    client is charged by its participations, at least ``correlation.separation`` rounds apart, and it takes a sampler
    that keeps to that.

    Sum and noise are rounded to one grid: as a whole number of steps may be taken out of a rounding, what is released
    is that mechanism on rounded sums, rounded, in every round; see :mod:`tacit.grid`.

    The noise of past rounds is in this value and never on disk, nor in what travels. A mechanism that was made from
    its public state, as in a run that goes on after a crash, has none, and begins anew; which costs nothing.

    Attributes:
        gaussian: clip, noise and cohort, without what is not proved beside correlated noise.
        correlation: how rounds' noise hangs together.
        released: how many rounds are done.
        memory: what is remembered of their noise.
    """

    gaussian: GaussianMechanism
    correlation: Correlation
    released: int = 0
    memory: Memory = field(default=(), compare=False, repr=False)  # no log may have it

    def __post_init__(self) -> None:
        if self.gaussian.adaptive is not None:
            raise ConfigError(
                "dp.clip=adaptive does not work with dp.correlation: noise that was made for one clip bound does not "
                "take back that of another. Set dp.clip to a number."
            )
        if self.gaussian.denoise != "none":
            raise ConfigError(
                f"dp.denoise={self.gaussian.denoise} does not work with dp.correlation: it takes rounds for "
                "independent, and would undo what later rounds take back. Leave it out."
            )

    @property
    def event(self) -> Event:
        """What the release costs a client that is in it, now and in all rounds that its noise still reaches."""
        self._refuse_more()
        price = 1.0
        if self.correlation.kind == "blt":
            price = _strategy_of(self.correlation).price(self.released // self.correlation.separation)
        return GaussianEvent(noise_multiplier=self.gaussian.noise_multiplier / math.sqrt(price))

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism for a model whose tensors have these sizes."""
        return replace(self, gaussian=self.gaussian.fitted(layers))

    def length(self, parameters: int) -> int:
        """Return the model's length."""
        return self.gaussian.length(parameters)

    def public_state(self) -> bytes:
        """Return the clip bound, and how many rounds are done; nothing of their noise."""
        return _PUBLIC.pack(self.gaussian.clip_bound, self.released)

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism of a round; it remembers no noise."""
        if len(state) != _PUBLIC.size:
            raise WireError(f"Expected {_PUBLIC.size} bytes with the clip bound and the round, got {len(state)}.")
        clip_bound, released = _PUBLIC.unpack(state)
        return replace(self, gaussian=replace(self.gaussian, clip_bound=clip_bound), released=released, memory=())

    def remembering(self, own: Iterable[Randomness], parameters: int) -> Self:
        """Return the mechanism with the noise of all rounds so far in mind, drawn again round by round.

        Args:
            own: the server's randomness of each round that was released.
            parameters: of the model.
        """
        memory: Memory = ()
        strategy = _strategy_of(self.correlation)
        for place, each in zip(range(self.released), own, strict=True):
            memory = strategy.step(place, each.normal(parameters, "updates"), memory)[1]
        return replace(self, memory=memory)

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Return the clipped update."""
        return self.gaussian.on_client(work, randomness)

    def accepted(self, state: bytes, vector: Vector) -> Vector:
        """Return what the server adds of a client's vector: clipped, if the client did not."""
        return self.gaussian.accepted(self.with_state(state).gaussian.public_state(), vector)

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Add the noise and divide by the expected cohort."""
        self._refuse_more()
        if self.gaussian.noise_multiplier == 0.0:
            noise, memory = np.zeros(len(total)), self.memory
        else:
            fresh = randomness.normal(len(total), "updates")
            noise, memory = _strategy_of(self.correlation).step(self.released, fresh, self.memory)
        after = replace(self, released=self.released + 1, memory=memory)
        return Release(update=self.gaussian.noised(total, noise), train_loss=None, mechanism=after)

    def _refuse_more(self) -> None:
        if self.released >= self.correlation.rounds:
            raise ConfigError(
                f"The noise was made for {self.correlation.rounds} rounds, and {self.released} are done: more are not "
                "covered. Begin a new run, or plan more rounds (federate.rounds)."
            )


def _strategy_of(correlation: Correlation) -> Strategy:
    """Return the strategy; SciPy, which finds it, takes a second to import and most runs have no use for it."""
    from tacit.mechanisms.correlated.factorise import strategy_of

    return strategy_of(correlation)
