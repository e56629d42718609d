from __future__ import annotations

import subprocess
import sys

import pytest

from tacit.errors import ConfigError
from tacit_labs.harness import catalogue


@pytest.mark.parametrize("name", catalogue.MODULES)
def test_an_experiment_is_loaded_by_its_name_and_says_what_the_original_was(name: str) -> None:
    experiment = catalogue.load(name)
    assert experiment.name == name
    assert experiment.title
    assert experiment.source.endswith(".")


def test_all_is_every_experiment_once() -> None:
    assert catalogue.chosen(["lab-004", "all"]) == [
        "lab-004",
        "report-000",
        "report-003",
        "signds-001",
        "nbafl-femnist",
    ]


@pytest.mark.parametrize(
    ("word", "near"),
    [("lab-00", "lab-004"), ("report_03", "report-003"), ("SignDS", "signds-001"), ("al", "all")],
)
def test_an_unknown_name_is_answered_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(
        ConfigError, match=f"Unknown experiment '{word}'. Did you mean '{near}'\\? There are report-000, "
    ):
        catalogue.chosen(["report-000", word])


def test_a_name_like_no_other_has_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"Unknown experiment 'zzz'\. There are"):
        catalogue.chosen(["zzz"])


def test_the_catalogue_loads_no_experiment() -> None:
    code = "import sys, tacit_labs.harness.catalogue as c; print([m for m in c.MODULES.values() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
