"""Who may import whom; the rules are drawn in docs/architecture.md."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parents[1]
PACKAGES = {"tacit": "", "tacit_labs": "labs"}  # and what its rooms are called here
BASE = {
    "errors",
    "foreign",
    "grid",
    "limits",
    "progress",
    "randomness",
    "rounding",
    "vectors",
    "shares",
    "flow",
    "wire",
    "storage",
    "service",
}
MAY_IMPORT = {
    "errors": set[str](),
    "foreign": {"errors"},
    "limits": set[str](),
    "progress": set[str](),
    "grid": {"errors"},
    "randomness": {"errors", "limits"},
    "rounding": set[str](),
    "vectors": {"errors"},
    "shares": set[str](),
    "flow": {"errors", "vectors"},
    "wire": {"errors", "flow", "vectors"},
    "storage": {"errors", "foreign"},
    "service": {"errors", "foreign", "storage"},
    "accounting": BASE,
    "crypto": {
        "errors",
        "foreign",
        "grid",
        "limits",
        "progress",
        "randomness",
        "storage",
    },  # of use to people who do no federated learning
    "mechanisms": BASE | {"accounting"},  # events and the exact profile
    "protocols": BASE | {"crypto"},
    "holder": BASE | {"crypto", "protocols", "parties"},  # a key holder's own process; of parties the greeting
    "training": BASE,
    "tasks": BASE,
    "federated": BASE | {"accounting", "mechanisms", "protocols"},
    "logs": BASE,  # runs in other people's dashboards
    "config": BASE,
    "modes": BASE | {"accounting", "crypto", "mechanisms", "protocols", "training", "federated", "config"},
    "runs": BASE
    | {"logs", "accounting", "crypto", "mechanisms", "protocols", "training", "tasks", "federated"}
    | {"config", "modes", "tacit"},
    "studies": BASE | {"accounting", "federated", "config", "modes", "runs", "tacit"},
    "report": BASE | {"config", "modes", "runs", "studies"},
    "audit": BASE  # the real rounds, attacked
    | {"accounting", "mechanisms", "protocols", "training", "tasks", "federated", "config", "modes", "runs"},
    "parties": BASE  # how requests are answered, whoever carries them
    | {"crypto", "protocols", "federated", "config", "modes", "tacit"},
    "site": BASE  # the process that holds a site's data
    | {"accounting", "mechanisms", "protocols", "federated", "tasks", "training", "config", "modes", "parties", "runs"},
    "flower": BASE  # everything of Flower: runs on it, people's own Flower apps, deployments
    | {"crypto", "mechanisms", "protocols", "federated", "training", "tasks", "config", "modes", "runs", "report"}
    | {"accounting", "audit", "parties", "site", "holder", "tacit"},
    "cli": BASE
    | {"accounting", "crypto", "mechanisms", "protocols", "training", "tasks", "federated", "config", "modes", "runs"}
    | {"studies", "report", "flower", "audit", "holder", "site", "tacit"},
    "dpsgd": BASE | {"accounting", "tasks", "training"},  # the Python way into DP-SGD; features are of tasks
    "__main__": {"cli"},  # `python -m tacit`
    "tacit": BASE | {"config", "runs", "training", "dpsgd"},  # the names of `import tacit`
}
_CORE = {"accounting", "crypto", "mechanisms", "protocols", "training", "tasks", "federated", "tacit"}
_CORE |= {"config", "modes", "runs", "studies", "report"}
_LAB = BASE | _CORE | {"labs.harness", "labs.bench", "labs.baselines"}  # no command line, no other experiment
_LABS = ("lab_004", "nbafl_femnist", "report_000", "report_003", "signds_001")
MAY_IMPORT |= {f"labs.{name}": _LAB for name in _LABS}
MAY_IMPORT |= {  # the rooms of the package that is built on Tacit
    "labs": set(),
    "labs.bench": BASE
    | {"crypto", "tasks", "config", "runs", "report", "tacit"},  # measurements beside other libraries
    "labs.bench.documented": BASE
    | _CORE
    | {"audit", "flower", "parties", "site", "labs.bench", "labs.baselines", "labs.harness", "labs.nbafl_femnist"},
    "labs.baselines": BASE
    | {"crypto", "config", "mechanisms", "protocols", "federated", "modes"},  # the sources' own algorithms
    "labs.harness": BASE
    | {"accounting", "crypto", "config", "runs", "studies", "report", "tacit", "labs.bench", "labs.baselines"},
    "labs.commands": BASE | {"cli", "report", "labs.bench", "labs.harness", "labs.lab_004"},
}
LOADS_FLOWER = "tacit/runs/run.py"  # where a run asks for that engine
LOADS_LABS = "tacit/cli/labs.py"  # when one of their commands is named
OUTSIDERS = {  # packages that only some rooms may import
    "torch": {"audit", "training", "tasks", "runs", "dpsgd", "flower", "site", "labs.bench.documented"},
    "dp_accounting": {"accounting"},
    "flwr": {"flower", "labs.bench.documented"},
    "gmpy2": {"crypto", "labs.baselines"},
    "tensorboard": {"logs"},
    "mlflow": {"logs"},
    "pickle": set[str](),
    "random": {"randomness"},
    "secrets": {"randomness"},
    "rich": {"report", "cli", "tasks", "labs.commands", "labs.lab_004"},  # tasks: the bar of a download
    "typer": {"cli", "labs.commands"},
    "pydantic": {"config", "modes", "runs", "site", "studies", "flower"},
}
PEERS = (
    "tacit_labs/bench/simulation/peers/"  # other libraries as their users use them: their optimisers, their randomness
)
DOCUMENTED = "tacit_labs/bench/documented/"  # what the docs quote of all parts of Tacit
OTHERS_OPTIMISERS = {
    DOCUMENTED + "dp_sgd.py",
    DOCUMENTED + "models/steps.py",
}  # a plain step and Opacus's, beside Tacit's
OTHERS_NOISE = "tacit_labs/baselines/dp_sgd.py"  # a source's own noise, by the generator that its code seeds
REPORTS_DATA = {"tacit/report/holdings.py"}  # draws data sets, so it reads their types and the splits


def _files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _room(path: Path) -> str:
    package, first = path.relative_to(ROOT).parts[:2]
    if _by_name(path).startswith(DOCUMENTED):
        return "labs.bench.documented"
    return _named(package, "" if first == "__init__.py" else first.removesuffix(".py"))


def _named(package: str, first: str) -> str:
    """Return the room of a file or module; what stands in a package itself is in the room of its name."""
    return ".".join(filter(None, (PACKAGES[package], first))) or package


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names of every import, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _breaches(room: str, tree: ast.AST) -> Iterator[str]:
    for name in _imported(tree):
        top, *rest = name.split(".")
        if top in PACKAGES:
            target = _named(top, rest[0] if rest else "")
            if target not in MAY_IMPORT:  # a name that the package itself has
                target = _named(top, "")
            beyond_events = room == "mechanisms" and target == "accounting" and rest[1] not in ("events", "profile")
            if target not in MAY_IMPORT[room] | {room} or beyond_events:
                yield f"{room} imports {name}"
        elif (
            room not in OUTSIDERS.get(top, {room})
            or (name.startswith("torch.optim") and room != "training")
            or (name.startswith("numpy.random") and room != "randomness")
        ):
            yield f"{room} imports {name}"


def _draws(tree: ast.AST) -> Iterator[str]:
    """Yield calls below np.random and torch.optim; naming a type there, as in an annotation, is no call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.startswith(("np.random.", "numpy.random.", "torch.optim.")):
                yield called


def _by_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def _trees() -> dict[Path, ast.AST]:
    return {path: ast.parse(path.read_text()) for path in _files()}


def _breaches_of(path: Path) -> list[str]:
    breaches = list(_breaches(_room(path), _trees()[path]))
    if _by_name(path).startswith(PEERS):
        breaches = [breach for breach in breaches if breach.startswith("labs.bench imports tacit")]
    if _by_name(path) in REPORTS_DATA:
        breaches = [breach for breach in breaches if not breach.startswith("report imports tacit.tasks")]
    if _by_name(path) == LOADS_FLOWER:
        breaches = [breach for breach in breaches if not breach.startswith("runs imports tacit.flower.simulation.")]
    if _by_name(path) == LOADS_LABS:
        breaches = [breach for breach in breaches if breach != "cli imports tacit_labs.commands.app"]
    return breaches


def test_a_file_imports_only_what_its_room_may() -> None:
    assert {_by_name(path): breaches for path in _files() if (breaches := _breaches_of(path))} == {}


def test_randomness_and_optimisers_are_called_in_their_room_only() -> None:
    strangers = []
    for path, tree in _trees().items():
        own = {"randomness": "np.random.", "training": "torch.optim."}.get(_room(path))
        own = "torch.optim." if _by_name(path) in OTHERS_OPTIMISERS else own
        own = "np.random.RandomState" if _by_name(path) == OTHERS_NOISE else own
        if not _by_name(path).startswith(PEERS):
            calls = [call for call in _draws(tree) if own is None or not call.startswith(own)]
            strangers += [f"{_by_name(path)}: {call}" for call in calls]
    assert strangers == []


@pytest.mark.parametrize(
    ("room", "code", "breach"),
    [
        ("protocols", "from tacit.mechanisms import mechanism", "protocols imports tacit.mechanisms.mechanism"),
        ("mechanisms", "import tacit.protocols.clear", "mechanisms imports tacit.protocols.clear"),
        ("mechanisms", "import tacit.accounting.pld", "mechanisms imports tacit.accounting.pld"),
        ("flow", "def f():\n    from tacit import federated", "flow imports tacit.federated"),
        ("federated", "import torch", "federated imports torch"),
        ("runs", "from torch import optim", "runs imports torch.optim"),
        ("runs", "import pickle", "runs imports pickle"),
        ("runs", "from numpy.random import default_rng", "runs imports numpy.random.default_rng"),
        ("training", "import random", "training imports random"),
        ("wire", "from tacit.randomness import Randomness", "wire imports tacit.randomness.Randomness"),
        ("report", "from tacit.training.hooks import Hooks", "report imports tacit.training.hooks.Hooks"),
        ("runs", "import tacit_labs", "runs imports tacit_labs"),
        ("cli", "from tacit_labs.commands import app", "cli imports tacit_labs.commands.app"),
        ("labs.report_000", "from tacit.cli import main", "labs.report_000 imports tacit.cli.main"),
        (
            "labs.report_000",
            "import tacit_labs.lab_004.elgamal.run",
            "labs.report_000 imports tacit_labs.lab_004.elgamal.run",
        ),
        ("labs.harness", "import torch", "labs.harness imports torch"),
    ],
)
def test_the_rules_catch_a_breach(room: str, code: str, breach: str) -> None:
    assert list(_breaches(room, ast.parse(code))) == [breach]


def test_the_rules_see_calls_and_pass_over_annotations() -> None:
    assert list(_draws(ast.parse("def f(g: np.random.Generator): return g.integers(2)"))) == []
    assert list(_draws(ast.parse("x = np.random.default_rng(1)"))) == ["np.random.default_rng"]


def test_every_room_is_under_the_rules() -> None:
    assert {_room(path) for path in _files()} <= set(MAY_IMPORT)


def test_tacit_knows_of_its_labs_in_one_place() -> None:
    core = [path for path in _files() if not _by_name(path).startswith("tacit_labs/")]
    assert [_by_name(path) for path in core if "tacit_labs" in path.read_text()] == [LOADS_LABS]


def test_tacit_works_without_its_labs(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["tacit_labs"] = None  # an import of it fails
import tacit
from tacit.cli.main import app
assert [getattr(tacit, name) for name in tacit.__all__]
for line in ("config", "epsilon --noise 1 --rounds 10 --delta 1e-5", "data list", "run --help",
             "run --data digits --rounds 1 --seed 1 --quiet --out run", "ledger run", "report run", "deploy --help"):
    app(line.split(), standalone_mode=False)
print("\\nall of them ran", [name for name in sys.modules if name.startswith("tacit_labs.")])
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("\nall of them ran []\n"), done.stderr


def test_a_nodes_first_message_waits_for_no_torch() -> None:
    code = "import sys, tacit.flower as f; f.client_app(); f.private_mod; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["tacit", "tacit.cli.main"])
def test_the_command_line_starts_without_the_heavy_packages(module: str) -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'sklearn', 'scipy', 'yaml', 'safetensors'}"
    code = f"import sys, {module}; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_silenced_check_says_why() -> None:
    silenced = re.compile(r"# (?:type: ignore(?P<types>\[[a-z, -]+\])?|noqa(?P<rules>: [A-Z0-9, ]+)?)")
    mute = []
    for path in sorted(ROOT.glob("tacit*/**/*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in silenced.finditer(line):
                named = found["types"] or found["rules"]
                why = line[found.end() :].strip(" #-")
                if not named or len(why.split()) < 2:
                    mute.append(f"{path.relative_to(ROOT)}:{number}")
    assert mute == []
