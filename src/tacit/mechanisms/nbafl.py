r"""NbAFL, noising before aggregation: clipped weights with noise on the way up, and more on the way down.

Wei et al., "Federated learning with differential privacy: algorithms and performance analysis", 2020. With C the clip
bound, m the smallest number of examples of a client, N clients, T rounds, L exposures of a client, and a constant c:

.. math:: \sigma_U = \frac{2 c L C}{m \varepsilon}, \qquad
    \sigma_D = \frac{2 c C \sqrt{T^2 - L^2 N}}{m N \varepsilon} \text{ where } T > L \sqrt N, \text{ else } 0.

The claim is :math:`(\varepsilon, \delta)` with :math:`c = \sqrt{2 \ln(1.25/\delta)}`. It rests on two things that do
not hold: the classical bound is proved for epsilon up to 1 only, and 2C/m is the sensitivity of an average over m
examples, which trained weights are not. Two data sets can give any two weights of norm C, so the sensitivity is 2C.
That is what :attr:`NbAFL.event` charges, and the claim stands beside it as nominal.

:class:`FederatedScopeNbAFL` is another algorithm: the one of FederatedScope's documentation, to the letter. Nothing is
clipped where the data are, so that no noise hides them: its epsilon is infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import Event, GaussianEvent
from tacit.accounting.profile import check_positive
from tacit.errors import ConfigError, RunError, SpoiledError
from tacit.grid import Grid, within
from tacit.mechanisms.mechanism import Release, Work
from tacit.mechanisms.weighted import WeightedMean, Weighting
from tacit.randomness import Randomness
from tacit.vectors import Vector, clipped, finite


def nominal_delta(constant: float) -> float:
    r"""Return the delta that goes with c, :math:`1.25 e^{-c^2/2}`.

    >>> [round(nominal_delta(c), 5) for c in (1, 2, 3)]
    [0.75816, 0.16917, 0.01389]
    """
    return 1.25 * math.exp(-constant * constant / 2.0)


@dataclass(frozen=True, kw_only=True)
class NbAFL:
    """Weights within the bound C, under each client's own noise.

    >>> round(
    ...     NbAFL(
    ...         clip_bound=1.0, epsilon=10.0, constant=3.0, rounds=25, clients=50, exposures=10, smallest=100
    ...     ).up,
    ...     12,
    ... )
    0.06
    """

    clip_bound: float  # C
    epsilon: float
    constant: float  # c
    rounds: int  # T
    clients: int  # N
    exposures: int  # L
    smallest: int  # m

    def __post_init__(self) -> None:
        _check(self, "rounds", "clients", "exposures", "smallest")
        if self.exposures > self.rounds:
            raise ConfigError(f"Expected exposures={self.exposures} <= rounds={self.rounds}.")

    @property
    def nominal(self) -> tuple[float, float]:
        """The epsilon and delta that the paper claims."""
        return self.epsilon, nominal_delta(self.constant)

    @property
    def up(self) -> float:
        """The standard deviation of a client's noise."""
        return 2.0 * self.constant * self.exposures * self.clip_bound / (self.smallest * self.epsilon)

    @property
    def down(self) -> float:
        """The standard deviation of the server's noise."""
        beyond = self.rounds**2 - self.exposures**2 * self.clients
        if beyond <= 0:
            return 0.0
        return 2.0 * self.constant * self.clip_bound * math.sqrt(beyond) / (self.smallest * self.clients * self.epsilon)

    @property
    def event(self) -> Event:
        """What a message costs: any two clipped weights may be 2C apart."""
        return GaussianEvent(noise_multiplier=self.up / self.clip_bound)

    @property
    def alone(self) -> Event:
        """What a message costs against whoever sees it: the same, as the noise up is the client's."""
        return self.event

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism: the weights are clipped as a whole."""
        return self

    def length(self, parameters: int) -> int:
        """Return one more than the model has, to count messages by."""
        return parameters + 1

    def public_state(self) -> bytes:
        """Return nothing: all numbers are settings."""
        return b""

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Return the clipped weights with noise, less the model that was sent, which everybody knows; and a one."""
        if work.sent is None:
            raise RunError("NbAFL clips weights, so a client needs the model it was sent beside its update.")
        weights, _ = clipped(work.sent + finite(work.update), within(self.clip_bound))
        grid = Grid.of(bound=self.clip_bound, size=len(weights))
        noise = grid.noise(randomness.normal(len(weights), "weights"), self.up)
        noisy = grid.rounded(weights.astype(np.float64)) + noise
        return np.append(noisy - work.sent, 1.0).astype(np.float32)

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Return the mean of the noisy weights, as a step from the model that was sent."""
        if float(total[-1]) != clients:
            raise SpoiledError(
                f"The sum of {clients} clients counts {float(total[-1]):g} messages: one of them did not count as one. "
                "Nothing was released."
            )
        update = (total[:-1] / clients).astype(np.float32)
        return Release(update=update, train_loss=None, mechanism=self)


@dataclass(frozen=True, kw_only=True)
class BroadcastNoise:
    """The server's noise on the model it sends; an injector, as users register them.

    The first model has seen nobody's data and is sent as it is.
    """

    deviation: float
    randomness: Randomness

    def __call__(self, model: Vector, round_number: int) -> Vector:
        """Return the model with noise."""
        if self.deviation == 0.0 or round_number == 1:
            return model
        noise = self.randomness.normal(len(model), "broadcast", round_number)
        return (model + self.deviation * noise).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class FederatedScopeNbAFL:
    r"""FederatedScope's NbAFL: noise on weights that nobody clipped, of which no epsilon holds.

    With n the client's own examples, T rounds, L clients per round of N, and m the fewest examples of a client:

    .. math:: \sigma_U = \frac{2 C T c}{n \varepsilon}, \qquad
        \sigma_D = \frac{2 C c \sqrt{T^2 - L^2 N}}{m N \varepsilon} \text{ where } T > L \sqrt N, \text{ else } 0.

    The server averages the noisy weights by examples and clips each *coordinate* to C before it sends them
    (:class:`FederatedScopeBroadcast`). A client's weights can be anything, so their sensitivity has no bound, and
    :attr:`event` charges a release without noise.
    """

    clip_bound: float  # C: of a coordinate, on the server
    epsilon: float
    constant: float  # c
    rounds: int  # T
    clients: int  # N
    per_round: int  # L
    smallest: int  # m
    weighting: Weighting = "examples"

    def __post_init__(self) -> None:
        _check(self, "rounds", "clients", "per_round", "smallest")

    @property
    def nominal(self) -> tuple[float, float]:
        """The epsilon and delta that the documentation claims."""
        return self.epsilon, nominal_delta(self.constant)

    def up(self, examples: int) -> float:
        """Return the standard deviation of the noise of a client that holds so many examples."""
        return self.clip_bound * self.rounds * 2 * self.constant / examples / self.epsilon

    @property
    def down(self) -> float:
        """The standard deviation of the server's noise."""
        if not self.rounds > math.sqrt(self.clients) * self.per_round:
            return 0.0
        beyond = math.sqrt(self.rounds**2 - self.per_round**2 * self.clients)
        return 2 * self.clip_bound * self.constant * beyond / (self.smallest * self.clients * self.epsilon)

    @property
    def event(self) -> Event:
        """What a message costs: no noise is large beside weights without a bound."""
        return GaussianEvent(noise_multiplier=0.0)

    @property
    def _mean(self) -> WeightedMean:
        return WeightedMean(weighting=self.weighting, losses=False)

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism: all numbers are treated alike."""
        return self

    def length(self, parameters: int) -> int:
        """Return the length of a weighted mean."""
        return self._mean.length(parameters)

    def public_state(self) -> bytes:
        """Return nothing: all numbers are settings."""
        return b""

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Return the weighted difference of the noisy weights and the model that was sent, and the weight."""
        if work.sent is None:
            raise RunError("NbAFL adds noise to weights, so a client needs the model it was sent beside its update.")
        noise = self.up(work.examples) * randomness.normal(len(work.update), "weights")
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows here the server refuses by name
            noisy = (work.sent + work.update) + noise.astype(np.float32)
            return self._mean.on_client(replace(work, update=noisy - work.sent), randomness)

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Return the weighted mean of the noisy weights, as a step from the model that was sent."""
        return replace(self._mean.on_server(total, randomness, clients=clients), mechanism=self)


@dataclass(frozen=True, kw_only=True)
class FederatedScopeBroadcast:
    """What FederatedScope's server does to a model before it sends it: a clip of each coordinate, then noise.

    The first model is treated like all others.

    >>> clip = FederatedScopeBroadcast(clip_bound=0.5, deviation=0.0, randomness=Randomness.of(seed=1))
    >>> clip(np.array([2.0, -0.25, -3.0], np.float32), 1)
    array([ 0.5 , -0.25, -0.5 ], dtype=float32)
    """

    clip_bound: float
    deviation: float
    randomness: Randomness

    def __call__(self, model: Vector, round_number: int) -> Vector:
        """Return the clipped model with noise."""
        clip = np.float32(self.clip_bound)
        with np.errstate(over="ignore"):  # a coordinate so large becomes zero, as it does there
            kept = (model / np.maximum(np.float32(1.0), np.abs(model) / clip)).astype(np.float32, copy=False)
        if self.deviation == 0.0:
            return kept
        noise = self.deviation * self.randomness.normal(len(model), "broadcast", round_number)
        return (kept + noise.astype(np.float32)).astype(np.float32, copy=False)


def _check(of: NbAFL | FederatedScopeNbAFL, *counts: str) -> None:
    check_positive("clip bound", of.clip_bound)
    check_positive("epsilon", of.epsilon)
    check_positive("constant", of.constant)
    for name in counts:
        if getattr(of, name) < 1:
            raise ConfigError(f"Expected {name} >= 1, got {getattr(of, name)}.")
