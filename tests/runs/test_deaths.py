"""A run of each mode dies at calls all through it, as by kill -9, and goes on to the same weights and charges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tacit.runs.folder import JOURNAL, RESULT
from tests.runs.common import lines, weights
from tests.runs.dying import MODES

HOW_MANY = 0 if "TACIT_LONG" in os.environ else 4  # per mode; 0: at each call there is
ROOT = Path(__file__).parents[2]


def _charges(path: Path) -> Counter[str]:
    """Return what was charged to clients and to examples; a charge is on disk before anything is sent."""
    charged = (
        json.dumps([record["round"], record["charge"], record.get("example_charges")], sort_keys=True)
        for record in lines(path)
        if record["type"] == "attempt"
    )
    return Counter(charged)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all runs, each dead once and resumed; one process imports, the others are its children."""
    place = tmp_path_factory.mktemp("deaths")
    subprocess.run(
        [sys.executable, "-m", "tests.runs.dying", str(place), str(HOW_MANY), *MODES],
        check=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return place


@pytest.mark.xdist_group("deaths")
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_dies_anywhere_ends_with_the_same_weights_and_no_lost_charge(mode: str, place: Path) -> None:
    runs = place / mode
    whole = runs / "whole"
    planned = _charges(whole / JOURNAL)
    uncharged = all(json.loads(charge)[1:] == [None, None] for charge in planned)
    assert uncharged == (mode in {"plain", "paillier", "masks"})
    deaths = [path for path in runs.iterdir() if path.name.isdigit()]
    assert len(deaths) >= (HOW_MANY or 70)
    for out in deaths:
        assert weights(out) == weights(whole), out.name
        charges = _charges(out / JOURNAL)
        assert planned <= charges  # what is released is charged
        at_death = _charges(runs / f"{out.name}.at-death")
        assert at_death <= charges  # and what was charged stays so
        assert (runs / f"{out.name}.sent").stat().st_size <= at_death.total()
        assert charges.total() <= planned.total() + 1  # at most the try in flight is charged again
        mine, theirs = (json.loads((folder / RESULT).read_text()) for folder in (out, whole))
        assert [r["test_loss"] for r in mine["rounds"]] == [r["test_loss"] for r in theirs["rounds"]]
        assert not list(out.glob(".*.part"))
        complete = any(r["type"] == "end" for r in lines(runs / f"{out.name}.at-death"))
        assert complete or not list(out.glob(".*.lock"))  # a finished run is only read
