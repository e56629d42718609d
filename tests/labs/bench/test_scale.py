from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit_labs.bench.documented import scale
from tacit_labs.bench.documented.scale import CASES, Case, run, tables

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scale.md").read_text()


def test_a_case_tells_what_its_tables_need(tmp_path: Path) -> None:
    found = run(Case(clients=20, per_round=5, rounds=3, kept=True), tmp_path / "run")
    again = run(Case(clients=20, per_round=5, rounds=3, width=4), tmp_path / "none")
    assert (found["clients"], found["per_round"], found["rounds"], found["parameters"]) == (20, 5, 3, 36)
    assert again["parameters"] == 8 * 4 + 4 + 4 * 4 + 4 + 4 * 4 + 4
    assert found["bytes_up_per_client"] > 4 * 36
    assert found["files"].keys() == {"journal.jsonl", "checkpoint.safetensors", "result.json"}
    known: dict[str, Any] = {kind: {"plain 1": {**found, "with_children_mb": 9.0, "cores_free": 0.5}} for kind in CASES}
    known["machine"] = {"processor": "A processor", "cores": 2}
    told = tables(known)
    assert told.keys() == CASES.keys()
    assert all("Others took up to 50% of the cores: to be measured again." in table for table in told.values())


def test_a_cluster_is_estimated_by_the_formula_of_the_page() -> None:
    alone = {
        "ms_per_round": 5_000.0,
        "last_cpu_ms": 10_000.0,
        "per_round": 10_000,
        "bytes_up_per_client": 40_000.0,
        "cores_free": 0.5,
        "parameters": 9_990,
    }
    told = scale._cluster(2, alone, {"ms_per_round": 8_000.0, "clients": 1_000, "cores_free": 0.9})
    assert "o = 16.0 ms, t = 1.00 ms" in told
    assert "to be made anew" in told
    lasts = 10_000 * (0.001 + 0.016) / 160 + 10_000 * 80_000 / 1.25e8
    assert f"| these clients, 10 nodes of 16 cores | {lasts:.1f} s | {10_000 * lasts / 3600:.1f} node-hours |" in told


def test_what_is_promised_is_measured_and_has_its_place_on_the_page() -> None:
    sizes = {kind: [(one.clients, one.per_round, one.rounds) for one in CASES[kind].values()] for kind in CASES}
    assert (1_000_000, 100, 10) in sizes["population"]
    assert (10_000, 10_000, 4) in sizes["cohort"]
    assert (1_000, 10, 5_000) in sizes["rounds"]
    assert (1_000, 1_000, 3) in sizes["ray"]
    for kind in (*CASES, "cluster"):
        assert PAGE.count(f"<!-- scale {kind}:begin -->") == PAGE.count(f"<!-- scale {kind}:end -->") == 1


@pytest.mark.parametrize("kind", [*CASES, "cluster"])
def test_the_page_has_the_results(kind: str) -> None:
    known = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text())
    assert tables(known)[kind] in PAGE
