from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tacit.cli.doctor import app
from tacit.crypto import backend
from tacit.errors import ConfigError
from tacit.runs import environment


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
    assert (found["form"], found["private_form"]) == ("vmap", "functional")
    assert "RMSNorm has no rule" in found["form_reason"]
    assert "TextOfOwn (the model itself) has no rule" in found["private_reason"]


def test_a_shape_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="--shape as whole numbers with commas"):
        _run("model", "cnn", "--shape", "3x32")
