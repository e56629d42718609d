"""The Flower app that ``tacit deploy new`` writes: a few short files that import Tacit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import tacit
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError, RunError
from tacit.modes.catalogue import mode_of
from tacit.storage import write_atomically

_NAME = re.compile(r"[a-z][a-z0-9-]{0,38}[a-z0-9]")
_ALWAYS = {  # settings that the app names though they have their defaults: only what it names can be overridden
    "mode",
    "out",
    "data.name",
    "data.split",
    "data.split_seed",
    "data.download",
    "model.name",
    "federate.clients",
    "federate.rounds",
    "train.local_epochs",
    "train.batch_size",
    "flower.deadline",
    "flower.patience",
}
_NEVER = {"engine", "paillier.key"}  # every app is Flower's, and a key is its holder's own affair
_ADVICE = "Choose another name."

_PYPROJECT = Template("""\
[project]
name = "$name"
version = "1.0.0"
description = "Federated learning with Tacit, mode $mode"
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = ["tacit[flower]==$version"]

[tool.uv]
# Nodes run the Tacit that their operators installed; none is fetched for a run. Remove this to have Flower install it.
exclude-dependencies = ["tacit"]

[tool.flwr.app]
publisher = "tacit"

[tool.flwr.app.components]
serverapp = "$package.server_app:app"
clientapp = "$package.client_app:app"

# What follows are Tacit's settings; `tacit config` prints all of them. All parties must have the same.
# Flower overrides only what stands here: flwr run . --run-config "federate.rounds=3"
$settings""")

_SERVER = Template('''\
"""The server: sends the model out, adds what comes back, tests."""

import tacit.flower

app = tacit.flower.server_app()

# With a model of your own (task.py):
# from $package.task import build, load_test
# app = tacit.flower.server_app(model=build, test=load_test)
''')

_CLIENT = Template('''\
"""A node: it carries frames to the process that holds its data, or its key (--node-config: tacit-socket)."""

import tacit.flower

app = tacit.flower.client_app()

# With a model and data of your own (task.py), which are then in the node's process, beside the app that is sent there:
# from $package.task import build, load_data
# app = tacit.flower.client_app(model=build, data=load_data)
''')

_TASK = Template('''\
"""A model and data of your own, once server_app.py and client_app.py import them."""

from pathlib import Path

import numpy as np
from torch import nn


def build():
    """Return the model; its first weights are the server's."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_data(node):
    """Return this node's examples, features and labels; `node` is what its operator gave as --node-config."""
    with np.load(Path(node["tacit-data"]) / "train.npz") as file:
        return file["features"].astype(np.float32), file["labels"]


def load_test():
    """Return the server's examples to test on; it starts in the folder where the SuperLink was started."""
    with np.load("test.npz") as file:
        return file["features"].astype(np.float32), file["labels"]
''')

_README = Template("""\
# $name

A Flower app: federated learning with Tacit, mode `$mode`, $clients clients.

| file | what it is |
|---|---|
| `pyproject.toml` | the settings of the run |
| `$package/server_app.py`, `$package/client_app.py` | what the server and the nodes run |
| `$package/task.py` | a model and data of your own, once the two import it |

## On this machine

$here
## With real nodes

$nodes
What the server writes is in the folder `out` of the settings, below the folder where the SuperLink was started.
""")

_SIMULATED = """\
    pip install 'tacit[flower]'
    flwr run . --stream

Flower starts a SuperLink that simulates its nodes, and leaves it running: the next run starts faster. The nodes carry
frames; each client's data, and each key, are in processes of their own, which the server's app starts and ends.
"""

_NODES = """\
    flower-superlink --ssl-certfile superlink.pem --ssl-keyfile superlink.key --ssl-ca-certfile authority.pem \\
        --enable-supernode-auth --disable-runtime-dependency-installation --host 0.0.0.0 --port 8000
    flwr run . my-superlink --stream

A client has two processes: its site's, which holds the data, and a node, which carries frames to it:

    tacit site init --name st-mary --data heart.csv --label outcome --out site && tacit site serve site
    flower-supernode --superlink HOST:8000 --root-certificates authority.pem \\
        --auth-supernode-private-key node.key --node-config 'partition-id=0 tacit-socket="site/socket"'

Tacit's page on operations goes through it step by step: certificates, keys, what each party sees.
"""


def write_app(folder: Path, config: Resolved, *, name: str | None = None) -> Path:
    """Write the app for ``config`` into the new folder ``folder`` and return it."""
    name = name or folder.name
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"Expected a name of 2 to 40 lower-case letters, digits and hyphens that starts with a letter, such as "
            f"my-federation, got {name!r}."
        )
    if folder.exists():
        raise RunError(f"{folder} is there already and is left as it was. {_ADVICE}")
    for path, text in files(config, name).items():
        write_atomically(folder / path, text.encode(), replace=False, advice=_ADVICE)
    return folder


def files(config: Resolved, name: str) -> dict[str, str]:
    """Return the texts of the app's files by their paths."""
    package = name.replace("-", "_")
    encrypted = mode_of(config.mode).encrypted
    words = {
        "name": name,
        "package": package,
        "mode": config.mode,
        "version": tacit.__version__,
        "settings": toml(settings(config)),
        "clients": config.federate.clients or "natural",
        "here": _SIMULATED,
        "nodes": _NODES + (_key_lines(config) if encrypted else ""),
    }
    return {
        "pyproject.toml": _PYPROJECT.substitute(words),
        "README.md": _README.substitute(words),
        ".gitignore": "# None of this may travel in the app.\n/runs/\n*.key\n*.pem\n*.npz\n",
        f"{package}/__init__.py": f'"""{name}."""\n',
        f"{package}/server_app.py": _SERVER.substitute(words),
        f"{package}/client_app.py": _CLIENT.substitute(words),
        f"{package}/task.py": _TASK.substitute(words),
    }


def settings(config: Resolved) -> dict[str, Any]:
    """Return the settings that an app has to name, by section."""
    given = config.model_dump(mode="json", exclude_unset=True)  # a default may depend on another setting
    found: dict[str, Any] = {}
    for name, value in config.model_dump(mode="json").items():
        if isinstance(value, dict):
            set_here = given.get(name, {})
            inner = {key: one for key, one in value.items() if _named(f"{name}.{key}", one, key in set_here)}
            found |= {name: inner} if inner else {}
        elif _named(name, value, name in given):
            found[name] = value
    return found


def toml(values: Mapping[str, Any]) -> str:
    """Return settings as the tables that Flower reads.

    >>> print(toml({"mode": "dp", "dp": {"noise": 1.0}}))
    [tool.flwr.app.config]
    mode = "dp"
    <BLANKLINE>
    [tool.flwr.app.config.dp]
    noise = 1.0
    <BLANKLINE>
    """
    top = "tool.flwr.app.config"
    tables = {top: {key: value for key, value in values.items() if not isinstance(value, dict)}}
    tables |= {f"{top}.{key}": value for key, value in values.items() if isinstance(value, dict)}
    blocks = (
        "\n".join([f"[{name}]", *(f"{key} = {_literal(value)}" for key, value in table.items())])
        for name, table in tables.items()
    )
    return "\n\n".join(blocks) + "\n"


def _named(key: str, value: Any, given: bool) -> bool:
    return value is not None and value != [] and key not in _NEVER and (given or key in _ALWAYS)


def _literal(value: bool | float | int | str | list[str]) -> str:
    if isinstance(value, list):  # Flower's config has no lists; settings read words between commas
        value = ",".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    escaped = "".join(
        f"\\u{ord(one):04x}" if ord(one) < 0x20 or ord(one) == 0x7F else f"\\{one}" if one in '\\"' else one
        for one in value
    )
    return f'"{escaped}"'


def _key_lines(config: Resolved) -> str:
    shares = f" --shares {config.paillier.shares}" if config.paillier.keys == "threshold" else ""
    process = """it is in a process of its own, with a node that carries frames to it:

    tacit holder init --key keys/{key} --clients clients.pub --out holder && tacit holder serve holder
    flower-supernode ... --node-config 'tacit-socket="holder/socket"'"""
    holders = {
        "authority": "One party holds it; " + process.format(key="private.key"),
        "threshold": "Each share has its holder; " + process.format(key="share-1.key"),
        "shared": "Every client holds it, for experiments: `shared` under `keys` in site.yaml names `private.key`.",
    }[config.paillier.keys]
    return f"""
The key is made once. Every client gets `public.key`, and its operator compares the fingerprint with the key holder's
over another channel than this federation. A site encrypts to that key alone: `pin` under `keys` in its site.yaml.

    tacit keys new paillier{shares} --out keys
    tacit keys fingerprint keys/public.key

{holders}
"""
