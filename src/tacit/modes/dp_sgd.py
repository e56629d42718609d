"""The mode dp-sgd, and DP-SGD inside the clients of other modes: each client protects the examples of its own data.

Every client trusts nobody with a single example (Abadi et al. 2016). This is a level of its own: the modes dp and
local-dp may have it beside the protection of a client as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.config.sections import DpSgd, Train
from tacit.errors import ConfigError
from tacit.federated.examples import AGAINST, BUDGETS, ExampleLevel, ExamplePlan, noise_for
from tacit.federated.plan import Claim, Plan
from tacit.mechanisms.weighted import WeightedMean
from tacit.modes import images
from tacit.modes.mode import Mode
from tacit.modes.parts import BUDGET, joined, refuse_weights, sampler_of

_CLIP = 1.0
_RATE = 0.5  # a clipped gradient is short
# How far DP-SGD moves in all is what its noise is proportional to, so the rate grows with epsilon; many short rounds
# keep what the noise does to a client's model between two averages small. docs/dp-sgd.md has the figures.
_RATE_BY_EPSILON, _LARGEST_RATE = 1.0, 4.0
_ROUNDS = 20
_CLIENT_LEVEL = "It protects a client as a whole; what the clients' DP-SGD does for an example is the other epsilon."
_SIZES = "How many examples a client holds is taken to be public; its training loss stays with it."
_ALONE = (
    "How many examples there are is taken to be public; the loss and the accuracy on the training data are the data "
    "holder's own, no noise protects them."
)
_OTHER = {
    "client": "It protects one example within a client's data, not the client as a whole: that is the other epsilon.",
    None: "It protects one example within a client's data, not the client as a whole.",
}


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan of plain averages of updates that the clients' own noise protects."""
    refuse_weights(config)
    mechanism = WeightedMean(weighting="uniform", losses=False)
    sees = "every client's update, which that client's own noise protects"
    return joined(config, sampler_of(config, clients), mechanism, server_sees=sees)


def defaults(config: RunConfig) -> Mapping[str, Any]:
    """Return the rate and the rounds that suit DP-SGD."""
    if config.single_holder:
        return {"optimizer.lr": _RATE}
    epsilon = None if config.dpsgd.noise is not None else config.dpsgd.epsilon or config.dp.epsilon
    rate = _RATE if epsilon is None else min(_RATE_BY_EPSILON * epsilon, _LARGEST_RATE)
    return {"optimizer.lr": rate, "federate.rounds": _ROUNDS}


def with_examples(plan: Plan, config: Resolved, mode: Mode) -> Plan:
    """Return the plan of any mode with the example level that the configuration asks for, if it does."""
    level = level_of(config, mode)
    if level is None:
        return plan
    claim = plan.claim and replace(plan.claim, notes=(*plan.claim.notes, _CLIENT_LEVEL))
    return replace(plan, claim=claim, examples=level, example_claim=_claim_of(config, level, plan.claim))


def level_of(config: Resolved, mode: Mode) -> ExampleLevel | None:
    """Return the example level that the configuration asks for, or None."""
    own, dp = config.dpsgd, config.dp
    itself = mode.examples == "always"
    if config.single_holder and (not itself or config.federate.clients not in (None, 1)):
        raise ConfigError(
            f"single_holder=true is one data holder with DP-SGD: expected mode=dp-sgd and federate.clients=1, got "
            f"mode={config.mode} and federate.clients={config.federate.clients}."
        )
    if config.single_holder and config.engine != "in-process":
        raise ConfigError(
            f"single_holder=true is one data holder, between whom and itself nothing travels. Leave out "
            f"engine={config.engine}."
        )
    changed = [f"dpsgd.{key}" for key, value in own if value != getattr(DpSgd(), key)]
    asked = own.noise is not None or own.epsilon is not None
    if mode.examples == "never":
        if changed:
            raise ConfigError(
                f"{', '.join(changed)} has no effect in mode {config.mode!r}. Use --mode dp-sgd, or --mode dp with "
                "dpsgd.epsilon for both levels."
            )
        return None
    if not asked and not itself:
        if changed:
            raise ConfigError("DP-SGD inside the clients needs dpsgd.epsilon or dpsgd.noise.")
        return None
    if itself and dp.clip == "adaptive":
        raise ConfigError(
            "dp.clip=adaptive is for mode 'dp'. For DP-SGD set --clip to a number, or clipping=automatic."
        )
    if itself and own.batch_size is None and config.train.batch_size != Train().batch_size:
        raise ConfigError(
            f"train.batch_size={config.train.batch_size} is for plain SGD. Set dpsgd.batch_size, the mean size of a "
            "Poisson batch."
        )
    return ExampleLevel(
        delta=own.delta or dp.delta,
        clip=own.clip or (float(dp.clip) if itself and dp.clip is not None else _CLIP),
        clipping=own.clipping,
        epsilon=own.epsilon if asked or not itself else dp.epsilon,
        noise=own.noise if asked or not itself else dp.noise,
        max_epsilon=own.max_epsilon or (dp.max_epsilon if itself else None),
        batch_size=own.batch_size,
        epochs=config.train.local_epochs,
        steps=own.steps,
        rounds=1 if config.single_holder else config.federate.rounds,
        micro_batch=own.micro_batch,
        budget_by=own.budget_by,
    )


def _claim_of(config: Resolved, level: ExampleLevel, beside: Claim | None) -> Claim:
    """Return the claim that an example level makes, beside that of the other level where there is one."""
    alone = config.single_holder
    limits = [limit for limit in (level.epsilon, level.max_epsilon) if limit is not None]
    return Claim(
        delta=level.delta,
        unit="example",
        neighbours="add-remove",
        against="whoever sees the model, now or after any step" if alone else AGAINST,
        max_epsilon=min(limits) if limits else None,
        notes=(_ALONE,) if alone else (_OTHER[None if beside is None else beside.unit], _SIZES),
    )


def methods(examples: ExamplePlan) -> tuple[str, ...]:
    """Return what the budget's other solutions would have needed, where the lab's method was asked for."""
    level = examples.level
    if level.budget_by == "tight" or level.epsilon is None:
        return ()
    rate = max(examples.rates)
    total_steps = level.rounds * max(examples.steps)
    two, exact, tight = (
        noise_for(way, epsilon=level.epsilon, delta=level.delta, steps=total_steps, rate=rate) for way in BUDGETS
    )
    return (
        f"Noise multiplier by the lab's advanced composition: {two:.6g} in two steps, {exact:.6g} by the exact root; "
        f"the tight accounting needs {tight:.6g} for the same budget, {examples.noise_multiplier / tight:.3g} times "
        "less than was used. Epsilon is what the noise in use really costs.",
    )


def refuse_apart(config: RunConfig) -> None:
    """Refuse a budget, whose noise depends on how many examples clients hold."""
    if config.dpsgd.noise is None and config.dp.noise is None:
        raise ConfigError(
            "dpsgd.noise has to be set: noise that depends on the clients' data sizes can't be calibrated where nobody "
            "sees them all. `tacit calibrate` finds it for the smallest client."
        )


DP_SGD = Mode(
    name="dp-sgd",
    summary="clients train with DP-SGD, which protects single examples",
    plan=plan,
    images=images.DP_SGD,
    section="dpsgd",
    dp=BUDGET,
    advice="Its settings are those of dpsgd.",
    adds_noise=True,
    budget=("dpsgd", "dp"),
    examples="always",
    defaults=defaults,
    batch_size="dpsgd.batch_size",
    refuse_apart=refuse_apart,
)
