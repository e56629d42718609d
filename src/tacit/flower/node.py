"""The app of a node: one that carries frames, or one with model and data of its own.

``client_app()`` carries every request to the process that the node's operator named, and holds nothing (relay.py).

``client_app(model=, data=)`` trains in the SuperNode's own process, on data that functions of the app load there. The
server sends that app: whoever may send runs to the federation reaches the data with it, whatever protects the replies.
How a request is answered is in :mod:`tacit.parties.party`. What the node's operator says stands in its config
(``--node-config``), which no server can change::

    partition-id       the client's number, from 0
    tacit-socket       the socket of the site's, or the key holder's, own process: this node then only carries frames
                       to it, and of all others needs partition-id alone

and where the app has data of its own::

    tacit-key          the file of the key, or of a share of it, that this node holds (mode 0600)
    tacit-pin          the key that this client encrypts with: its fingerprint or its file, see operator.py
    tacit-identity     the file of this client's lasting identity (mode 0600)
    tacit-clients      at a key holder, or at a client under masks, the file that lists the identities of all clients
    tacit-minimum      at a key holder, the fewest clients whose sum it opens; 2 unless it says otherwise
    tacit-gpu          the number of the GPU this node trains on
    tacit-simulation   whether this node takes part in simulations, whose noise others can predict
    tacit-memory       the folder in which it remembers what it was told and has answered, see memory.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from flwr.clientapp import ClientApp

from tacit.config.resolved import Resolved
from tacit.errors import ConfigError
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.relay import SETTING, relay
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.parties import key_holder
from tacit.parties.calls import Answer, Call, Value
from tacit.parties.hello import Terms
from tacit.parties.party import Party, Request
from tacit.parties.settings import from_dotted
from tacit.parties.work import worked
from tacit.protocols.protocol import SumProtocol
from tacit.randomness import Randomness

if TYPE_CHECKING:  # greetings, keys and openings need no torch, which takes seconds to import
    from torch import nn

    from tacit.training.examples import UserData

_OWN = {"tacit-gpu": "gpu"}  # a node's own settings, and which keys they are


@dataclass(frozen=True, kw_only=True)
class Own(Party):
    """A node whose app brings model and data along, and trains in the node's own process.

    Attributes:
        model: makes the module.
        data: returns the node's examples, given the node's settings (``--node-config``).
    """

    model: Callable[[], nn.Module]
    data: Callable[[Mapping[str, Value]], UserData]
    in_app: ClassVar[bool] = True

    def __call__(self, call: Call) -> Answer:
        """Answer a request, or have the process answer that the node's operator named."""
        return relay(call) if SETTING in call.node else super().__call__(call)

    def _who(self, call: Call) -> str:
        return str(call.node.get("partition-id", "holder"))  # not call.party, which is the server's word

    def _config(self, call: Call, terms: Terms) -> Resolved:
        own = {key: call.node[name] for name, key in _OWN.items() if name in call.node}
        config = resolve(from_dotted({**call.run, **own, "engine": "flower"}))
        terms.agree(config)
        return config

    def _parties(self, request: Request) -> tuple[ClientId, ...]:
        node, config = request.call.node, request.config
        clients = config.federate.clients or 0
        if request.call.simulated:
            return _share(request, clients)
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

    def _examples(self, request: Request) -> int | None:
        if mode_of(request.config.mode).examples != "always":
            return None
        from tacit.training.examples import tensors

        return len(tensors(self.data(request.call.node), "this client")[1])  # public there: it sets the rate

    def _protocol(self, request: Request) -> SumProtocol:
        return _protocol(request.config)

    def _work(self, request: Request) -> Answer:
        from tacit.runs.remote_jobs import client_job

        party, memory, config = request.call.party, request.memory, request.config
        randomness = Randomness.of(seed=config.seed)
        job = client_job(config, randomness, build=self.model, data=self.data(request.call.node))
        if mode_of(config.mode).examples == "always":  # it sets the rate
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


def client_app(
    *,
    model: Callable[[], nn.Module] | None = None,
    data: Callable[[Mapping[str, Value]], UserData] | None = None,
) -> ClientApp:
    """Return the app of a node: it carries frames to the process that holds the data (``tacit-socket``).

    With a model and data of the app's own it trains in the node's process, where the server's app reaches the data.

    Args:
        model: makes the module.
        data: returns this node's examples, given its config (``--node-config``).
    """
    if (model is None) != (data is None):
        raise ConfigError("Expected model and data together: whoever brings one has to bring the other.")
    return envelope.client_app(relay if model is None or data is None else Own(model=model, data=data))


def _share(request: Request, clients: int) -> tuple[ClientId, ...]:
    """Return the parties of a simulated node: they are dealt out evenly, however many nodes there are."""
    node = request.call.node
    number, count = node.get("partition-id"), node.get("num-partitions")
    if not isinstance(number, int) or not isinstance(count, int):
        raise ConfigError("A simulated node was not told its number (partition-id and num-partitions)")
    if mode_of(request.config.mode).encrypted:
        raise ConfigError(
            f"mode={request.config.mode} needs keys, and nodes of Flower's simulation that have data of their own have "
            "no operator to hold them. Use real nodes, or an app without data of its own"
        )
    return tuple(range(number, clients, count))


@functools.lru_cache(maxsize=2)
def _protocol(config: Resolved) -> SumProtocol:
    if config.federate.clients is None:
        raise ConfigError("federate.clients has to be set, so that key holders know how many a sum needs")
    return plan_of(config, config.federate.clients).protocol
