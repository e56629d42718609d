"""Values complete in the shell, at once, and as the rooms have them that declare them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from click.shell_completion import ShellComplete

from tacit.cli import completion
from tacit.cli import main as command_line
from tacit.config.run_config import known_keys
from tacit.modes.catalogue import MODES
from tacit.tasks import catalogue, models, partition

CODE = "from tacit.cli.main import main; main()"


def completed(*words: str) -> list[str]:
    """Return what the last word is completed to."""
    shell = ShellComplete(typer.main.get_command(command_line.app), {}, "tacit", "_TACIT_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def shell(code: str, tmp_path: Path, **environment: str) -> str:
    """Run bash with a command ``tacit`` and return what it prints."""
    command = tmp_path / "bin" / "tacit"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{CODE}' \"$@\"\n")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, env=os.environ | environment | {"PATH": path}, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_names_are_those_of_the_rooms() -> None:
    assert completion.modes().keys() == MODES.keys()
    assert all(completion.modes().values())
    assert list(completion.data_sets()) == [row.name for row in catalogue.describe(None)]
    assert list(completion.models()) == list(models.MODELS)
    for split in completion.splits():
        assert str(partition.parse(split)) == split


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--mode", "pa"], ["paillier"]),
        (["run", "--data", "fa"], ["fashion-mnist"]),
        (["deploy", "local", "--model", "sc"], ["scatter-linear", "scatter-cnn"]),
        (["sweep", "--split", "d"], ["dirichlet:0.3"]),
        (["train", "--clipping", ""], ["flat", "per-layer", "automatic"]),
        (["run", "--log", "t"], ["tensorboard"]),
        (["run", "--engine", "f"], ["flower"]),
        (["data", "show", "br"], ["breast-cancer"]),
        (["compare", "--modes", "plain,dp-"], ["plain,dp-sgd"]),
        (["compare", "--modes", "plain,pl"], []),
        (["run", "--per"], ["--per-round"]),
        (["run", "fede"], [f"{key}=" for key in known_keys() if key.startswith("federate.")]),
        (["run", "fe", "x"], []),
        (["config", "s"], ["server.", "signds.", "single_holder=", "seed="]),
        (["run", "dp.epsi"], ["dp.epsilon=", "dp.epsilon=VALUE"]),
        (["run", "dpsgd.clipp"], [f"dpsgd.clipping={kind}" for kind in ("flat", "per-layer", "automatic")]),
        (["run", "dpsgd.clipping=a"], ["dpsgd.clipping=automatic"]),
        (["run", "mode=sig"], ["mode=signds"]),
        (["run", "data.name", "dig"], ["digits"]),  # a key and its value as two words
        (["run", "dpsgd.clipping", "=", "per"], ["per-layer"]),  # as bash has them
        (["run", "paillier.prove", "="], ["false", "true"]),
        (["run", "federate.rounds=3", "dp.delt"], ["dp.delta=", "dp.delta=VALUE"]),
        (["compare", "dp:optimizer.mom"], ["dp:optimizer.momentum=", "dp:optimizer.momentum=VALUE"]),
        (["run", "nothing.like.it"], []),
    ],
)
def test_what_is_completed(words: list[str], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_job_files_and_the_folders_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("job.yaml", ".hidden.yaml", "job.txt"):
        (tmp_path / name).write_text("")
    for name, inside in (("runs/first", "journal.jsonl"), ("runs/grid", "study.json"), ("runs/else", "note.txt")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / inside).write_text("")
    assert completed("run", "jo") == ["job.yaml"]
    assert completed("resume", "") == ["runs/first", "runs/grid"]
    assert completed("report", "runs/f") == completed("ledger", "runs/f") == ["runs/first"]
    assert completed("compare", "runs/g") == ["runs/grid"]
    assert completed("report", "nowhere/") == []


@pytest.mark.parametrize(
    ("arguments", "beyond"),
    [("run --mode ", "pydantic"), ("run --data ", "pydantic"), ("run --model ", "pydantic"), ("run dp.", "numpy")],
)
def test_a_completion_waits_for_nothing_heavy(arguments: str, beyond: str) -> None:
    code = """
import sys
from tacit.cli.main import app
try:
    app(prog_name="tacit")
except SystemExit:
    print(sorted({"torch", "numpy", "pydantic", "sklearn", "scipy"} & sys.modules.keys()))
"""
    environment = {"_TACIT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"tacit {arguments}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=True)
    assert "_arguments" in done.stdout
    loaded = done.stdout.splitlines()[-1]
    assert beyond not in loaded
    assert "torch" not in loaded


def test_zsh_gets_values_with_what_they_are(tmp_path: Path) -> None:
    told = {"_TACIT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tacit run --mode pl"}
    assert shell("tacit", tmp_path, **told) == ('_arguments \'*: :(("plain":"federated averaging in the clear"))\'\n')


def test_bash_gets_them_through_its_script(tmp_path: Path) -> None:
    code = """
eval "$(_TACIT_COMPLETE=source_bash tacit)"
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tacit_completion tacit; echo "${COMPREPLY[@]}"; }
try tacit run --mode loc
try tacit run dp.epsi
try tacit run dpsgd.clipping = f
"""
    assert shell(code, tmp_path).splitlines() == ["local-dp", "dp.epsilon= dp.epsilon=VALUE", "flat"]


def test_it_can_be_installed() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, "--help"], capture_output=True, text=True, check=True)
    assert "--install-completion" in done.stdout
    assert "--show-completion" in done.stdout
