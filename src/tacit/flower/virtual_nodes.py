"""Flower's own simulation: virtual nodes on Ray, in this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tacit.errors import RunError

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextlib.contextmanager
def simulated(app: ClientApp, *, nodes: int, cpus: float = 1.0, gpus: float = 0.0) -> Iterator[Grid]:
    """Bring up ``nodes`` virtual SuperNodes that run ``app``, and return the Grid they are reached through.

    Flower calls a server's function from a thread of its own; that function hands its Grid over and waits until the
    context ends, so that whoever holds the Grid need not live in a callback.

    Args:
        app: what every node runs.
        nodes: how many there are; they are told their ``partition-id``, from 0.
        cpus: how many a node is given while it works; as many work at once as fit.
        gpus: the share of a GPU likewise.
    """
    grids: queue.Queue[Grid] = queue.Queue()
    failures: list[BaseException] = []
    done = threading.Event()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        grids.put(grid)
        done.wait()

    backend: dict[str, Any] = {
        "init_args": {
            "log_to_driver": False,
            "logging_level": "critical",
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        },
        "client_resources": {"num_cpus": cpus, "num_gpus": gpus},
    }
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from flwr.simulation import run_simulation

    def run() -> None:
        try:
            run_simulation(server, app, num_supernodes=nodes, backend_config=backend)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="tacit-flower-simulation")
    with _quiet():
        thread.start()
        try:
            grid = _first(grids, thread, failures)
            _wait_for_nodes(grid, nodes, thread, failures)
            yield grid
        finally:
            done.set()
            thread.join()


def _first(grids: queue.Queue[Grid], thread: threading.Thread, failures: list[BaseException]) -> Grid:
    while True:
        try:
            return grids.get(timeout=0.1)
        except queue.Empty:
            _check(thread, failures)


def _wait_for_nodes(grid: Grid, nodes: int, thread: threading.Thread, failures: list[BaseException]) -> None:
    while len(list(grid.get_node_ids())) < nodes:
        _check(thread, failures)
        time.sleep(0.02)


def _check(thread: threading.Thread, failures: list[BaseException]) -> None:
    if not thread.is_alive():
        why = failures[0] if failures else "it ended before its first message"
        raise RunError(f"Flower's simulation did not start: {why}") from (failures[0] if failures else None)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Flower's log off the terminal; what goes wrong comes back as errors."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
