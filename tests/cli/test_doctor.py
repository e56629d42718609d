from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from tacit.cli.doctor import app
from tacit.crypto import backend
from tacit.errors import ConfigError, DataError
from tacit.runs import environment, model_forms


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_part_has_a_line_with_its_reason() -> None:
    shown = _run()
    for part in environment.examine().parts:
        (line,) = [line for line in shown.splitlines() if part.value in line and part.reason in line]
        assert line.startswith("✓" if part.best else "·")
    assert "cores" in shown


def test_json_has_the_same() -> None:
    found, examined = json.loads(_run("--json")), environment.examine()
    assert found["cores"] == examined.cores >= 1
    assert set(found) == {"cores", "python", "torch", "gpu", "crypto", "kernels"}
    assert found["crypto"]["value"] == backend.describe().backend.name
    assert found["python"]["value"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("forced", "value", "reason"),
    [
        ("gmpy2", "gmpy2", "TACIT_CRYPTO_BACKEND asks for it"),
        (
            "abacus",
            "none",
            "TACIT_CRYPTO_BACKEND is 'abacus', expected gmpy2 or native, or no value for the faster.",
        ),
    ],
)
def test_a_forced_backend_is_told_and_a_wrong_one_does_not_stop_the_doctor(
    forced: str, value: str, reason: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tacit.cli.main import main; main()", "doctor", "--json"],
        env={**os.environ, "TACIT_CRYPTO_BACKEND": forced},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["crypto"] == {"value": value, "reason": reason, "best": False}


def test_the_arithmetic_is_checked_on_request() -> None:
    assert "the cryptography's arithmetic is right" in _run("--check")
    assert json.loads(_run("--check", "--json"))["checked"] > 500


def test_a_models_forms_are_told_with_their_reasons() -> None:
    shown = _run("model", "logistic", "--shape", "6", "--clients", "4")
    assert "logistic: 70 parameters" in shown
    assert "DP-SGD clips by book-keeping" in shown
    words = ("--shape", "5", "--words", "9", "--classes", "3", "--examples", "4", "--json")
    found = json.loads(_run("model", "tests.training.private.common:TextOfOwn", *words))
    assert (found["form"], found["form_reason"]) == ("vmap", "module RMSNorm has no rule")
    assert found["private_form"] == "functional"
    assert "TextOfOwn (the model itself) has no rule" in found["private_reason"]


def test_a_shape_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="--shape as whole numbers with commas"):
        _run("model", "cnn", "--shape", "3x32")


@pytest.mark.parametrize(
    "arguments",
    [("--json", "model", "logistic"), ("model", "logistic", "--json"), ("--json", "model", "mlp", "--json")],
)
def test_json_of_a_model_is_asked_for_in_either_place(arguments: tuple[str, ...]) -> None:
    assert json.loads(_run(*arguments, "--shape", "6"))["form"] == "perceptron"


def test_a_check_of_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="--check is of the cryptography, not of a model"):
        _run("--check", "model", "logistic")


def test_a_model_with_its_logits_inside_has_its_forms() -> None:
    found = json.loads(_run("model", f"{__name__}:Logits", "--shape", "6", "--json"))
    assert (found["form"], found["private_form"]) == ("vmap", "book-keeping")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("both_zero", "No gradient reaches the 6 numbers"),  # it said vmap
        ("frozen_norm", r"'0\.running_mean' is frozen, and training changed it"),  # it said loop
        ("Unreached", "No gradient reaches|can't train: RuntimeError: .* does not require grad"),
        ("BreaksOff", "can't train: .* A run would stop at it as well"),
    ],
)
def test_what_a_run_refuses_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _run("model", f"{__name__}:{name}", "--shape", "4", "--classes", "2")


def test_a_batch_that_a_run_refuses_is_refused() -> None:
    with pytest.raises(DataError, match="holds 21 examples: in batches of 10 one is left alone"):
        _run("model", f"{__name__}:batch_norm", "--shape", "4", "--examples", "21")


@pytest.mark.parametrize(
    "arguments",
    [("--shape", "99999999999"), ("--shape", "64", "--examples", "1000000000"), ("--shape", "9" * 40)],
)
def test_examples_that_no_memory_holds_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"examples of shape .* take .* GB, and this machine has .* or --classes"):
        _run("model", "logistic", *arguments)


def test_a_model_that_no_memory_trains_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_forms, "memory", lambda: 200_000)
    with pytest.raises(ConfigError, match=r"To train model 'mlp' takes .* GB, and this machine has"):
        _run("model", "mlp", "--shape", "200")


class Logits(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.body(x)}


class Unreached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = self.body(x)
        return outputs


class BreaksOff(nn.Linear):
    """Breaks off as soon as it trains."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise NotImplementedError("Cannot access storage")
        return super().forward(x)


def both_zero() -> nn.Module:
    factors = nn.Linear(4, 1, bias=False), nn.Linear(1, 2, bias=False)
    for part in factors:
        nn.init.zeros_(part.weight)
    return nn.Sequential(nn.Linear(4, 4).requires_grad_(False), *factors)


def frozen_norm() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4).requires_grad_(False), nn.Linear(4, 2))


def batch_norm(classes: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, classes))
