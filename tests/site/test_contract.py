"""site.yaml: owned by the site, read at the start, and refused in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.errors import ConfigError, DataError, RunError
from tacit.site.check import check
from tacit.site.contract import CONTRACT, LEDGER, Contract, read
from tacit.site.new import init
from tacit.site.serving import serve
from tests.site.common import change, make_site, write_data

_JOB = "mode: local-dp\ndata: {name: heart.csv}\nmodel: {name: logistic}\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site."""
    return make_site(tmp_path)


def test_what_init_writes_is_read_back_and_every_key_has_its_comment(site: Path) -> None:
    contract = read(site)
    text = (site / CONTRACT).read_text()
    again = Contract(**yaml.safe_load(text))
    assert (again.budget, again.rules) == (contract.budget, contract.rules)
    lines = text.splitlines()
    keys = [number for number, line in enumerate(lines) if line.lstrip() and not line.lstrip().startswith("#")]
    assert len(keys) > 30
    assert all(lines[number - 1].lstrip().startswith("#") for number in keys)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  cohort: 2", "  cohorts: 2", "there is no key 'rules.cohorts'. Did you mean rules.cohort?"),
        ("name: st-mary", "names: st-mary", "there is no key 'names'"),
        ("  epsilon: 8.0", "  epsilon: -1", "budget.epsilon=-1 does not work: expected a"),
        ("  trust: nobody", "  trust: everyone", "budget.trust='everyone' does not work"),
        ("version: 1", "version: 2", "version=2 does not work"),
        ("simulation: false", "simulation: true", "promises nothing. Set budget.epsilon: null"),
        ("  label: outcome", "  label: null", "data.label is missing"),
        ("number: 0", "number: [", "does not work. Expected YAML"),
    ],
)
def test_what_is_wrong_with_a_contract_is_said_in_words(site: Path, old: str, new: str, words: str) -> None:
    change(site, old, new)
    with pytest.raises(ConfigError) as refused:
        read(site)
    assert words in str(refused.value)


def test_data_that_changed_are_refused_by_check_and_by_serve(site: Path) -> None:
    path = read(site).data.file
    assert path is not None
    path.write_text(path.read_text().replace("ill", "well", 1))
    for look in (check, serve):
        with pytest.raises(DataError, match="not what it was when this site was made"):
            look(site)


@pytest.mark.parametrize("name", [".", CONTRACT, LEDGER])
def test_what_others_could_change_is_refused_by_check_and_by_serve(site: Path, name: str) -> None:
    (site / name).chmod(0o770)
    for look in (check, serve):
        with pytest.raises(ConfigError, match="Others than this user can change"):
            look(site)


def test_a_site_is_never_made_over_another(site: Path) -> None:
    before = (site / CONTRACT).read_text()
    with pytest.raises(RunError, match="a ledger is for life"):
        init(site, "digits", {"name": "another"})
    assert (site / CONTRACT).read_text() == before


def test_constants_are_not_read_off_private_rows(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    with pytest.raises(ConfigError, match=r"'id', 'age', 'sex', 'outcome' has to be said.*--columns FILE.yaml"):
        init(tmp_path / "site", str(data), {"name": "a", "data": {"label": "outcome"}})
    assert not (tmp_path / "site").exists()


def test_the_commands_say_what_is_allowed_and_what_was_spent(tmp_path: Path) -> None:
    runner = CliRunner()
    data = write_data(tmp_path)
    made = ["site", "init", "--name", "st-mary", "--data", str(data), "--label", "outcome", "--drop", "id"]
    made += ["--columns", str(tmp_path / "columns.yaml"), "--out", str(tmp_path / "site"), "--epsilon", "4"]
    assert "empty ledger" in runner.invoke(app, made, catch_exceptions=False).output
    said = runner.invoke(app, ["site", "check", str(tmp_path / "site")]).output
    assert "Epsilon 0 of 4 is spent for life, at delta 1e-05, for one row of the data, against everyone" in said
    assert "plain      refused" in said
    job = tmp_path / "job.yaml"
    job.write_text(f"{_JOB}dp: {{noise: 0.0}}\n")
    asked = runner.invoke(app, ["site", "check", str(tmp_path / "site"), "--job", str(job), "--json"])
    assert asked.exit_code == 1
    told = json.loads(asked.output)
    assert told["job"]["allowed"] is False
    assert "no noise that hides it from everyone" in told["job"]["why"]
    for noise, rounds, words in ((10, 5, "all 5 rounds would bring epsilon to"), (4, 300, "of 300 rounds, and then")):
        job.write_text(f"{_JOB}dp: {{noise: {noise}}}\nfederate: {{rounds: {rounds}}}\n")
        done = runner.invoke(app, ["site", "check", str(tmp_path / "site"), "--job", str(job)])
        assert words in done.output
        assert done.exit_code == (words.startswith("of"))
    ledger = runner.invoke(app, ["site", "ledger", str(tmp_path / "site")]).output
    assert "All 0 releases together" in ledger
    assert json.loads(runner.invoke(app, ["site", "ledger", str(tmp_path / "site"), "--json"]).output)["releases"] == []


def test_a_sites_books_are_read_without_torch(site: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tacit.site.check import check; check(Path(sys.argv[1])); "
        "print('torch' in sys.modules, 'flwr' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(site)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
