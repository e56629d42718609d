"""A journal of very many rounds is read in time and memory in proportion, and drawn by fewer points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tacit.report.run.page import run_page
from tacit.runs import history
from tacit.runs.folder import CHECKPOINT, CONFIG, JOURNAL, RESULT, Checkpoint, RunFolder
from tacit.runs.ledger import charges_of
from tacit.runs.progress import Progress
from tacit.runs.run import run
from tests.runs.common import digits, lines

ROUNDS = 100_000 if "TACIT_LONG" in os.environ else 5_000
PER_RECORD = 1500e-6  # seconds of this process, many times what it takes


def _long(out: Path, rounds: int) -> Path:
    """Write the folder of a run of so many rounds, all like the first, that is to have one more."""
    run(digits(out=out, mode="local-dp", dp={"noise": 5.0}, federate={"rounds": 1, "clients": 20, "per_round": 5}))
    start, attempt, done, _ = lines(out / JOURNAL)
    with (out / JOURNAL).open("w") as file:
        file.write(json.dumps(start) + "\n")
        for number in range(1, rounds + 1):
            charge = attempt["charge"] | {"round": number}
            file.write(json.dumps(attempt | {"round": number, "charge": charge}) + "\n")
            file.write(json.dumps(done | {"round": number, "epsilon": number**0.5}) + "\n")
    (out / RESULT).unlink()
    values = yaml.safe_load((out / CONFIG).read_text())
    values["federate"]["rounds"] = rounds + 1
    (out / CONFIG).write_text(yaml.safe_dump(values))
    replace(Checkpoint.read(out / CHECKPOINT), round_number=rounds, record=None).write(out / CHECKPOINT)
    return out


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _long(tmp_path_factory.mktemp("long") / "run", ROUNDS)


def test_going_on_reads_a_long_journal_once_and_soon(long: Path) -> None:
    start = time.process_time()
    folder = RunFolder.open(long)
    try:
        progress = Progress.of(folder)
        charged = sum(1 for _ in charges_of(long))
    finally:
        folder.close()
    assert len(progress.done) == charged == ROUNDS
    assert progress.done[-1].round == ROUNDS
    assert time.process_time() - start < 2 * 2 * ROUNDS * PER_RECORD


def test_a_long_run_is_reported_soon_and_by_few_points(long: Path) -> None:
    start = time.process_time()
    told = history.read(long)
    page = run_page(told, full=True).html()
    assert time.process_time() - start < 10 + 2 * 2 * ROUNDS * PER_RECORD
    assert len(told.rounds) == len(told.participation) == ROUNDS
    assert [level.releases[-1].epsilon for level in told.levels] == [ROUNDS**0.5]
    assert len(page) < 5_000_000
    assert "the highest and the lowest of each stretch are drawn" in page


READING = (
    "import resource, sys; from pathlib import Path; from tacit.runs.ledger import charges_of\n"
    "from tacit.runs import journal; folder = Path(sys.argv[1]); sum(1 for _ in charges_of(folder))\n"
    "first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "for _ in range(2): sum(1 for _ in charges_of(folder))\n"
    "journal.Journal(folder / 'journal.jsonl').renew()\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, first)"
)


def test_reading_charges_and_writing_the_journal_anew_take_no_memory(long: Path, tmp_path: Path) -> None:
    small = _long(tmp_path / "run", 10)
    told = [
        int(
            subprocess.run(
                [sys.executable, "-c", READING, str(folder)], capture_output=True, check=True
            ).stdout.split()[0]
        )
        for folder in (small, long)
    ]
    grown = (told[1] - told[0]) * (1024 if sys.platform != "darwin" else 1)
    assert grown < 8_000_000, f"{grown:,} bytes more for {ROUNDS:,} rounds"


def test_the_ledger_of_a_long_run_is_printed_soon(long: Path) -> None:
    code = "import sys, time; from tacit.cli.main import main\nsys.argv[1:] = ['ledger', sys.argv[1]]\nmain()"
    done = subprocess.run([sys.executable, "-c", code, str(long)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) >= ROUNDS + 2
    assert lines[0].split() == ["round", "try", "release", "epsilon", "so", "far"]
    assert lines[1].split()[:3] == ["1", "1", "Gaussian"]
