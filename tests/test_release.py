"""What a release rests on: one version, and a set-up that is pinned and hashed in full."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

import tacit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENTRY = re.compile(
    r"^([a-z0-9.-]+)==(\S+)( ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
UNHASHED = {"torch", "tacit"}  # a build of torch is chosen by the machine


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _locked(name: str) -> dict[str, set[str]]:
    """Return the versions of every package in a file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found: dict[str, set[str]] = {}
    for match in ENTRY.finditer(text):
        found.setdefault(match[1], set()).add(match[2])
    rest = ENTRY.sub("", text)
    assert all(line.startswith("#") for line in rest.splitlines()), "an entry without a hash, or something else"
    return found


def _required(extras: list[str]) -> set[str]:
    wanted, optional = list(PROJECT["project"]["dependencies"]), PROJECT["project"]["optional-dependencies"]
    for extra in extras:
        wanted += optional[extra]
    return {_normal(re.split(r"[\[<>=; ]", requirement)[0]) for requirement in wanted}


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tacit.__version__"}
    quoted = re.compile(rf"""["']{re.escape(tacit.__version__)}["']""")
    assert [path.name for path in (ROOT / "src").rglob("*.py") if quoted.search(path.read_text())] == ["__init__.py"]
    assert re.search(
        rf"^## (Unreleased|{re.escape(tacit.__version__)})", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


@pytest.mark.parametrize(
    ("name", "extras"), [("run", []), ("test", ["test", "docs", "flower", "mlflow", "plot", "tensorboard"])]
)
def test_everything_that_is_installed_has_a_version_and_hashes(name: str, extras: list[str]) -> None:
    locked = _locked(name)
    assert _required(extras) - UNHASHED <= locked.keys()
    assert not UNHASHED & locked.keys()
    assert "setuptools" in locked  # builds what is installed last, without an environment of its own
    text = (ROOT / "constraints.txt").read_text()
    pinned = {_normal(n): v for n, v in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", text, re.MULTILINE)}
    both = locked.keys() & pinned.keys()
    assert {package: {pinned[package]} for package in both} == {package: locked[package] for package in both}


def test_one_set_of_versions() -> None:
    run, test = _locked("run"), _locked("test")
    assert {name: test[name] for name in run} == run


@pytest.mark.xdist_group("groups")
def test_tests_that_share_what_is_dear_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """pytest-xdist goes by what it adds to a name; with pytest 9.2 it adds nothing, and says nothing."""
    alone = os.environ.get("PYTEST_XDIST_WORKER") is None
    assert alone or request.node.nodeid.endswith("@groups")
