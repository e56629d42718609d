"""SignDS: a client names a few coordinates and one direction for all of them; no value leaves it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import ComposedEvent, Event, PureEvent, ShuffledEvent
from tacit.errors import ConfigError, WireError
from tacit.mechanisms import selection
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.mechanism import Release, Work
from tacit.mechanisms.selection import Selection
from tacit.randomness import Randomness
from tacit.vectors import Vector, finite

_PLAN = struct.Struct(">II")
_EXTRA = 2  # the bit, and one for the count of reports
LEAST_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class SignDS:
    r"""Each client names h coordinates by the exponential mechanism, under a sign drawn by a fair coin.

    With J the set (:mod:`tacit.mechanisms.selection`) and s the sign, the server moves the model by
    :math:`\frac{lr}{N} \sum_i s_i [j \in J_i]` at each coordinate j; all clients count the same. The sign does not
    depend on data and is free; a report costs ``epsilon`` for the set and, where the magnitude is estimated, the
    epsilon of its randomized response (Jiang, Zhou & Grossklags 2022; MagRR after MindSpore Federated).

    Where fewer than ``least_share`` of the population take part in a round, lr is ``fixed_step``. Where that is so by
    plan, or ``magnitude`` is None, the bit is always 0, says nothing and costs nothing.
    """

    share: float  # sign_k
    epsilon: float  # sign_eps
    ratio: float  # sign_thr_ratio
    fixed_step: float  # sign_global_lr
    population: int
    expected_clients: float
    magnitude: MagnitudeEstimate | None
    chosen: int = 0  # h: sign_dim_out, or what the server found; 0 where each side finds it
    threshold: int = 0  # nu, likewise
    most: int | None = None  # h_max
    least_share: float = LEAST_SHARE
    shuffled: int | None = None  # the fewest reports that a trusted shuffler mixes

    def __post_init__(self) -> None:
        if not self.fixed_step > 0.0 or not np.isfinite(self.fixed_step):
            raise ConfigError(f"sign_global_lr={self.fixed_step} is outside its domain: expected a number in (0, ...).")
        if not 0.0 <= self.least_share <= 1.0:
            raise ConfigError(f"Expected least_share={self.least_share} in [0, 1].")
        if not 0.0 < self.expected_clients <= self.population:
            raise ConfigError(f"Expected 0 < expected_clients={self.expected_clients} <= {self.population}.")

    @property
    def estimates(self) -> bool:
        """Whether the clients' bits say anything."""
        return self.magnitude is not None and self.expected_clients / self.population >= self.least_share

    @property
    def epsilon_per_report(self) -> float:
        """What one report costs its client: the set, and the bit where it says something."""
        return self.epsilon + (self.magnitude.response.epsilon if self.magnitude and self.estimates else 0.0)

    @property
    def event(self) -> Event:
        """What a report costs its client."""
        if self.shuffled is not None:
            return ShuffledEvent(epsilon=self.epsilon_per_report, reports=self.shuffled)
        return self.alone

    @property
    def alone(self) -> Event:
        """What a report costs against whoever sees whose it is, as without a shuffler."""
        named = PureEvent(epsilon=self.epsilon)
        if self.magnitude is None or not self.estimates:
            return named
        return ComposedEvent(events=(named, PureEvent(epsilon=self.magnitude.response.epsilon)))

    def selection(self, parameters: int) -> Selection:
        """Return how a client of a model of this size chooses: as the server said, or else computed once and kept."""
        if self.chosen and self.threshold:
            return Selection(
                dimensions=parameters,
                largest=int(self.share * parameters),
                chosen=self.chosen,
                threshold=self.threshold,
                epsilon=self.epsilon,
            )
        return selection.plan(
            dimensions=parameters,
            share=self.share,
            epsilon=self.epsilon,
            ratio=self.ratio,
            chosen=self.chosen,
            most=self.most,
        )

    def named(self, parameters: int) -> int:
        """Return how many coordinates a report names: public, and the same for all."""
        return self.selection(parameters).chosen

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism with its plan for the model, which travels with the task.

        A client need not come to the same h as the server, which rests on the last bits of doubles: it is told.
        """
        found = self.selection(sum(layers))
        return replace(self, chosen=found.chosen, threshold=found.threshold)

    def length(self, parameters: int) -> int:
        """Return two more than the model has: the bit, and a one to count reports by."""
        return parameters + _EXTRA

    def public_state(self) -> bytes:
        """Return how many coordinates to name, their threshold, and the magnitude's estimate of the round."""
        return _PLAN.pack(self.chosen, self.threshold) + (self.magnitude.state() if self.magnitude else b"")

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism with the plan and estimate of the round; whatever they are, a report costs the same."""
        if len(state) < _PLAN.size:
            raise WireError(f"Expected at least {_PLAN.size} bytes with the plan, got {len(state)}.")
        (chosen, threshold), estimate = _PLAN.unpack_from(state), state[_PLAN.size :]
        if self.magnitude is None and estimate:
            raise WireError(f"Expected no estimate with a fixed step, got {len(estimate)} bytes.")
        magnitude = self.magnitude and self.magnitude.with_state(estimate)
        return replace(self, chosen=chosen, threshold=threshold, magnitude=magnitude)

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Return the sign at the named coordinates and zero elsewhere, the perturbed bit, and a one."""
        update = finite(work.update)  # the largest of numbers that are not finite mean nothing
        chooser = self.selection(len(update))
        sign = 1 if randomness.integers(2, 1, "sign")[0] else -1
        largest, others = chooser.split(update, sign)
        vector = np.zeros(self.length(len(update)), np.float32)
        vector[chooser.draw(largest, others, randomness)] = sign
        if self.magnitude is not None and self.estimates:
            magnitude = abs(float(update[largest].mean(dtype=np.float64)))
            flipped = randomness.chance(self.magnitude.response.flip, "bit")
            vector[-2] = (magnitude < self.magnitude.bound) ^ flipped
        vector[-1] = 1.0
        return vector

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Turn votes into a step, and the answers into the next estimate."""
        reports = round(float(total[-1]))
        step, following = self.fixed_step, self
        if self.magnitude is not None and self.estimates and reports >= self.least_share * self.population:
            step = self.magnitude.step(reports)
            ones = round(float(total[-2]))
            following = replace(self, magnitude=self.magnitude.after(ones=ones, reports=reports))
        update = (total[:-_EXTRA] * (step / reports)).astype(np.float32)
        return Release(update=update, train_loss=None, mechanism=following)
