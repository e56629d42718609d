"""A run in Flower's simulation: the same configuration, the same result, every party on a virtual node of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tacit.errors import ConfigError
from tacit.federated.unreliable import Unreliable
from tacit.flow import ClientId, Engine
from tacit.flower.keyfiles import write_keys
from tacit.protocols.paillier import PaillierSum
from tacit.randomness import Randomness
from tacit.runs.connection import Watch
from tacit.runs.job import Job
from tacit.runs.run import GIVEN


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
        from tacit.flower.calls import client_app
        from tacit.flower.engine import FlowerEngine
        from tacit.flower.link import Link, timed
        from tacit.flower.node import Node, Virtual
        from tacit.flower.virtual_nodes import simulated

        clients = len(job.holdings.rows)
        settings = job.config.flower
        virtual = Virtual(
            settings=job.config.to_yaml(),
            key=randomness.key,
            simulation=randomness.simulation,
            clients=clients,
            keys=self._keys,
        )
        holders = [party for party in self._keys if party < 0]
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

    def _key_files(self, job: Job) -> dict[ClientId, str]:
        """Return the file of each key holder; 0 stands for all clients where they share the key."""
        if not isinstance(job.plan.protocol, PaillierSum):
            return {}
        return write_keys(job.config.paillier, Path(self._folder.name))


class _Unreliable:
    """An engine that loses clients as a run in one process does, with the same seed the same ones."""

    def __init__(self, engine: Engine, job: Job, randomness: Randomness) -> None:
        self.name = engine.name
        self.exchange = Unreliable(answer=engine.exchange, rate=job.config.federate.drop, randomness=randomness)
