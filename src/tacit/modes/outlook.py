r"""Whether a run can see its signal through its noise: said before it begins, not after.

The longest sum that m clients can give, all pointing one way, is m clip bounds long. Noise of multiplier z on each of d
coordinates is about :math:`z \sqrt d` clip bounds long. Over T rounds signal adds up as T and noise as
:math:`\sqrt T`, so the run as a whole has the ratio :math:`\sqrt T\, m / (z \sqrt d)`. Under a budget z grows as
:math:`\sqrt T`: more rounds change it little, more clients and fewer parameters do.

>>> from tacit.mechanisms.gaussian import GaussianMechanism
>>> few = GaussianMechanism(clip_bound=0.5, noise_multiplier=1.9, expected_clients=3)
>>> round(ratio(few, parameters=21_840, rounds=10), 3)
0.034
"""

from __future__ import annotations

import math

from tacit.accounting import accountant
from tacit.accounting.uniform_run import uniform_run
from tacit.config.resolved import Resolved
from tacit.errors import TacitError
from tacit.federated.examples import ExamplePlan
from tacit.federated.plan import Plan
from tacit.mechanisms.gaussian import GaussianMechanism, LocalGaussianMechanism
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes import images

# Ten clients of the CNN at epsilon 8 (0.11) end at chance, a thousand of a linear model in mode local-dp (0.19) at 74%.
DROWNED = 0.15
_ENOUGH = 0.6  # where models that were tried learn
_FEW = 50  # clients under whom epsilon for a client costs most of what there is to learn
_SMALLEST = 10  # parameters of a model that is worth proposing


def ratio(mechanism: Mechanism, *, parameters: int, rounds: int) -> float | None:
    """Return how long a run's signal can be against its noise; None where noise is not what hides."""
    if isinstance(mechanism, GaussianMechanism):
        relative = mechanism.update_noise / mechanism.expected_clients
    elif isinstance(mechanism, LocalGaussianMechanism):
        relative = mechanism.noise_multiplier / math.sqrt(mechanism.expected_clients)
    elif isinstance(mechanism, SkellamMechanism):
        honest = mechanism.smallest_cohort - mechanism.colluding  # whose noise is all of it; the others add theirs
        relative = mechanism.noise_multiplier * math.sqrt(1.0 / (honest * mechanism.expected_clients))
    else:
        return None
    return math.sqrt(rounds) / (relative * math.sqrt(parameters)) if relative else math.inf


def examples_ratio(examples: ExamplePlan, *, parameters: int, rounds: int) -> float:
    """Return the same for clients that train with DP-SGD: a step's signal is a batch of clipped gradients."""
    clients, z = len(examples.batches), examples.noise_multiplier
    steps, batch = sum(examples.steps) / clients * rounds, sum(examples.batches) / clients
    return math.sqrt(steps * clients / parameters) * batch / z if z else math.inf


def warning(plan: Plan, config: Resolved, *, parameters: int, examples: ExamplePlan | None = None) -> str | None:
    """Return what to know and do before a run whose noise drowns its signal; None where it does not."""
    rounds = config.federate.rounds
    found = ratio(plan.mechanism, parameters=parameters, rounds=rounds)
    if examples is not None:
        found = min(found or math.inf, examples_ratio(examples, parameters=parameters, rounds=rounds))
    if found is None or found >= DROWNED:
        return None
    more = _ENOUGH / found
    central = not isinstance(plan.mechanism, LocalGaussianMechanism)
    helps = []
    if examples is None:
        helps.append(f"{_people(more if central else more**2)} times as many clients with as many examples each")
    if (most := _rounded(parameters / more**2)) >= _SMALLEST:
        helps.append(f"a model of at most {most:,} parameters")
    if (budget := _epsilon(plan, rounds, more)) is not None:
        helps.append(f"epsilon {budget:.3g}")
    if examples is None and config.federate.clients is not None and config.federate.clients < _FEW:
        helps.append("--mode dp-sgd, which protects single examples in the place of clients")
    if config.data.name in images.SETS and config.data.features == "none" and config.data.split != "given":
        helps.append("features before noise (leave model and features out, and the mode chooses them)")
    return (
        f"The noise of this run is {_people(1.0 / found)} times as long as all that its clients can add together, so "
        "expect far less than without noise, perhaps no more than chance. "
        f"What would help, each by itself: {'; '.join(helps)}."
    )


def _epsilon(plan: Plan, rounds: int, more: float) -> float | None:
    """Return the budget that noise smaller by ``more`` would cost."""
    claim, mechanism = plan.claim, plan.mechanism
    if claim is None or not isinstance(mechanism, GaussianMechanism | LocalGaussianMechanism):
        return None
    try:
        ledger = uniform_run(
            noise_multiplier=mechanism.noise_multiplier / more,
            rounds=rounds,
            rate=claim.rate,
            sampling=claim.sampling,
            neighbours=claim.neighbours,
        )
        cost = accountant.epsilon(ledger, claim.delta).epsilon
    except TacitError:
        return None
    return cost if cost < 1e4 else None


def _people(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _rounded(value: float) -> int:
    """Return a number in two digits, from below."""
    unit = int(10 ** max(0, len(str(int(value))) - 2))
    return int(value) // unit * unit
