"""Real processes on the loopback address: a SuperLink and SuperNodes with TLS and node authentication, and sites."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tacit.flow import Engine, Frames
from tacit.flower.deploy.local import LocalFederation, federation
from tacit.flower.deploy.nodes import nodes_of
from tacit.flower.deploy.processes import alive, check_free
from tacit.flower.deploy.watchdog import marked
from tacit.flower.trial import LocalParties
from tacit.modes.catalogue import resolve
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.connection import InProcess, Watch
from tacit.runs.job import Job
from tacit.runs.observer import Silent
from tacit.runs.result import RoundRecord
from tacit.runs.run import execute, run
from tests.runs.common import Watching, digits, weights

pytestmark = pytest.mark.xdist_group("deployment")
CLIENTS = 3


def test_real_nodes_come_to_the_model_of_one_process_without_a_site_that_is_killed(tmp_path: Path) -> None:
    """The last site is killed over its task, when the others share secrets with it: the sum is that of the others."""
    lost = CLIENTS - 1
    config = digits(mode="masks", out=tmp_path / "nodes", engine="flower", federate={"clients": CLIENTS, "rounds": 1})
    there = LocalParties(resolve(config), at_once=2)
    with there.up(), federation(nodes_of(there), note=lambda _: None, ready=there.wait) as up:
        groups = up.processes.look()
        assert len(groups) == 2 + CLIENTS  # the SuperLink, what it starts, and the nodes
        killer = _Killer(up, there, lost)
        result = up.run(resolve(config), killer)
    assert killer.killed
    assert (result.engine, killer.title) == ("flower", "Digits (8x8), logistic, 3 clients (iid)")
    assert killer.result == result
    assert [(record.clients_asked, record.clients_replied) for record in result.rounds] == [(CLIENTS, lost)]
    assert any(f"Client {lost}" in note and "did not answer" in note for note in killer.notes)
    assert not [group for group in groups if alive(group)]
    assert not _mentioning(str(up.folder))
    assert not marked(there.mark)
    assert not up.folder.exists()
    assert not there.folder.exists()
    check_free(int(up.address.rpartition(":")[2]))
    alone = config.model_copy(update={"engine": "in-process", "out": tmp_path / "alone"})
    alone = alone.model_copy(update={"masks": alone.masks.model_copy(update={"signed": True})})  # as on Flower
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


class _Killer(Watching):
    """Kills a site once its node has been given the task of the first round, and before it carries that on."""

    _AFTER = 4  # what a client is sent: a greeting, the enrolment, a cohort to share secrets with, the task

    def __init__(self, nodes: LocalFederation, there: LocalParties, number: int) -> None:
        super().__init__()
        self._log = nodes.processes.log(f"client-{number}")
        lock = there.socket(number).with_name(".socket.lock")
        self._site = next(
            pid for pid in marked(there.mark) if lock in {one.resolve() for one in Path(f"/proc/{pid}/fd").iterdir()}
        )
        self._over = self.killed = False
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self._thread.start()

    def round_done(self, record: RoundRecord) -> None:
        super().round_done(record)
        self._over = True
        self._thread.join()

    def _kill(self) -> None:
        while self._log.read_text(errors="replace").count("Receiving: ") < self._AFTER:
            if self._over:
                return
            time.sleep(0.05)
        os.kill(self._site, signal.SIGKILL)
        self.killed = True


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
