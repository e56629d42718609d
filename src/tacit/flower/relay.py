"""A SuperNode that only carries frames to its site's own process, and never holds data or keys.

``flower-supernode ... --node-config 'tacit-socket="site/socket"'``: the app that a server ships hands every request to
the process at that socket (``tacit site serve``, ``tacit holder serve``) and returns what that answers. So the app may
drop, repeat or forge requests, as the server itself may; it learns nothing but protected replies.
"""

from __future__ import annotations

from pathlib import Path

from tacit import wire
from tacit.errors import WireError
from tacit.parties.calls import Answer, Call
from tacit.parties.refusals import failure
from tacit.service import Message, ServiceError
from tacit.service import call as ask

SETTING = "tacit-socket"


def relay(call: Call) -> Answer:
    """Return what the process at the node's socket answers; where none does, a code says so."""
    head = {
        "run": call.run_id,
        "party": call.party,
        "said": dict(call.said),
        "partition": call.node.get("partition-id"),
    }
    try:
        reply = ask(Path(str(call.node[SETTING])), Message(head=head, body=call.frame))
        seconds = {stage: float(value) for stage, value in reply.head.get("seconds", {}).items()}
    except (ServiceError, WireError, TypeError, ValueError) as error:
        return Answer(frame=failure(wire.Turn(round_number=0), error))
    return Answer(frame=reply.body, seconds=seconds)
