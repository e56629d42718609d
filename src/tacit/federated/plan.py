"""The plan of a mode: what joins a sampler, a mechanism and a protocol.

Mechanism (what differential privacy hides) and protocol (what encryption hides) are separate axes. A mode is a
choice of both, made in one place::

    plain    = WeightedMean x ClearSum
    dp       = GaussianMechanism x ClearSum
    local-dp = LocalGaussianMechanism x ClearSum
    paillier = BoundedMean x PaillierSum, and with differential privacy SkellamMechanism x PaillierSum
    dp-sgd   = WeightedMean x ClearSum, over clients that train with DP-SGD
    signds   = SignDS x SignSum
    nbafl    = NbAFL x ClearSum, and noise on the broadcast as an injector
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.accounting.events import Event, SampledEvent, Sampling
from tacit.accounting.ledger import Neighbours, Unit
from tacit.federated.examples import ExampleLevel
from tacit.federated.sampling import Sampler
from tacit.federated.server import ServerOptimizer
from tacit.mechanisms.mechanism import Mechanism
from tacit.protocols.protocol import Guarantee, SumProtocol
from tacit.vectors import Vector

Injector = Callable[[Vector, int], Vector]  # model, round -> the model that is broadcast


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What came of a run's claim, or that it makes none; every field is printed beside epsilon."""

    epsilon: float | None
    delta: float | None
    unit: str | None  # what one neighbour differs in: a client or an example
    neighbours: str | None  # add-remove, replace-one or zero-out
    accountant: str | None
    against: str | None  # the adversary for whom epsilon holds
    notes: tuple[str, ...] = ()
    nominal_epsilon: float | None = None  # what a paper claims, where that is not what holds
    nominal_delta: float | None = None
    true_delta: float | None = None  # what its delta truly is at the nominal epsilon


NO_CLAIM = Privacy(
    epsilon=None,
    delta=None,
    unit=None,
    neighbours=None,
    accountant=None,
    against=None,
    notes=("No differential privacy is claimed: nothing bounds what the models tell about a client.",),
)


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
