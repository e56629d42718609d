from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit.config import overrides
from tacit.config.run_config import RunConfig, from_mapping, from_yaml, known_keys
from tacit.errors import ConfigError
from tacit.modes.catalogue import resolve


def _set(key: str, value: Any) -> RunConfig:
    settings: dict[str, Any] = {}
    overrides.put(settings, key, value)
    return from_mapping(settings)


def test_the_defaults_are_the_labs() -> None:
    config = RunConfig()
    assert (config.mode, config.engine, config.seed, config.gpu, config.out) == ("plain", "in-process", None, -1, None)
    assert (config.data.name, config.federate.rounds, config.train.local_epochs) == ("mnist", 6, 1)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("federate.round", "federate.rounds"),
        ("optimiser.lr", "optimizer.lr"),
        ("rounds", "federate.rounds"),
        ("train.batchsize", "train.batch_size"),
        ("lr", "optimizer.lr"),
        ("sed", "seed"),
        ("xyzzy", None),
    ],
)
def test_an_unknown_key_suggests_the_nearest(key: str, nearest: str | None) -> None:
    with pytest.raises(ConfigError, match=f"Unknown key '{key}'") as caught:
        _set(key, 1)
    hint = "" if nearest is None else f" Did you mean '{nearest}'?"
    assert str(caught.value) == f"Unknown key '{key}'.{hint} `tacit config` prints every key."


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("federate.rounds", -1, "whole number from 1 to 1,000,000"),
        ("federate.rounds", 0, "whole number from 1 to 1,000,000"),
        ("federate.rounds", "many", "valid integer"),
        ("federate.rounds", 2.5, "valid integer"),
        ("federate.clients", 0, "whole number from 1 to 10,000,000"),
        ("federate.per_round", -3, "whole number from 1 to 10,000,000"),
        ("federate.drop", 1.0, "number in [0, 1)"),
        ("federate.drop", -0.1, "number in [0, 1)"),
        ("federate.retries", -1, "from 0 to 1,000"),
        ("federate.sampling", "some", "'all', 'fixed' or 'poisson'"),
        ("federate.weighting", "size", "'examples' or 'uniform'"),
        ("train.batch_size", 0, "from 1 to 1,000,000,000"),
        ("train.local_epochs", 0, "from 1 to 1,000,000"),
        ("optimizer.lr", 0, "[1e-12, 1e+06]"),
        ("optimizer.lr", -0.1, "[1e-12, 1e+06]"),
        ("optimizer.lr", float("nan"), ""),
        ("optimizer.lr", float("inf"), "[1e-12, 1e+06]"),
        ("optimizer.lr", "fast", "valid number"),
        ("optimizer.momentum", 1.0, "number in [0, 1)"),
        ("optimizer.decay", 1.1, "number in (0, 1]"),
        ("optimizer.grad_clip", 0, "[1e-12, 1e+09]"),
        ("optimizer.mu", -1, "in [0, 1e+06]"),
        ("server.name", "adamw", "'fedavg', 'fedavgm', 'fedadam' or 'fedyogi'"),
        ("evaluate.every", 0, "from 1 to 1,000,000"),
        ("evaluate.train", "maybe", "valid boolean"),
        ("seed", -1, "from 0 to 9,223,372,036,854,775,807"),
        ("gpu", -2, "from -1 to 1,023"),
        ("engine", "carrier-pigeon", "'in-process'"),
        ("mode", 3, "valid string"),
        ("federate", 3, ""),
    ],
)
def test_a_value_outside_its_domain_is_named(key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}={value!r} does not work: .*{re.escape(words)}"):
        _set(key, value)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"federate.rounds=-1 .*optimizer.lr=0 "):
        RunConfig(federate={"rounds": -1}, optimizer={"lr": 0})


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().seed = 3  # type: ignore[misc]


def test_modes_and_engines_come_in_any_case() -> None:
    assert RunConfig(mode="PLAIN").mode == "plain"
    assert RunConfig(mode="Paillier").mode == "paillier"
    assert RunConfig(engine="In-Process").engine == "in-process"


def test_yaml_round_trips() -> None:
    config = RunConfig(seed=4, out=Path("runs/a"), federate={"clients": 7, "drop": 0.25}, optimizer={"lr": 1e-5})
    assert from_mapping(yaml.safe_load(config.to_yaml())) == config
    assert from_mapping(yaml.safe_load(RunConfig().to_yaml())) == RunConfig()


def test_yaml_has_every_key() -> None:
    values = yaml.safe_load(RunConfig().to_yaml())
    flat = [f"{k}.{inner}" for k, v in values.items() if isinstance(v, dict) for inner in v]
    flat += [key for key, value in values.items() if not isinstance(value, dict)]
    assert sorted(flat) == sorted(known_keys())


def test_an_empty_section_is_its_defaults() -> None:
    assert from_mapping({"federate": None}) == RunConfig()


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [1", "not valid YAML"), ("- 1\n- 2", r"mapping such as .*got \[1, 2\]"), ("3", "got 3"), ("\x00", "YAML")],
)
def test_a_job_file_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        from_yaml(path)


def test_job_files_may_be_empty_missing_or_binary(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert from_yaml(tmp_path / "empty.yaml") == {}
    with pytest.raises(ConfigError, match="No such file"):
        from_yaml(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ConfigError, match="not valid YAML"):
        from_yaml(tmp_path / "binary.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        from_yaml(tmp_path)


@pytest.mark.parametrize(
    ("given", "split", "clients", "model"),
    [
        ({}, "iid", 10, "cnn"),
        ({"data": {"name": "digits"}}, "iid", 10, "mlp"),
        ({"data": {"name": "heart-disease"}}, "natural", None, "logistic"),
        ({"data": {"name": "femnist"}, "federate": {"clients": 3}}, "natural", 3, "cnn"),
        ({"data": {"split": "shards:2"}, "model": {"name": "lenet"}}, "shards:2", 10, "lenet"),
    ],
)
def test_defaults_that_depend_on_others(given: dict[str, Any], split: str, clients: int | None, model: str) -> None:
    config = resolve(RunConfig(**given))
    assert (config.data.split, config.federate.clients, config.model.name) == (split, clients, model)


@pytest.mark.parametrize(
    ("given", "rounds", "rate"),
    [
        ({"dp": {"epsilon": 1}}, 20, 1.0),
        ({"dp": {"epsilon": 3}}, 20, 3.0),
        ({"dp": {"epsilon": 8}}, 20, 4.0),
        ({"dpsgd": {"epsilon": 2}}, 20, 2.0),
        ({"dp": {"noise": 1.5}}, 20, 0.5),
        ({"dpsgd": {"noise": 1.5}, "dp": {"epsilon": 3}}, 20, 0.5),
        ({"dp": {"epsilon": 3}, "federate": {"rounds": 6}}, 6, 3.0),
        ({"dp": {"epsilon": 3}, "optimizer": {"lr": 0.05}}, 20, 0.05),
        ({"dp": {"epsilon": 3}, "optimizer": {"momentum": 0.9}}, 20, 3.0),
        ({"dp": {"epsilon": 3}, "single_holder": True}, 6, 0.5),
        ({"dp": {"epsilon": 3}, "mode": "dp"}, 6, 0.05),
        ({"mode": "plain"}, 6, 0.05),
    ],
)
def test_dp_sgd_has_rounds_and_a_rate_of_its_own_where_none_are_given(
    given: dict[str, Any], rounds: int, rate: float
) -> None:
    config = resolve(RunConfig(**{"mode": "dp-sgd"} | given))
    assert (config.federate.rounds, config.optimizer.lr) == (rounds, rate)
    assert resolve(config) == config
    assert resolve(from_mapping(yaml.safe_load(config.to_yaml()))) == config  # what a run keeps for `tacit resume`
