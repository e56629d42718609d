"""The cryptography and its commands work where nothing but the packages that the documentation names is installed."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "encryption.md"
LEAN = """
import importlib.abc, sys

class Lean(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        known = top in {allowed} or top in sys.stdlib_module_names or top.startswith("__editable")
        if not known:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Lean())
"""
COMMANDS = """
keys new paillier --bits 512 --insecure-key-size --out one
keys new paillier --bits 512 --insecure-key-size --out many --shares 2/3
keys new elgamal --out counts --group ffdhe2048
keys show one/private.key
keys fingerprint one/public.key
encrypt numbers.npy --key one/public.key -o a.tct --insecure-key-size
encrypt numbers.npy --key one/private.key -o b.tct --insecure-key-size
sum a.tct b.tct -o sum.tct --insecure-key-size
decrypt sum.tct --key one/private.key -o sum.npy --insecure-key-size
encrypt numbers.npy --key many/public.key -o c.tct --insecure-key-size
decrypt c.tct --key many/share-1.key --partial -o 1.part --insecure-key-size
decrypt c.tct --key many/share-3.key --partial -o 3.part --insecure-key-size
combine c.tct 1.part 3.part -o c.npy --insecure-key-size
"""


def _lean() -> str:
    """Return code that hides every package but those the page names, and what these need themselves."""
    named = re.search(r"^pip install --no-deps \S+\npip install (.*)$", PAGE.read_text(), re.MULTILINE)
    assert named is not None
    found: set[str] = set()
    open_ = set(named[1].split())
    while open_:
        name = open_.pop()
        found.add(name.lower())
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        plain = (requirement for requirement in needed if "extra ==" not in requirement)
        open_ |= {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in plain} - found
    modules = importlib.metadata.packages_distributions().items()
    allowed = {"tacit"} | {module for module, owners in modules if any(owner.lower() in found for owner in owners)}
    return LEAN.format(allowed=sorted(allowed))


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _lean() + code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_cryptography_and_its_commands_need_no_torch(tmp_path: Path) -> None:
    code = f"""
import numpy as np
from tacit.cli.main import app
import tacit.crypto.elgamal, tacit.crypto.groups
np.save("numbers.npy", np.linspace(-1.0, 1.0, 7))
for line in {COMMANDS.split(chr(10))[1:-1]}:
    app(line.split(), standalone_mode=False)
assert abs(np.load("sum.npy") - 2 * np.load("numbers.npy")).max() < 1e-6
assert abs(np.load("c.npy") - np.load("numbers.npy")).max() < 1e-6
print("all of them ran", sorted({{"torch", "scipy", "pydantic"}} & sys.modules.keys()))
"""
    done = _run(code, tmp_path)
    assert done.stdout.endswith("all of them ran []\n"), done.stderr


@pytest.mark.parametrize("command", ["run", "doctor", "ledger ."])
def test_a_command_that_needs_more_says_so(tmp_path: Path, command: str) -> None:
    done = _run(f"sys.argv = ['tacit', *{command.split()}]\nfrom tacit.cli.main import main\nmain()", tmp_path)
    assert done.returncode == 1
    words = (
        r"error: This command needs the package \w+, which is not installed\. Get all of them: pip install tacit\.\n"
    )
    assert re.fullmatch(words, done.stderr), done.stderr
