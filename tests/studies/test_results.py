from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from tacit.studies.results import Comparison, Spread
from tests.runs.results import CENTRAL, LOCAL, entry, record, result


def test_the_spread_over_seeds() -> None:
    found = entry("plain", result((0.5, 0.8)), result((0.6, 0.9), seed=2), failed=1)
    spread = found.accuracy
    assert spread is not None
    assert (spread.lowest, spread.highest, spread.count) == (0.8, 0.9, 2)
    assert spread.mean == pytest.approx(0.85)
    assert spread.deviation == pytest.approx(0.0707106781)
    assert [run.name for run in found.failed] == ["plain-broken-0"]
    assert Spread.of([None]) is None
    one = Spread.of([0.5])
    assert one is not None
    assert one.deviation is None


def test_the_curve_has_the_rounds_that_every_run_was_tested_in() -> None:
    found = entry("plain", result((0.5, None, 0.8)), result((0.6, 0.7, 0.9), seed=2), result((0.1, 0.2), seed=3))
    assert [(number, spread.count) for number, spread in found.curve] == [(1, 3), (3, 2)]
    assert found.curve[0][1].mean == pytest.approx(0.4)
    assert found.rounds == 3


def test_epsilon_is_the_largest_of_the_seeds_at_both_levels() -> None:
    larger = replace(CENTRAL, epsilon=9.0)
    found = entry(
        "dp",
        result(privacy=CENTRAL, example_privacy=LOCAL),
        result(privacy=larger, example_privacy=replace(LOCAL, epsilon=2.0), seed=2),
    )
    assert found.claims == (larger, LOCAL)
    endless = replace(CENTRAL, epsilon=math.inf)
    assert entry("dp", result(privacy=larger), result(privacy=endless, seed=2)).claims == (endless,)
    assert entry("plain", result()).claims == ()


def test_bytes_are_those_of_a_client_that_took_part() -> None:
    found = entry("plain", result())
    assert (found.bytes_up, found.bytes_down, found.bytes_holders) == (100.0, 200.0, 0.0)
    alone = entry("alone", result(rounds=(record(1, 0.5, steps=10, bytes_up=0, bytes_down=0),)))
    assert (alone.bytes_up, alone.bytes_down) == (None, None)


def test_seconds_by_stage_add_up_to_the_round() -> None:
    stages = entry("plain", result()).stages
    assert stages["train"] == pytest.approx(0.2)
    assert stages["other"] == pytest.approx(0.1)
    assert sum(stages.values()) == pytest.approx(0.5)


def test_json_and_csv_have_it_all() -> None:
    endless = replace(CENTRAL, epsilon=math.inf)
    comparison = Comparison(
        entries=(
            entry("plain", result(), result((0.6, 0.9), seed=2)),
            entry("dp", result(privacy=endless, example_privacy=LOCAL), failed=1),
            entry("nothing", failed=1),
        ),
        shared={"data": "digits"},
        warnings=("careful",),
        notes=("note",),
    )
    told = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert [own["name"] for own in told["entries"]] == ["plain", "dp", "nothing"]
    assert told["entries"][0]["accuracy"]["mean"] == pytest.approx(0.85)
    assert told["entries"][0]["privacy"] == []
    assert [claim["epsilon"] for claim in told["entries"][1]["privacy"]] == ["infinite", 3.0]
    assert told["entries"][1]["runs"][1]["error"] == "it broke <b>"
    assert told["entries"][2]["accuracy"] is None
    plain, dp, nothing = csv.DictReader(io.StringIO(comparison.to_csv()))
    assert (plain["runs"], plain["failed"], plain["epsilon"], plain["server_sees"]) == ("2", "0", "", "updates")
    assert float(plain["accuracy_mean"]) == pytest.approx(0.85)
    assert (dp["epsilon"], dp["second_epsilon"], dp["second_unit"]) == ("inf", "3.0", "example")
    assert (nothing["runs"], nothing["failed"], nothing["accuracy_mean"]) == ("0", "1", "")
