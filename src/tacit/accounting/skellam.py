"""The smallest Skellam noise that keeps a whole run within a budget."""

from __future__ import annotations

import math

from tacit.accounting import accountant as accounting
from tacit.accounting import profile
from tacit.accounting.calibration import Calibrated
from tacit.accounting.events import RepeatedEvent, SkellamEvent
from tacit.accounting.ledger import Ledger, Neighbours
from tacit.accounting.roots import first_at_most_zero
from tacit.errors import ConfigError

_TOLERANCE = 1e-9  # relative, of the noise multiplier


def calibrate_skellam(
    *, epsilon: float, delta: float, rounds: int = 1, sensitivity: float, neighbours: Neighbours = "zero-out"
) -> Calibrated:
    """Return the smallest noise multiplier whose run costs at most ``epsilon``, a billionth above.

    Everyone is charged for every round: no amplification by sampling is claimed. The model need not be known, see
    :class:`~tacit.accounting.events.SkellamEvent`.

    Args:
        epsilon: the budget of the whole run.
        delta: strictly between 0 and 1.
        rounds: how many rounds.
        sensitivity: the norm of a client's integers before they are rounded, or anything below.
        neighbours: the relation. Under zero-out a client sends its share of the noise and no update; where the noise
            comes from the clients, add-remove is not a relation that this noise holds for.

    >>> found = calibrate_skellam(epsilon=8.0, delta=1e-5, rounds=100, sensitivity=2.0**14)
    >>> round(found.noise_multiplier, 4), round(found.answer.epsilon, 6), found.answer.accountant
    (6.3809, 8.0, 'rdp-skellam')
    """
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"Expected an epsilon above 0, got {epsilon}.")
    profile.check_delta(delta)
    if rounds < 1:
        raise ConfigError(f"Expected 1 round or more, got rounds={rounds}.")

    def ledger(noise: float) -> Ledger:
        event = RepeatedEvent(event=SkellamEvent(noise_multiplier=noise, sensitivity=sensitivity), count=rounds)
        return Ledger(neighbours=neighbours).charged(event, round_number=1)

    def excess(noise: float) -> float:
        return accounting.estimate(ledger(noise), delta).epsilon - epsilon

    # What Gaussian noise would need, by its exact cost, is a good first guess, and a little too small.
    low = math.sqrt(rounds) / profile.largest_mu(epsilon=epsilon, delta=delta)
    while excess(low) <= 0.0:
        low /= 2.0
    high = 2.0 * low
    while excess(high) > 0.0:
        low, high = high, 2.0 * high
    noise = first_at_most_zero(excess, low, high, relative=_TOLERANCE)
    return Calibrated(noise_multiplier=noise, answer=accounting.epsilon(ledger(noise), delta))
