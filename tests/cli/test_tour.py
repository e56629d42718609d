"""docs/encryption.md says what is so: its commands and its Python run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.cli.common_crypto import Tacit, save

pytestmark = pytest.mark.usefixtures("tmp_path")  # the commands write where they stand

PAGE = (Path(__file__).parents[2] / "docs" / "encryption.md").read_text()


def _blocks(language: str, section: str) -> list[str]:
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_tour_in_the_shell(tacit_command: Tacit) -> None:
    vectors = {name: np.linspace(-1, 1, 200) * factor for name, factor in (("anna", 1.0), ("bela", 0.5), ("cleo", 0.1))}
    for name, vector in vectors.items():
        save(Path(f"{name}.npy"), vector)
    (block,) = _blocks("sh", "Five minutes")
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(lines) == 7
    for line in lines:
        assert line[0] == "tacit"
        tacit_command.done(*line[1:])
    assert np.abs(np.load("sum.npy") - sum(vectors.values())).max() < 3 * 6e-8


@pytest.mark.parametrize("section", ["Five minutes", "ElGamal"])
def test_the_python(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What each print says is in the comment behind it."""
    (block,) = _blocks("python", section)
    exec(compile(block, "docs/encryption.md", "exec"), {})
    promised = re.findall(r"print\(.*\) +# (.*)", block)
    assert capsys.readouterr().out.splitlines() == promised
