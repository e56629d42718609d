"""The folder of a run: journals through everyone who reads them, checkpoints, results, and the records beside them."""

from __future__ import annotations

import contextlib
import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from tacit import foreign
from tacit.accounting import events
from tacit.accounting.events import GaussianEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Charge, Ledger
from tacit.errors import TacitError
from tacit.parties.memory import Memory
from tacit.report.run.page import run_page
from tacit.runs import history, ledger, progress
from tacit.runs.folder import CONFIG, JOURNAL, Checkpoint, RunFolder
from tacit.runs.result import Result, RoundRecord
from tacit.studies import folder as studies
from tacit.studies.plan import Axis, Order, of_grid, of_modes
from tests.fuzz.harness import Target
from tests.fuzz.targets.files import folder, written
from tests.runs import results
from tests.runs.common import digits

_SIZES = [300, 300, 300, 300, 237]


def _round(number: int, **more: Any) -> dict[str, Any]:
    record = RoundRecord(
        round=number,
        attempts=1,
        train_loss=1.5,
        test_loss=1.25,
        test_accuracy=0.5,
        clients_expected=5.0,
        clients_asked=5,
        clients_replied=4,
        bytes_up=1000,
        bytes_down=2000,
        epsilon=0.5 * number,
        seconds={"train": 0.1, "protect": 0.0, "aggregate": 0.0, "recover": 0.0, "evaluate": 0.1},
        wall_seconds=0.25,
        **more,
    )
    return {"type": "round", **asdict(record), "dropped": [3]}


def _start() -> dict[str, Any]:
    split = {"sizes": _SIZES, "counts": [[size // 10] * 10 for size in _SIZES]}
    return {
        "type": "start",
        "key": "00" * 16,
        "simulation": True,
        "dataset": "digits",
        "examples": sum(_SIZES),
        "time": "2026-01-01T00:00:00+00:00",
        "title": "digits",
        "model": "logistic",
        "parameters": 650,
        "device": "cpu",
        "form": "lanes",
        "split": split,
        "environment": {"tacit": "0.1.0", "cores": 2},
    }


def _attempt(number: int, charge: Any, **more: Any) -> dict[str, Any]:
    record = {
        "type": "attempt",
        "round": number,
        "attempt": 0,
        "clients": 5,
        "charge": charge,
        "asked": [0, 1, 2, 3, 4],
    }
    return record | more


def _lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _journals() -> list[bytes]:
    release = GaussianEvent(noise_multiplier=1.5)
    charges = [Charge(round_number=number, event=release).to_dict() for number in (1, 2)]
    return [
        _lines(
            _start(),
            _attempt(1, charges[0]),
            _round(1),
            {"type": "note", "round": 1, "text": "a note"},
            _attempt(2, charges[1]),
            {"type": "failed", "round": 2, "attempt": 0, "reason": "too few"},
            {"type": "stopped", "reason": "It was interrupted."},
            {"type": "resume", "time": "2026-01-01T00:00:01+00:00", "environment": {"tacit": "0.1.0"}},
            _attempt(2, charges[1], attempt=1, asked="all"),
            _round(2),
            {"type": "end", "rounds": 2},
        )
    ]


def _examples() -> list[bytes]:
    release = RepeatedEvent(event=SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=0.1), count=10)
    group = {"clients": [0, 1, 2, 3, 4], "event": events.to_dict(release)}
    return [
        _lines(
            _start(),
            *(_attempt(number, None, example_charges=[group]) for number in (1, 2)),
            _round(1, example_epsilon=1.0, steps=10),
        )
    ]


@functools.cache
def _run(mode: str) -> Path:
    path = folder() / mode
    path.mkdir(exist_ok=True)
    extra: dict[str, Any] = {"dp": {"noise": 1.5}} if mode == "dp" else {"dpsgd": {"noise": 1.0, "batch_size": 30}}
    job = digits(mode=mode, federate={"rounds": 2, "clients": 5}, **extra)
    (path / CONFIG).write_text(json.dumps(job.model_dump(mode="json", exclude_unset=True)))  # which is YAML, too
    return path


def _read(mode: str, data: bytes) -> None:
    """Statement, report and resumption read the same journal: each says what is wrong, or goes on."""
    path = _run(mode)
    (path / JOURNAL).write_bytes(data)
    for reader in (_told, _reported, _resumed):
        with contextlib.suppress(TacitError):
            reader(path)


def _told(path: Path) -> None:
    told = ledger.ledger_of(path)
    assert all(line.epsilon is None or line.epsilon >= 0 for line in told.lines)
    json.dumps(told.to_dict(), allow_nan=False)


def _reported(path: Path) -> None:
    page = run_page(history.read(path), full=True)
    assert page.sections


def _resumed(path: Path) -> None:
    opened = RunFolder.open(path)
    try:
        found = progress.Progress.of(opened)
        assert len(found.done) == (found.checkpoint.round_number if found.checkpoint else 0)
        list(ledger.charges_of(path))
    finally:
        opened.close()


def _ledgers() -> list[bytes]:
    made = Ledger().charged(GaussianEvent(noise_multiplier=2.0), round_number=1, clients=[1, 2])
    made = made.charged(RepeatedEvent(event=GaussianEvent(noise_multiplier=2.0), count=3), round_number=2)
    return [json.dumps(made.to_dict()).encode()]


def _ledger(data: bytes) -> None:
    ledger = Ledger.from_dict(foreign.json_value(data))
    assert Ledger.from_dict(json.loads(json.dumps(ledger.to_dict()))) == ledger


def _checkpoint_seeds() -> list[bytes]:
    metadata = {"round": "2", "mechanism": "00ff", "record": json.dumps(_round(2)), "seconds": '{"wall": 1.5}'}
    tensors = {"model": np.linspace(-1, 1, 9, dtype=np.float32), "server.momentum": np.zeros(9, np.float32)}
    return [save(tensors, metadata)]


def _checkpoint(data: bytes) -> None:
    read = Checkpoint.read(written("checkpoint.safetensors", data))
    again = folder() / "again.safetensors"
    read.write(again)
    assert Checkpoint.read(again).round_number == read.round_number


def _mend_checkpoint(data: bytes) -> bytes:
    """Return a file whose header is as long as it says."""
    end = data.index(b"}}") + 2 if b"}}" in data else len(data)
    return (end - 8).to_bytes(8, "little") + data[8:]


def _results() -> list[bytes]:
    return [results.result().to_json().encode(), results.result(privacy=results.CENTRAL).to_json().encode()]


def _result(data: bytes) -> None:
    read = Result.read(written("result.json", data))
    assert Result.read(written("again.json", read.to_json().encode())) == read


def _study_seeds() -> list[bytes]:
    grid = of_grid({"mode": "dp"}, [Axis(key="dp.noise", values=(0.5, 1.0))])
    modes = of_modes(Order(modes=("plain", "dp"), own={"dp": {"dp": {"noise": 1.0}}}))
    return [json.dumps(asdict(study) | {"together": 2}).encode() for study in (grid, modes)]


def _study(data: bytes) -> None:
    """What is understood is written and understood again, and its runs stay below the folder."""
    path = folder() / "study"
    path.mkdir(exist_ok=True)
    (path / studies.RECORD).write_bytes(data)
    held = studies.held(path)
    assert held is not None
    assert all(studies.place_of(path, run).parent == path / studies.RUNS for run in held.study.runs)
    assert sum(map(len, held.study.entries().values())) == len(held.study.runs)
    studies.claim(path, held.study, force=False)
    again = studies.held(path)
    assert again is not None
    assert again.study.runs == held.study.runs


def _node_memory(data: bytes) -> None:
    memory = Memory.from_bytes(data)
    assert Memory.from_bytes(memory.to_bytes()) == memory


TARGETS = (
    Target(name="journals", seeds=_journals, check=lambda data: _read("dp", data), form="lines", inputs=150),
    Target(
        name="examples", seeds=_examples, check=lambda data: _read("dp-sgd", data), form="lines", inputs=8, seconds=10
    ),
    Target(name="ledgers", seeds=_ledgers, check=_ledger, form="json", inputs=3000),
    Target(name="checkpoints", seeds=_checkpoint_seeds, check=_checkpoint, mend=_mend_checkpoint, inputs=1500),
    Target(name="results", seeds=_results, check=_result, form="json", inputs=1500),
    Target(name="studies", seeds=_study_seeds, check=_study, form="json", inputs=1500),
    Target(
        name="nodes",
        seeds=lambda: [Memory(told={"rounds": "6"}, last=(2, 1)).to_bytes(), b""],
        check=_node_memory,
        form="json",
        inputs=3000,
    ),
)
