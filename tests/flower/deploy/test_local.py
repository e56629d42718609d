"""Real processes on the loopback address: a SuperLink and four SuperNodes, with TLS and node authentication.

Two of the nodes are clients themselves and hold a share of a key each; the other two carry frames to sites' processes.
So four of them serve all runs here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tacit.config.run_config import RunConfig
from tacit.crypto import keyfile, threshold
from tacit.flow import Engine, Frames
from tacit.flower.deploy.local import LocalFederation, federation
from tacit.flower.deploy.processes import alive, check_free
from tacit.modes.catalogue import resolve
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.connection import InProcess, Watch
from tacit.runs.folder import MODEL
from tacit.runs.job import Job
from tacit.runs.observer import Silent
from tacit.runs.result import RoundRecord
from tacit.runs.run import execute, run
from tacit.site.contract import CONTRACT
from tacit.site.new import trial
from tests.runs.common import Watching, digits, weights

pytestmark = pytest.mark.xdist_group("deployment")


@dataclass
class Real:
    """The federation, and how long a trip to its nodes takes on this machine today."""

    up: LocalFederation
    trip: float = 60.0


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    keys = tmp_path_factory.mktemp("keys")
    public, shares = threshold.generate(shares=2, threshold=2, bits=512, insecure_key_size=True)
    keyfile.save(keys / "public.key", public)
    for share in shares:
        keyfile.save(keys / f"share-{share.index}.key", share)
    pin: dict[str, bool | int | str] = {"tacit-pin": str(keys / "public.key"), "tacit-simulation": True}
    told: dict[str, dict[str, bool | int | str]] = {}
    for number in range(2):
        told[f"client-{number}"] = {"partition-id": number, "tacit-key": str(keys / f"share-{number + 1}.key"), **pin}
    for number in (2, 3):
        site = trial(keys / f"site-{number}", resolve(_config(keys, clients=4)), number=number, pin=keys / "public.key")
        (keys / f"site-{number}" / CONTRACT).write_text(site.to_yaml().replace("[plain]", "[plain, masks, paillier]"))
        told[f"client-{number}"] = {"partition-id": number, "tacit-socket": str(site.socket)}
    with federation(told, note=lambda _: None) as up:
        groups = up.processes.look()
        assert len(groups) == 7  # the SuperLink, what it starts, four nodes and the sites
        yield Real(up)
    assert not [group for group in groups if alive(group)]
    assert not _mentioning(str(up.folder))
    assert not up.folder.exists()
    check_free(int(up.address.rpartition(":")[2]))


def test_real_nodes_come_to_the_model_of_one_process(real: Real, tmp_path: Path) -> None:
    config = _config(tmp_path / "nodes", clients=4)
    watching = Watching()
    result = real.up.run(resolve(config), watching)
    real.trip = result.rounds[0].lasted
    assert (result.engine, result.rounds[0].clients_replied) == ("flower", 4)
    assert (watching.title, watching.result) == ("Digits (8x8), logistic, 4 clients (iid)", result)
    run(config.model_copy(update={"engine": "in-process", "out": tmp_path / "alone"}))
    here, there = load_file(tmp_path / "alone" / MODEL), load_file(tmp_path / "nodes" / MODEL)
    assert here.keys() == there.keys()
    for name, tensor in here.items():
        np.testing.assert_allclose(there[name], tensor, atol=1e-6)


@pytest.mark.parametrize(("mode", "lost"), [("masks", 3), ("paillier", 2)])
def test_without_a_client_that_is_killed_a_hidden_sum_is_that_of_the_others_bit_for_bit(
    mode: str, lost: int, real: Real, tmp_path: Path
) -> None:
    """The last client is killed over its task, each time one more of the four."""
    config = _config(tmp_path / "nodes", mode=mode, clients=lost + 1, flower={"deadline": 10 + 2 * real.trip})
    # what a client is sent before it is killed: a greeting, the enrolment, a cohort to share secrets with, the task
    killer = _Killer(real.up, f"client-{lost}", after=4 if mode == "masks" else 3)
    result = real.up.run(resolve(config), killer)
    assert killer.killed
    assert [(record.clients_asked, record.clients_replied) for record in result.rounds] == [(lost + 1, lost)]
    assert any(f"Client {lost}" in note and "dropped out" in note for note in killer.notes)
    alone = config.model_copy(update={"engine": "in-process", "out": tmp_path / "alone"})
    randomness = Randomness.of(seed=config.seed)
    execute(
        lambda: jobs.build(resolve(alone), randomness, Silent()),
        randomness,
        alone.out,
        Silent(),
        connect=lambda job: _Losing(job, lost),
    )
    assert weights(tmp_path / "nodes") == weights(tmp_path / "alone")
    run(alone.model_copy(update={"out": tmp_path / "whole"}))  # shows that the lost client would have made a difference
    assert weights(tmp_path / "nodes") != weights(tmp_path / "whole")


def _config(out: Path, clients: int, **changes: object) -> RunConfig:
    encrypted = {"keys": "threshold", "shares": "2/2", "bits": 512, "insecure_key_size": True}
    keys = {"paillier": encrypted} if changes.get("mode") == "paillier" else {}
    return digits(out=out, engine="flower", federate={"clients": clients, "rounds": 1}, **keys, **changes)


class _Killer(Watching):
    """Kills a node, with all it has started, once it has been given its task of the first round."""

    def __init__(self, nodes: LocalFederation, name: str, *, after: int) -> None:
        super().__init__()
        self._after = after
        self._log = nodes.processes.log(name)
        self._group = nodes.processes.group(name)
        self._before = self._received()
        self._over = self.killed = False
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self._thread.start()

    def round_done(self, record: RoundRecord) -> None:
        super().round_done(record)
        self._over = True
        self._thread.join()

    def _kill(self) -> None:
        while self._received() < self._before + self._after:
            if self._over:
                return
            time.sleep(0.05)
        os.killpg(self._group, signal.SIGKILL)
        self.killed = True

    def _received(self) -> int:
        return self._log.read_text(errors="replace").count("Receiving: ")


class _Losing:
    """The way to clients in this process, one of whom never answers."""

    name = InProcess.name

    def __init__(self, job: Job, lost: int) -> None:
        self._all, self._lost = InProcess(job), lost

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:
        with self._all.open(job, randomness, watch) as engine:
            yield _Lossy(engine, self._lost)


class _Lossy:
    def __init__(self, engine: Engine, lost: int) -> None:
        self.name = engine.name
        self._engine, self._lost = engine, lost

    def exchange(self, requests: Frames) -> Frames:
        return self._engine.exchange({client: frame for client, frame in requests.items() if client != self._lost})


def _mentioning(text: str) -> list[str]:
    """Return the processes whose command line or environment has ``text``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in words:
            found.append(words[:200].decode(errors="replace"))
    return found
