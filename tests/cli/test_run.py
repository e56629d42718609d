from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import tacit
from tacit.cli import main as cli
from tacit.config.run_config import known_keys

SMALL = ["--data", "digits", "--model", "logistic", "--rounds", "2", "--clients", "4", "--seed", "1", "train.workers=1"]


class Tacit:
    """Runs the command in this process, as a shell would: by its arguments, status and two streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capture = capfd

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["tacit", *map(str, arguments)])
        status: Any = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = stop.code or 0
        out, err = self._capture.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    def refused(self, *arguments: str | Path, status: int = 1) -> str:
        """Run what is a mistake and return the sentence on stderr."""
        got, out, err = self(*arguments)
        assert got == status, err
        assert out == ""
        return " ".join(err.split())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    monkeypatch.setenv("COLUMNS", "200")
    return Tacit(monkeypatch, capfd)


def test_json_is_one_object_and_nothing_else(run: Tacit, tmp_path: Path) -> None:
    status, out, err = run("run", *SMALL, "--out", tmp_path / "a", "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert (result["dataset"], len(result["rounds"]), result["simulation"]) == ("digits", 2, True)
    assert result == json.loads((tmp_path / "a" / "result.json").read_text())


def test_plain_lines_without_a_terminal(run: Tacit, tmp_path: Path) -> None:
    status, out, err = run("run", *SMALL, "--out", tmp_path / "a")
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[1].startswith("round 1/2  clients 4/4  train loss ")
    assert lines[2].startswith("round 2/2  clients 4/4  train loss ")
    assert "accuracy" in out
    assert str(tmp_path / "a") in out
    assert "try next" in out
    assert "a simulation: whoever has the seed can repeat every draw" in out


def test_quiet_says_nothing(run: Tacit, tmp_path: Path) -> None:
    assert run("run", *SMALL, "--out", tmp_path / "a", "--quiet") == (0, "", "")
    assert (tmp_path / "a" / "result.json").exists()


def test_quiet_still_complains(run: Tacit) -> None:
    assert "Unknown mode" in run.refused("run", *SMALL, "--quiet", "--mode", "magic")


def test_a_run_has_a_folder_of_its_own_by_default(run: Tacit, tmp_path: Path) -> None:
    run("run", *SMALL, "--quiet")
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("plain-")


def test_flags_win_over_words_and_words_over_files(run: Tacit, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "data: {name: digits}\nmodel: {name: logistic}\nseed: 5\nfederate: {rounds: 9}\n"
    )
    arguments = ["job.yaml", "federate.rounds", "3", "federate.clients=6", "--clients", "3", "--lr", "0.1", "--json"]
    _, out, _ = run("run", *arguments, "--out", tmp_path / "a")
    result = json.loads(out)
    assert (len(result["rounds"]), result["clients"], result["seed"]) == (3, 3, 5)
    assert yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())["optimizer"]["lr"] == 0.1


@pytest.mark.parametrize("mode", ["PLAIN", "Plain", "plain"])
def test_modes_in_any_case(run: Tacit, tmp_path: Path, mode: str) -> None:
    _, out, _ = run("run", *SMALL, "--mode", mode, "--out", tmp_path / "a", "--json")
    assert json.loads(out)["mode"] == "plain"


def test_every_flag_reaches_its_key(run: Tacit, tmp_path: Path) -> None:
    flags = (
        "--data digits --model mlp --split dirichlet:0.5 --clients 8 --per-round 4 --sampling poisson --rounds 1 "
        "--drop 0.05 --local-epochs 2 --batch-size 16 --lr 0.02 --seed 3 --gpu -1 --engine in-process "
        "federate.minimum_clients=1"
    )
    status, _, err = run("run", *flags.split(), "--out", tmp_path / "a", "--quiet")
    assert (status, err) == (0, "")
    values = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert values["data"]["split"] == "dirichlet:0.5"
    federate = {"clients": 8, "per_round": 4, "sampling": "poisson", "rounds": 1, "drop": 0.05}
    assert federate.items() <= values["federate"].items()
    assert {"local_epochs": 2, "batch_size": 16}.items() <= values["train"].items()
    assert (values["optimizer"]["lr"], values["seed"], values["gpu"]) == (0.02, 3, -1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "magic"], "Unknown mode 'magic'. Modes of this version: plain"),
        (["--C", "1.0"], "dp.clip has no effect in mode 'plain'"),
        (["--sigma", "0.5"], "dp.noise has no effect in mode 'plain'"),
        (["--per-round", "9"], "federate.per_round=9 is more than the 4 clients there are"),
        (["--rounds", "-3"], "federate.rounds=-3 does not work"),
        (["--drop", "1.5"], "federate.drop=1.5 does not work"),
        (["--split", "sideways"], "sideways"),
        (["--model", "cnn"], "needs images"),
        (["--model", "mpl"], "Did you mean 'mlp'?"),
        (["--data", "digit"], "digits"),
        (["--engine", "carrier-pigeon"], "engine='carrier-pigeon' does not work"),
        (["--sampling", "some"], "federate.sampling='some' does not work"),
        (["federate.roundz=3"], "Unknown key 'federate.roundz'. Did you mean 'federate.rounds'?"),
        (["optimiser.lr=3"], "Did you mean 'optimizer.lr'?"),
        (["federate.rounds"], "federate.rounds has no value"),
        (["optimizer.lr=fast"], "optimizer.lr='fast' does not work"),
        (["job.yaml"], "Can't read job.yaml"),
        (["nonsense"], "Can't make sense of 'nonsense'"),
        (["train.form=lanes", "--model", "torch.nn:Flatten"], "parameters to train"),
        (["optimizer.lr=1e6", "--model", "mlp"], "failed in round 1: its training diverged"),
        (["federate.drop=0.99", "federate.retries=0"], "clients sent a reply that counts in round 1"),
    ],
)
def test_a_mistake_is_a_sentence(run: Tacit, tmp_path: Path, arguments: list[str], words: str) -> None:
    message = run.refused("run", *SMALL, *arguments, "--out", tmp_path / "a", "--json")
    assert message.startswith("error: ")
    assert words in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_a_clear_error(run: Tacit) -> None:
    assert "--gpu 0: no NVIDIA GPU can be used here" in run.refused("run", *SMALL, "--gpu", "0")


def test_an_unknown_flag_is_the_shells_kind_of_mistake(run: Tacit) -> None:
    assert "No such option" in run.refused("run", "--roundz", "3", status=2)
    assert "Invalid value for '--rounds'" in run.refused("run", "--rounds", "three", status=2)
    run.refused("sprint", status=2)


def test_the_folder_of_another_run_is_refused_unless_forced(run: Tacit, tmp_path: Path) -> None:
    run("run", *SMALL, "--out", tmp_path / "a", "--quiet")
    assert "holds another run" in run.refused("run", *SMALL, "--out", tmp_path / "a")
    assert run("run", *SMALL, "--out", tmp_path / "a", "--quiet", "--force")[0] == 0


def test_a_file_in_the_way_is_a_sentence(run: Tacit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Can't write" in run.refused("run", *SMALL, "--out", tmp_path / "file")


def test_a_data_folder_that_is_none_is_a_sentence(run: Tacit, tmp_path: Path) -> None:
    refused = run.refused("run", "--data", "mnist", "--data-dir", tmp_path / "no", "data.download=false")
    assert refused.startswith("error: ")


def test_resume(run: Tacit, tmp_path: Path) -> None:
    run("run", *SMALL, "--out", tmp_path / "a", "--quiet")
    status, out, err = run("resume", tmp_path / "a", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == json.loads((tmp_path / "a" / "result.json").read_text())
    assert "is complete: all 2 rounds are done" in run("resume", tmp_path / "a")[1]
    assert run("resume", tmp_path / "a", "--quiet") == (0, "", "")


@pytest.mark.parametrize("name", ["", "missing"])
def test_resuming_what_is_no_run_is_a_sentence(run: Tacit, tmp_path: Path, name: str) -> None:
    assert "is not the folder of a run" in run.refused("resume", tmp_path / name)


def test_config_prints_every_key_with_its_default(run: Tacit) -> None:
    status, out, _ = run("config")
    values = yaml.safe_load(out)
    flat = {f"{k}.{i}" for k, v in values.items() if isinstance(v, dict) for i in v}
    flat |= {k for k, v in values.items() if not isinstance(v, dict)}
    assert status == 0
    assert flat == set(known_keys())
    assert (values["model"]["name"], values["federate"]["clients"], values["data"]["split"]) == ("cnn", 10, "iid")


def test_config_is_effective_and_json_too(run: Tacit, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("data: {name: digits}")
    values = json.loads(run("config", "job.yaml", "federate.rounds", "3", "--json")[1])
    assert (values["federate"]["rounds"], values["model"]["name"]) == (3, "mlp")
    assert "Did you mean" in run.refused("config", "federate.round=3")


def test_config_prints_the_defaults_of_the_mode(run: Tacit) -> None:
    values = yaml.safe_load(run("config", "mode=dp-sgd", "dp.epsilon=2")[1])
    assert (values["federate"]["rounds"], values["optimizer"]["lr"], values["server"]["lr"]) == (10, 2.0, 1.0)
    values = yaml.safe_load(run("config", "mode=dp-sgd", "dp.epsilon=2", "federate.rounds=6", "optimizer.lr=0.05")[1])
    assert (values["federate"]["rounds"], values["optimizer"]["lr"]) == (6, 0.05)


def test_a_printed_configuration_can_be_run(run: Tacit, tmp_path: Path) -> None:
    _, text, _ = run("config", "data.name=digits", "federate.rounds=1", "seed=1")
    (tmp_path / "all.yaml").write_text(text)
    status, out, _ = run("run", "all.yaml", "--out", tmp_path / "a", "--json")
    assert status == 0
    assert len(json.loads(out)["rounds"]) == 1


def test_version_and_help(run: Tacit) -> None:
    assert run("--version") == (0, f"tacit {tacit.__version__}\n", "")
    for arguments in (["--help"], ["-h"], ["run", "--help"], ["resume", "-h"], ["config", "--help"]):
        status, out, _ = run(*arguments)
        assert status == 0
        assert "Usage" in out


def _process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    command = [sys.executable, "-c", "from tacit.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_colours_only_where_they_are_wanted(tmp_path: Path) -> None:
    plain = _process("run", "--rounds", "0", NO_COLOR="1", FORCE_COLOR="")
    assert plain.returncode == 1
    assert plain.stderr.startswith("error: ")
    assert "\x1b" not in plain.stderr
    assert "\x1b[" in _process("run", "--rounds", "0", FORCE_COLOR="1", NO_COLOR="").stderr


def test_a_reader_who_leaves_early_is_no_error(tmp_path: Path) -> None:
    code = "from tacit.cli.main import main; main()"
    shell = f"'{sys.executable}' -c '{code}' config | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout == "mode: plain\n"
    assert done.stderr == ""


_WRAPS = """
from torch import nn

class Wraps(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        return {"logits": self.out(x.flatten(1)), "loss": None}
"""


@pytest.mark.parametrize("mode", ["plain", "dp-sgd"])
def test_a_model_of_ones_own_may_return_more_than_its_logits(
    mode: str, tmp_path: Path, run: Tacit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("returning_more.py").write_text(_WRAPS)
    options = ["--data", "digits", "--model", "returning_more:Wraps", "--rounds", "1", "--clients", "3", "--seed", "1"]
    status, out, _ = run("run", *options, "--mode", mode, "--json")
    assert status == 0
    assert json.loads(out)["model"] == "returning_more:Wraps"
