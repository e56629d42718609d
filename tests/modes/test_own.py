"""A user's own mode behaves like one that came with Tacit: runs, comparisons, reports, estimates, Flower."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.flower import Private
from tacit.modes.catalogue import MODES, mode_of, register, resolve
from tacit.modes.estimate import estimate
from tacit.modes.mode import Mode
from tacit.modes.paillier import PAILLIER
from tacit.modes.plain import PLAIN
from tacit.report.run.page import run_page
from tacit.runs.history import read
from tacit.runs.run import run
from tacit.studies.compare import compare
from tacit.studies.plan import Order, of_modes
from tests.flower.common import federation, floats, quiet, start
from tests.runs.common import digits, weights

OWN = replace(PLAIN, name="mine", summary="plain under another name")


@pytest.fixture(autouse=True)
def own() -> Iterator[Mode]:
    before = dict(MODES)
    register(OWN)
    yield OWN
    MODES.clear()
    MODES.update(before)


def test_it_trains_as_the_mode_it_is_made_of_bit_for_bit(tmp_path: Path) -> None:
    run(digits(out=tmp_path / "plain"))
    result = run(digits(mode="mine", out=tmp_path / "mine"))
    assert weights(tmp_path / "mine") == weights(tmp_path / "plain")  # the server moves as far
    assert (result.mode, result.privacy) == ("mine", None)


def test_it_has_the_servers_rate_that_suits_its_noise() -> None:
    assert resolve(RunConfig(mode="mine")).server.lr == resolve(RunConfig()).server.lr == 1.5
    register(replace(OWN, name="noisy", adds_noise=True))
    assert resolve(RunConfig(mode="noisy")).server.lr == 1.0


def test_it_is_compared_like_with_like(tmp_path: Path) -> None:
    shared = {"data": {"name": "digits"}, "model": {"name": "logistic"}, "federate": {"clients": 3, "rounds": 1}}
    study = of_modes(Order(modes=("plain", "mine"), shared=shared | {"dp": {"epsilon": 1.0}}))
    found = compare(study, out=tmp_path / "study", workers=1)
    assert [entry.mode for entry in found.entries] == ["plain", "mine"]
    one, two = (entry.results[0] for entry in found.entries)
    assert (one.test_accuracy, one.bytes_up) == (two.test_accuracy, two.bytes_up)
    assert not found.warnings
    assert any("dp.epsilon: no effect in any of these modes" in note for note in found.notes)


def test_it_is_reported(tmp_path: Path) -> None:
    run(digits(mode="mine", out=tmp_path / "run"))
    assert "Mode mine on" in run_page(read(tmp_path / "run")).subtitle


def test_settings_that_mean_nothing_to_it_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dp.noise has no effect in mode 'mine'"):
        run(digits(mode="mine", dp={"noise": 1.0}))
    with pytest.raises(ConfigError, match=r"signds.sign_k has no effect in mode 'mine'.*add --mode signds"):
        run(digits(mode="mine", signds={"sign_k": 0.1}))


def test_its_encryption_is_estimated_and_run() -> None:
    register(replace(PAILLIER, name="sealed"))
    keys = {"bits": 512, "insecure_key_size": True}
    assert estimate(RunConfig(mode="sealed", paillier=keys), parameters=100, clients=3).ciphertexts > 0
    with pytest.raises(ConfigError, match="Mode 'mine' encrypts nothing"):
        estimate(RunConfig(mode="mine"), parameters=100, clients=3)
    result = run(digits(mode="sealed", paillier=keys, federate={"rounds": 1}))
    assert any("512 bits" in note for note in result.notes)  # what its keys are worth is told


def test_it_protects_a_flower_app() -> None:
    plain, mine = (
        Private(quiet(), mode=mode).start(federation(), start(), num_rounds=1).arrays for mode in ("plain", "mine")
    )
    np.testing.assert_array_equal(floats(mine), floats(plain))


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ConfigError, match="There is a mode 'mine' already"):
        register(OWN)
    with pytest.raises(ConfigError, match="lower case, got 'Mine'"):
        register(replace(OWN, name="Mine"))


def _package(folder: Path, line: str) -> None:
    (folder / "theirs.py").write_text(
        "from dataclasses import replace\nfrom tacit.modes.plain import PLAIN\n"
        "THEIRS = replace(PLAIN, name='theirs', summary='of another package')\n"
    )
    about = folder / "theirs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[tacit.modes]\n{line}\n")


def test_another_packages_mode_is_known_to_every_process(tmp_path: Path) -> None:
    _package(tmp_path, "theirs = theirs:THEIRS")
    source = str(Path(tacit.__file__).parents[1])
    words = "compare --modes plain,theirs --data digits --clients 2 --rounds 1 --workers 2 --quiet --out study"
    done = subprocess.run(
        [sys.executable, "-c", "from tacit.cli.main import main; main()", *words.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), source])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("theirs = theirs:MISSING", "can't be loaded from theirs:MISSING"),
        ("theirs = nowhere:THEIRS", "can't be loaded from nowhere:THEIRS"),
        ("another = theirs:THEIRS", "Expected theirs:THEIRS to be a Mode whose name is 'another'"),
        ("theirs = theirs:PLAIN", "Expected theirs:PLAIN to be a Mode whose name is 'theirs'"),
    ],
)
def test_a_packages_mistake_is_told(line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, line)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    with pytest.raises(ConfigError, match=words):
        mode_of(line.partition(" ")[0])
    with pytest.raises(ConfigError, match=r"Modes of this version: plain, .*mine"):
        mode_of("quantum")
