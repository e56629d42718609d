"""Rounds of federated training side by side: Tacit, a student's loop, Flower's simulation and pfl-research.

Every side runs in a process of its own, one after another, several times in turn, so that a noisy neighbour hits all of
them; the best warm round of each counts. Peers whose packages are not installed are left out, and named with how to
get them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError, RunError
from tacit_labs.bench import machine
from tacit_labs.bench.environments import first_with
from tacit_labs.bench.simulation.measured import Results, Row
from tacit_labs.bench.simulation.peers.jobs import JOBS, Answer, Job
from tacit_labs.bench.worker import WorkerError

Progress = Callable[[str], None]
_PACKAGE = Path(__file__).parents[2]
_LIMIT = 900  # seconds that one process may take


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One side of the comparison."""

    name: str
    title: str
    side: str  # the module of tacit_labs.bench.simulation.peers
    packages: tuple[str, ...]  # what must be importable where it runs
    advice: str = ""  # how to get them


OURS = Peer(name="tacit", title="Tacit", side="ours", packages=())
PEERS = {
    peer.name: peer
    for peer in (
        Peer(name="student", title="a student's loop", side="student", packages=("torch", "numpy")),
        Peer(
            name="flower",
            title="Flower's simulation",
            side="flower",
            packages=("flwr", "ray"),
            advice="pip install 'tacit[flower]'",
        ),
        Peer(
            name="pfl",
            title="pfl-research",
            side="pfl",
            packages=("pfl",),
            advice="it needs an older dp-accounting than Tacit: install pfl[pytorch] into an environment of its own "
            "and name its Python with --peers-python",
        ),
        OURS,
    )
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured."""

    repeats: int
    rounds: Mapping[str, int]  # of a process, by job; the first warms up and does not count


FULL = Scale(repeats=3, rounds={"device": 8, "silo": 3})
QUICK = Scale(repeats=1, rounds={"device": 3, "silo": 2})


def measure(
    *,
    quick: bool = False,
    jobs: Sequence[str] = tuple(JOBS),
    peers: Sequence[str] = tuple(PEERS),
    repeats: int | None = None,
    peers_python: Sequence[str] = (),
    data: Path | None = None,
    progress: Progress = lambda _: None,
) -> Results:
    """Return all figures.

    Args:
        quick: one process per side with fewer rounds, in about a minute.
        jobs: which jobs, ``device`` and ``silo``.
        peers: which sides; Tacit is always one.
        repeats: how many processes per side and job, in turn with the others'.
        peers_python: interpreters of other environments, looked into for peers that this one lacks.
        data: an npz file with ``images`` and ``labels`` instead of MNIST.
        progress: is told what is being measured.
    """
    scale = QUICK if quick else FULL
    count = scale.repeats if repeats is None else repeats
    wanted = [peer for peer in PEERS.values() if peer.name in _known(peers, PEERS, "side") or peer is OURS]
    chosen = [JOBS[name] for name in JOBS if name in _known(jobs, JOBS, "job")]
    if count < 1:
        raise ConfigError(f"repeats={count} does not work: expected at least 1.")
    absent: dict[str, str] = {}
    pythons = dict(_pythons(wanted, peers_python, absent))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "packages").mkdir()
        (folder / "packages" / "tacit_labs").symlink_to(_PACKAGE)  # all that other environments get
        if data is None:
            progress("MNIST")
            data = _mnist(folder / "mnist.npz")
        given = _Given(data=data, packages=folder / "packages", rounds=scale.rounds, repeats=count)
        for job in chosen:
            rows += _job_rows(job, wanted, pythons, absent, given, progress)
    return Results(
        machine=machine.describe(["torch", "numpy"]),
        two_processes_against_one=machine.second_core(1 if quick else 3),
        quick=quick,
        repeats=count,
        rounds={job.name: scale.rounds[job.name] for job in chosen},
        absent=absent,
        rows=rows,
    )


@dataclass(frozen=True, kw_only=True)
class _Given:
    """What all processes are given."""

    data: Path
    packages: Path  # a folder with these labs alone, for other environments
    rounds: Mapping[str, int]
    repeats: int


def _job_rows(
    job: Job,
    wanted: Sequence[Peer],
    pythons: dict[str, str],
    absent: dict[str, str],
    given: _Given,
    progress: Progress,
) -> list[Row]:
    """Run all sides in turn, several times; one that fails moves from ``pythons`` to ``absent``."""
    runs: dict[str, list[Answer]] = {}
    for repeat in range(given.repeats):
        for peer in [peer for peer in wanted if peer.name in pythons]:
            progress(f"{job.title}, {repeat + 1}/{given.repeats}: {peer.title}")
            try:
                runs.setdefault(peer.name, []).append(_run(peer, pythons[peer.name], job, given))
            except WorkerError as failed:
                if peer is OURS:
                    raise RunError(f"Tacit failed on the {job.title} job: {failed}") from failed
                absent[peer.title] = f"failed on the {job.title} job: {failed}"
                del pythons[peer.name]
                del runs[peer.name]
    ours = _best(runs[OURS.name])
    return [_row(PEERS[name], job, each, ours) for name, each in runs.items()]


def _known(names: Sequence[str], all_names: Mapping[str, object], kind: str) -> Sequence[str]:
    for name in names:
        if name not in all_names:
            raise ConfigError(f"There is no {kind} {name!r}; choose from {', '.join(all_names)}.")
    return names


def _pythons(wanted: Sequence[Peer], others: Sequence[str], absent: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield for each side the interpreter that has its packages, and note the sides that have none."""
    for peer in wanted:
        python = first_with(peer.packages, others)
        if python is not None:
            yield peer.name, python
        else:
            absent[peer.title] = f"not installed; {peer.advice}" if peer.advice else "not installed"


def _run(peer: Peer, python: str, job: Job, given: _Given) -> Answer:
    """Run a side once; a peer may crash at its exit, after its work is done, and is then given a second chance."""
    command = [python, "-P", "-m", "tacit_labs.bench.simulation.peers", peer.side, "--job", job.name]
    command += ["--rounds", str(given.rounds[job.name]), "--data", str(given.data)]
    environment = dict(os.environ)
    if python != sys.executable:
        environment["PYTHONPATH"] = str(given.packages)
    why = ""
    for _ in range(2):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False, env=environment)
        except subprocess.TimeoutExpired as error:
            raise WorkerError(f"no answer within {_LIMIT} seconds") from error
        lines = done.stdout.strip().splitlines()
        if lines and lines[-1].startswith("{"):
            with contextlib.suppress(ValueError, TypeError):
                return Answer(**json.loads(lines[-1]))
        why = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
    raise WorkerError(why)


def _mnist(path: Path) -> Path:
    """Write MNIST's training set as the sides read it."""
    import numpy as np

    from tacit.tasks import catalogue

    train = catalogue.load("mnist").train
    pixels = np.rint((train.features[:, 0] * 0.3081 + 0.1307) * 255).clip(0, 255).astype(np.uint8)
    np.savez(path, images=pixels, labels=train.labels)
    return path


def _row(peer: Peer, job: Job, runs: Sequence[Answer], ours: float) -> Row:
    """Sum up a side's runs of one job; ``ours`` are the seconds of Tacit's best round."""
    around = [run.around_training for run in runs if run.around_training is not None]
    return Row(
        peer=peer.name,
        title=peer.title,
        version=runs[0].version,
        job=job.name,
        cohort=job.cohort,
        seconds=_best(runs),
        best_of_each_process=[_best([run]) for run in runs],
        notes=runs[0].notes,
        faster_by=round(_best(runs) / ours, 2),
        around_training=min(around, default=None),
    )


def _best(runs: Sequence[Answer]) -> float:
    """Return the seconds of the best warm round: the first of a process never counts."""
    return min(seconds for run in runs for seconds in run.seconds[1:])
