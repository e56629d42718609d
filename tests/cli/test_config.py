"""``tacit config`` prints job files: whole ones, and one mode's keys with what each means."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tacit.config.run_config import fields, from_mapping, known_keys
from tacit.modes.catalogue import MODES, plan_of, resolve
from tests.cli.common_crypto import Tacit


@pytest.mark.parametrize("words", [*([name] for name in MODES), ["paillier", "--dp"]], ids=" ".join)
def test_a_modes_keys_are_a_job_file_for_the_same_run(tacit_command: Tacit, words: list[str]) -> None:
    code, printed, _ = tacit_command("config", "--mode", *words)
    assert code == 0
    _, whole, _ = tacit_command("config", "--mode", *words, "--json")
    config = resolve(from_mapping(yaml.safe_load(printed)))
    assert config.model_dump(mode="json") == json.loads(whole)
    assert plan_of(config, config.federate.clients or 10).mode == words[0]


def test_it_has_that_modes_keys_only_and_says_what_each_is(tacit_command: Tacit) -> None:
    _, printed, _ = tacit_command("config", "--mode", "dp")
    found = yaml.safe_load(printed)
    assert found["federate"]["clients"] == 100
    assert not {"paillier", "signds", "nbafl", "dpsgd"} & found.keys()
    assert "mechanism" not in found["dp"]
    assert "minimum_clients" not in found["federate"]  # which mode dp refuses
    prose = re.sub(r"\s*\n\s*# ", " ", printed)
    for key in ("dp.clip", "federate.rounds", "optimizer.lr"):
        assert " ".join((fields()[key].description or "").split()) in prose
    assert "Which protection. One of dp, " in prose
    assert max(map(len, printed.splitlines())) <= 110


def test_without_a_mode_it_has_every_key(tacit_command: Tacit) -> None:
    _, printed, _ = tacit_command("config", "data=digits")
    found = yaml.safe_load(printed)
    assert {f"{name}.{key}" for name, inner in found.items() if isinstance(inner, dict) for key in inner} | {
        name for name, inner in found.items() if not isinstance(inner, dict)
    } == set(known_keys())
    assert "#" not in printed


def test_a_name_stands_for_its_section(tacit_command: Tacit, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("data: digits\nmodel: mlp\nserver: fedadam\n")
    code, printed, _ = tacit_command("config", str(job), "data.split=shards:2", "--model", "logistic")
    found = yaml.safe_load(printed)
    assert code == 0
    assert (found["data"]["name"], found["data"]["split"]) == ("digits", "shards:2")
    assert (found["model"]["name"], found["server"]["name"]) == ("logistic", "fedadam")


def test_a_section_that_has_no_name_is_explained(tacit_command: Tacit) -> None:
    code, _, said = tacit_command("config", "dp=8")
    assert code == 1
    assert "dp is a section, written as in `dp: {clip: VALUE}` or dp.clip=VALUE." in " ".join(said.split())
