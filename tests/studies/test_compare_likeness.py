from __future__ import annotations

from typing import Any

import pytest

from tacit.studies.compare import alike
from tests.runs.results import entry, result


def test_what_all_share_is_said_and_nothing_is_warned_of() -> None:
    shared, warnings = alike([entry("a", result(), result(seed=2)), entry("b", result(seed=2), result())])
    assert warnings == ()
    assert shared["seeds"] == "1, 2"
    assert shared["model"] == "logistic (650 parameters)"


@pytest.mark.parametrize(
    ("change", "what", "told"),
    [
        ({"dataset": "mnist"}, "data", "digits in a; mnist in b"),
        ({"split": "shards:2"}, "split", "iid in a; shards:2 in b"),
        ({"clients": 9}, "clients", "4 in a; 9 in b"),
        ({"per_round": 2}, "clients per round", "4 in a; 2 in b"),
        ({"model": "cnn"}, "model", "cnn (650 parameters) in b"),
        ({"parameters": 5}, "model", "logistic (5 parameters) in b"),
        ({"accuracies": (0.1, 0.2, 0.3)}, "rounds", "2 in a; 3 in b"),
        ({"seed": 2}, "seeds", "1 in a; 2 in b"),
        ({"seed": None}, "seeds", "1 in a; random in b"),
    ],
)
def test_what_differs_is_warned_of(change: dict[str, Any], what: str, told: str) -> None:
    shared, warnings = alike([entry("a", result()), entry("b", result(**change))])
    (warning,) = warnings
    assert warning.startswith(f"Not like for like: {what} differ: ")
    assert told in warning
    assert what not in shared


def test_a_seed_that_is_there_twice_is_no_spread() -> None:
    _, warnings = alike([entry("a", result(), result())])
    assert warnings == ("a has the seed 1 more than once: runs that repeat each other make its spread too small.",)


def test_data_in_memory_can_not_be_compared() -> None:
    _, warnings = alike([entry("a", result(dataset="given")), entry("b", result(dataset="given"))])
    assert "given in memory" in warnings[0]


def test_an_entry_without_a_result_has_nothing_to_share() -> None:
    assert alike([entry("a", failed=1)]) == ({}, ())
