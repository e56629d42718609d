r"""NbAFL, noising before aggregation: clipped weights with noise on the way up, and more on the way down.

Wei et al., "Federated learning with differential privacy: algorithms and performance analysis", 2020. With C the clip
bound, m the smallest number of examples of a client, N clients, T rounds, L exposures of a client, and a constant c:

.. math:: \sigma_U = \frac{2 c L C}{m \varepsilon}, \qquad
    \sigma_D = \frac{2 c C \sqrt{T^2 - L^2 N}}{m N \varepsilon} \text{ where } T > L \sqrt N, \text{ else } 0.

The claim is :math:`(\varepsilon, \delta)` with :math:`c = \sqrt{2 \ln(1.25/\delta)}`. It rests on two things that do
not hold: the classical bound is proved for epsilon up to 1 only, and 2C/m is the sensitivity of an average over m
examples, which trained weights are not. Two data sets can give any two weights of norm C, so the sensitivity is 2C.
That is what :attr:`NbAFL.event` charges, and the claim stands beside it as nominal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import Event, GaussianEvent
from tacit.accounting.profile import check_positive
from tacit.errors import ConfigError, RunError, SpoiledError
from tacit.grid import Grid, within
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector, clipped, finite

Compat = Literal["paper", "federatedscope"]


def nominal_delta(constant: float) -> float:
    r"""Return the delta that goes with c, :math:`1.25 e^{-c^2/2}`.

    >>> [round(nominal_delta(c), 5) for c in (1, 2, 3)]
    [0.75816, 0.16917, 0.01389]
    """
    return 1.25 * math.exp(-constant * constant / 2.0)


@dataclass(frozen=True, kw_only=True)
class NbAFL:
    """Weights within the bound C, under each client's own noise.

    With ``compat="federatedscope"`` the scales are those of FederatedScope's code: up c T C / (n_i eps), n_i being the
    client's own examples, and down with the number of clients of a round in the place of L. The clip stays the paper's.

    >>> paper = NbAFL(
    ...     clip_bound=1.0, epsilon=10.0, constant=3.0, rounds=25, clients=50, per_round=50, exposures=10, smallest=100
    ... )
    >>> round(paper.up(examples=500), 12)
    0.06
    """

    clip_bound: float  # C
    epsilon: float
    constant: float  # c
    rounds: int  # T
    clients: int  # N
    per_round: int
    exposures: int  # L
    smallest: int  # m
    largest: int | None = None  # the most examples that count, by which noise falls in FederatedScope's way
    compat: Compat = "paper"

    def __post_init__(self) -> None:
        check_positive("clip bound", self.clip_bound)
        check_positive("epsilon", self.epsilon)
        check_positive("constant", self.constant)
        for name in ("rounds", "clients", "per_round", "exposures", "smallest"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Expected {name} >= 1, got {getattr(self, name)}.")
        if self.exposures > self.rounds:
            raise ConfigError(f"Expected exposures={self.exposures} <= rounds={self.rounds}.")

    @property
    def nominal(self) -> tuple[float, float]:
        """The epsilon and delta that the paper claims."""
        return self.epsilon, nominal_delta(self.constant)

    def up(self, examples: int) -> float:
        """Return the standard deviation of a client's noise.

        In FederatedScope's way it falls with the client's examples, and is charged by the largest client's. So a client
        counts no more than ``largest`` of its own: a number that was set too low costs noise, never the guarantee.
        """
        if self.compat == "paper":
            return 2.0 * self.constant * self.exposures * self.clip_bound / (self.smallest * self.epsilon)
        return self.constant * self.rounds * self.clip_bound / (min(examples, self._most) * self.epsilon)

    @property
    def _most(self) -> int:
        return self.largest or self.smallest

    @property
    def down(self) -> float:
        """The standard deviation of the server's noise."""
        exposures = self.exposures if self.compat == "paper" else self.per_round
        beyond = self.rounds**2 - exposures**2 * self.clients
        if beyond <= 0:
            return 0.0
        return 2.0 * self.constant * self.clip_bound * math.sqrt(beyond) / (self.smallest * self.clients * self.epsilon)

    @property
    def event(self) -> Event:
        """What a message costs: any two clipped weights may be 2C apart."""
        return GaussianEvent(noise_multiplier=self.up(self._most) / self.clip_bound)

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
        noise = grid.noise(randomness.normal(len(weights), "weights"), self.up(work.examples))
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
