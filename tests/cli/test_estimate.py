from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli.estimate import estimate
from tacit.errors import ConfigError

SMALL = ["paillier.bits=256", "paillier.insecure_key_size=true"]
_APP = typer.Typer()
_APP.command()(estimate)


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(_APP, [*arguments, *SMALL], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_table_for_people() -> None:
    shown = _run("--mode", "paillier", "--parameters", "1e4", "--clients", "7")
    for words in ("a client encrypts", "bytes per parameter", "7 clients, checks included", "beyond a plain round"):
        assert words in shown


def test_json_for_programs() -> None:
    assert json.loads(_run("--parameters", "21840", "--json"))["parameters"] == 21840


@pytest.mark.parametrize("given", ["x", "", "inf", "nan"])
def test_a_number_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="Expected --parameters to be a number"):
        _run("--parameters", given)
