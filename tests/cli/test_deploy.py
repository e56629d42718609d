from __future__ import annotations

import json
import socket
import tomllib
from pathlib import Path

import pytest

from tests.cli.common_crypto import Tacit
from tests.runs.common import STARTED


def test_new_writes_an_app_and_says_how_to_run_it(tacit_command: Tacit, tmp_path: Path) -> None:
    said = tacit_command.done(
        "deploy", "new", "my-federation", "--data", "digits", "--clients", "4", "optimizer.lr=0.1"
    )
    assert "cd my-federation && flwr run . --stream" in said
    settings = tomllib.loads((tmp_path / "my-federation" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert settings["config"]["federate"]["clients"] == 4
    assert settings["config"]["optimizer"] == {"lr": 0.1}
    assert settings["config"]["data"] == {"name": "digits", "split": "iid", "split_seed": 0, "download": True}
    assert settings["config"]["out"] == "runs/my-federation"


def test_new_tells_json_which_files_there_are(tacit_command: Tacit, tmp_path: Path) -> None:
    told = tacit_command.json("deploy", "new", "a-b", "--mode", "paillier")
    assert all((tmp_path / told["folder"] / name).is_file() for name in told["files"])
    readme = (tmp_path / "a-b" / "README.md").read_text()
    assert "tacit keys fingerprint" in readme
    assert "tacit holder serve holder" in readme
    assert "tacit site serve site" in readme


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["new", "My_App"], "Expected a name"),
        (["new", "app", "--mode", "dp", "--epsilon", "3", "--sigma", "1"], "needs dp.noise"),
        (["new", "app", "federate.drop=0.1"], "clients are real"),
        (["new", "app", "--data", "femnist"], "federate.clients has to be set"),
        (["local", "--mode", "dp", "--epsilon", "3", "--sigma", "1"], "needs dp.noise"),
        (["local", "federate.drop=0.1"], "clients are real"),
        (["certificates", "no host"], "host's name or address"),
    ],
)
def test_what_can_not_work_is_refused_before_anything_is_started(
    tacit_command: Tacit, tmp_path: Path, words: list[str], what: str
) -> None:
    failed = tacit_command.refused("deploy", *words)
    assert what in failed
    assert not [path for path in tmp_path.iterdir() if path.name != "lonely-cache"]


def test_local_names_a_port_that_is_taken(tacit_command: Tacit, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        failed = tacit_command.refused("deploy", "local", "--data", "digits", "--port", port, "--out", "run")
    assert f"Port {port} of 127.0.0.1 can't be used" in failed
    assert not (tmp_path / "run").exists()


def test_local_leaves_another_run_alone(tacit_command: Tacit, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text(json.dumps(STARTED.to_dict()) + "\n")
    failed = tacit_command.refused("deploy", "local", "--data", "digits", "--out", "run")
    assert "holds another run" in failed


def test_certificates_are_written_once(tacit_command: Tacit, tmp_path: Path) -> None:
    said = tacit_command.done("deploy", "certificates", "superlink.example.org", "10.0.0.5", "--out", "tls")
    assert "tls/authority.pem for everybody" in said
    assert (tmp_path / "tls" / "superlink.key").stat().st_mode & 0o777 == 0o600
    failed = tacit_command.refused("deploy", "certificates", "superlink.example.org", "--out", "tls")
    assert "is there already" in failed
    told = tacit_command.json("deploy", "certificates", "localhost", "--out", "b")
    assert [Path(name).exists() for name in told["files"]] == [True] * 3


def test_a_mode_without_a_budget_is_given_the_usual_one_and_says_so(tacit_command: Tacit, tmp_path: Path) -> None:
    said = tacit_command.done("deploy", "new", "app", "--mode", "dp")
    assert "epsilon 8 at delta 1e-05" in " ".join(said.split())
    settings = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert settings["config"]["dp"]["epsilon"] == 8.0
