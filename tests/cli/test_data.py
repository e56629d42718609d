from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.cli.data import app
from tacit.errors import ConfigError, DataError
from tacit.tasks import catalogue

SHARED = Path(__file__).parents[3] / "shared" / "data"


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _json(*arguments: str) -> Any:
    return json.loads(_run(*arguments, "--json"))


def _refused(*arguments: str) -> Exception:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, Exception)
    return result.exception


def test_list_names_every_set() -> None:
    text = _run("list")
    for name in catalogue.names():
        assert name in text
    rows = _json("list")["data_sets"]
    assert [row["name"] for row in rows] == list(catalogue.names())
    assert rows[0]["found"] is None
    assert len(rows[0]["sources"]) == 3


def test_get_checks_an_embedded_set() -> None:
    assert _json("get", "digits") == {
        "name": "digits",
        "origin": "scikit-learn",
        "writers": None,
        "warning": None,
    }
    assert "scikit-learn" in _run("get", "digits")


def test_get_refuses_what_it_does_not_know() -> None:
    assert isinstance(_refused("get", "nist"), ConfigError)
    assert isinstance(_refused("get", "femnist"), DataError)


def test_show_counts_every_example_once() -> None:
    shown = _json("show", "digits", "--split", "dirichlet:0.3", "--clients", "7", "--seed", "3")
    assert shown["split"] == "dirichlet:0.3"
    assert len(shown["clients"]) == 7
    assert sum(client["examples"] for client in shown["clients"]) == 1_442
    assert shown["summary"]["examples"] == 1_442
    assert all(sum(client["classes"]) == client["examples"] for client in shown["clients"])
    assert shown == _json("show", "digits", "--split", "dirichlet:0.3", "--clients", "7", "--seed", "3")
    assert shown != _json("show", "digits", "--split", "dirichlet:0.3", "--clients", "7", "--seed", "4")


def test_show_prints_the_table_and_the_blocks() -> None:
    text = _run("show", "breast-cancer")
    assert "456 examples over 10 clients" in text
    assert "▒▒" in text


def test_show_counts_the_rows_of_a_file(tmp_path: Path) -> None:
    rows = [
        f"{20 + number % 50},{'north' if number % 3 else 'south'},{'yes' if number % 2 else 'no'}"
        for number in range(60)
    ]
    (tmp_path / "my.csv").write_text("\n".join(["age,hospital,ill", *rows]))
    told = ("show", str(tmp_path / "my.csv"), "--label", "ill", "--client", "hospital")
    shown = _json(*told)
    assert (shown["split"], shown["classes"]) == ("natural", ["no", "yes"])
    assert [client["client"] for client in shown["clients"]] == ["north", "south"]
    assert "|no  yes |" in _run(*told)
    assert "are for CSV files" in str(_refused("show", "digits", "--label", "ill"))


def test_show_writes_a_figure(tmp_path: Path) -> None:
    path = tmp_path / "split.png"
    assert _json("show", "digits", "--plot", str(path))["plot"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--split", "dirichlet"),
        ("--split", "natural"),
        ("--clients", "2000"),
        ("--plot", "split.bmp"),
    ],
)
def test_show_refuses(arguments: tuple[str, ...]) -> None:
    assert isinstance(_refused("show", "digits", *arguments), ConfigError)


@pytest.mark.parametrize("arguments", [("--clients", "0"), ("--seed", "-1")])
def test_numbers_outside_their_domain_are_refused_by_the_command_line(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ("show", "digits", *arguments))
    assert result.exit_code == 2
    assert "Invalid value" in result.output


def test_a_folder_that_is_not_there() -> None:
    assert isinstance(_refused("show", "mnist", "--data-dir", "nowhere"), DataError)


@pytest.mark.data
def test_show_names_the_natural_holders() -> None:
    if not SHARED.is_dir():
        pytest.skip("the folder of real data is not beside the checkout")
    shown = _json("show", "heart-disease", "--split", "natural", "--data-dir", str(SHARED))
    assert [client["client"] for client in shown["clients"]] == [
        "cleveland",
        "hungarian",
        "switzerland",
        "va",
    ]


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, tacit.cli.data; print([m for m in ('numpy', 'sklearn', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
