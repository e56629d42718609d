"""A node that runs Tacit's own app: which parties it answers for, and how its client trains.

How a request is answered is in :mod:`tacit.parties.party`. What the node's operator says stands in its config
(``--node-config``), which no server can change::

    partition-id       the client's number, from 0
    tacit-key          the file of the key, or of a share of it, that this node holds (mode 0600)
    tacit-pin          the key that this client encrypts with: its fingerprint or its file, see operator.py
    tacit-identity     the file of this client's lasting identity (mode 0600)
    tacit-clients      at a key holder, or at a client under masks, the file that lists the identities of all clients
    tacit-minimum      at a key holder, the fewest clients whose sum it opens; 2 unless it says otherwise
    tacit-data         the folder with this node's data files
    tacit-gpu          the number of the GPU this node trains on
    tacit-simulation   whether this node takes part in simulations, whose noise others can predict
    tacit-socket       the socket of the site's, or the key holder's, own process: this node then only carries frames
                       to it, see relay.py, and of all others needs partition-id alone
    tacit-memory       the folder in which it remembers what it was told and has answered, see memory.py

Nodes of Flower's own simulation (``flwr run``) have no operator and hold no keys; clients share them evenly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flwr.clientapp import ClientApp

from tacit import foreign
from tacit.config.resolved import Resolved
from tacit.config.run_config import from_mapping
from tacit.errors import ConfigError
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.relay import SETTING, relay
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.modes.keys import holder_numbers
from tacit.parties import key_holder
from tacit.parties.calls import Answer, Call, Value
from tacit.parties.hello import Terms
from tacit.parties.party import Party, Request
from tacit.parties.settings import from_dotted
from tacit.parties.work import worked
from tacit.protocols.protocol import SumProtocol
from tacit.randomness import Randomness
from tacit.runs.observer import Silent

if TYPE_CHECKING:  # greetings, keys and openings need no torch, which takes seconds to import
    from torch import nn

    from tacit.runs import job as jobs
    from tacit.training.examples import UserData

_OWN = {"tacit-data": "data.folder", "tacit-gpu": "gpu"}  # a node's own settings, and which keys they are


@dataclass(frozen=True, kw_only=True)
class Virtual:
    """What a simulated node is told by the one who simulates it, as it has no operator.

    Attributes:
        settings: the run's configuration, in YAML.
        key: the root of the run's randomness, so that the result is that of the same run in one process.
        simulation: whether the run was given a seed.
        clients: how many of the nodes are clients; the others hold keys.
        keys: the key files of the others, by number.
        pin: the public key file, where there are keys.
    """

    settings: str
    key: bytes
    simulation: bool
    clients: int
    keys: Mapping[ClientId, str]
    pin: str = ""

    def operated(self, call: Call) -> Call:
        """Return the request at a node whose operator gave the party its key and the clients' pin."""
        given: dict[str, Value] = {"tacit-pin": self.pin} if self.keys else {}
        number = min(call.party, 0)  # 0 stands for all clients, where they share the key
        if number in self.keys:
            given["tacit-key"] = self.keys[number]
        return replace(call, node={**call.node, **given})


@dataclass(frozen=True, kw_only=True)
class Own:
    """A node's own model and data: functions of the app, called on the node.

    Attributes:
        model: makes the module.
        data: returns the node's examples, given the node's settings (``--node-config``).
    """

    model: Callable[[], nn.Module]
    data: Callable[[Mapping[str, Value]], UserData]


@dataclass(frozen=True, kw_only=True)
class Node(Party):
    """A node that runs Tacit's own app; in a simulation, whichever node Flower says.

    The run's settings come with the app, and Tacit trains: on data that they name, or on the node's own.

    Attributes:
        virtual: what a simulated node is told; None at a real one.
        own: model and data of a real node; by default those that the run's configuration names.
    """

    virtual: Virtual | None = None
    own: Own | None = None

    def __call__(self, call: Call) -> Answer:
        """Answer a request, or have the process answer that the node's operator named."""
        if SETTING in call.node and not call.simulated:
            return relay(call)
        return super().__call__(call if self.virtual is None else self.virtual.operated(call))

    def _plays(self, call: Call) -> bool:
        return self.virtual is not None or call.plays

    def _who(self, call: Call) -> str:
        return str(call.node.get("partition-id", "holder"))  # not call.party, which is the server's word

    def _config(self, call: Call, terms: Terms) -> Resolved:
        if self.virtual is not None:
            config = _told(self.virtual.settings)
        else:
            own = {key: call.node[name] for name, key in _OWN.items() if name in call.node}
            config = resolve(from_dotted({**call.run, **own, "engine": "flower"}))
        terms.agree(config)
        return config

    def _parties(self, request: Request) -> tuple[ClientId, ...]:
        node, config = request.call.node, request.config
        clients = config.federate.clients or 0
        if self.virtual is not None or request.call.simulated:
            return self._share(request, clients)
        number, parties = node.get("partition-id"), []
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < clients:
                raise ConfigError(f"partition-id={number!r} in the node's config: expected 0 to {clients - 1}")
            parties.append(number)
        parties += key_holder.numbers(node, config)
        if not parties:
            raise ConfigError(
                "This node is neither a client (partition-id in its config) nor a key holder (tacit-key). "
                "Start it with --node-config 'partition-id=0'"
            )
        return tuple(parties)

    def _share(self, request: Request, clients: int) -> tuple[ClientId, ...]:
        """Return the parties of a simulated node: they are dealt out evenly, however many nodes there are."""
        node = request.call.node
        number, count = node.get("partition-id"), node.get("num-partitions")
        if not isinstance(number, int) or not isinstance(count, int):
            raise ConfigError("A simulated node was not told its number (partition-id and num-partitions)")
        everyone = list(range(clients if self.virtual is None else self.virtual.clients))
        if mode_of(request.config.mode).encrypted:
            if self.virtual is None:
                raise ConfigError(
                    f"mode={request.config.mode} needs keys, and nodes of Flower's simulation have no operator to hold "
                    "them. Use `tacit run --engine flower`, `tacit deploy local`, or real nodes"
                )
            everyone += holder_numbers(request.config.paillier)[0]
        return tuple(everyone[number::count])

    def _examples(self, request: Request) -> int | None:
        if self.own is None or mode_of(request.config.mode).examples != "always":
            return None
        from tacit.training.examples import tensors

        return len(tensors(self.own.data(request.call.node), "this client")[1])  # public there: it sets the rate

    def _protocol(self, request: Request) -> SumProtocol:
        return _protocol(request.config)

    def _work(self, request: Request) -> Answer:
        party, memory = request.call.party, request.memory
        job, randomness = self._job(request.call, request.config)
        if self.own is not None and mode_of(request.config.mode).examples == "always":  # it sets the rate
            examples = str(len(job.holdings.rows[party]))
            memory.change(lambda kept: kept.held_to({"examples": examples}))
        return worked(
            request,
            plan=job.plan,
            protocol=self._as_client(request, job.plan.protocol),
            trainer=job.trainer,
            examples=len(job.holdings.rows[party]),
            randomness=randomness,
        )

    def _job(self, call: Call, config: Resolved) -> tuple[jobs.Job, Randomness]:
        if self.own is not None:
            from tacit.runs.remote_jobs import client_job

            randomness = Randomness.of(seed=config.seed)
            own = client_job(config, randomness, build=self.own.model, data=self.own.data(call.node))
            return own, randomness
        if self.virtual is not None:
            return _job(config, self.virtual.key, self.virtual.simulation)
        if config.seed is None and config.data.split_seed is None:
            raise ConfigError(
                "data.split_seed has to be set: without it every node would split the data in another way. Or give the "
                "app data of its own"
            )
        return _job(config, b"", False)


def client_app(
    *,
    model: Callable[[], nn.Module] | None = None,
    data: Callable[[Mapping[str, Value]], UserData] | None = None,
) -> ClientApp:
    """Return the app of a node: a client, a key holder, or both, as the node's config says.

    Args:
        model: makes the module; by default the run's configuration names it.
        data: returns this node's examples, given its config (``--node-config``); by default the node takes its part of
            the data set that the configuration names.
    """
    if (model is None) != (data is None):
        raise ConfigError("Expected model and data together: whoever brings one has to bring the other.")
    return envelope.client_app(Node(own=None if model is None or data is None else Own(model=model, data=data)))


@functools.lru_cache(maxsize=2)
def _told(settings: str) -> Resolved:
    return resolve(from_mapping(foreign.yaml_value(settings)))


@functools.lru_cache(maxsize=2)
def _protocol(config: Resolved) -> SumProtocol:
    if config.federate.clients is None:
        raise ConfigError("federate.clients has to be set, so that key holders know how many a sum needs")
    return plan_of(config, config.federate.clients).protocol


@functools.lru_cache(maxsize=1)
def _job(config: Resolved, key: bytes, simulation: bool) -> tuple[jobs.Job, Randomness]:
    """Return the job and this process's randomness; both live as long as the process.

    ``key`` is the root of a simulated node's randomness: as many of those as there are cores work side by side.
    """
    from tacit.runs import job as jobs

    if not key:
        randomness = Randomness.of(seed=config.seed)
    else:
        randomness = Randomness(key=key, simulation=simulation)
        config = config.model_copy(update={"train": config.train.model_copy(update={"workers": 1})})
    # All parties have the same data: what one can't have is not replaced by something else.
    return jobs.build(config, randomness, Silent()), randomness
