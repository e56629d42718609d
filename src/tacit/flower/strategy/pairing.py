"""What travels between the strategy and the mod beside the protocol's frames, so that each knows the other is there.

Every request says who sends it: the version, the settings and the numbers of the run. A mod answers nothing before it
has compared them with its own. Before a node gets its first task it is greeted, and introduces itself::

    {"version": ..., "client": true, "holder": null, "simulated": false}

So a client without the mod is found out before it has sent anything in the clear.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ConfigRecordValues

import tacit
from tacit import foreign, wire
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, RunError, WireError
from tacit.flow import ClientId
from tacit.flower import hello
from tacit.flower.envelope import Value
from tacit.flower.refusals import RefusalError
from tacit.flower.settings import agreed
from tacit.flower.strategy import settings
from tacit.flower.strategy.settings import Numbers

STRATEGY, MOD = "tacit.flower.Private", "tacit.flower.private_mod"
GREETING = wire.pack(wire.Kind.HELLO, hello.TURN, b"")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the strategy tells with every request.

    Attributes:
        settings: what was set, as text.
        weighted_by: the metric that says how many examples a client has.
        numbers: what the server counted; None in the greeting.
    """

    settings: str
    weighted_by: str
    numbers: Numbers | None = None

    def to_record(self) -> dict[str, ConfigRecordValues]:
        """Return the entries of a message's record."""
        entries: dict[str, ConfigRecordValues] = {
            "version": tacit.__version__,
            "settings": self.settings,
            "weighted-by": self.weighted_by,
        }
        if self.numbers is not None:
            entries["numbers"] = [self.numbers.clients, self.numbers.per_round, self.numbers.rounds]
        return entries

    @classmethod
    def read(cls, record: Mapping[str, ConfigRecordValues], run: Mapping[str, Value]) -> tuple[Terms, RunConfig]:
        """Read the server's terms at a node, and compare them with the node's own version and run config."""
        version = str(record.get("version", "unknown"))
        hello.same_version(f"the server's {STRATEGY} is of tacit {version}", version, f"this node's {MOD} of")
        try:
            text = str(record["settings"])
            theirs = settings.from_text(text)
            numbers = record.get("numbers")
            terms = cls(
                settings=text,
                weighted_by=str(record["weighted-by"]),
                numbers=None if numbers is None else _numbers(numbers),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"The settings that {STRATEGY} sent can't be read: {error!r}") from error
        ours = settings.from_run(run)
        if ours is not None:
            try:
                hello.same_settings(agreed(theirs), agreed(ours))
            except RefusalError as error:
                said = str(error).removesuffix(" Use one configuration on all sides.")
                raise RefusalError(
                    error.code,
                    f"{said} The server's are those of {STRATEGY}; this node's are under {settings.PREFIX} in the "
                    f"run's config, where {MOD} reads them. Use {STRATEGY}(..., config=context.run_config)",
                ) from error
        return terms, theirs


@dataclass(frozen=True, kw_only=True)
class Introduction:
    """What a node says of itself.

    Attributes:
        client: whether it has data to train on.
        holder: the number of the key, or of the share, that it holds.
        simulated: whether the node is a virtual one, or takes part in simulations.
    """

    client: bool
    holder: ClientId | None
    simulated: bool

    def to_frame(self) -> bytes:
        """Return the node's answer to the greeting."""
        body = {
            "version": tacit.__version__,
            "client": self.client,
            "holder": self.holder,
            "simulated": self.simulated,
        }
        return wire.pack(wire.Kind.HELLO, hello.TURN, json.dumps(body).encode())

    @classmethod
    def read(cls, node: int, frame: bytes) -> Introduction:
        """Read what a node said of itself, or raise what it refused."""
        found = wire.unpack(frame)
        if found.kind is wire.Kind.FAILURE:
            raise RunError(f"Node {node} refused: {wire.unpack_failure(found)[1]}")
        try:
            body = foreign.json_object(found.body)
            version, holder = str(body["version"]), body["holder"]
            said = cls(
                client=body["client"] is True,
                holder=None if holder is None else hello.whole(holder),
                simulated=body["simulated"] is True,
            )
        except (WireError, KeyError, TypeError, ValueError) as error:
            raise WireError(f"Node {node} did not say who it is: {error!r}.") from error
        hello.same_version(f"node {node}'s {MOD} is of tacit {version}", version, f"the server's {STRATEGY} of")
        return said


def without_mod(node: int, what: str) -> RunError:
    """Return the error on a node whose app has no mod."""
    return RunError(
        f"The server's strategy is {STRATEGY}, and node {node} answers without {MOD} ({what}). Make its app "
        f"ClientApp(mods=[{MOD}]), the mod first in the list."
    )


def without_strategy() -> str:
    """Return the reason of a node that was asked by a strategy of another kind."""
    return (
        f"This node's app has {MOD}, and the server's message does not come from {STRATEGY}. Nothing was trained or "
        f"sent. Wrap the server's strategy: {STRATEGY}(strategy, config=context.run_config)."
    )


def _numbers(given: ConfigRecordValues) -> Numbers:
    if not isinstance(given, list) or len(given) != 3 or not all(isinstance(n, int) and n > 0 for n in given):
        raise ConfigError(f"Expected three numbers above zero, got {given!r}.")
    clients, per_round, rounds = (int(number) for number in given)
    return Numbers(clients=clients, per_round=per_round, rounds=rounds)
