"""A Flower ClientApp around a function from calls to answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from tacit.flow import ClientId
from tacit.flower.envelope import ACTION, frame_of, party_of, reply

Value = bool | bytes | float | int | str
_MEMORY = "tacit.memory"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request as it reaches a node.

    Attributes:
        party: whom of the node it is for.
        frame: the request.
        node: the node's own settings (``--node-config``), which its operator wrote.
        run: the run's settings, which came with the app.
        run_id: Flower's number of the run.
        simulated: whether the node is one of Flower's simulation, which has no operator.
        memory: what a simulated party was told of the run and has answered, and its client's secrets.
    """

    party: ClientId
    frame: bytes
    node: Mapping[str, Value]
    run: Mapping[str, Value]
    run_id: int
    simulated: bool = False
    memory: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What goes back, what is to be remembered, and where the seconds went."""

    frame: bytes
    memory: bytes = b""
    seconds: Mapping[str, float] = field(default_factory=dict)


Handler = Callable[[Call], Answer]


def client_app(handler: Handler) -> ClientApp:
    """Return the app that hands every request to ``handler``."""
    app = ClientApp()

    @app.train(ACTION)
    def answer(message: Message, context: Context) -> Message:
        party = party_of(message)
        who = f"{context.run_id}.{party}"  # Flower hands a state on from run to run of a series
        call = Call(
            party=party,
            frame=frame_of(message),
            memory=_kept(context, who),
            node=dict(context.node_config),
            run=dict(context.run_config),
            run_id=context.run_id,
            simulated=in_simulation(),
        )
        given = handler(call)
        if given.memory != call.memory:
            _keep(context, who, given.memory)
        return reply(message, given.frame, given.seconds)

    return app


def _kept(context: Context, who: str) -> bytes:
    """Return what a party remembers in this run."""
    kept = context.state.config_records.get(_MEMORY, ConfigRecord()).get(who, b"")
    return kept if isinstance(kept, bytes) else b""


def _keep(context: Context, who: str, data: bytes) -> None:
    """Keep it, and forget what was kept for other runs."""
    run = f"{context.run_id}."
    kept = context.state.config_records.get(_MEMORY, ConfigRecord())
    context.state[_MEMORY] = ConfigRecord({**{one: kept[one] for one in kept if one.startswith(run)}, who: data})


def in_simulation() -> bool:
    """Return whether this process is a worker of Ray, which simulates nodes; a real node's settings can't say so."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
