"""Tacit's own app for a node: it carries frames to the process that holds the data or the key, and never has either.

``flower-supernode ... --node-config 'tacit-socket="site/socket"'``: the app that a server ships hands every request to
the process at that socket (``tacit site serve``, ``tacit holder serve``) and returns what that answers. So the app may
drop, repeat or forge requests, as the server itself may; it learns nothing but protected replies.

A node of a simulation has no operator. There the server starts the processes (trial.py) and says where they answer; a
real node does not listen to that word.
"""

from __future__ import annotations

from pathlib import Path

from tacit import wire
from tacit.errors import WireError
from tacit.parties.calls import Answer, Call
from tacit.parties.refusals import LOG, RefusalError, failure
from tacit.parties.trial import socket_of
from tacit.service import Message, ServiceError
from tacit.service import call as ask

SETTING, TRIAL = "tacit-socket", "trial"
_GONE = 8  # Flower's code for an app whose process is gone
_HOW = (
    "This node names no process that holds its data (tacit-socket in its config), and Tacit's app holds none. On the "
    "machine with the data: `tacit site init --name NAME --data FILE --label COLUMN --out site/`, then `tacit site "
    "serve site/`, and start the node with --node-config 'partition-id=0 tacit-socket=\"site/socket\"'. A key holder: "
    "`tacit holder init` and `tacit holder serve`."
)


def relay(call: Call) -> Answer:
    """Return what the process at the node's socket answers; where none does, this node has dropped out."""
    trial = call.said.get(TRIAL) if call.simulated else None
    if trial is None and SETTING not in call.node:
        return Answer(frame=failure(wire.Turn(round_number=0), RefusalError(wire.Failure.NO_PROCESS, _HOW)))
    path = Path(str(call.node[SETTING])) if trial is None else socket_of(Path(str(trial)), call.party)
    number = call.node.get("partition-id") if trial is None else call.party
    head = {"run": call.run_id, "party": call.party, "said": dict(call.said), "partition": number}
    try:
        reply = ask(path, Message(head=head, body=call.frame))
        seconds = {stage: float(value) for stage, value in reply.head.get("seconds", {}).items()}
    except (ServiceError, WireError, AttributeError, TypeError, ValueError) as error:
        LOG.error("tacit: %s", error)
        return Answer(error=_GONE, reason="The process that holds its data, or its key, did not answer.")
    return Answer(frame=reply.body, seconds=seconds)
