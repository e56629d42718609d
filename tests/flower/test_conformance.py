"""Every mode comes to the same model on Flower as in one process: real virtual nodes on Ray, started once for all.

They carry frames to sites and key holders at their sockets, which are threads of this process. Those whose parties are
processes are in test_trial.py.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from flwr.serverapp import Grid

from tacit.config.run_config import RunConfig
from tacit.federated.round import Unreliable
from tacit.flow import Engine
from tacit.flower.engine import FlowerEngine
from tacit.flower.envelope import client_app
from tacit.flower.link import timed
from tacit.flower.relay import relay
from tacit.flower.simulation import greet, simulated
from tacit.modes.catalogue import resolve
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.connection import Watch
from tacit.runs.observer import Silent
from tacit.runs.result import Result
from tacit.runs.run import execute, run
from tests.flower.inside import answering
from tests.runs.common import digits, weights

pytestmark = [
    pytest.mark.xdist_group("flower"),
    # Ray leaves files and processes to the collector, which says so
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
CLIENTS = 6
SMALL = {"bits": 512, "insecure_key_size": True}


@dataclass
class Nodes:
    """The way to the parties behind the nodes of the one simulation."""

    grid: Grid
    folder: Path
    name: str = "flower"

    @contextmanager
    def open(self, job: jobs.Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:
        folder = self.folder / uuid4().hex
        folder.mkdir()
        engine: Any = FlowerEngine(grid=self.grid, deadline=120.0, on_trip=timed(watch.stopwatch, 2), note=watch.note)
        with answering(job.config, folder) as there:
            greet(engine, cast(Any, there), job.config)
            if job.config.federate.drop:
                rate, trips = job.config.federate.drop, job.plan.protocol.trips
                engine = _Losing(Unreliable(answer=engine.exchange, rate=rate, randomness=randomness, trips=trips))
            yield engine


@dataclass
class _Losing:
    exchange: Unreliable
    name: str = "flower"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    every = float(os.cpu_count() or 1)  # one worker for all nodes: what starting it costs is paid once
    with simulated(client_app(relay), nodes=3, cpus=every) as grid:  # fewer than parties: whose frames one carries is
        yield Nodes(grid, tmp_path_factory.mktemp("nodes"))  # of no importance
    gc.collect()  # while the warnings are ignored


def _both(nodes: Nodes, config: RunConfig, folder: Path) -> tuple[Result, Result]:
    here = run(config.model_copy(update={"out": folder / "here"}))
    randomness = Randomness.of(seed=config.seed)
    there = execute(
        lambda: jobs.build(resolve(config), randomness, Silent()),
        randomness,
        folder / "there",
        Silent(),
        connect=lambda _: nodes,
    )
    return here, there


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain with drop-outs": {"federate": {"drop": 0.3}},
    "plain with a sample": {"federate": {"per_round": 3}},
    "dp": {"mode": "dp", "dp": {"noise": 0.5, "clip": "adaptive"}},
    "dp with correlated noise": {
        "mode": "dp",
        "federate": {"separation": 2, "rounds": 3},
        "dp": {"correlation": "banded", "epsilon": 8.0},
    },
    "local-dp": {"mode": "local-dp", "dp": {"noise": 0.1}},
    "dp-sgd": {"mode": "dp-sgd", "dp": {"noise": 1.0}},
    "both levels": {"mode": "dp", "dp": {"noise": 1.0}, "dpsgd": {"noise": 1.0}},
    "signds": {"mode": "signds"},
    "nbafl": {"mode": "nbafl"},
    "paillier": {"mode": "paillier", "paillier": SMALL},
    "paillier threshold": {"mode": "paillier", "paillier": SMALL | {"keys": "threshold", "shares": "2/3"}},
    "paillier shared": {"mode": "paillier", "paillier": SMALL | {"keys": "shared"}},
    "masks with drop-outs": {"mode": "masks", "federate": {"drop": 0.3}},
    "masks dp": {"mode": "masks", "masks": {"dp": True, "signed": True}, "dp": {"epsilon": 8.0}},
    "paillier dp": {"mode": "paillier", "paillier": SMALL | {"dp": True}, "dp": {"epsilon": 8.0}},
}
SIGNED = {"paillier", "paillier dp", "paillier threshold"}  # with clients' identities, which one process has no use for


@pytest.mark.parametrize("case", CASES)
def test_a_mode_comes_to_the_same_model_as_in_one_process(case: str, nodes: Nodes, tmp_path: Path) -> None:
    changes = CASES[case] | {"federate": {"clients": CLIENTS} | CASES[case].get("federate", {})}
    here, there = _both(nodes, digits(**changes), tmp_path)
    assert weights(tmp_path / "here") == weights(tmp_path / "there")  # bit-equal, encrypted or not
    assert (here.engine, there.engine) == ("in-process", "flower")
    assert (here.privacy, here.sees) == (there.privacy, there.sees)
    for mine, other in zip(here.rounds, there.rounds, strict=True):
        assert (mine.clients_asked, mine.clients_replied) == (other.clients_asked, other.clients_replied)
        if case not in SIGNED:
            assert mine.bytes_up == other.bytes_up  # counted the same way
            assert abs(mine.bytes_down - other.bytes_down) < 100  # a key's number of digits varies
        assert (mine.test_accuracy, mine.epsilon, mine.train_loss) == (
            other.test_accuracy,
            other.epsilon,
            other.train_loss,
        )
        assert mine.seconds.keys() == other.seconds.keys()
        assert other.seconds["train"] > 0
        assert other.seconds["travel"] > 0
        assert sum(other.seconds.values()) <= other.lasted + 1e-3
