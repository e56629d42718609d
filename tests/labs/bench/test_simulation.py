from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, RunError
from tacit_labs.bench import environments, machine
from tacit_labs.bench.simulation import run as simulation
from tacit_labs.bench.simulation.peers.jobs import JOBS
from tacit_labs.bench.simulation.table import table
from tests.labs.bench.common_simulation import results

Answers = dict[str, list[Sequence[float] | str]]


def answering(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> list[tuple[str, str, str]]:
    """Let processes answer from lists, by the side's name; a string is the end of a traceback. Return who ran."""
    ran: list[tuple[str, str, str]] = []

    real = subprocess.run

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if "tacit_labs.bench.simulation.peers" not in command:
            return real(command, **options)
        side, job = command[4], command[6]
        ran.append((command[0], side, job))
        answer = answers[side].pop(0)
        if isinstance(answer, str):
            return subprocess.CompletedProcess(command, 1, stdout="", stderr=f"Traceback\n{answer}\n")
        line = json.dumps({"version": "1", "seconds": answer, "notes": "n"})
        return subprocess.CompletedProcess(command, 0, stdout=f"hello\n{line}\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(simulation, "first_with", lambda _packages, _others: sys.executable)
    monkeypatch.setattr(machine, "second_core", lambda _repeats: 1.9)
    return ran


def test_sides_take_turns_and_the_best_warm_round_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers: Answers = {"student": [[0.1, 3.0, 2.0], [9.0, 5.0, 4.0]], "ours": [[0.1, 0.6, 0.5], [9.0, 0.8, 0.7]]}
    ran = answering(monkeypatch, answers)
    measured = simulation.measure(jobs=["device"], peers=["student"], repeats=2, data=tmp_path / "data.npz")
    assert [side for _, side, _ in ran] == ["student", "ours"] * 2
    student, tacit = measured.rows
    assert (student.seconds, tacit.seconds) == (2.0, 0.5)  # the first round of a process never counts
    assert (student.faster_by, tacit.faster_by) == (4.0, 1.0)
    assert tacit.clients_per_second == 200.0
    assert student.best_of_each_process == [2.0, 4.0]
    assert measured.rounds == {"device": 8}


def test_a_peer_that_fails_twice_is_left_out_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: Answers = {
        "flower": ["RayError: no", [1.0, 2.0], "RayError: no", "RayError: still no"],
        "ours": [[0.1, 0.5]] * 4,
    }
    ran = answering(monkeypatch, answers)
    measured = simulation.measure(peers=["flower"], repeats=2, data=tmp_path / "data.npz")
    assert [(row.peer, row.job) for row in measured.rows] == [("tacit", "device"), ("tacit", "silo")]
    assert measured.absent == {"Flower's simulation": "failed on the cross-device job: RayError: still no"}
    assert ("flower", "silo") not in [(side, job) for _, side, job in ran]


def test_without_tacit_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, {"ours": ["ValueError: broken"] * 2})
    with pytest.raises(RunError, match="Tacit failed on the cross-device job: ValueError: broken"):
        simulation.measure(peers=["tacit"], data=tmp_path / "data.npz")


def test_absent_peers_are_named_with_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = answering(monkeypatch, {"ours": [[0.1, 0.5]], "pfl": [[0.1, 1.0]]})
    found = {("flwr", "ray"): None, ("pfl",): "/elsewhere/python", (): sys.executable}
    asked = []

    def first_with(packages: tuple[str, ...], others: Sequence[str]) -> str | None:
        asked.append(list(others))
        return found[packages]

    monkeypatch.setattr(simulation, "first_with", first_with)
    measured = simulation.measure(
        quick=True,
        jobs=["silo"],
        peers=["flower", "pfl"],
        peers_python=["/elsewhere/python"],
        data=tmp_path / "data.npz",
    )
    assert asked[0] == ["/elsewhere/python"]
    assert ran[0][0] == "/elsewhere/python"
    assert "pip install 'tacit[flower]'" in measured.absent["Flower's simulation"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"jobs": ["devices"]}, "no job 'devices'"),
        ({"peers": ["fate"]}, "no side 'fate'"),
        ({"repeats": 0}, "repeats=0"),
    ],
)
def test_mistakes_are_named_before_anything_is_measured(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        simulation.measure(**options)


def test_this_environment_is_looked_into_first() -> None:
    assert environments.first_with(["numpy"], ["/no/such/python"]) == sys.executable
    assert environments.first_with(["no_such_package"], [sys.executable]) is None
    with pytest.raises(ConfigError, match=r"Can't run /no/such/python: No such file"):
        environments.first_with(["no_such_package"], ["/no/such/python"])


def test_the_two_sides_that_are_always_there_really_train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "second_core", lambda _repeats: 1.9)
    generator = np.random.default_rng(0)
    data = tmp_path / "data.npz"
    images = generator.integers(0, 256, (20, 28, 28), dtype=np.uint8)
    np.savez(data, images=images, labels=generator.integers(0, 10, 20))
    measured = simulation.measure(quick=True, jobs=["silo"], peers=["student"], data=data)
    assert [row.peer for row in measured.rows] == ["student", "tacit"]
    assert all(row.seconds > 0 for row in measured.rows)
    assert measured.rows[1].notes.startswith("form ")
    assert not measured.absent


def test_the_table_tells_ratios_and_who_was_left_out() -> None:
    text = table(results())
    assert "cross-device: 100 of 1,000 clients per round, 60 examples each" in text
    assert "cross-silo: 10 clients per round, 6,000 examples each" in text
    assert "4.0x as fast" in text
    assert "3.1% around training" in text
    assert "left out: pfl-research (not installed; install it <elsewhere>)" in text
    assert text.index("Tacit 1.2") < text.index("a student's loop 1.2")  # the fastest first


def test_every_job_divides_mnist_evenly() -> None:
    assert all(60_000 % job.clients == 0 and job.cohort <= job.clients for job in JOBS.values())
