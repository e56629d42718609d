from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit_labs.bench.documented import private_defaults as defaults

ROOT = Path(__file__).parents[3]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "private-defaults.json", ROOT / "docs" / "features.md"
ROW = {
    "clients": 1_000,
    "rounds": 10,
    "parameters": 3,
    "epsilon": 7.99996,
    "delta": 1e-5,
    "unit": "client",
    "accuracy": [0.95, 0.97],
    "seconds": [30.2, 36.4],
}
KEPT = {"machine": {"processor": "a processor", "cores": 2}, "rows": {"dp": ROW}}


def test_the_table_has_the_mean_the_lowest_and_the_median() -> None:
    lines = defaults.table(KEPT).splitlines()
    assert lines[2] == "| `dp` | 1,000 | 10 | 8 per client, delta 1e-5 | 96.0% (95.0%) | 30 | 36 |"
    assert lines[-1] == "2 seeds each, a processor, 2 cores; seconds by the clock, of later runs the median."


def test_a_page_without_marks_and_an_unknown_mode_are_refused() -> None:
    assert defaults.table(KEPT) in defaults.filled(f"a\n{defaults.BEGIN}\nold\n{defaults.END}\nb", KEPT)
    with pytest.raises(ConfigError, match="once each"):
        defaults.filled("nothing", KEPT)
    with pytest.raises(ConfigError, match="Unknown mode 'plain'"):
        defaults.measure(["plain"], seeds=1, results=None)


def test_the_documentation_has_the_table_of_the_results() -> None:
    text = PAGE.read_text()
    if RESULTS.exists():
        assert defaults.filled(text, json.loads(RESULTS.read_text())) == text
    else:  # no figure without its measurement
        inside = text.partition(defaults.BEGIN)[2].partition(defaults.END)[0]
        assert not inside.strip()
