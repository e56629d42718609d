"""The epsilon of a ledger, by the tightest accountant that is proved for what it holds.

- Everyone contributes to every release: exact, no bound is lost (``profile.py``).
- Poisson samples, pure releases, shuffled reports, and mixtures: privacy loss distributions (``pld/``), or Rényi
  moments (``renyi.py``) where those are the smaller bound.
- Pure releases alone: basic and advanced composition too, and the smallest of the three.
- Shuffled passes: nothing better than one full release per pass is proved and tight. Under zero-out a shuffled epoch of
  100 batches at noise 1 truly costs between 4.06 and 4.38 at delta = 1e-5, where the Poisson value would claim 0.72.
- Skellam noise, alone or beside releases without sampling: its Rényi bound.
- Sets of fixed size: Rényi bounds with their own amplification under replace-one and zero-out, full price under
  add-remove.

Every value that is reported is held against lower bounds of the same ledger (``guard.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tacit.accounting import guard
from tacit.accounting.events import to_json
from tacit.accounting.ledger import Ledger, Neighbours, Tally, Unit
from tacit.errors import ConfigError

Name = Literal["exact-gaussian", "pld", "pld-google", "rdp", "rdp-skellam", "renyi", "basic", "advanced"]
NAMES: tuple[Name, ...] = get_args(Name)
_WORTHWHILE = 1e-3  # the share of epsilon that a distribution has to be able to save before one is computed


@dataclass(frozen=True, kw_only=True)
class PrivacyCost:
    """An epsilon with all that it needs to mean something.

    Attributes:
        epsilon: an upper bound on the privacy loss, composed over everything in the ledger; may be infinite.
        delta: the probability the bound may fail with.
        accountant: how it was computed.
        neighbours: the relation it holds for.
        sampling: how data were chosen.
        unit: whose presence it hides.
    """

    epsilon: float
    delta: float
    accountant: Name
    neighbours: Neighbours
    sampling: str
    unit: Unit

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite epsilon is the word "infinite"."""
        return asdict(self) | {"epsilon": to_json(self.epsilon)}


def epsilon(ledger: Ledger, delta: float, *, accountant: Name | None = None) -> PrivacyCost:
    """Return what a ledger costs at ``delta``.

    Args:
        ledger: what was released. An empty one costs nothing, one release without noise costs infinity. Where it
            says whose data were in a release, the answer is that of the client that lost most.
        delta: strictly between 0 and 1.
        accountant: the accountant to use; the tightest that applies if None.

    Raises:
        ConfigError: delta is out of range, or the accountant does not apply to what the ledger holds.
        AccountingError: the value that was found is less than the ledger certainly costs.
    """
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"Expected a delta strictly between 0 and 1, got {delta}.")
    if accountant is not None and accountant not in NAMES:
        raise ConfigError(f"Unknown accountant {accountant!r}. Choose one of {', '.join(NAMES)}.")
    tallies = [Tally.of(own) for own in ledger.of_clients()]
    cost = _largest(ledger, tallies, delta, accountant)
    guard.check(tallies, delta, cost.epsilon, cost.accountant)
    return cost


def estimate(ledger: Ledger, delta: float, *, accountant: Name | None = None) -> PrivacyCost:
    """Return what :func:`epsilon` does, unguarded: for a search, whose last value is asked for again."""
    return _largest(ledger, [Tally.of(own) for own in ledger.of_clients()], delta, accountant)


def _largest(ledger: Ledger, tallies: Sequence[Tally], delta: float, accountant: Name | None) -> PrivacyCost:
    """Return what the client with most to lose has lost."""

    def one(tally: Tally) -> PrivacyCost:
        value, name = (
            _tightest(tally, delta) if accountant is None else (_account(accountant, tally, delta), accountant)
        )
        return PrivacyCost(
            epsilon=value,
            delta=delta,
            accountant=name,
            neighbours=ledger.neighbours,
            sampling=tally.sampling,
            unit=ledger.unit,
        )

    return max(map(one, tallies), key=lambda cost: cost.epsilon)


def _tightest(tally: Tally, delta: float) -> tuple[float, Name]:
    candidates: list[Name]
    if tally.skellam:
        candidates = ["rdp-skellam"]
    elif not tally.poisson and not tally.unmixed:
        candidates = ["exact-gaussian"]
        if tally.fixed and tally.neighbours != "add-remove":
            candidates.append("rdp")
    elif not tally.poisson and tally.mu == 0.0:
        from tacit.accounting.composition import savings

        candidates = ["basic", "advanced"]
        if savings(tally, delta) > _WORTHWHILE:
            candidates.append("pld")
    else:
        candidates = ["pld", "renyi"] if tally.poisson else ["pld"]
    found: list[tuple[float, Name]] = [(_account(name, tally, delta), name) for name in candidates]
    return min(found, key=lambda each: each[0])


def _account(name: Name, tally: Tally, delta: float) -> float:
    if tally.skellam and name != "rdp-skellam":
        raise ConfigError(f"The accountant {name} knows no Skellam noise, and this ledger has some. Use rdp-skellam.")
    if tally.hopeless:
        return math.inf
    if tally.mu == 0.0 and not tally.poisson and not tally.unmixed and not tally.skellam:
        return 0.0
    return _function(name)(tally, delta)


def _exact_gaussian(tally: Tally, delta: float) -> float:
    if tally.poisson or tally.unmixed:
        raise ConfigError(
            "The exact Gaussian accountant needs Gaussian releases without Poisson sampling. Use pld for this ledger."
        )
    from tacit.accounting import profile

    return profile.epsilon_at(delta=delta, mu=tally.mu)


def _function(name: Name) -> Callable[[Tally, float], float]:
    """Return an accountant; the modules that load NumPy or dp-accounting are imported only when chosen."""
    if name == "exact-gaussian":
        return _exact_gaussian
    if name == "pld":
        from tacit.accounting.pld import pessimistic

        return pessimistic.epsilon
    if name in ("basic", "advanced"):
        from tacit.accounting import composition

        return composition.basic if name == "basic" else composition.advanced
    if name in ("renyi", "rdp-skellam"):
        from tacit.accounting import renyi

        return renyi.sampled_epsilon if name == "renyi" else renyi.skellam_epsilon
    from tacit.accounting import google

    return google.pld if name == "pld-google" else google.rdp
