from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.config import overrides
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ([], {}),
        (["federate.rounds=3"], {"federate": {"rounds": 3}}),
        (["federate.rounds", "3"], {"federate": {"rounds": 3}}),
        (["seed=4", "mode", "plain"], {"seed": 4, "mode": "plain"}),
        (["federate.rounds=3", "federate.rounds=5"], {"federate": {"rounds": 5}}),
        (["optimizer.grad_clip=null"], {"optimizer": {"grad_clip": None}}),
        (["data.split=dirichlet:0.3"], {"data": {"split": "dirichlet:0.3"}}),
        (["evaluate.train=false"], {"evaluate": {"train": False}}),
        (["data.folder=a=b"], {"data": {"folder": "a=b"}}),
        (["federate={rounds: 2, clients: 3}"], {"federate": {"rounds": 2, "clients": 3}}),
        (["model.name=my.models:Net"], {"model": {"name": "my.models:Net"}}),
    ],
)
def test_forms(words: list[str], settings: dict[str, Any]) -> None:
    assert overrides.parse(words) == settings


def test_scientific_notation_is_a_number_in_the_end() -> None:
    assert from_mapping(overrides.parse(["optimizer.lr=1e-3"])).optimizer.lr == 0.001


def test_files_and_overrides_win_in_order(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("federate: {rounds: 10, clients: 4}\nseed: 1\n")
    (tmp_path / "two.yml").write_text("federate:\n  rounds: 20\nserver.lr: 0.5\n")
    settings = overrides.parse(["seed=9", "one.yaml", "federate.drop=0.5", "two.yml", "seed=2"])
    assert settings == {"seed": 2, "federate": {"rounds": 20, "clients": 4, "drop": 0.5}, "server": {"lr": 0.5}}


def test_a_job_file_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("seed: 3")
    assert overrides.parse(["job"]) == {"seed": 3}


def test_an_empty_section_in_a_file_can_be_filled(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("federate:\noptimizer: null\n")
    settings = overrides.parse(["job.yaml", "federate.rounds=3"])
    assert from_mapping(settings).federate.rounds == 3


def test_the_file_is_not_changed_by_later_overrides(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("federate: {rounds: 10}")
    assert overrides.parse(["job.yaml", "federate.rounds=3", "job.yaml"]) == {"federate": {"rounds": 10}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["federate.rounds"], "federate.rounds has no value. Write federate.rounds=VALUE"),
        (["job.yaml"], "Can't read job.yaml: No such file"),
        (["rounds", "3"], r"Can't make sense of 'rounds'.*Did you mean 'federate.rounds'\?"),
        (["nonsense"], "Can't make sense of 'nonsense'"),
        ([".rounds=3"], "Expected a key such as federate.rounds"),
        (["federate.=3"], "Expected a key such as federate.rounds"),
        (["=3"], "Expected a key such as federate.rounds"),
        (["seed.x=3", "seed=1", "seed.y=2"], "seed.y can't be set: seed is 1, not a section"),
        (["seed=[1"], "not a value YAML understands"),
    ],
)
def test_mistakes(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        overrides.parse(words)


def test_a_name_stands_for_its_section_and_later_settings_lay_over_it() -> None:
    assert overrides.parse(["data.split=iid", "data=digits", "model=cnn"]) == {
        "data": {"split": "iid", "name": "digits"},
        "model": {"name": "cnn"},
    }
    assert RunConfig(data="digits", model="mlp").data.name == "digits"
