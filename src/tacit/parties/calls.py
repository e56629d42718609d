"""A request as it reaches a party, and what goes back: what a carrier such as Flower hands over, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit.flow import ClientId

Value = bool | bytes | float | int | str  # of a node's config, or a run's
Said = Value | list[int] | list[float] | list[str] | list[bytes] | list[bool]  # beside a request


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request as it reaches a node.

    Attributes:
        party: whom of the node it is for.
        frame: the request.
        said: what the server says of the run beside it, see :class:`tacit.parties.hello.Terms`.
        node: the node's own settings (``--node-config``), which its operator wrote.
        run: the run's settings, which came with the app.
        run_id: the number of the run, by whoever carries the request.
        simulated: whether the node is one of Flower's simulation, which has no operator.
        memory: what a simulated party was told of the run and has answered, and its client's secrets.
    """

    party: ClientId
    frame: bytes
    said: Mapping[str, Said] = field(default_factory=dict)
    node: Mapping[str, Value]
    run: Mapping[str, Value]
    run_id: int
    simulated: bool = False
    memory: bytes = b""

    @property
    def plays(self) -> bool:
        """Whether the node is a virtual one, or one whose operator takes part in simulations."""
        return self.simulated or self.node.get("tacit-simulation") is True


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What goes back, what is to be remembered, and where the seconds went.

    Attributes:
        frame: the reply.
        memory: what to hand over with the next request.
        seconds: how long the node worked, by stage.
        error: Flower's code, where somebody else's app failed, or nobody is there who could answer.
        reason: what is said beside it; an app's own words stay in the node's log.
    """

    frame: bytes = b""
    memory: bytes = b""
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: int | None = None
    reason: str = "The app failed; what it said is in the node's log."
