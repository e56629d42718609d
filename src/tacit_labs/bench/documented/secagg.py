"""Flower's SecAgg+ on a job of sums: its own workflow for the server and its own mod for every client, in one process.

Nothing is left out but transport and training: messages are handed over as they are, and the app that the mod wraps
answers with a vector that is there already. The strategy's average of the results, which the workflow has replaced by
the sum before, is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Parameters, Scalar, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_manager import SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

_SERVER = 0
_EXAMPLES = 1000  # of each client: its largest weight, so that all count alike


class _Sum(FedAvg):
    """A strategy that asks all, and takes what the workflow made of their results."""

    def aggregate_fit(
        self, server_round: int, results: list[tuple[ClientProxy, FitRes]], failures: Any
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        return results[0][1].parameters, {}


class _Clients:
    """Stands in for Flower's grid: every node runs the mod in this process, and is timed."""

    def __init__(self, vector: NDArray[np.float32], clients: int, dropped: int) -> None:
        self._answer = ndarrays_to_parameters([vector])
        self._contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in range(1, clients + 1)
        }
        self._gone = set(range(1, dropped + 1))
        self.spent, self.up = dict.fromkeys(self._contexts, 0.0), dict.fromkeys(self._contexts, 0)
        self.trips = 0

    def _app(self, message: Message, _: Context) -> Message:
        answer = FitRes(Status(Code.OK, ""), self._answer, _EXAMPLES, {})
        return Message(compat.fitres_to_recorddict(answer, keep_input=True), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Have every node answer; those that drop out do so with their vectors."""
        del timeout
        self.trips += 1
        replies = []
        for message in messages:
            node, stage = message.metadata.dst_node_id, message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
            if node in self._gone and stage == Stage.COLLECT_MASKED_VECTORS:
                continue
            own = Message(_copy(message.content), node, message.metadata.message_type)
            start = time.process_time()
            reply = secaggplus_mod(own, self._contexts[node], self._app)
            self.spent[node] += time.process_time() - start
            self.up[node] += _size(reply)
            replies.append(reply)
        return replies


def _copy(content: RecordDict) -> RecordDict:
    """Return a message's records with settings of their own, as the mod takes them out."""
    made = RecordDict(dict(content.items()))
    made.config_records[RECORD_KEY_CONFIGS] = ConfigRecord(dict(content.config_records[RECORD_KEY_CONFIGS]))
    return made


def _size(message: Message) -> int:
    """Return the bytes of what a client sends, without names and framing."""
    values = message.content.config_records[RECORD_KEY_CONFIGS].values()
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    return sum(len(part) if isinstance(part, bytes) else 8 for part in parts)


def secagg(
    vector: NDArray[np.float32], *, clients: int, dropped: int, neighbours: int, threshold: int
) -> dict[str, Any]:
    """Sum one vector per client under SecAgg+, with drop-outs, and return what each side took."""
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, _SERVER  # messages need them
    grid: Any = _Clients(vector, clients, dropped)
    manager = SimpleClientManager()
    for node in range(1, clients + 1):
        manager.register(GridClientProxy(node, grid, 1))
    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        strategy=_Sum(fraction_fit=1.0, min_fit_clients=clients, min_available_clients=clients),
        client_manager=manager,
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    start_model = ndarrays_to_parameters([np.zeros(1, np.float32)])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start_model, keep_input=True)
    # Its number of shares counts the client itself.
    workflow = SecAggPlusWorkflow(neighbours + 1, threshold, max_weight=float(_EXAMPLES), clipping_range=8.0)
    start, wall = time.process_time(), time.perf_counter()
    workflow(grid, context)
    whole, clock = time.process_time() - start, time.perf_counter() - wall
    found = compat.arrayrecord_to_parameters(context.state.array_records[MAIN_PARAMS_RECORD], keep_input=True)
    mean = parameters_to_ndarrays(found)[0]
    assert np.abs(mean - vector).max() < 1e-4, "the mean is not the clear one"
    left = range(dropped + 1, clients + 1)
    return {
        "client_seconds": float(np.mean([grid.spent[node] for node in left])),
        "slowest_client_seconds": max(grid.spent[node] for node in left),
        "server_seconds": whole - sum(grid.spent.values()),
        "wall_seconds": clock,
        "bytes_per_number": max(grid.up[node] for node in left) / len(vector),
        "trips": grid.trips,
        "neighbours": neighbours,
        "threshold": threshold,
    }
