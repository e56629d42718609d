"""Who takes part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.errors import ConfigError
from tacit.flow import ClientId


class Sampler(Protocol):
    """Draws a cohort; the cost depends on the cohort, never on the population."""

    @property
    def expected(self) -> float:
        """The mean size of a cohort."""
        ...

    def cohort(self, generator: np.random.Generator) -> list[ClientId]:
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

    def cohort(self, generator: np.random.Generator) -> list[ClientId]:  # noqa: ARG002
        """Return all clients."""
        return list(range(self.population))


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

    def cohort(self, generator: np.random.Generator) -> list[ClientId]:
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

    def cohort(self, generator: np.random.Generator) -> list[ClientId]:
        """Return a cohort of random size."""
        size = int(generator.binomial(self.population, self.rate))
        return sorted(generator.choice(self.population, size, replace=False, shuffle=False).tolist())
