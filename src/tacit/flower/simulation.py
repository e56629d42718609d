"""A run in Flower's simulation: the same configuration, the same result, every party on a virtual node of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import ConfigError, RunError
from tacit.federated.round import Unreliable
from tacit.flow import Engine
from tacit.modes.keys import KeyFiles, write_keys
from tacit.protocols.paillier import PaillierSum
from tacit.randomness import Randomness
from tacit.runs.connection import Watch
from tacit.runs.job import Job
from tacit.runs.run import GIVEN

if TYPE_CHECKING:  # who asks for this engine without Flower is told what to install
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class Simulation:
    """Clients and key holders on virtual SuperNodes; keys lie in files of a folder that is gone afterwards."""

    name = "flower"

    def __init__(self, job: Job) -> None:
        if find_spec("flwr") is None or find_spec("ray") is None:
            raise ConfigError(
                "engine=flower needs Flower and Ray, which are not installed: pip install 'tacit[flower]'."
            )
        if job.dataset == GIVEN:
            raise ConfigError(
                "engine=flower starts processes that load their data themselves, and these data were given in memory. "
                "Leave the engine out, or write an app with `tacit deploy new`."
            )
        self._folder = tempfile.TemporaryDirectory(prefix="tacit-keys-")  # for its owner alone
        self._keys = self._key_files(job)

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:
        """Bring the nodes up and find out who they are."""
        from tacit.flower.engine import FlowerEngine
        from tacit.flower.envelope import client_app
        from tacit.flower.link import Link, timed
        from tacit.flower.node import Node, Virtual

        clients = len(job.holdings.rows)
        settings = job.config.flower
        virtual = Virtual(
            settings=job.config.to_yaml(),
            key=randomness.key,
            simulation=randomness.simulation,
            clients=clients,
            keys={} if self._keys is None else {party: str(path) for party, path in self._keys.secret.items()},
            pin="" if self._keys is None else str(self._keys.public),
        )
        holders = [party for party in virtual.keys if party < 0]
        parties = frozenset(range(clients)) | frozenset(holders)
        app = client_app(Node(virtual=virtual))
        with (
            self._folder,
            simulated(app, nodes=len(parties), cpus=settings.cpus, gpus=settings.gpus) as grid,
        ):
            engine = FlowerEngine(
                grid=grid,
                deadline=settings.deadline,
                note=watch.note,
                on_reply=watch.on_reply,
                on_trip=timed(watch.stopwatch, max(1, int((os.cpu_count() or 1) / settings.cpus))),
            )
            link = Link(engine=engine, config=job.config, parties=parties, note=watch.note)
            link.assemble(minimum_clients=clients)
            yield _Unreliable(link, job, randomness) if job.config.federate.drop else link

    def _key_files(self, job: Job) -> KeyFiles | None:
        """Leave the keys of the key holders in the folder, where the protocol has any."""
        if not isinstance(job.plan.protocol, PaillierSum):
            return None
        return write_keys(job.config.paillier, Path(self._folder.name))


class _Unreliable:
    """An engine that loses clients as a run in one process does, with the same seed the same ones."""

    def __init__(self, engine: Engine, job: Job, randomness: Randomness) -> None:
        self.name = engine.name
        rate, trips = job.config.federate.drop, job.plan.protocol.trips
        self.exchange = Unreliable(answer=engine.exchange, rate=rate, randomness=randomness, trips=trips)


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
    from flwr.serverapp import ServerApp

    grids: queue.Queue[Grid] = queue.Queue()
    failures: list[BaseException] = []
    done = threading.Event()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001 - Flower hands it over
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
