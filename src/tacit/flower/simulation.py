"""A run in Flower's simulation: the same configuration, the same result, every party behind a node and in a process.

Nodes live in Ray's workers and carry frames; data and keys are in the parties' own processes (trial.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tacit.config.resolved import Resolved
from tacit.errors import ConfigError, RunError, TacitError, WireError
from tacit.federated.round import Unreliable
from tacit.flow import ClientId, Engine, party_name
from tacit.flower.deploy.processes import ended_by_signals
from tacit.flower.deploy.watchdog import VARIABLE
from tacit.limits import cores
from tacit.parties.hello import GREETING, Introduction, Terms
from tacit.randomness import Randomness
from tacit.runs.connection import Watch
from tacit.runs.job import Job
from tacit.runs.run import GIVEN

if TYPE_CHECKING:  # who asks for this engine without Flower is told what to install
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from tacit.flower.engine import FlowerEngine
    from tacit.flower.trial import LocalParties

LOG = "sites.log"  # in the folder of a run that failed
_PAUSE = 0.02
# Nodes only carry frames, so that a few can do it for all parties. For each of its nodes Flower's simulation looks at
# every message that is on its way, ten times per second: a thousand nodes with a message each keep a core busy.
_CARRIERS = 32
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class Simulation:
    """Virtual SuperNodes that carry frames to the processes of sites and key holders, which are gone afterwards.

    Args:
        job: the run's.
        grid: the way to the nodes, where Flower has brought them up already (``flwr run``).
    """

    name = "flower"

    def __init__(self, job: Job, grid: Grid | None = None) -> None:
        if find_spec("flwr") is None or find_spec("ray") is None:
            raise ConfigError(
                "engine=flower needs Flower and Ray, which are not installed: pip install 'tacit[flower]'."
            )
        if job.dataset == GIVEN:
            raise ConfigError(
                "engine=flower starts processes that load their data themselves, and these data were given in memory. "
                "Leave the engine out, or write an app with `tacit deploy new`."
            )
        from tacit.flower.trial import LocalParties

        self._grid = grid
        cpus, gpus = job.config.flower.cpus, job.config.flower.gpus
        self._at_once = max(1, min(int(cores() / cpus), int(1 / gpus) if gpus else cores()))
        self._parties = LocalParties(job.config, at_once=self._at_once)
        self._carriers = min(len(self._parties.numbers), max(_CARRIERS, 2 * self._at_once))

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:
        """Bring the processes and the nodes up."""
        from tacit.flower.engine import FlowerEngine
        from tacit.flower.link import timed

        settings, there = job.config.flower, self._parties
        with ended_by_signals(), there.up(), self._nodes(job) as grid:
            there.wait()
            engine = FlowerEngine(
                grid=grid,
                deadline=settings.deadline,
                note=watch.note,
                on_reply=watch.on_reply,
                on_trip=timed(watch.stopwatch, self._at_once),
                most=2 * self._carriers,
            )
            greet(engine, there, job.config)
            try:
                yield _Unreliable(engine, job, randomness) if job.config.federate.drop else engine
            except TacitError:
                if job.config.out is not None and there.keep_words(job.config.out / LOG):
                    watch.note(f"What the sites said is in {job.config.out / LOG}, for you alone: it may tell of data.")
                raise

    @contextmanager
    def _nodes(self, job: Job) -> Iterator[Grid]:
        if self._grid is not None:
            yield self._grid
            return
        from tacit.flower.envelope import client_app
        from tacit.flower.relay import relay

        settings, there = job.config.flower, self._parties
        with (
            _environment({VARIABLE: there.mark}),  # which Ray's processes inherit, and end by
            simulated(client_app(relay), nodes=self._carriers, cpus=settings.cpus, gpus=settings.gpus) as grid,
        ):
            yield grid


def is_simulated(grid: Grid) -> bool:
    """Return whether the nodes that a grid reaches are Flower's own simulation."""
    from flwr.superlink.grid import InMemoryGrid

    return isinstance(grid, InMemoryGrid)


def greet(engine: FlowerEngine, there: LocalParties, config: Resolved) -> None:
    """Deal the parties out to the nodes, tell these where the processes answer, and greet everyone there.

    Which node carries whose frames is of no importance: nodes of a simulation have no operator.
    """
    from tacit.flower.relay import TRIAL

    while not (nodes := sorted(engine.present())):
        time.sleep(_PAUSE)
    engine.terms = {**Terms.of(config).to_record(), TRIAL: str(there.folder)}
    engine.nodes = {party: nodes[place % len(nodes)] for place, party in enumerate(there.numbers)}
    replies = engine.exchange(dict.fromkeys(there.numbers, GREETING))
    for party in there.numbers:
        why = _trouble(party, replies.get(party))
        if why is not None:
            raise RunError(f"{why} What the sites said last:\n{there.said()}")


def _trouble(party: ClientId, reply: bytes | None) -> str | None:
    """Return what is wrong with a party's answer to the greeting."""
    if reply is None:
        return f"{party_name(party)} did not answer."
    try:
        said = Introduction.read(party, reply)
    except (RunError, WireError) as error:
        return str(error)
    return None if said.parties == (party,) else f"{party_name(party)} says that it is {said.parties}."


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
    from flwr.simulation import run_simulation

    def run() -> None:
        try:
            run_simulation(server, app, num_supernodes=nodes, backend_config=backend)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="tacit-flower-simulation")
    with _environment(_QUIET), _quiet():
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
    """Wait for all nodes, and for Ray, which may fail to start when they are there."""
    import ray

    while len(list(grid.get_node_ids())) < nodes or not ray.is_initialized():
        _check(thread, failures)
        time.sleep(_PAUSE)


def _check(thread: threading.Thread, failures: list[BaseException]) -> None:
    if not thread.is_alive():
        why = failures[0] if failures else "it ended before its first message"
        raise RunError(f"Flower's simulation did not start: {why}") from (failures[0] if failures else None)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have values in the environment that nobody has set, for a while."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


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
