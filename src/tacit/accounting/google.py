"""Google's dp-accounting: the reference PLD accountant, and Rényi accounting.

Both are imported where they are used, because the package takes a second to load. Noise multipliers there are relative
to the sensitivity under the relation at hand for Rényi accounting, and to one contribution for PLD.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tacit.accounting.ledger import Tally
from tacit.errors import ConfigError


def pld(tally: Tally, delta: float) -> float:
    """Return dp-accounting's pessimistic PLD estimate, on its grid of 1e-4."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as distributions

    replace = tally.neighbours == "replace-one"
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    total = distributions.identity()
    if tally.mu > 0.0:
        total = total.compose(distributions.from_gaussian_mechanism(1.0 / tally.mu))
    for group in tally.poisson:
        one = distributions.from_gaussian_mechanism(
            group.noise_multiplier, sampling_prob=group.rate, neighboring_relation=relation
        )
        total = total.compose(one.self_compose(group.count))
    for epsilon, count in tally.unmixed:
        one = distributions.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, 0.0))
        total = total.compose(one.self_compose(count))
    return max(0.0, float(total.get_epsilon_for_delta(delta)))


def rdp(tally: Tally, delta: float) -> float:
    """Return epsilon by Rényi differential privacy (Mironov 2017; Mironov, Talwar & Zhang 2019).

    The one accountant here that knows sets of fixed size without replacement, under replace-one (Wang, Balle &
    Kasiviswanathan 2019) and, as its special case, zero-out. Under add-remove, and beside Poisson samples, they are
    charged in full. An epsilon-DP release is ``epsilon^2/2``-zCDP (Bun & Steinke 2016). Poisson sampling under
    replace-one is refused: there is no Rényi bound for it here.
    """
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.rdp import RdpAccountant

    replace = tally.neighbours == "replace-one"
    if replace and tally.poisson:
        raise ConfigError("Rényi accounting of Poisson samples knows add-remove and zero-out. Use pld for replace-one.")
    amplified = () if tally.neighbours == "add-remove" or tally.poisson else tally.fixed
    relation = NeighboringRelation.REPLACE_ONE if amplified else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=relation)
    mu = tally.without_fixed().mu if amplified else tally.mu
    releases: list[tuple[Any, int]] = []
    if mu > 0.0:
        releases.append((dp_event.GaussianDpEvent(1.0 / mu), 1))
    for group in amplified:
        one = dp_event.SampledWithoutReplacementDpEvent(
            # Only the share of the set matters to the bound, so the source is taken as one.
            source_dataset_size=1,
            sample_size=group.rate,
            event=dp_event.GaussianDpEvent(group.noise_multiplier / 2.0),
        )
        releases.append((one, group.count))
    for group in tally.poisson:
        one = dp_event.PoissonSampledDpEvent(group.rate, dp_event.GaussianDpEvent(group.noise_multiplier))
        releases.append((one, group.count))
    for epsilon, count in tally.unmixed:
        releases.append((dp_event.ZCDpEvent(rho=epsilon * epsilon / 2.0), count))
    with _quietly():
        for event, count in releases:
            accountant.compose(event, count)
        return float(accountant.get_epsilon(delta))


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep dp-accounting from telling people which of its many orders it leaves out; the others give the bound."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
