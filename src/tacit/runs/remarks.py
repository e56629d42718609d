"""What has to be said beside an epsilon so that nobody takes it for more than it is."""

from __future__ import annotations

import math

from tacit.accounting import accountant, profile
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.ledger import Ledger, RunningLedger, Tally
from tacit.accounting.risk import Risk
from tacit.federated.plan import Claim, Privacy

# An epsilon of 20 lets the odds of any guess about a client change by a factor of 485 million. Whether 5 or 10 is a
# guarantee may be argued; beyond this it is not.
LARGEST_MEANINGFUL = 20.0

ON_SECONDS = "Seconds are measured, and no noise protects them."
ON_COHORTS = "Sizes and bytes are those of the expected cohort; true ones, and who replied, are told nowhere."
ON_TRAINING = "The accuracy on the training data is exact, and no noise protects it."
ON_CHOICE = (
    "Each epsilon is that of one run alone. To choose one by its result, or to publish several, costs more than any of "
    "them: all saw the same data."
)


def risk_of(privacy: Privacy) -> Risk:
    """Return what a claim means as a risk: by all that was released where the claim says so, or by its epsilon."""
    pair = Risk.of_pair(epsilon=privacy.epsilon, delta=privacy.delta)
    guesses = pair.right_guesses if privacy.right_guesses is None else privacy.right_guesses
    return Risk(epsilon=privacy.epsilon, delta=privacy.delta, right_guesses=guesses, mu=privacy.gaussian_mu)


def no_guarantee(epsilon: float, because: str = Claim.infinite) -> str | None:
    """Return the plain word on an epsilon that promises nothing; ``because`` says why it is infinite, if it is.

    >>> no_guarantee(63000.0)
    'This is no guarantee: at epsilon 6.3e+04 the odds of a guess about a client may change by e^63000.'
    """
    if epsilon == math.inf:
        return f"There is no guarantee: epsilon is infinite, because {because}."
    if epsilon <= LARGEST_MEANINGFUL:
        return None
    return (
        f"This is no guarantee: at epsilon {epsilon:.4g} the odds of a guess about a client may change by "
        f"e^{epsilon:.0f}."
    )


def on_charges(running: RunningLedger) -> str | None:
    """Return how often the most charged client was charged, where clients are charged by their participations."""
    if not running.by_client:
        return None
    return (
        f"Epsilon is that of the client that was asked most often, {running.most_charges} of {running.charges} "
        "times; one that was asked less often spent less."
    )


def on_composition(ledger: Ledger, answer: PrivacyCost) -> str | None:
    """Return what basic and advanced composition give, for releases that are known by their epsilon alone."""
    tallies = [Tally.of(own) for own in ledger.of_clients()]
    if not any(part.unmixed for part in tallies) or any(part.mu or part.poisson or part.skellam for part in tallies):
        return None
    basic, advanced = (
        accountant.epsilon(ledger, answer.delta, accountant=name).epsilon for name in ("basic", "advanced")
    )
    return f"Basic composition gives {basic:.6g}, advanced {advanced:.6g}; the smallest that is proved is taken."


def true_delta(ledger: Ledger, epsilon: float) -> float | None:
    """Return delta at ``epsilon``, for Gaussian releases without sampling: exact, of the most charged client."""
    found = []
    for own in ledger.of_clients():
        tally = Tally.of(own)
        if tally.poisson or tally.unmixed or tally.skellam:
            return None
        found.append(1.0 if math.isinf(tally.mu) else profile.delta_at(epsilon, tally.mu) if tally.mu else 0.0)
    return max(found)


def on_nominal(nominal: tuple[float, float], delta: float | None, answer: PrivacyCost) -> str:
    """Return the nominal claim and the certified one side by side."""
    claimed = f"Nominal claim: epsilon {nominal[0]:g} at delta {nominal[1]:.3g}."
    truth = "" if delta is None else f" At epsilon {nominal[0]:g} the true delta is {delta:.4g}."
    certified = "no epsilon" if math.isinf(answer.epsilon) else f"epsilon {answer.epsilon:.6g}"
    return f"{claimed} Certified: {certified} at delta {answer.delta:g}.{truth}"
