"""A site's process, and whoever speaks to it: an honest hub, a lying one, and a lying relay."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import wire
from tacit.config.run_config import RunConfig, from_mapping
from tacit.modes.catalogue import plan_of, resolve
from tacit.parties.hello import GREETING, Terms
from tacit.service import SOCKET, Message, call
from tacit.site.contract import CONTRACT
from tacit.site.new import init

PARAMETERS = 8  # of a logistic model on age, two sexes and two outcomes
COLUMNS = "age: [18, 90]\nsex: [f, m]\noutcome: [ill, well]\n"


def write_data(folder: Path, *, rows: int = 30, seed: int = 1) -> Path:
    """Write a table of patients, and what is publicly known of it beside it."""
    draw = random.Random(seed)
    lines = ["id,age,sex,outcome"]
    lines += [
        f"{number},{draw.randint(20, 80)},{draw.choice('fm')},{draw.choice(('ill', 'well'))}" for number in range(rows)
    ]
    (folder / "columns.yaml").write_text(COLUMNS)
    path = folder / "heart.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def make_site(folder: Path, **values: Any) -> Path:
    """Make a site over a small table; ``values`` are sections of its contract."""
    folder.mkdir(parents=True, exist_ok=True)
    data = write_data(folder)
    given = {"label": "outcome", "columns": str(folder / "columns.yaml"), "drop": ["id"], **values.pop("data", {})}
    init(folder / "site", str(data), {"name": "st-mary", "number": 0, "data": given, **values})
    return folder / "site"


@contextmanager
def serving(*sites: Path) -> Iterator[dict[Path, int]]:
    """Run the processes of sites until the context ends, and return their numbers; what they say is in a log."""
    log = sites[0].with_name("sites.log")
    command = [sys.executable, "-m", "tacit", "site", "serve", *map(str, sites)]
    with (
        log.open("a") as words,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in sites]
            found = [re.fullmatch(r"(.*): process (\d+) is answering\n", line) for line in said]
            assert all(found), log.read_text()
            yield {Path(one[1]): int(one[2]) for one in found if one is not None}
        finally:
            process.terminate()


def settings(**changes: Any) -> dict[str, Any]:
    """Return the settings of an honest run, with changes by dotted keys."""
    return {
        "mode": "local-dp",
        "data.name": "heart.csv",
        "model.name": "logistic",
        "federate.clients": 5,
        "federate.rounds": 4,
        "train.local_epochs": 1,
        "train.batch_size": 16,
        "dp.noise": 4.0,
        "dp.clip": 1.0,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }


def config_of(values: Mapping[str, Any]) -> RunConfig:
    """Return a configuration of dotted keys."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if name:
            nested.setdefault(section, {})[name] = value
        else:
            nested[section] = value
    return from_mapping({**nested, "engine": "flower"})


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Speaks to a site over its socket, as a server and a relay together would: truly, or not."""

    site: Path
    run: int = 1
    said: Mapping[str, Any]
    extras: bytes = b""
    party: int = 0
    partition: int | None = None

    @classmethod
    def of(cls, site: Path, *, run: int = 1, **changes: Any) -> Hub:
        """Return the hub of a run."""
        config = resolve(config_of(settings(**changes)))
        extras = plan_of(config, config.federate.clients or 1).mechanism.public_state()
        return cls(site=site, run=run, said=dict(Terms.of(config).to_record()), extras=extras)

    def ask(self, frame: bytes, **head: Any) -> bytes:
        """Send a frame with its head, or another, and return the site's frame."""
        said = {"run": self.run, "party": self.party, "said": dict(self.said), "partition": self.partition, **head}
        return call(self.site / SOCKET, Message(head=said, body=frame), patience=60).body

    def greet(self) -> bytes:
        """Greet the site."""
        return self.ask(GREETING)

    def task(
        self, number: int, *, attempt: int = 0, parameters: int = PARAMETERS, value: float = 0.0, told: bytes = b""
    ) -> bytes:
        """Return a task."""
        turn = wire.Turn(round_number=number, attempt=attempt)
        model = np.full(parameters, value, np.float32)
        return wire.pack_task(wire.Task(turn=turn, model=model, extras=self.extras, told=told))

    def round(self, number: int, **more: Any) -> bytes:
        """Ask for a round."""
        return self.ask(self.task(number, **more))

    def lying(self, **changes: Any) -> Hub:
        """Return a hub whose terms are complete, and say something else than the run was announced with."""
        config = resolve(config_of(settings(**changes)))
        return replace(self, said=dict(Terms.of(config).to_record()))

    def forged(self, **changes: Any) -> Hub:
        """Return a hub whose settings were changed one by one in the text itself."""
        named = json.loads(self.said["settings"])
        named.update({key.replace("__", "."): value for key, value in changes.items()})
        return replace(self, said={**self.said, "settings": json.dumps(named, sort_keys=True)})


def kind_of(frame: bytes) -> wire.Kind:
    """Return what a frame is."""
    return wire.unpack_brief(frame).kind


def code_of(frame: bytes) -> wire.Failure:
    """Return why a site refused; an answer is an error."""
    found = wire.unpack_brief(frame)
    assert found.kind is wire.Kind.FAILURE, f"the site answered with {found.kind.name}"
    code, words = wire.unpack_failure(found)
    assert words == code.words, "a refusal tells a code and nothing else"
    return code


def change(site: Path, old: str, new: str) -> None:
    """Change a line of a contract."""
    text = (site / CONTRACT).read_text()
    assert old in text
    (site / CONTRACT).write_text(text.replace(old, new))
