"""The sites of a trial on one machine: each holds its part of the data in a process of its own.

::

    python -m tacit.site.trial FOLDER       # until SIGTERM; FOLDER/trial.json says of which run

The process that is started so imports torch and loads the data once. Then the sites part from it (fork), a process for
each; where they are more than that is sensible for, some share a process. Each makes its folder, as ``tacit site init``
does, and answers at its own socket: what a trial plays is what a site of an operator's own does, but for its contract,
which allows what the run asks for and promises nothing.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tacit import foreign, limits
from tacit.config.resolved import Resolved
from tacit.config.run_config import from_mapping
from tacit.errors import TacitError
from tacit.flow import ClientId
from tacit.modes.catalogue import resolve
from tacit.parties.hello import Terms
from tacit.parties.trial import folder_of
from tacit.site.contract import BUILT_IN, Contract
from tacit.site.new import init
from tacit.site.process import Workshop
from tacit.site.serving import answer, parted
from tacit.storage import write_atomically

FILE = "trial.json"
LOST = "lost"  # who has ended with an error while the others answer, for whoever still waits for it


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the sites of a trial are told by the one who plays their operators.

    Attributes:
        settings: the run's configuration, in YAML.
        clients: how many sites there are.
        processes: in how many processes they live, at most.
        pin: the key that they encrypt with.
        identities: the folder with the files of their lasting identities.
        shared: the private key that all of them have, in experiments that want it so.
    """

    settings: str
    clients: int
    processes: int
    pin: str | None = None
    identities: str | None = None
    shared: str | None = None

    def write(self, folder: Path) -> None:
        """Leave it where the process finds it."""
        write_atomically(folder / FILE, json.dumps(asdict(self)).encode(), mode=0o600)

    @classmethod
    def read(cls, folder: Path) -> Trial:
        """Read what :meth:`write` left."""
        return cls(**foreign.json_object(foreign.read_plain(folder / FILE, largest=foreign.LARGEST)))

    @property
    def config(self) -> Resolved:
        """The run's configuration."""
        return resolve(from_mapping(foreign.yaml_value(self.settings)))

    def site(self, folder: Path, config: Resolved, number: ClientId) -> Contract:
        """Make the folder of one site."""
        identity = None if self.identities is None else Path(self.identities) / identity_name(number)
        paths = {"pin": self.pin, "identity": identity, "shared": self.shared}
        keys = {name: str(Path(path).absolute()) for name, path in paths.items() if path is not None}
        return new_site(folder_of(folder, number), config, number=number, keys=keys)


def identity_name(number: ClientId) -> str:
    """Return the name of the file with a site's lasting identity."""
    return f"client-{number}.key"


def new_site(folder: Path, config: Resolved, *, number: ClientId, keys: dict[str, str] | None = None) -> Contract:
    """Make one of the sites of a trial: it allows what the run asks for, and promises nothing.

    Args:
        folder: new.
        config: the run's.
        number: of the client that this site is.
        keys: the contract's section of that name.
    """
    place = config.data.folder
    data = {"name": config.data.name, "dealt": True, "folder": place and str(place.absolute())}
    rules = {
        "modes": [config.mode],
        "models": [BUILT_IN, config.model.name],
        "cohort": 1,
        "rounds": limits.ROUNDS,
        "rounds_per_day": limits.ROUNDS,
        "passes": limits.PASSES,
        "tell": ["loss", "examples", "seconds"],
    }
    values: dict[str, Any] = {
        "name": f"client-{number}",
        "number": number,
        "simulation": config.seed is not None,
        "gpu": config.gpu,
        "data": data,
        "budget": {"epsilon": None, "delta": config.dp.delta, "unit": "client"},
        "rules": rules,
        "keys": keys or {},
    }
    return init(folder, config.data.name, values)


def serve(folder: Path) -> None:
    """Bring the sites of a trial up, and let them answer until SIGTERM."""
    told = Trial.read(folder)
    config = told.config
    import tacit.runs.job  # noqa: F401 - and torch with it, before the processes part

    groups = [range(first, told.clients, told.processes) for first in range(min(told.processes, told.clients))]
    contract = told.site(folder, config, 0)
    workshop = Workshop(contract, None, workers=1)  # as many sites work at once as there are cores
    workshop.prepare(Terms.of(config).settings)

    def live(numbers: Sequence[ClientId]) -> None:
        for number in numbers:
            if number:
                told.site(folder, config, number)
        answer([folder_of(folder, number) for number in numbers], ready=lambda _: None, workshop=workshop)

    def lost(name: str) -> None:
        write_atomically(folder / LOST, name.encode(), mode=0o600)

    parted({_named(group): partial(live, group) for group in groups}, lost=lost)


def _named(numbers: Sequence[ClientId]) -> str:
    return f"client{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def main(words: Sequence[str]) -> int:
    """Serve the trial in a folder."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a site has seven open, and a process may have many sites
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        serve(Path(words[0]).absolute())
    except TacitError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # to take torch apart takes seconds, for which somebody waits
