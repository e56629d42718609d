"""A node of a federation: what a client or a key holder does with a request.

A node is asked one request at a time, often in a process of its own each time, so nothing here outlives an answer but
the party's state, which Flower keeps, and the files that the node's own settings name::

    partition-id       the client's number, from 0
    tacit-key          the file of the key, or of a share of it, that this node holds (mode 0600)
    tacit-pin          the key that this client encrypts with: its fingerprint or its file, see operator.py
    tacit-identity     the file of this client's lasting identity (mode 0600)
    tacit-clients      at a key holder, the file that lists the identities of all clients
    tacit-minimum      at a key holder, the fewest clients whose sum it opens; 2 unless it says otherwise
    tacit-data         the folder with this node's data files
    tacit-gpu          the number of the GPU this node trains on
    tacit-simulation   whether this node takes part in simulations, whose noise others can predict
    tacit-memory       the folder in which it remembers what it was told and has answered, see memory.py

Nodes of Flower's own simulation (``flwr run``) have no operator and hold no keys; clients share them evenly.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.clientapp import ClientApp

import tacit
from tacit import foreign, wire
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError, WireError
from tacit.federated.round import LocalClients, Timed
from tacit.flow import ClientId, Stopwatch
from tacit.flower import envelope, hello
from tacit.flower import key_holder as holder
from tacit.flower.envelope import Answer, Call, Value
from tacit.flower.memory import InFile, InState, Memory, announce, kept_in
from tacit.flower.operator import identity_of, key_of, pin_of, refuse_predictable
from tacit.flower.refusals import RefusalError, failure, without_details
from tacit.flower.settings import agreed, from_dotted, promise
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.modes.keys import holder_numbers
from tacit.protocols.paillier import PaillierSum
from tacit.randomness import Randomness
from tacit.runs.observer import Silent

if TYPE_CHECKING:  # greetings, keys and openings need no torch, which takes seconds to import
    from torch import nn

    from tacit.runs import job as jobs
    from tacit.training.examples import Examples

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
    """

    settings: str
    key: bytes
    simulation: bool
    clients: int
    keys: Mapping[ClientId, str]


@dataclass(frozen=True, kw_only=True)
class Own:
    """A node's own model and data: functions of the app, called on the node.

    Attributes:
        model: makes the module.
        data: returns the node's examples, given the node's settings (``--node-config``).
    """

    model: Callable[[], nn.Module]
    data: Callable[[Mapping[str, Value]], Examples]


@dataclass(frozen=True, kw_only=True)
class Node:
    """Answers for the parties at one node; in a simulation, for whichever node Flower says.

    Attributes:
        virtual: what a simulated node is told; None at a real one.
        own: model and data of a real node; by default those that the run's configuration names.
    """

    virtual: Virtual | None = None
    own: Own | None = None

    def __call__(self, call: Call) -> Answer:
        """Answer a request; of what is wrong on this side a code is told, and the rest is in the node's log."""
        turn = wire.Turn(round_number=0)
        memory = self._memory(call)
        try:
            frame = wire.unpack(call.frame)
            turn = frame.turn
            config = self._config(call)
            if frame.kind is wire.Kind.HELLO:
                answer = Answer(frame=self._introduce(call, config, memory))
            elif frame.kind in wire.FOR_HOLDERS:
                self._held_to(config, memory)
                answer = self._hold(call, frame, config)
            elif frame.kind is wire.Kind.ENROL:
                answer = self._enrol(call, frame, config, memory)
            else:
                answer = self._work(call, config, frame, memory)
        except Exception as error:  # whatever it is, its words could tell of this node's data
            answer = Answer(frame=failure(turn, error))
        return answer if isinstance(memory, InFile) else replace(answer, memory=memory.data)

    def _memory(self, call: Call) -> InFile | InState:
        """Return what this node remembers of the run."""
        if self.virtual is not None or call.simulated or call.node.get("tacit-simulation") is True:
            return InState(call.memory)
        who = str(call.node.get("partition-id", "holder"))  # not call.party, which is the server's word
        return kept_in(call.node, f"run-{call.run_id}-{who}")

    def _held_to(self, config: RunConfig, memory: InFile | InState, **more: str) -> None:
        """Hold the run to what was said of it first."""
        said = {"settings": json.dumps(agreed(config), sort_keys=True), **more}
        announce(memory, said, lambda: promise(config), about="settings")

    def _config(self, call: Call) -> RunConfig:
        if self.virtual is not None:
            return _from_yaml(self.virtual.settings)
        own = {key: call.node[name] for name, key in _OWN.items() if name in call.node}
        config = from_dotted({**call.run, **own})
        if not call.simulated:
            refuse_predictable(config.seed, call.node)
        return config

    def _introduce(self, call: Call, config: RunConfig, memory: InFile | InState) -> bytes:
        hello.check(call.frame, config)
        self._held_to(config, memory)
        parties = self._parties(call, config)
        client = max(parties, default=-1) >= 0
        if client and mode_of(config.mode).encrypted and self.virtual is None:
            pin_of(call.node, config.paillier)  # what is wrong with it is better told before the first round
        examples = None
        if (
            self.own is not None and mode_of(config.mode).examples == "always" and client
        ):  # public there: it sets the rate
            from tacit.training.examples import tensors

            examples = len(tensors(self.own.data(call.node), "this client")[1])
        return hello.introduce(hello.Introduction(version=tacit.__version__, parties=parties, examples=examples))

    def _parties(self, call: Call, config: RunConfig) -> tuple[ClientId, ...]:
        number = call.node.get("partition-id")
        clients = resolve(config).federate.clients or 0
        if self.virtual is not None or call.simulated:
            return self._share(call, config, clients)
        parties = []
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < clients:
                raise ConfigError(f"partition-id={number!r} in the node's config: expected 0 to {clients - 1}")
            parties.append(number)
        if "tacit-key" in call.node and mode_of(config.mode).encrypted and config.paillier.keys != "shared":
            parties.append(holder.number_of(Path(str(call.node["tacit-key"])), config.paillier))
        if not parties:
            raise ConfigError(
                "This node is neither a client (partition-id in its config) nor a key holder (tacit-key). "
                "Start it with --node-config 'partition-id=0'"
            )
        return tuple(parties)

    def _share(self, call: Call, config: RunConfig, clients: int) -> tuple[ClientId, ...]:
        """Return the parties of a simulated node: they are dealt out evenly, however many nodes there are."""
        number, count = call.node.get("partition-id"), call.node.get("num-partitions")
        if not isinstance(number, int) or not isinstance(count, int):
            raise ConfigError("A simulated node was not told its number (partition-id and num-partitions)")
        everyone = list(range(clients if self.virtual is None else self.virtual.clients))
        if mode_of(config.mode).encrypted:
            if self.virtual is None:
                raise ConfigError(
                    f"mode={config.mode} needs keys, and nodes of Flower's simulation have no operator to hold them. "
                    "Use `tacit run --engine flower`, `tacit deploy local`, or real nodes"
                )
            everyone += holder_numbers(config.paillier)[0]
        return tuple(everyone[number::count])

    def _hold(self, call: Call, request: wire.Frame, config: RunConfig) -> Answer:
        watch = Stopwatch()
        with watch.measure("recover"):
            frame = holder.answer(
                request,
                key=self._key(call, config),
                settings=config.paillier,
                protocol=_protocol(config),
                run_id=call.run_id,
                node=call.node,
            )
        return Answer(frame=frame, seconds={"recover": watch.seconds["recover"]})

    def _key(self, call: Call, config: RunConfig) -> Path:
        if self.virtual is not None:
            return Path(self.virtual.keys[min(call.party, 0)])
        return key_of(call.node, config.paillier)

    def _enrol(self, call: Call, request: wire.Frame, config: RunConfig, memory: InFile | InState) -> Answer:
        """Enrol the client that this node is by its own settings: as nobody else, so that it counts once in a sum."""
        self._check_party(call, config)
        self._held_to(config, memory)
        protocol = self._as_client(call, config, _protocol(config))
        replies: list[bytes] = []

        def enrolled(kept: Memory) -> Memory:
            state, reply = protocol.client(kept.state, request, None, number=call.party)
            replies.append(reply)
            return replace(kept, state=state)

        memory.change(enrolled)
        return Answer(frame=without_details(replies[0]))

    def _as_client(self, call: Call, config: RunConfig, protocol: PaillierSum) -> PaillierSum:
        """Return the protocol with what this client's operator gave it."""
        if self.virtual is not None:
            return protocol
        return replace(protocol, pin=pin_of(call.node, config.paillier), identity=identity_of(call.node))

    def _check_party(self, call: Call, config: RunConfig) -> None:
        if call.party not in self._parties(call, config):
            raise RefusalError(wire.Failure.PARTY, f"This node was asked as party {call.party}, which it is not")

    def _work(self, call: Call, config: RunConfig, frame: wire.Frame, memory: InFile | InState) -> Answer:
        self._check_party(call, config)
        self._held_to(config, memory)
        if frame.kind is wire.Kind.TASK:
            federate = resolve(config).federate
            memory.change(lambda kept: kept.answering(frame.turn, rounds=federate.rounds, retries=federate.retries))
        job, randomness = self._job(call, config)
        if self.own is not None and mode_of(config.mode).examples == "always":  # it sets the rate that is accounted
            self._held_to(config, memory, examples=str(len(job.holdings.rows[call.party])))
        protocol = job.plan.protocol
        states = {call.party: memory.change(lambda kept: kept)[0].state}  # which a task does not change
        if isinstance(protocol, PaillierSum):
            protocol = self._as_client(call, config, protocol)
            if config.paillier.keys == "shared":
                own = holder.own_key(str(self._key(call, config)), config.paillier.insecure_key_size)
                protocol = replace(protocol, own=own)
        watch = Stopwatch()
        timed = Timed(trainer=job.trainer, stopwatch=watch)
        clients = LocalClients(
            plan=job.plan,
            protocol=protocol,
            trainer=timed,
            examples={call.party: len(job.holdings.rows[call.party])},
            randomness=randomness,
            states=states,
        )
        replies = timed.answers(clients.answer)({call.party: call.frame})
        seconds = {stage: watch.seconds[stage] for stage in ("train", "protect")}
        return Answer(frame=without_details(replies[call.party]), seconds=seconds)

    def _job(self, call: Call, config: RunConfig) -> tuple[jobs.Job, Randomness]:
        if self.own is not None:
            from tacit.flower.remote_jobs import client_job

            randomness = Randomness.of(seed=config.seed)
            own = client_job(config, randomness, build=self.own.model, data=self.own.data(call.node))
            return own, randomness
        if self.virtual is not None:
            return _job(config.to_yaml(), self.virtual.key, self.virtual.simulation)
        if config.seed is None and config.data.split_seed is None:
            raise ConfigError(
                "data.split_seed has to be set: without it every node would split the data in another way. Or give the "
                "app data of its own"
            )
        return _job(resolve(config).to_yaml(), b"", False)  # YAML does not tell a default from what was set


def client_app(
    *,
    model: Callable[[], nn.Module] | None = None,
    data: Callable[[Mapping[str, Value]], Examples] | None = None,
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
def _from_yaml(settings: str) -> RunConfig:
    return from_mapping(foreign.yaml_value(settings))


@functools.lru_cache(maxsize=1)
def _job(settings: str, key: bytes, simulation: bool) -> tuple[jobs.Job, Randomness]:
    """Return the job and this process's randomness; both live as long as the process.

    ``key`` is the root of a simulated node's randomness: as many of those as there are cores work side by side.
    """
    from tacit.runs import job as jobs

    config = _from_yaml(settings)
    if not key:
        randomness = Randomness.of(seed=config.seed)
    else:
        randomness = Randomness(key=key, simulation=simulation)
        config = config.model_copy(update={"train": config.train.model_copy(update={"workers": 1})})
    return jobs.build(config, randomness, Silent()), randomness


def _protocol(config: RunConfig) -> PaillierSum:
    """Return the protocol as a key holder knows it: how many clients a sum needs is its own settings' word."""
    config = resolve(config)
    if config.federate.clients is None:
        raise ConfigError("federate.clients has to be set, so that key holders know how many a sum needs")
    protocol = plan_of(config, config.federate.clients).protocol
    if not isinstance(protocol, PaillierSum):
        raise WireError(f"A key or an opening was asked for, and mode {config.mode!r} has none")
    return protocol
