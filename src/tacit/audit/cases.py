"""What people ask to be audited: a run, a mode by itself, every mode, or a mechanism of their own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import NEIGHBOURS, Ledger, Neighbours
from tacit.audit import examples, replay
from tacit.audit.event import Rows
from tacit.audit.subject import Play, Subject
from tacit.audit.worlds import LAYERS, attacks
from tacit.config import overrides
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, RunError, TacitError
from tacit.federated.examples import ExampleCharge
from tacit.federated.plan import Claim, Everyone, Plan, ServerOptimizer
from tacit.modes.catalogue import MODES, plan_of, resolve
from tacit.modes.settings import suited
from tacit.protocols.clear import ClearSum
from tacit.randomness import Randomness
from tacit.runs.folder import config_of, must_have_begun
from tacit.runs.ledger import charges_of, describe, ledger_of, must_claim
from tacit.runs.progress import result_of
from tacit.training.private.clipping import Clipping

_HOLDING = 1000  # examples that a client is said to hold where no run says how many
_DELTA = 1e-5
_PARTS = ("on_client", "on_server", "length", "fitted", "public_state", "with_state", "event")  # of a mechanism


def of_run(folder: Path, *, randomness: Randomness) -> list[Subject]:
    """Return what a run claims, with its own settings and its own charges.

    A result that claims less than the run was charged is false without any attack, and settings that are not those of
    the charges are another run's: both are refused.
    """
    must_have_begun(folder)
    config = config_of(folder)
    _refuse_another_claim(folder)
    _refuse_other_settings(folder, config)
    charged = next((own for attempt in charges_of(folder) for own in attempt.example_charges or ()), None)
    return list(_subjects(config, randomness, charged))


def _refuse_another_claim(folder: Path) -> None:
    """Refuse a result whose epsilon is smaller than what the journal charged."""
    result, charged = result_of(folder), ledger_of(folder)
    if result is not None:
        must_claim(result.privacy, [line.epsilon for line in charged.lines[-1:]])
        must_claim(result.example_privacy, [line.epsilon for line in charged.example_lines[-1:]])


def _refuse_other_settings(folder: Path, config: Resolved) -> None:
    """Refuse settings whose releases are not those that the journal charged."""
    plan = plan_of(config, config.federate.clients or 1)
    if plan.claim is None or plan.mechanism.event is None or plan.claim.by_participation:
        return
    planned = describe(plan.claim.event(plan.mechanism.event))
    for attempt in charges_of(folder):
        if attempt.round and attempt.charge is not None and describe(attempt.charge.event) != planned:
            raise RunError(
                f"config.yaml of {folder} plans {planned}, and round {attempt.round} was charged for "
                f"{describe(attempt.charge.event)}: the settings were changed since. Restore them."
            )


def of_mode(name: str, *, randomness: Randomness, **sections: Any) -> list[Subject]:
    """Return what a mode claims by itself, its noise turned on, with the budget of one that was given none."""
    return list(_subjects(settings(name, **sections), randomness))


def of_all(*, randomness: Randomness) -> Iterator[tuple[str, list[Subject]]]:
    """Yield every mode with what it claims by itself."""
    for name in MODES:
        yield name, of_mode(name, randomness=randomness.within(name))


def settings(name: str, **sections: Any) -> Resolved:
    """Return a mode's settings where nothing is said but what turns its noise on."""
    values: dict[str, Any] = {"mode": name, **sections}
    switch = MODES[name].noise_if
    if switch is not None:
        overrides.put(values, switch, True)
    return resolve(suited(RunConfig(**values))[0])


def _subjects(config: Resolved, randomness: Randomness, charged: ExampleCharge | None = None) -> Iterator[Subject]:
    found = replay.subject(config, randomness=randomness.within("clients"))
    if found is not None:
        yield found
    plan = plan_of(config, config.federate.clients or 1)
    if plan.examples is None or plan.example_claim is None:
        return
    level = plan.examples
    if charged is not None:
        noise, rate = examples.charged(charged.event)
    else:
        fitted = level.fitted([_HOLDING])
        noise, rate = fitted.noise_multiplier, fitted.rates[0]
    training = examples.Training(
        noise_multiplier=noise,
        rate=rate,
        clipping=Clipping(bound=level.clip, rule=level.clipping),
        delta=level.delta,
        against=plan.example_claim.against,
    )
    name = config.mode if found is None else f"{config.mode}, examples"
    yield examples.subject(name, training, randomness=randomness.within("examples"))


def of_mechanism(
    path: str,
    *,
    claim: float | None,
    delta: float = _DELTA,
    neighbours: Neighbours = "add-remove",
    randomness: Randomness,
) -> Subject:
    """Return a mechanism of one's own, in a round of a plain sum.

    Args:
        path: ``package.module:Name`` of an object with the methods of a mechanism, or of what makes one without
            arguments.
        claim: the epsilon of one release, where it is not what the mechanism's own event costs.
        delta: of the claim.
        neighbours: the relation of the claim.
        randomness: of all worlds.
    """
    if neighbours not in NEIGHBOURS:
        raise ConfigError(f"Unknown neighbours {neighbours!r}. Choose one of {', '.join(NEIGHBOURS)}.")
    mechanism = _loaded(path).fitted(LAYERS)
    event = mechanism.event
    if event is None and claim is None:
        raise ConfigError(f"{path} says no cost of a release (its event is None). Give the epsilon it has: --claim 4.")
    config = resolve(RunConfig(federate={"clients": 2}))
    claimed_as = Claim(
        delta=delta, unit="client", neighbours=neighbours, against="whoever sees what is released", cohorts_hidden=True
    )
    protocol = ClearSum(minimum_clients=0)
    plan = Plan(
        mode=config.mode,
        sampler=Everyone(population=2),
        mechanism=mechanism,
        protocol=protocol,
        optimizer=ServerOptimizer(),
        guarantee=protocol.guarantee,
        claim=claimed_as,
    )
    federation = replay.Federation(config=config, plan=plan, clients=2)
    ledger = Ledger(neighbours=neighbours)
    if event is not None and claim is None:
        ledger = ledger.charged(event, round_number=1)
    claimed = Claimed(ledger=ledger, delta=delta, pair=claim)
    pairs = [federation.pair(attack, randomness, 1, claimed) for attack in attacks(1)]
    pairs = [replace(pair, worlds=(_own(path, pair.worlds[0]), _own(path, pair.worlds[1]))) for pair in pairs]
    return Subject(name=path, pairs=pairs, against=claimed_as.against)


def _own(path: str, play: Play) -> Play:
    """Return what plays a world, errors of somebody's own code told in a sentence."""

    def played(trials: int) -> Rows:
        try:
            return play(trials)
        except TacitError:
            raise
        except Exception as error:  # whatever that code does
            raise ConfigError(f"{path} failed in a round: {type(error).__name__}: {error}.") from error

    return played


def _loaded(path: str) -> Any:
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        raise ConfigError(f"Expected package.module:Name, or the folder of a run, got {path!r}.")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        made = found() if isinstance(found, type) or not hasattr(found, "on_client") else found
    except ConfigError:
        raise
    except Exception as error:  # whatever that code does
        raise ConfigError(f"{path} can't be loaded: {type(error).__name__}: {error}.") from error
    missing = [part for part in _PARTS if not hasattr(made, part)]
    if missing:
        raise ConfigError(
            f"{path} is no mechanism: it has no {', '.join(missing)}. tacit.mechanisms.mechanism says what one has."
        )
    return made
