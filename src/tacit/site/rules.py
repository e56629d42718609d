"""The rules of a contract, held against what a run's frames say, before anything is computed.

Each function raises a :class:`~tacit.parties.refusals.RefusalError` whose words, for the site's own log, name the rule,
what it says and what the run says; the server learns a code.
"""

from __future__ import annotations

import math

from tacit import wire
from tacit.config.resolved import Resolved
from tacit.errors import RunError
from tacit.federated.examples import ExamplePlan
from tacit.federated.plan import Plan
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.mechanisms.mechanism import Mechanism
from tacit.modes.catalogue import mode_of
from tacit.parties.refusals import RefusalError
from tacit.protocols.masks import MaskedSum
from tacit.site.contract import BUILT_IN, Contract
from tacit.site.costs import AGAINST, Price, composed, least_noise, price_of


def check_settings(config: Resolved, contract: Contract) -> None:
    """Refuse a run by its settings alone, before anything is planned or loaded."""
    rules, mode = contract.rules, mode_of(config.mode)
    if config.mode not in rules.modes:
        raise _refused("modes", ", ".join(rules.modes) or "none", config.mode)
    if config.data.name != contract.data.name:
        raise _refused("data.name", contract.data.name, config.data.name)
    name = config.model.name
    if name not in rules.models and not (BUILT_IN in rules.models and ":" not in name):
        raise _refused("models", ", ".join(rules.models), name)
    if config.federate.rounds > rules.rounds:
        raise _refused("rounds", f"at most {rules.rounds}", str(config.federate.rounds))
    if config.train.local_epochs > rules.passes:
        raise _refused("passes", f"at most {rules.passes}", f"train.local_epochs={config.train.local_epochs}")
    if mode.encrypted and config.paillier.keys == "shared" and contract.keys.shared is None:
        raise _refused("keys", "no key that all clients have", "paillier.keys=shared")
    told = set(rules.tell)
    if not mode.private(config) and not mode.hidden and not {"loss", "examples"} <= told:
        raise _refused("tell", ", ".join(rules.tell) or "nothing", f"mode {config.mode}, which tells loss and examples")


def check_plan(plan: Plan, contract: Contract) -> None:
    """Refuse a run by what its settings come to."""
    rules = contract.rules
    if plan.examples is not None and "examples" not in rules.tell:
        # The rate is a batch over all rows: which batches are too large, and weights, would tell how many there are.
        raise _refused(
            "tell", "nothing of how many examples there are", f"DP-SGD in mode {plan.mode}: its rate is known"
        )
    fewest = smallest_sum(plan)
    if fewest < rules.cohort:
        raise _refused("cohort", f"at least {rules.cohort}", f"sums of {fewest}")
    if contract.budget.epsilon is not None and isinstance(plan.protocol, MaskedSum):
        if not plan.protocol.signed:
            raise _refused("keys", "lists of clients that are signed", "masks.signed=false")
        if contract.budget.trust == "cohort" and contract.keys.clients is None:  # a server could be all the others
            raise _refused("keys", "the noise of sites that keys.clients names, and it names none", f"mode {plan.mode}")
    check_clip(plan.mechanism, plan.mechanism, contract)
    if plan.examples is None:  # elsewhere what a row costs is known with the data
        check_price(price_of(plan, plan.mechanism, examples=None, party=0), contract)


def check_clip(planned: Mechanism, now: Mechanism, contract: Contract) -> None:
    """Refuse a clip bound that is too large, or another than the run was announced with where it does not adapt."""
    first, bound = (_clip_of(mechanism) for mechanism in (planned, now))
    most = contract.rules.clip
    if most is not None and bound is not None and bound > most:
        raise _refused("clip", f"at most {most:g}", f"{bound:g}")
    if bound != first and not (isinstance(planned, GaussianMechanism) and planned.adaptive is not None):
        raise RefusalError(
            wire.Failure.CHANGED,
            f"The server says clip {bound}, and the run was announced with {first}: its noise is made for the latter",
        )


def check_passes(examples: ExamplePlan | None, party: int, contract: Contract) -> None:
    """Refuse DP-SGD that would go over the data more often than allowed."""
    if examples is not None and (passes := examples.steps[party] * examples.rates[party]) > contract.rules.passes:
        raise _refused("passes", f"at most {contract.rules.passes}", f"DP-SGD of {passes:.0f} passes")


def check_price(price: Price, contract: Contract) -> None:
    """Refuse a reply that costs too much by itself, whatever is left of the budget."""
    budget, rules = contract.budget, contract.rules
    noise = least_noise(price.of(budget))
    if noise < rules.noise:
        raise _refused("noise", f"at least {rules.noise:g}", f"noise multiplier {noise:g} against {_whom(contract)}")
    alone = composed([(price, 1)], budget)
    if budget.epsilon is not None and math.isinf(alone):
        raise RefusalError(
            wire.Failure.BUDGET,
            f"A reply has no noise that hides it from {_whom(contract)}, and the budget of these data is "
            f"{budget.epsilon:g}. budget.trust in site.yaml says whose noise is counted on",
        )
    most = rules.reply_epsilon
    if most is not None and alone > most:
        raise _refused("reply_epsilon", f"at most {most:g}", f"{alone:.4g} against {_whom(contract)}")


def smallest_sum(plan: Plan) -> int:
    """Return the fewest clients of a sum: what the protocol waits for, or a mean that is drawn."""
    if mode_of(plan.mode).hidden:
        return int(getattr(plan.protocol, "minimum_clients", 1))  # one that does not say waits for nobody
    return max(1, math.floor(plan.sampler.expected))


def _clip_of(mechanism: Mechanism) -> float | None:
    if isinstance(mechanism, CorrelatedMechanism):
        return mechanism.gaussian.clip_bound
    bound = getattr(mechanism, "clip_bound", None)
    return None if bound is None else float(bound)


def _whom(contract: Contract) -> str:
    return AGAINST[contract.budget.trust]


def _refused(rule: str, ours: str, theirs: str) -> RefusalError:
    return RefusalError(
        wire.Failure.CONTRACT, f"The site's own rules refuse it: {rule} is {ours}, and the run says {theirs}"
    )


def verdict(config: Resolved, plan: Plan, contract: Contract) -> str | None:
    """Return why a run would be refused, in words, or None."""
    try:
        check_settings(config, contract)
        check_plan(plan, contract)
    except RunError as error:
        return str(error)
    return None
