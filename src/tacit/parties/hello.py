"""The greeting: what a server says of a run, who a node says it is, and the one check of each.

Every request carries the run's terms beside its frame (:mod:`tacit.parties.calls`), whether Tacit's own app answers
or the mod around somebody else's::

    {"version": ..., "settings": ..., "weighted-by": ..., "numbers": [clients, per round, rounds]}

A node answers nothing before it has read them and compared them with its own. Before it gets its first task it is
greeted, with a frame that says no more than HELLO, and introduces itself::

    {"version": ..., "parties": [0, -1], "examples": null, "simulated": false, "in_app": false}

or refuses with a code: which settings differ, and what each side has, is in the node's log. Nothing secret is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tacit
from tacit import foreign, wire
from tacit.config.agreement import agreed
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ClientError, RunError, WireError
from tacit.flow import ClientId
from tacit.parties.calls import Said
from tacit.parties.refusals import RefusalError

GREETING = wire.pack(wire.Kind.HELLO, wire.Turn(round_number=0), b"")
_TURN = wire.Turn(round_number=0)
IN_APP = (
    "Clients train in their SuperNodes' own processes, which hold their data and run the app that the server sends: "
    "what is said of the server is about what it is sent, and holds as long as that app is the one you have read. A "
    "site's own process (tacit site serve) keeps data out of its reach."
)
_SHOWN = 4  # settings that an error names
_ADVICE = "Use one configuration on all sides."


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What the server of a wrapped strategy counts once, before the first round, and tells the clients.

    Attributes:
        clients: how many there are.
        per_round: how many each round asks; what a mean is divided by under differential privacy.
        rounds: how many there will be.
    """

    clients: int
    per_round: int
    rounds: int

    def to_text(self) -> str:
        """Return the numbers for people."""
        return f"{self.clients}, {self.per_round}, {self.rounds}"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a server says of a run with every request; a party holds it to what it said first.

    Attributes:
        settings: as a JSON text, by dotted keys.
        weighted_by: the metric of an app that says how many examples a client has; empty where Tacit trains.
        numbers: what the server counted; None where the settings have it all, and in the greeting of a strategy.
    """

    settings: str
    weighted_by: str = ""
    numbers: Numbers | None = None

    @classmethod
    def of(cls, config: Resolved) -> Terms:
        """Return the terms of a run whose app carries the settings to every party."""
        return cls(settings=json.dumps(agreed(config), sort_keys=True))

    def to_record(self) -> dict[str, Said]:
        """Return the entries of a message's record."""
        entries: dict[str, Said] = {"version": tacit.__version__, "settings": self.settings}
        if self.weighted_by:
            entries["weighted-by"] = self.weighted_by
        if self.numbers is not None:
            entries["numbers"] = [self.numbers.clients, self.numbers.per_round, self.numbers.rounds]
        return entries

    @classmethod
    def read(cls, record: Mapping[str, Said]) -> Terms:
        """Read the server's terms at a node, and refuse a server of another version."""
        version = str(record.get("version", "unknown"))
        _same_version(f"The server runs tacit {version}", version, "this node")
        if "settings" not in record:
            raise WireError("Expected the run's settings beside the request, got none.")
        numbers = record.get("numbers")
        return cls(
            settings=str(record["settings"]),
            weighted_by=str(record.get("weighted-by", "")),
            numbers=None if numbers is None else _numbers(numbers),
        )

    def agree(self, ours: RunConfig, *, theirs: RunConfig | None = None, advice: str = _ADVICE) -> None:
        """Refuse settings of the server's that differ from this node's, and say which and what each side has.

        Args:
            ours: how this node was set up.
            theirs: the settings, where they leave out what was not set; by default they name all that is to be shared.
            advice: what to do where they differ.
        """
        here = agreed(ours)
        if theirs is None and self.settings == json.dumps(here, sort_keys=True):
            return
        there = foreign.json_object(self.settings) if theirs is None else agreed(theirs)
        differ = [key for key in sorted(here.keys() | there.keys()) if here.get(key) != there.get(key)]
        if differ:
            named = [f"{key}: the server has {there.get(key)!r}, this node {here.get(key)!r}" for key in differ]
            more = f" (and {len(differ) - _SHOWN} more)" if len(differ) > _SHOWN else ""
            raise RefusalError(
                wire.Failure.SETTINGS,
                f"The server and this node were set up differently. {'; '.join(named[:_SHOWN])}{more}. {advice}",
            )


@dataclass(frozen=True, kw_only=True)
class Introduction:
    """What a node says of itself.

    Attributes:
        parties: whom it answers for: a client's number, and below zero the key, or the share, that it holds.
        examples: how many it holds, where that is public because it sets the rate that is accounted.
        simulated: whether the node is a virtual one, or takes part in simulations.
        in_app: whether the data are in the process that runs the app which a server sends, and in its reach.
        version: of its Tacit.
    """

    parties: tuple[ClientId, ...]
    examples: int | None = None
    simulated: bool = False
    in_app: bool = False
    version: str = tacit.__version__

    def to_frame(self) -> bytes:
        """Return the node's answer to the greeting."""
        body = {
            "version": self.version,
            "parties": self.parties,
            "examples": self.examples,
            "simulated": self.simulated,
            "in_app": self.in_app,
        }
        return wire.pack(wire.Kind.HELLO, _TURN, json.dumps(body).encode())

    @classmethod
    def read(cls, node: int, frame: bytes) -> Introduction:
        """Read at the server what a node said of itself, or raise what it refused; another version is refused."""
        try:
            body = foreign.json_object(wire.expect(wire.Kind.HELLO, _TURN, node, frame))
            said = cls(
                parties=tuple(_whole(party) for party in body["parties"]),
                examples=None if body.get("examples") is None else _whole(body["examples"]),
                simulated=body.get("simulated") is True,
                in_app=body.get("in_app") is True,
                version=str(body["version"]),
            )
        except ClientError as error:
            raise RunError(str(error).replace(f"Client {node} failed in round 0", f"Node {node} refused")) from error
        except (WireError, KeyError, TypeError, ValueError) as error:
            raise WireError(f"Node {node} did not say who it is: {error!r}.") from error
        _same_version(f"Node {node} runs tacit {said.version}", said.version, "the server")
        return said


def _whole(value: Any) -> int:
    """Return a number that a peer said, where it is a whole one and no longer than Flower's numbers of nodes."""
    if type(value) is not int or abs(value) >= 1 << 64:
        raise WireError(f"Expected a whole number below 2^64, got {value!r:.40}.")
    return value


def _numbers(given: Said) -> Numbers:
    if not isinstance(given, list) or len(given) != 3 or not all(type(n) is int and n > 0 for n in given):
        raise WireError(f"Expected three numbers above zero, got {given!r}.")
    clients, per_round, rounds = (int(number) for number in given)
    return Numbers(clients=clients, per_round=per_round, rounds=rounds)


def _same_version(theirs: str, version: str, we: str) -> None:
    """Refuse another side's version of Tacit."""
    if version != tacit.__version__:
        raise RefusalError(
            wire.Failure.VERSION, f"{theirs}, {we} {tacit.__version__}. Install the same version on all sides."
        )
