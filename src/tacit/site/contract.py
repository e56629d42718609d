"""The contract of a site: what may leave it, and at what price; a file that the site owns (``site.yaml``).

It is read when the site's process starts and never from the network; unknown keys are refused. ``tacit site init``
writes one with comments, :func:`read` reads it. Paths in it start in its own folder.
"""

from __future__ import annotations

import difflib
import functools
import os
import stat
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, ValidationError

from tacit import foreign, limits
from tacit.config.domains import Between
from tacit.config.sections import Clients, Delta, Epsilon, File, Noise, Rounds, Scale, Section, Text, words
from tacit.errors import ConfigError, WireError
from tacit.service import SOCKET

CONTRACT, LEDGER, MEMORY = "site.yaml", "ledger.sqlite", "memory"
BUILT_IN = "built-in"
Trust = Literal["nobody", "cohort", "server"]
TRUSTS: tuple[Trust, ...] = get_args(Trust)
Telling = Literal["loss", "examples", "seconds"]
Names = Annotated[tuple[Text, ...], BeforeValidator(words)]


class SiteData(Section):
    """The data: a CSV file of the site's own, or this site's part of a public data set, for trials."""

    name: Text
    """What runs call these data (data.name in their settings); a run about anything else is refused."""
    file: File | None = None
    """The CSV file; null where the name is that of a public data set (`tacit data list`)."""
    dealt: bool = False
    """For trials on one machine: the rows are everybody's, and a run deals this site the part of its number."""
    label: Text | None = None
    """The column that is to be predicted."""
    columns: File | None = None
    """A YAML file with what is publicly known of the columns: ranges (`age: [18, 90]`) and categories. Nothing that a
    model is scaled with may be read off private rows."""
    folder: File | None = None
    """Where the files of a public data set are."""
    drop: Names = ()
    """Columns that are no features, such as an identifier."""
    sha256: Text | None = None
    """The file as it was at `tacit site init`: other data under the same name would have another budget."""


class Budget(Section):
    """What these data may cost in their whole life: all runs, all hubs, all restarts."""

    epsilon: Epsilon | None = 8.0
    """The most that all releases may cost together; null: no limit, and nothing is promised."""
    delta: Delta = 1e-5
    """At which delta."""
    unit: Literal["example", "client"] = "example"
    """Whom it protects: one row of the data (example), or the site with all its rows (client). What protects the site
    protects a row; DP-SGD protects rows alone."""
    trust: Trust = "nobody"
    """Whom epsilon counts on. nobody: it holds against everyone, the server included. cohort: that enough other sites
    add their share of the noise and keep it to themselves (masks, encryption). server: that it adds its noise and
    forgets what it saw (mode dp); epsilon then holds against whoever sees the models, and not against the server or the
    app that carries replies to it, which see them without noise."""


class Rules(Section):
    """What a run must be like; each is checked before anything is computed."""

    modes: Names = ()
    """The modes that are allowed."""
    models: Names = (BUILT_IN,)
    """The models that are allowed: `built-in` for all that come with Tacit, or names; `package.module:Class` is a
    module that is installed here. No run brings code along."""
    cohort: Clients = 2
    """The fewest clients of a sum that this site is part of."""
    noise: Noise = 0.0
    """The least noise multiplier of anything that leaves, whatever the budget would allow."""
    reply_epsilon: Epsilon | None = None
    """The most that one reply may cost by itself."""
    clip: Scale | None = None
    """The largest clip bound of an update."""
    rounds: Rounds = 1_000
    """The most rounds of a run, tries included."""
    passes: Annotated[int, Between(1, limits.PASSES)] = 100
    """The most passes over the data in one round: how long a run may keep this machine busy."""
    rounds_per_day: Rounds = 1_000
    """The most rounds in 24 hours, whatever the runs are called."""
    rounds_apart: Rounds = 1
    """How many rounds of a run at least are between two of this site's: 1 allows every round. A relay can give a run
    another name; what holds whatever the names are is `seconds_apart`, `rounds_per_day` and the budget."""
    seconds_apart: Annotated[float, Between(0, limits.SECONDS)] = 0.0
    """How many seconds at least are between two rounds."""
    tell: Annotated[tuple[Telling, ...], BeforeValidator(words)] = ()
    """What may be told beside what is protected: loss, examples (how many rows there are), seconds (of work)."""


class Keys(Section):
    """What this site knows of the other parties; see the page on operations."""

    pin: File | None = None
    """The key that this site encrypts with: the public key file, its fingerprint compared over another channel."""
    identity: File | None = None
    """The file of this site's lasting identity (ssh-keygen -t ed25519; mode 0600)."""
    clients: File | None = None
    """A file with the public halves of all clients' identities: under masks nobody else is summed with."""
    shared: File | None = None
    """The private key that all clients have, for experiments in which they do (paillier.keys=shared): each of them can
    open what any other sent. Not with a budget."""


class Contract(Section):
    """A site's contract.

    >>> Contract(name="st-mary", data=SiteData(name="heart.csv")).budget.trust
    'nobody'
    """

    version: Literal[1] = 1
    """Of this file's form."""
    name: Text
    """Of the site, for people and for the ledger."""
    number: Annotated[int, Between(0, limits.CLIENTS)] | None = None
    """This site's number in a federation; null: the first that a run asks for, and in that run no other."""
    simulation: bool = False
    """Whether runs with a seed are allowed, whose noise can be predicted: for public data and trials only."""
    socket: File = Path(SOCKET)
    """Where the site's process answers."""
    group: Text | None = None
    """The group of the SuperNode's user, who may speak to the socket and read nothing else; null: the same user."""
    gpu: Annotated[int, Between(-1, limits.GPUS)] = -1
    """The GPU that the site trains on; -1 is the CPU."""
    data: SiteData
    budget: Budget = Budget()
    rules: Rules = Rules()
    keys: Keys = Keys()

    def to_yaml(self) -> str:
        """Return the contract with its comments."""
        head = (
            f"# The contract of site {self.name}: what leaves it, and at what price. The site's process reads it when"
        )
        said = [head, "# it starts; no server and no app can change it. Unknown keys are refused.", ""]
        values = self.model_dump(mode="json")
        for key, field in type(self).model_fields.items():
            value = values[key]
            if isinstance(value, dict):
                section = getattr(self, key)
                said += ["", *_comment(type(section).__doc__ or ""), f"{key}:"]
                for name, inner in type(section).model_fields.items():
                    said += [f"  {line}" for line in (*_comment(inner.description or ""), _line(name, value[name]))]
            else:
                said += [*_comment(field.description or ""), _line(key, value)]
        return "\n".join(said) + "\n"


@functools.cache
def _comment(text: str) -> tuple[str, ...]:
    return tuple(f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 100))


def _line(key: str, value: Any) -> str:
    return f"{key}: {yaml.safe_dump([value], default_flow_style=True, width=10_000).strip()[1:-1]}"


def read(folder: Path) -> Contract:
    """Return the contract in a site's folder, its paths absolute; whatever is wrong with it is refused in words."""
    path = folder / CONTRACT
    try:
        values = foreign.yaml_value(foreign.read_plain(path, largest=foreign.LARGEST))
    except OSError as error:
        raise _unreadable(path, error) from error
    except WireError as error:
        raise ConfigError(f"{path} does not work. {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"Expected {path} to hold named values, as `tacit site init` writes them.")
    return placed(made(values, where=str(path)), folder)


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} can't be read: {error.strerror or error}. `tacit site init` makes the folder of a site."
    )


def check_private(folder: Path) -> None:
    """Refuse a folder, a contract or a ledger that others than this user could change."""
    for path in (folder, folder / CONTRACT, folder / LEDGER):
        try:
            found = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        mode = stat.S_IMODE(found.st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid not in (0, os.getuid()):
            raise ConfigError(
                f"Others than this user can change {path} (mode {mode:o}, owner {found.st_uid}): they could change the "
                "site's rules. Give it to the site's user alone: chown, and chmod go-w."
            )


def made(values: Mapping[str, Any], *, where: str) -> Contract:
    """Return the contract of plain values, or refuse them in words; ``where`` names their source."""
    try:
        contract = Contract(**values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + " ".join(dict.fromkeys(map(_explained, error.errors())))) from None
    data = contract.data
    if data.file is not None and data.label is None:
        raise ConfigError(f"{where}: data.label is missing: the column of {data.file} that is to be predicted.")
    if contract.simulation and contract.budget.epsilon is not None:
        raise ConfigError(
            f"{where}: simulation: true allows runs whose noise can be predicted, and promises nothing. Set "
            "budget.epsilon: null, or simulation: false."
        )
    if contract.keys.shared is not None and contract.budget.epsilon is not None:
        raise ConfigError(
            f"{where}: keys.shared is a key that all clients have, who can open what this site sends: it keeps no "
            "budget. Leave it out, or set budget.epsilon: null."
        )
    return contract


def _explained(finding: Mapping[str, Any]) -> str:
    key = ".".join(map(str, finding["loc"]))
    if finding["type"] == "extra_forbidden":
        known = _keys()
        close = difflib.get_close_matches(key, known, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return f"there is no key {key!r}.{hint}"
    if finding["type"] == "missing":
        return f"{key} is missing."
    message = str(finding["msg"]).removeprefix("Value error, ")
    return f"{key}={finding['input']!r:.100} does not work: {message[0].lower()}{message[1:]}."


def _keys() -> list[str]:
    sections: dict[str, type[Section]] = {"data": SiteData, "budget": Budget, "rules": Rules, "keys": Keys}
    inner = [f"{name}.{key}" for name, section in sections.items() for key in section.model_fields]
    return [*Contract.model_fields, *inner]


def placed(contract: Contract, folder: Path) -> Contract:
    """Return the contract in a folder with paths that no longer depend on where a process was started."""
    folder = folder.absolute()
    data, keys = contract.data, contract.keys

    def whole(section: Section, *names: str) -> dict[str, Any]:
        return {name: folder / path for name in names if (path := getattr(section, name)) is not None}

    return contract.model_copy(
        update={
            "socket": folder / contract.socket,
            "data": data.model_copy(update=whole(data, "file", "columns", "folder")),
            "keys": keys.model_copy(update=whole(keys, "pin", "identity", "clients", "shared")),
        }
    )
