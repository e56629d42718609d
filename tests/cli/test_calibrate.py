from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli.calibrate import calibrate
from tacit.errors import ConfigError

_APP = typer.Typer()
_APP.command()(calibrate)
_NAMES = ["classical", "analytic", "dp-opt", "zhao-1", "zhao-2", "extended"]


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(_APP, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _json(*arguments: str) -> Any:
    return json.loads(_run(*arguments, "--json"))


def test_every_mechanism_answers() -> None:
    found = _json("--epsilon", "2", "--delta", "1e-5", "--sensitivity", "1")
    assert found["sigma"] == pytest.approx(
        {
            "classical": 2.422402631,
            "analytic": 1.993812446,
            "dp-opt": 1.993812446,
            "zhao-1": 2.243860522,
            "zhao-2": 2.356284895,
            "extended": 2.476565548,
        },
        rel=1e-9,
    )
    for key in ("valid", "true_delta", "reason"):
        assert sorted(found[key]) == sorted(_NAMES)
    assert found["true_delta"]["analytic"] == pytest.approx(1e-5)
    assert "noise_multiplier" not in found


def test_the_classical_mechanism_fails_at_ten() -> None:
    found = _json("--epsilon", "10", "--delta", "1e-5")
    assert found["valid"] == {name: name != "classical" for name in _NAMES}
    assert found["true_delta"]["classical"] > 1e-5


@pytest.mark.parametrize(
    ("arguments", "noise"),
    [
        (["--epsilon", "1", "--rounds", "100"], 37.30631635),
        (["--epsilon", "1", "--rounds", "1000", "--rate", "0.01"], 1.4146309),
        (["--epsilon", "4.3771780957", "--rate", "0.01", "--rounds", "100", "--sampling", "shuffle"], 1.0),
        (["--epsilon", "9.9972561465", "--rounds", "1", "--neighbours", "replace-one"], 1.0),
    ],
)
def test_a_whole_run(arguments: list[str], noise: float) -> None:
    found = _json(*arguments)
    assert found["noise_multiplier"] == pytest.approx(noise, rel=1e-5)
    assert found["run"]["epsilon"] <= found["epsilon"]
    assert {"delta", "accountant", "neighbours", "sampling"} <= found["run"].keys()


def test_people_read_a_table() -> None:
    text = _run("--epsilon", "10", "--delta", "1e-5", "--rounds", "4", "--neighbours", "replace-one")
    for words in (*_NAMES, "Whole run: noise multiplier", "replace-one", "exact-gaussian"):
        assert words in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epsilon", "-1"],
        ["--epsilon", "nan"],
        ["--epsilon", "1", "--delta", "1"],
        ["--epsilon", "1", "--delta", "0"],
        ["--epsilon", "1", "--sensitivity", "-1"],
        ["--epsilon", "1", "--rate", "2"],
        ["--epsilon", "1", "--rounds", "2", "--sampling", "dice"],
    ],
)
def test_bad_input(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"Expected|Unknown|must|between"):
        CliRunner().invoke(_APP, arguments, catch_exceptions=False)


def test_a_schedule_with_correlated_noise() -> None:
    found = _json("--epsilon", "4", "--rounds", "100", "--separation", "10", "--correlation", "blt")
    assert found["run"]["epsilon"] == pytest.approx(4.0)
    independent = _json("--epsilon", "4", "--rounds", "10", "--neighbours", "zero-out")
    assert found["noise_multiplier"] > independent["noise_multiplier"]  # its columns overlap
    assert found["noise_multiplier"] * found["model_noise"] < 0.5 * independent["noise_multiplier"] * 50.5**0.5
