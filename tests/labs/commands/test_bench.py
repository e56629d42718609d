from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit_labs.bench.crypto import run as crypto
from tacit_labs.bench.files import Results
from tacit_labs.bench.simulation import run as simulation
from tests.labs.bench import common_crypto, common_simulation

Asked = dict[str, list[dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Measure nothing, and note what was asked for."""
    seen: Asked = {"crypto": [], "simulation": []}

    def fake(name: str, results: Results) -> Any:
        def measure(**options: Any) -> Results:
            seen[name].append(options)
            options["progress"]("a side [1/2]")
            return results

        return measure

    monkeypatch.setattr(crypto, "measure", fake("crypto", common_crypto.results()))
    monkeypatch.setattr(simulation, "measure", fake("simulation", common_simulation.results()))
    return seen


def bench(*words: str) -> str:
    done = CliRunner().invoke(app, ["bench", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_crypto_prints_json_or_a_table(asked: Asked, tmp_path: Path) -> None:
    assert (
        json.loads(bench("crypto", "--quick", "--json", "--out", str(tmp_path / "out")))
        == common_crypto.results().to_dict()
    )
    assert (tmp_path / "out" / "crypto.html").is_file()
    assert "Tacit (gmpy2), key holder" in bench("crypto")
    assert [options["quick"] for options in asked["crypto"]] == [True, False]


def test_simulation_passes_its_options_on(asked: Asked, tmp_path: Path) -> None:
    words = ["--job", "silo", "--peer", "student", "--peer", "pfl", "--repeats", "2", "--peers-python", "/a/python"]
    text = bench("simulation", *words, "--out", str(tmp_path / "out"))
    assert "4.0x as fast" in text
    assert f"written to {tmp_path / 'out' / 'simulation.html'}" in text
    (options,) = asked["simulation"]
    del options["progress"]
    assert options == {
        "quick": False,
        "jobs": ["silo"],
        "peers": ["student", "pfl"],
        "repeats": 2,
        "peers_python": ["/a/python"],
    }


def test_simulation_measures_everything_by_default_and_writes_nothing(asked: Asked, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert json.loads(bench("simulation", "--quick", "--json")) == common_simulation.results().to_dict()
    assert (asked["simulation"][0]["jobs"], asked["simulation"][0]["peers"]) == (
        ["device", "silo"],
        ["student", "flower", "pfl", "tacit"],
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_all_runs_both_and_writes_one_page(asked: Asked, tmp_path: Path) -> None:
    text = bench("all", "--quick")
    assert "Tacit (gmpy2), key holder" in text
    assert "4.0x as fast" in text
    assert (tmp_path / "runs" / "bench" / "bench.html").is_file()
    assert [options["quick"] for options in asked["crypto"] + asked["simulation"]] == [True, True]
    assert json.loads(bench("all", "--json")).keys() == {"crypto", "simulation"}
