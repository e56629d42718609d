"""The settings of a protected app: given to the strategy, or under ``tacit.`` in the run's config."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tacit import foreign, wire
from tacit.config.run_config import RunConfig, from_mapping
from tacit.config.sections import Section
from tacit.errors import ConfigError, RunError
from tacit.federated.plan import Plan
from tacit.modes.catalogue import MODES, mode_of, plan_of, resolve
from tacit.modes.mode import Mode
from tacit.parties.calls import Value
from tacit.parties.hello import Numbers
from tacit.parties.refusals import RefusalError
from tacit.parties.settings import from_dotted

PREFIX = "tacit."
STRATEGY, MOD = "tacit.flower.Private", "tacit.flower.private_mod"
CLASSIC = (
    "Tacit protects apps of Flower's Message API, and an app moves there with its training loop unchanged. On the "
    "server, in place of server_fn: app = ServerApp(), and under @app.main() a function main(grid, context) that "
    f"calls {STRATEGY}(FedAvg(), config=context.run_config).start(grid, ArrayRecord(model.state_dict()), "
    "num_rounds=3), with FedAvg from flwr.serverapp.strategy. On the clients, in place of client_fn and NumPyClient: "
    f"app = ClientApp(mods=[{MOD}]), and under @app.train() what fit did as a function of (message, context): load "
    "message.content['arrays'].to_torch_state_dict(), train, and return Message(RecordDict({'arrays': "
    "ArrayRecord(model.state_dict()), 'metrics': MetricRecord({'num-examples': n})}), reply_to=message); under "
    "@app.evaluate() likewise what evaluate did. docs/flower.md has both side by side, and examples/flower-quickstart "
    "is such an app."
)
_USED = {"mode", "seed", "out", "dp", "flower.deadline", "flower.patience"}
_USED |= {f"federate.{key}" for key in ("clients", "per_round", "rounds", "minimum_clients", "retries", "weighting")}
_CHOOSES = "The strategy chooses who takes part: no amplification by sampling is claimed."
_EVALUATE = (
    "What clients answer to evaluate messages is their app's own, without noise; fraction_evaluate=0 asks for none."
)
_INSTEAD = (
    "A round asks a part of the clients, and where one is asked another is not: what one client holds can move a sum "
    "by 2C (replace-one). How many there are, and who is asked, must not follow from their data."
)


def given(*, mode: str | None, sections: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that keywords give."""
    if mode is None:
        raise ConfigError(
            f"Which protection? Give a mode, one of {', '.join(_possible())}, or "
            f"config=context.run_config with {PREFIX}mode in it."
        )
    return _checked(from_mapping({"mode": mode, **sections}))


def from_run(run: Mapping[str, Value]) -> RunConfig | None:
    """Return the configuration in a run's config, or None where no key begins with ``tacit.``."""
    ours = {key.removeprefix(PREFIX): value for key, value in run.items() if key.startswith(PREFIX)}
    if not ours:
        return None
    if "mode" not in ours:
        raise ConfigError(f"The run's config has keys under {PREFIX} and no {PREFIX}mode. Set it, such as to 'dp'.")
    return _checked(from_dotted(ours))


def to_text(config: RunConfig) -> str:
    """Return what was set, as it travels to the clients; folders and key files stay."""
    keys = {key: value for key, value in _set(config).items() if key not in ("out", "paillier.key")}
    return json.dumps(keys, sort_keys=True)


def from_text(text: str) -> RunConfig:
    """Read what :func:`to_text` wrote."""
    return from_dotted(foreign.json_object(text))


def with_numbers(config: RunConfig, numbers: Numbers) -> RunConfig:
    """Return the configuration with the server's numbers in it, or refuse numbers that contradict what was set."""
    federate, counted = config.federate, asdict(numbers)
    for name, value in counted.items():
        if name in federate.model_fields_set and getattr(federate, name) not in (None, value):
            raise RefusalError(
                wire.Failure.CHANGED,
                f"The server counts federate.{name}={value}, and the settings have {getattr(federate, name)}",
            )
    if numbers.per_round > numbers.clients:
        raise RefusalError(
            wire.Failure.CHANGED,
            f"The server counts {numbers.clients} clients, and {numbers.per_round} of them per round",
        )
    update = {**counted, "retries": 0}  # a round that is lost is not asked for again
    return config.model_copy(update={"federate": federate.model_copy(update=update)})


@functools.lru_cache(maxsize=4)
def plan(text: str, numbers: Numbers) -> Plan:
    """Return the plan, the same at the server and at every client.

    The mode dp is planned for a federation of as many as a round asks: so it claims no amplification. Where that is a
    part of the clients, by whatever choice the strategy makes, the relation is one under which the cohort stays what it
    is: another client's data in a client's place (replace-one), or its contribution put to zero (zero-out).
    """
    config = from_text(text)
    notes: tuple[str, ...] = (_CHOOSES, _EVALUATE)
    clients = numbers.clients
    if mode_of(config.mode).central:
        clients = numbers.per_round
        if clients < numbers.clients:
            config, notes = _of_a_part(config), (_CHOOSES, _INSTEAD, _EVALUATE)
    federate = config.federate.model_copy(
        update={
            "clients": clients,
            "per_round": numbers.per_round,
            "sampling": "all" if clients == numbers.per_round else "fixed",
            "rounds": numbers.rounds,
        }
    )
    made = plan_of(resolve(config.model_copy(update={"federate": federate, "engine": "flower"})), clients)
    return made if made.claim is None else replace(made, claim=replace(made.claim, notes=made.claim.notes + notes))


def without_mod(node: int, what: str, *, more: int = 0) -> RunError:
    """Return the error on a node whose app has no mod, and maybe more such nodes."""
    others = f", and {more} more likewise" if more else ""
    return RunError(
        f"The server's strategy is {STRATEGY}, and node {node} answers without {MOD} ({what}){others}. Make its app "
        f"ClientApp(mods=[{MOD}]), the mod first in the list."
    )


def _of_a_part(config: RunConfig) -> RunConfig:
    """Return the configuration with a relation that holds where a round asks a part of the clients."""
    if config.dp.neighbours == "add-remove":
        raise ConfigError(
            "dp.neighbours=add-remove does not hold where a round asks a part of the clients: without one of them the "
            "strategy asks another in its place. Leave it out, or use replace-one or zero-out."
        )
    dp = config.dp.model_copy(update={"neighbours": config.dp.neighbours or "replace-one"})
    return config.model_copy(update={"dp": dp})


def _possible() -> dict[str, Mode]:
    """Return the modes that work through a mod, which does not see the training loop."""
    return {name: mode for name, mode in MODES.items() if mode.examples != "always"}


def _checked(config: RunConfig) -> RunConfig:
    """Refuse what does not work, or has no effect, through a mod."""
    mode = mode_of(config.mode)
    if mode.name not in _possible():
        raise ConfigError(
            f"Mode {mode.name!r} protects single examples inside the training loop, which a mod does not see. Make the "
            "app's optimiser private with tacit.dpsgd.make_private, or let Tacit train: tacit.flower.client_app."
        )
    used = _USED | {one.section for one in _possible().values()}
    unused = [key for key in _set(config) if key not in used and key.partition(".")[0] not in used]
    if unused:
        raise ConfigError(
            f"{', '.join(unused)} has no effect here: the app trains and its strategy chooses and averages. Remove it."
        )
    mode.refuse_apart(config)
    return config


def _set(config: RunConfig) -> dict[str, Any]:
    """Return what was set on purpose, by dotted keys, as plain data."""
    plain = config.model_dump(mode="json", exclude_unset=True)
    flat: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(getattr(config, name), Section):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat
