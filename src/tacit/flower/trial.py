"""The parties of a run on one machine: a process for every site and every key holder, and nothing of them elsewhere.

::

    there = LocalParties(config, at_once=2)             # a folder with keys and rules, for its owner alone
    with there.up():                                    # the processes
        there.wait()                                    # until all answer at their sockets

``tacit run --engine flower`` and ``tacit deploy local`` use the same: whoever carries frames, Flower's nodes on Ray or
SuperNodes, carries them to these processes and holds neither data nor keys. When the context ends, and also where this
process is killed (see deploy/watchdog.py), neither a process nor a file of them is left.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tacit.config.resolved import Resolved
from tacit.errors import RunError
from tacit.flow import ClientId
from tacit.flower.deploy.processes import Processes
from tacit.flower.deploy.watchdog import VARIABLE, watched
from tacit.holder.new import trial as trial_holder
from tacit.modes.catalogue import mode_of, plan_of
from tacit.modes.keys import write_keys
from tacit.parties.trial import folder_of, socket_of
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.signatures import new_identity
from tacit.site.trial import LOST, Trial, identity_name
from tacit.storage import write_atomically

ALONE = 16  # sites have a process each; of more, several share one
_LIST = "clients.pub"
_SITES = "sites"
_PAUSE = 0.02
_MEMORY = "/dev/shm"
_ROOM, _ROOM_OF_A_SITE = 1 << 25, 1 << 18  # bytes


class LocalParties:
    """Sites and key holders of a run, in processes of their own.

    Attributes:
        folder: theirs; gone when the parties are.
        numbers: of the clients, from 0, and below zero of the key holders.
        mark: is in the environment of all that was started for them, see deploy/watchdog.py.
    """

    def __init__(self, config: Resolved, *, at_once: int) -> None:
        """Make keys and rules; nothing is started yet.

        Args:
            config: the run's, with its number of clients.
            at_once: how many sites work at the same time.
        """
        with ExitStack() as stack:
            place = in_memory(config.federate.clients or 1)
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-", dir=place)))  # 0700
            self.mark = stack.enter_context(watched(self.folder)).mark
            self.numbers = prepare(config, self.folder, processes=processes_of(config, at_once))
            self._open = stack.pop_all()
        threads = {"OMP_NUM_THREADS": "1"}  # many sites share the cores, and each is one client
        self._processes = Processes(folder=self.folder, environment={VARIABLE: self.mark, **threads})

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start the processes, which end with the context."""
        with self._open:
            try:
                self._start(_SITES, "tacit.site.trial", str(self.folder))
                for party in self.numbers:
                    if party < 0:
                        self._start(_name(party), "tacit", "holder", "serve", str(folder_of(self.folder, party)))
                yield
            finally:
                self._processes.stop()

    def socket(self, party: ClientId) -> Path:
        """Return where a party answers."""
        return socket_of(self.folder, party)

    def wait(self) -> None:
        """Wait until all answer, or say why one does not."""
        for party in self.numbers:
            while not self.socket(party).exists():
                self.check()
                if (self.folder / LOST).exists():
                    name = (self.folder / LOST).read_text()
                    raise RunError(f"The process of {name} ended before all answered. What it said:\n{self.said()}")
                time.sleep(_PAUSE)

    def check(self) -> None:
        """Raise an error where the process of a key holder, or that of all sites, has ended."""
        for name in (_SITES, *(_name(party) for party in self.numbers if party < 0)):
            if self._processes.status(name) is not None:
                raise RunError(f"The process of the {name} ended. What it said:\n{self._processes.last_lines(name)}")

    def said(self) -> str:
        """Return what the sites said last."""
        return self._processes.last_lines(_SITES)

    def keep_words(self, path: Path) -> bool:
        """Leave at ``path``, for its owner alone, what the sites said, where they said anything."""
        said = self._processes.log(_SITES).read_bytes()
        if said:
            write_atomically(path, said, mode=0o600)
        return bool(said)

    def _start(self, name: str, *words: str) -> None:
        self._processes.start(name, [sys.executable, "-m", *words], home=self.folder / "home")


def in_memory(clients: int) -> str | None:
    """Return a place in memory for the folder of a trial, or None, for the usual one, where there is too little room.

    Nothing of a trial has to outlast it, so that a site that waits for a disk at every reply would wait for nothing;
    and its keys are better not written to one. Whoever sets ``TMPDIR`` decides.
    """
    if any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")) or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free > _ROOM + clients * _ROOM_OF_A_SITE else None


def processes_of(config: Resolved, at_once: int) -> int:
    """Return in how many processes the sites live: each in its own up to 16 of them, and beyond that some together.

    A process costs a fork, and 20 to 40 MB of memory of its own. On a GPU each has a context of its own there, so that
    no more of them are started than work at once.
    """
    clients = config.federate.clients or 1
    return min(clients, at_once if config.gpu >= 0 else max(ALONE, at_once))


def prepare(config: Resolved, folder: Path, *, processes: int) -> tuple[ClientId, ...]:
    """Leave in ``folder`` what the parties of a run need, and return their numbers.

    Args:
        config: the run's.
        folder: new, and for its owner alone.
        processes: in how many the sites live.
    """
    clients = config.federate.clients
    assert clients is not None, "who calls has looked"
    keys = write_keys(config.paillier, folder) if mode_of(config.mode).encrypted else None
    holders = {} if keys is None else {party: path for party, path in keys.secret.items() if party < 0}
    shared = None if keys is None else keys.secret.get(0)
    identities = _identities(folder / "identities", clients) if holders else None
    for party, path in holders.items():
        _holder(folder, party, path, config, clients)
    secret = config.model_copy(update={"paillier": config.paillier.model_copy(update={"key": None})})  # whose is whose
    Trial(
        settings=secret.to_yaml(),
        clients=clients,
        processes=processes,
        pin=None if keys is None else str(keys.public),
        identities=None if identities is None else str(identities),
        shared=None if shared is None else str(shared),
    ).write(folder)
    return (*range(clients), *holders)


def _identities(folder: Path, clients: int) -> Path:
    """Make the clients' lasting identities, and the list of them that key holders go by."""
    made = [new_identity(f"client-{number}") for number in range(clients)]
    for number, (secret, _) in enumerate(made):
        write_atomically(folder / identity_name(number), secret, mode=0o600)
    write_atomically(folder / _LIST, b"".join(line for _, line in made))
    return folder


def _holder(folder: Path, party: ClientId, key: Path, config: Resolved, clients: int) -> None:
    protocol = plan_of(config, clients).protocol
    assert isinstance(protocol, PaillierSum), "only encrypted sums have key holders"
    trial_holder(
        folder_of(folder, party),
        key=key,
        clients=folder / "identities" / _LIST,
        rules=protocol.rules,
        prove=config.paillier.prove,
        insecure_key_size=config.paillier.insecure_key_size,
    )


def _name(party: ClientId) -> str:
    return f"key holder {-party}"
