"""examples/flower-quickstart: a plain Flower app, and the same app protected by the lines that docs/flower.md shows."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict

from tacit.flower import envelope
from tests.flower.common import Federation

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower-quickstart"
CLIENTS = 3


def _diff() -> dict[str, tuple[list[str], list[str]]]:
    """Return for each file of the diff in the documentation what it takes away and what it adds."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    (text,) = re.findall(r"```diff\n(.*?)```", (ROOT / "docs" / "flower.md").read_text(), re.DOTALL)
    for line in text.splitlines():
        if line.startswith("+++ "):
            minus: list[str] = []
            plus: list[str] = []
            found[line.removeprefix("+++ ")] = minus, plus
        elif line.startswith("+"):
            plus.append(line[1:])
        elif line.startswith("-") and not line.startswith("---"):
            minus.append(line[1:])
    return found


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Return a copy of the example from which the diff is taken back."""
    folder = tmp_path / "plain"
    shutil.copytree(EXAMPLE, folder)
    for name, (minus, plus) in _diff().items():
        lines = (folder / name).read_text().splitlines()
        assert all(lines.count(line) == 1 for line in plus), "the diff is that of the example"
        first = {line: index for index, line in enumerate(plus)}
        before = iter(minus)
        kept = []
        for line in lines:
            if line not in first:
                kept.append(line)
            elif "import" not in line and (old := next(before, None)) is not None:
                kept.append(old)
        assert next(before, None) is None
        (folder / name).write_text("\n".join(kept) + "\n")
    return folder


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is small
    yield
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.split(".")[0] == "quickstart"]:
        del sys.modules[name]


def _run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] == "quickstart"]:
        del sys.modules[name]
    client = importlib.import_module("quickstart.client_app").app
    server = importlib.import_module("quickstart.server_app").app
    config = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    run = dict(_flat(config))
    if "tacit.mode" in run:
        run |= {"tacit.paillier.bits": 512, "tacit.paillier.insecure_key_size": True}  # a key in no time
    grid = Federation()
    for number in range(CLIENTS):
        settings = {"num_partitions": CLIENTS, "tacit_simulation": True}
        grid.join(11 + number, client, run, partition_id=number, **settings)
    server(grid, Context(5, 1, {}, RecordDict(), run))
    (accuracy,) = re.findall(r"accuracy (\d+\.\d%)", capsys.readouterr().out)
    return grid, accuracy


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def test_two_lines_protect_a_plain_app(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in plain.rglob("*.py"):
        assert "tacit" not in path.read_text(), "without the lines nothing of Tacit is left"
    before, expected = _run(plain, monkeypatch, capsys)
    assert sum("arrays" in answer.content for answer in before.answers) == 3 * CLIENTS, "updates travel in the clear"
    after, accuracy = _run(EXAMPLE, monkeypatch, capsys)
    trained = [answer for answer in after.answers if answer.metadata.message_type == "train"]
    assert len(trained) == 5 * CLIENTS, "a greeting, an enrolment and three rounds"
    assert all(list(answer.content) == [envelope.FRAME, "tacit.seconds"] for answer in trained)
    assert accuracy == expected
    assert float(accuracy.rstrip("%")) > 80


def test_the_diff_is_short() -> None:
    diff = _diff()
    assert sorted(diff) == ["pyproject.toml", "quickstart/client_app.py", "quickstart/server_app.py"]
    code = [line for name, (_, plus) in diff.items() if name.endswith(".py") for line in plus]
    assert len([line for line in code if not line.startswith("import ")]) == 2
