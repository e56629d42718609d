from __future__ import annotations

import ast
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError, RunError
from tacit.flower.deploy.app import files, settings, toml, write_app
from tacit.flower.deploy.nodes import shared
from tacit.flower.serve import configuration
from tacit.modes.catalogue import resolve
from tacit.parties.settings import from_dotted


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Return nested tables with dotted keys, as Flower hands a run config over."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = (
            {f"{key}.{name}": one for name, one in _flat(value).items()} if isinstance(value, dict) else {key: value}
        )
        found |= inner
    return found


def _read_back(config: RunConfig) -> RunConfig:
    app = tomllib.loads(files(resolve(config), "my-app")["pyproject.toml"])["tool"]["flwr"]["app"]
    return configuration(_flat(app["config"]))


CONFIGS: list[dict[str, Any]] = [
    {},
    {"mode": "dp", "dp": {"epsilon": 8.0, "clip": "adaptive"}, "federate": {"clients": 100, "per_round": 20}},
    {"mode": "dp-sgd", "dpsgd": {"noise": 1.0}},
    {"mode": "dp-sgd", "dpsgd": {"noise": 1.0}, "optimizer": {"lr": 0.05}},
    {"mode": "paillier", "paillier": {"keys": "threshold", "shares": "3/5", "prove": True}},
    {"mode": "signds", "seed": 3, "data": {"folder": 'a "quoted\\ name"\n', "name": "digits"}},
    {"server": {"name": "fedadam"}, "train": {"form": "loop"}},
]


@pytest.mark.parametrize("values", CONFIGS)
def test_the_run_config_says_what_the_settings_said(values: dict[str, Any]) -> None:
    config = from_mapping(values)
    assert resolve(_read_back(config)) == resolve(config.model_copy(update={"engine": "flower"}))


def test_what_people_change_most_can_be_overridden() -> None:
    named = set(_flat(settings(shared(from_mapping({"out": "runs/a"})))))
    assert {"mode", "out", "data.name", "data.split_seed", "federate.clients", "federate.rounds"} <= named


def test_a_key_file_is_its_holders_own_affair() -> None:
    config = from_mapping({"mode": "paillier", "paillier": {"key": "/secret/private.key"}})
    assert not any("/secret" in text for text in files(resolve(config), "my-app").values())


def test_every_party_runs_the_same_version() -> None:
    project = tomllib.loads(files(resolve(RunConfig()), "my-app")["pyproject.toml"])["project"]
    assert project["dependencies"] == [f"tacit[flower]=={tacit.__version__}"]


def test_the_files_are_python_and_name_each_other(tmp_path: Path) -> None:
    folder = write_app(tmp_path / "my-app", resolve(RunConfig()))
    parts = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["components"]
    for reference in parts.values():
        module, _, name = reference.partition(":")
        tree = ast.parse((folder / f"{module.replace('.', '/')}.py").read_text())
        assert any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name for node in tree.body)
    task = ast.parse((folder / "my_app" / "task.py").read_text())
    defined = {node.name for node in task.body if isinstance(node, ast.FunctionDef)}
    assert defined == {"build", "load_data", "load_test"}


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_neither_runs_nor_keys_travel_in_the_app(tmp_path: Path) -> None:
    folder = write_app(tmp_path / "my-app", resolve(RunConfig()))
    build = pytest.importorskip("flwr.cli.build")
    for name in ("runs/one/journal.jsonl", "node.key", "superlink.pem", "train.npz", "runs/one/config.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret-word")
    with zipfile.ZipFile(BytesIO(build.build_fab_from_disk(folder))) as bundle:
        names = set(bundle.namelist())
    assert names == {"pyproject.toml", "README.md", ".info/CONTENT"} | {
        f"my_app/{name}.py" for name in ("__init__", "client_app", "server_app", "task")
    }


@pytest.mark.parametrize("name", ["A", "my_app", "1app", "x", "-a", "a-", "a" * 41, "äpp", "a b"])
def test_a_name_that_flower_would_refuse_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Expected a name"):
        write_app(tmp_path / name, resolve(RunConfig()))
    assert not list(tmp_path.glob("*pyproject*"))


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "my-app").mkdir()
    with pytest.raises(RunError, match="is there already"):
        write_app(tmp_path / "my-app", resolve(RunConfig()))
    assert not list((tmp_path / "my-app").iterdir())


def test_lists_travel_as_words_and_empty_ones_not_at_all() -> None:
    config = resolve(RunConfig(data={"name": "my.csv", "label": "y", "drop": ["id", "name"]}, evaluate={"metrics": []}))
    told = tomllib.loads(toml(settings(config)))["tool"]["flwr"]["app"]["config"]
    assert told["data"]["drop"] == "id,name"
    assert "metrics" not in told.get("evaluate", {})
    assert from_dotted({"data.drop": told["data"]["drop"]}).data.drop == ("id", "name")


def test_texts_survive_the_way_through_toml() -> None:
    odd = 'tab\t quote" back\\slash new\nline \x7f ü'
    assert tomllib.loads(toml({"a": {"b": odd, "c": True, "d": 1e-5}})) == {
        "tool": {"flwr": {"app": {"config": {"a": {"b": odd, "c": True, "d": 1e-5}}}}}
    }
