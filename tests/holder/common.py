"""A real process that holds a key, and clients and a server that speak to it over its socket."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import wire
from tacit.crypto import keyfile, sealing
from tacit.holder import process
from tacit.holder.memory import Memory
from tacit.holder.new import init
from tacit.holder.settings import MEMORY, Settings
from tacit.protocols.paillier import Caution, Rules, ShareHolder
from tacit.protocols.paillier.holders import Holder
from tacit.protocols.signatures import new_identity, read_identity
from tacit.service import SOCKET, Message, ServiceError, call
from tests.protocols.paillier.run import Run
from tests.protocols.test_conformance import key_pair, key_shares, layout

WORDS = "eight words are enough"
RULES = Rules(minimum_clients=3, rounds=6)
PEOPLE = 400  # identities that a list has


class People:
    """Identities that a holder's list has; each test takes some that nobody else uses."""

    def __init__(self, count: int = PEOPLE) -> None:
        made = [new_identity(f"client {number}") for number in range(count)]
        self.lines = b"".join(line for _, line in made)
        self._free = itertools.cycle(read_identity(secret, where="test") for secret, _ in made)

    def some(self, count: int = 4) -> dict[int, Ed25519PrivateKey]:
        """Return clients by their numbers in a run."""
        return dict(enumerate(itertools.islice(self._free, count)))


class Remote:
    """A key holder behind a socket, as a server that relays nothing of its own sees it."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def answer(self, request: wire.Frame) -> bytes:
        """Ask the process."""
        return self.ask(wire.pack(request.kind, request.turn, request.body))

    def ask(self, data: bytes) -> bytes:
        """Send any bytes."""
        return call(self.socket, Message(body=data), patience=60).body


class Serving:
    """``tacit holder serve`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = Remote(folder / SOCKET)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        reading, writing = os.pipe()
        os.write(writing, WORDS.encode())
        os.close(writing)
        command = [sys.executable, "-m", "tacit", "holder", "serve", str(self.folder), "--passphrase-fd", str(reading)]
        self.log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            command, pass_fds=[reading], stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=self.folder
        )
        os.close(reading)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert "is held at" in self.line, (self.folder / "log").read_text()

    def kill(self) -> None:
        """Kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """Stop it as an operator does; return its exit status."""
        self.process.terminate()
        return self._end()

    def _end(self) -> int:
        status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
        return status

    @property
    def memory(self) -> Memory:
        """What is on disk."""
        return memory_of(self.folder)


def memory_of(folder: Path) -> Memory:
    """Return the memory of a holder's folder."""
    return Memory(folder / MEMORY, process.memory_identity(process.key_file(Settings.read(folder))))


def made(folder: Path, keys: str, people: People, **changed: Any) -> Path:
    """Make a holder's folder, with a sealed key."""
    folder.mkdir(mode=0o700)
    key = key_pair()[1] if keys == "authority" else key_shares()[0]
    keyfile.save(folder / "secret.key", key, passphrase=WORDS, cost=sealing.Cost(n=1024))
    (folder / "clients.pub").write_bytes(people.lines)
    given = {"minimum_clients": 3, "rounds": 60, "openings": 500, "insecure_key_size": True, **changed}
    settings = Settings(key=folder / "secret.key", clients=folder / "clients.pub", **given)
    init(folder, settings)
    return folder


def run_with(keys: str, remote: Any, people: People, **options: Any) -> Run:
    """Return a run in which the process is the first key holder; with shares, a second is in this process."""
    rules = options.pop("rules", RULES)
    holders: dict[int, Holder] = {-1: remote}
    if keys == "threshold":
        caution = Caution(rules=rules, layout=layout, clients=None)
        holders[-2] = ShareHolder(share=key_shares()[1], caution=caution)
    options.setdefault("identities", people.some())
    return Run(keys, holders=holders, rules=rules, clients=len(options["identities"]), **options)


def code_of(reply: bytes) -> wire.Failure:
    """Return the code of a refusal."""
    return wire.unpack_failure(wire.unpack(reply))[0]


def why(reply: bytes) -> str:
    """Return the words of a refusal."""
    return wire.unpack_failure(wire.unpack(reply))[1]


def gone(remote: Remote, data: bytes) -> bool:
    """Return whether nobody answers."""
    try:
        remote.ask(data)
    except ServiceError:
        return True
    return False


def last_refusal(serving: Serving) -> str:
    """Return what the process has written down last."""
    memory = serving.memory
    refused: Sequence[Any] = memory.refused
    memory.close()
    return str(refused[-1].reason)
