"""The plan of a mode: what joins a sampler, a mechanism and a protocol.

Mechanism (what differential privacy hides) and protocol (what encryption hides) are separate axes. A mode is a
choice of both, made in one place::

    plain    = WeightedMean x ClearSum
    dp       = GaussianMechanism x ClearSum, and with correlated noise CorrelatedMechanism x ClearSum
    local-dp = LocalGaussianMechanism x ClearSum
    paillier = BoundedMean x PaillierSum, and with differential privacy SkellamMechanism x PaillierSum
    dp-sgd   = WeightedMean x ClearSum, over clients that train with DP-SGD
    signds   = SignDS x SignSum
    nbafl    = NbAFL x ClearSum, and noise on the broadcast as an injector
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import Event, SampledEvent, Sampling
from tacit.accounting.ledger import Neighbours, Unit
from tacit.errors import ConfigError
from tacit.federated.examples import ExampleLevel
from tacit.flow import ClientId
from tacit.mechanisms.mechanism import Mechanism
from tacit.protocols.protocol import Guarantee, SumProtocol
from tacit.vectors import Vector

Name = Literal["fedavg", "fedavgm", "fedadam", "fedyogi"]
State = Mapping[str, Vector]
Injector = Callable[[Vector, int], Vector]  # model, round -> the model that is broadcast


class Sampler(Protocol):
    """Draws a cohort; the cost depends on the cohort, never on the population."""

    @property
    def expected(self) -> float:
        """The mean size of a cohort."""
        ...

    def cohort(self, round_number: int, generator: np.random.Generator) -> list[ClientId]:
        """Return the clients of a round, in ascending order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Everyone:
    """All clients, every round."""

    population: int

    @property
    def expected(self) -> float:
        """The mean size of a cohort."""
        return float(self.population)

    def cohort(self, round_number: int, generator: np.random.Generator) -> list[ClientId]:
        """Return all clients."""
        return list(range(self.population))


@dataclass(frozen=True, kw_only=True)
class Separated:
    """Client i in round i + 1 and every ``separation`` rounds after it: a schedule that nothing is secret about.

    Whoever knows its number knows its rounds, and can refuse to be asked in others.

    >>> schedule = Separated(population=7, separation=3)
    >>> [schedule.asked(round_number) for round_number in (1, 2, 3, 4)]
    [[0, 3, 6], [1, 4], [2, 5], [0, 3, 6]]
    """

    population: int
    separation: int

    def __post_init__(self) -> None:
        if not 1 <= self.separation <= self.population:
            raise ConfigError(
                f"Expected 1 <= federate.separation={self.separation} <= clients={self.population}: with more there "
                "would be rounds that nobody is in."
            )

    @property
    def expected(self) -> float:
        """The mean size of a cohort; where clients can't be shared out evenly, some have one more than others."""
        return self.population / self.separation

    def asked(self, round_number: int) -> list[ClientId]:
        """Return the clients of a round."""
        return list(range((round_number - 1) % self.separation, self.population, self.separation))

    def cohort(self, round_number: int, generator: np.random.Generator) -> list[ClientId]:
        """Return the clients of a round."""
        return self.asked(round_number)


@dataclass(frozen=True, kw_only=True)
class FixedSize:
    """A fixed number of clients, drawn without replacement."""

    population: int
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.population:
            raise ConfigError(f"Expected 1 <= per_round={self.size} <= clients={self.population}.")

    @property
    def expected(self) -> float:
        """The size of every cohort."""
        return float(self.size)

    def cohort(self, round_number: int, generator: np.random.Generator) -> list[ClientId]:
        """Return ``size`` clients, every set of them equally likely."""
        return sorted(generator.choice(self.population, self.size, replace=False, shuffle=False).tolist())


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Each client by its own coin with probability ``rate``: what amplification by sampling assumes.

    The size is drawn first, Binomial(population, rate), and then that many clients: the same law at a cost that
    depends on the cohort alone. A cohort may be empty.
    """

    population: int
    rate: float

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ConfigError(f"Expected a sampling rate in (0, 1], got {self.rate}.")

    @property
    def expected(self) -> float:
        """The mean size of a cohort, qN."""
        return self.rate * self.population

    def cohort(self, round_number: int, generator: np.random.Generator) -> list[ClientId]:
        """Return a cohort of random size."""
        size = int(generator.binomial(self.population, self.rate))
        return sorted(generator.choice(self.population, size, replace=False, shuffle=False).tolist())


@dataclass(frozen=True, kw_only=True)
class ServerOptimizer:
    r"""What the server does with the average update :math:`\Delta_t`: FedAvg and the adaptive optimisers.

    ===========  ==========================================================================================
    fedavg       :math:`w + \eta \Delta_t` (McMahan et al. 2017)
    fedavgm      :math:`v = \beta v + \Delta_t; \; w + \eta v` (Hsu et al. 2019)
    fedadam      :math:`w + \eta m / (\sqrt v + \tau)` with
                 :math:`m = \beta_1 m + (1-\beta_1) \Delta_t; \; v = \beta_2 v + (1-\beta_2) \Delta_t^2`
    fedyogi      as fedadam, :math:`v = v - (1-\beta_2) \Delta_t^2 \, \mathrm{sign}(v - \Delta_t^2)` (Reddi et al. 2021)
    ===========  ==========================================================================================

    A step is pure: the state goes in and comes out, and is what a checkpoint keeps. What is not trained, such as batch
    norm's running statistics, is averaged, whatever the optimiser: to go further than the mean, or to have momentum,
    would bring a variance below zero.
    """

    name: Name = "fedavg"
    lr: float = 1.0
    momentum: float = 0.9  # beta of fedavgm, beta_1 of the adaptive ones
    beta2: float = 0.99
    tau: float = 1e-3
    trained: int | None = None  # how many numbers train, the first of the vector; all if None

    def start(self, parameters: int) -> State:
        """Return the state before the first round."""
        match self.name:
            case "fedavg":
                return {}
            case "fedavgm":
                return {"momentum": np.zeros(parameters, np.float32)}
            case _:
                second = np.full(parameters, self.tau**2, np.float32)
                return {"momentum": np.zeros(parameters, np.float32), "second": second}

    def step(self, model: Vector, update: Vector, state: State) -> tuple[Vector, State]:
        """Return the new model and the new state.

        >>> plain = ServerOptimizer()
        >>> plain.step(np.zeros(1, np.float32), np.ones(1, np.float32), {})[0]
        array([1.], dtype=float32)
        """
        moved, kept = self._moved(model, update, state)
        if self.trained is not None:
            moved[self.trained :] = model[self.trained :] + update[self.trained :]
        return moved, kept

    def _moved(self, model: Vector, update: Vector, state: State) -> tuple[Vector, State]:
        if self.name == "fedavg":
            return _float32(model + self.lr * update), {}
        if self.name == "fedavgm":
            velocity = _float32(self.momentum * state["momentum"] + update)
            return _float32(model + self.lr * velocity), {"momentum": velocity}
        first = self.momentum * state["momentum"] + (1 - self.momentum) * update
        square = np.square(update)
        if self.name == "fedadam":
            second = self.beta2 * state["second"] + (1 - self.beta2) * square
        else:
            second = state["second"] - (1 - self.beta2) * square * np.sign(state["second"] - square)
        moved = model + self.lr * first / (np.sqrt(second) + self.tau)
        return _float32(moved), {"momentum": _float32(first), "second": _float32(second)}


def _float32(vector: NDArray[np.floating[Any]]) -> Vector:
    return vector.astype(np.float32, copy=False)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What came of a run's claim; every field is printed beside epsilon. A run that claims nothing has none of this."""

    epsilon: float  # infinite where a release had no noise or no clip; in JSON that is the word "infinite"
    delta: float
    unit: str  # what one neighbour differs in: a client or an example
    neighbours: str  # add-remove, replace-one or zero-out
    accountant: str
    against: str  # the adversary for whom epsilon holds
    notes: tuple[str, ...] = ()
    nominal_epsilon: float | None = None  # what a paper claims, where that is not what holds
    nominal_delta: float | None = None
    true_delta: float | None = None  # what its delta truly is at the nominal epsilon
    right_guesses: float | None = None  # how often the best guess is right where both answers are equally likely
    gaussian_mu: float | None = None  # of the Gaussian trade-off, where all that was released has one


NO_CLAIM = "No differential privacy is claimed: nothing bounds what the models tell about a client."


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a run promises: how its releases are charged, at which delta, against whom, and within which budget."""

    delta: float
    unit: Unit
    neighbours: Neighbours
    against: str
    rate: float = 1.0  # the share of clients in a round; 1 where all take part, or where amplification is not claimed
    sampling: Sampling = "poisson"
    max_epsilon: float | None = None
    cohorts_hidden: bool = False  # of a round's cohort only what was planned may be told: not its size, not who replied
    by_participation: bool = False  # each client is charged for the rounds it was asked in, which the server knows
    nominal: tuple[float, float] | None = None  # the epsilon and delta of a paper's claim
    infinite: str = "a release had no noise"  # why epsilon is infinite, where it is
    notes: tuple[str, ...] = ()

    @property
    def amplified(self) -> bool:
        """Whether epsilon is smaller because nobody knows who takes part: what tells of a cohort would break it."""
        return self.rate < 1.0

    def event(self, release: Event) -> Event:
        """Return what a round costs whose mechanism costs ``release``."""
        return release if self.rate >= 1.0 else SampledEvent(event=release, rate=self.rate, sampling=self.sampling)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a round needs to know, fixed before the first one."""

    mode: str
    sampler: Sampler
    mechanism: Mechanism
    protocol: SumProtocol
    optimizer: ServerOptimizer
    guarantee: Guarantee  # who sees what, mechanism and protocol together
    claim: Claim | None = None
    examples: ExampleLevel | None = None  # DP-SGD inside the clients
    example_claim: Claim | None = None  # what it promises, beside ``claim``
    injectors: tuple[Injector, ...] = ()

    @property
    def private(self) -> bool:
        """Whether the run claims differential privacy, for clients or for examples.

        Then a client answers whatever its data did to its training: that it could not would tell of them.
        """
        return self.claim is not None or self.examples is not None

    @property
    def cohorts_hidden(self) -> bool:
        """Whether of a round's cohort only what was planned may be told."""
        return self.claim is not None and self.claim.cohorts_hidden
