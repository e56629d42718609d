from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli.epsilon import epsilon
from tacit.errors import ConfigError

_APP = typer.Typer()
_APP.command()(epsilon)


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(_APP, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _json(*arguments: str) -> Any:
    return json.loads(_run(*arguments, "--json"))


def test_a_poisson_run() -> None:
    found = _json("--noise", "1", "--rate", "0.01", "--rounds", "1000", "--delta", "1e-5")
    assert found["epsilon"] == pytest.approx(1.828244, abs=2e-6)
    assert {key: found[key] for key in ("delta", "accountant", "neighbours", "sampling")} == {
        "delta": 1e-5,
        "accountant": "pld",
        "neighbours": "add-remove",
        "sampling": "poisson",
    }


def test_a_run_of_everyone_is_exact() -> None:
    found = _json("--noise", "10", "--rounds", "100")
    assert found["epsilon"] == pytest.approx(4.377178096, abs=1e-9)
    assert (found["accountant"], found["sampling"]) == ("exact-gaussian", "full")


@pytest.mark.parametrize(("rate", "rounds", "expected"), [("1", "1", 9.997256), ("0.01", "1000", 2.843446)])
def test_replace_one(rate: str, rounds: str, expected: float) -> None:
    found = _json("--noise", "1", "--rate", rate, "--rounds", rounds, "--neighbours", "replace-one")
    assert found["epsilon"] == pytest.approx(expected, abs=2e-6)
    assert found["neighbours"] == "replace-one"


def test_sampling_is_accounted_by_what_is_proved() -> None:
    asked = ["--noise", "1", "--rate", "0.01", "--rounds", "100"]
    poisson, shuffle, fixed = (_json(*asked, "--sampling", sampling) for sampling in ("poisson", "shuffle", "fixed"))
    assert poisson["epsilon"] < 0.72
    assert 4.063 < shuffle["epsilon"] < 4.3772
    assert fixed["epsilon"] > _json(*asked, "--neighbours", "replace-one")["epsilon"]
    assert (fixed["sampling"], fixed["neighbours"]) == ("fixed", "replace-one")


def test_the_accountant_can_be_chosen() -> None:
    found = _json("--noise", "1", "--rate", "0.01", "--rounds", "1000", "--accountant", "rdp")
    assert found["epsilon"] == pytest.approx(2.101367, abs=2e-6)


def test_no_noise_is_no_privacy_and_endless_noise_is_free() -> None:
    found = _json("--noise", "0", "--rate", "0.5")
    assert found["epsilon"] == "infinite"
    assert "infinite: no privacy" in _run("--noise", "0")
    assert _json("--noise", "inf")["epsilon"] == 0.0


def test_people_read_what_the_number_means() -> None:
    text = _run("--noise", "1", "--neighbours", "replace-one")
    for words in ("epsilon 9.99726 at delta 1e-05", "replace-one", "exact-gaussian"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--noise", "-1"], "noise multiplier of 0 or more, got -1"),
        (["--noise", "nan"], "noise multiplier of 0 or more, got nan"),
        (["--noise", "1", "--delta", "1"], "delta strictly between 0 and 1, got 1"),
        (["--noise", "1", "--delta", "0"], "delta strictly between 0 and 1, got 0"),
        (["--noise", "1", "--rate", "0"], "sampling rate"),
        (["--noise", "1", "--rate", "1.5"], "sampling rate"),
        (["--noise", "1", "--sampling", "dice"], "Unknown sampling 'dice'"),
        (["--noise", "1", "--neighbours", "swap"], "Unknown neighbours 'swap'"),
        (["--noise", "1", "--accountant", "gdp"], "Unknown accountant 'gdp'"),
    ],
)
def test_bad_input(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CliRunner().invoke(_APP, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("rate", "absent"), [(1.0, {"torch", "numpy", "scipy", "dp_accounting"}), (0.1, {"torch", "dp_accounting"})]
)
def test_an_answer_loads_only_what_it_needs(rate: float, absent: set[str]) -> None:
    code = f"import sys; from tacit.cli.epsilon import epsilon; epsilon(noise=1.0, rate={rate}, as_json=True)"
    code += f"; sys.exit(str(sorted({absent!r} & sys.modules.keys())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_a_schedule_is_charged_by_participation_whatever_hangs_together() -> None:
    ten = _json("--noise", "5", "--rounds", "10", "--neighbours", "zero-out")
    schedule = ("--noise", "5", "--rounds", "100", "--separation", "10")
    plain, banded, blt = (_json(*schedule, *more) for more in ((), ("--bands", "10"), ("--correlation", "blt")))
    assert plain["epsilon"] == banded["epsilon"] == pytest.approx(ten["epsilon"])
    assert blt["epsilon"] > plain["epsilon"]
    assert (banded["participations"], banded["correlation"], banded["neighbours"]) == (10, "banded", "zero-out")
    assert plain["model_noise"] == pytest.approx(50.5**0.5)
    assert max(banded["model_noise"], blt["model_noise"]) < 0.5 * plain["model_noise"]
    assert "10 times at the most" in _run(*schedule)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bands", "3"), "need --separation"),
        (("--separation", "3", "--rate", "0.5"), "public schedule"),
        (("--separation", "3", "--bands", "4"), "1 to 3 bands"),
        (("--separation", "3", "--correlation", "x"), "Unknown correlation 'x'"),
        (("--separation", "3", "--correlation", "blt", "--bands", "2"), "A BLT has --buffers"),
        (("--separation", "3", "--neighbours", "add-remove"), "tells who is there"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _run("--noise", "1", "--rounds", "12", *arguments)
