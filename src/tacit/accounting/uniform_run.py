"""The ledger of a run in which every round is alike."""

from __future__ import annotations

from tacit.accounting.events import SAMPLINGS, GaussianEvent, RepeatedEvent, SampledEvent, Sampling
from tacit.accounting.ledger import Ledger, Neighbours
from tacit.errors import ConfigError

_USUAL: dict[Sampling, Neighbours] = {"poisson": "add-remove", "fixed": "replace-one", "shuffle": "zero-out"}


def uniform_run(
    *,
    noise_multiplier: float,
    rounds: int = 1,
    rate: float = 1.0,
    sampling: Sampling = "poisson",
    neighbours: Neighbours | None = None,
) -> Ledger:
    """Return the ledger of ``rounds`` equal rounds.

    Without ``neighbours`` the relation is add-remove, except for sets of fixed size, where one unit comes in only where
    another leaves (replace-one), and for shuffled passes, where one unit more moves others to other batches (zero-out).
    """
    if rounds < 1:
        raise ConfigError(f"Expected 1 round or more, got rounds={rounds}.")
    if sampling not in SAMPLINGS:
        raise ConfigError(f"Unknown sampling {sampling!r}. Choose one of {', '.join(SAMPLINGS)}.")
    if neighbours is None:
        neighbours = _USUAL[sampling]
    release = SampledEvent(
        event=GaussianEvent(noise_multiplier=noise_multiplier),
        rate=rate,
        sampling=sampling,
    )
    event = RepeatedEvent(event=release, count=rounds)
    return Ledger(neighbours=neighbours).charged(event, round_number=1)
