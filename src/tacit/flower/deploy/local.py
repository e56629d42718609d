"""A whole federation on this machine: a SuperLink and its SuperNodes, with TLS and node authentication.

Every certificate and key is made for the occasion, in folders that only their owner can enter and that are gone
afterwards, as are all processes, also where this one is killed (see watchdog.py).
"""

from __future__ import annotations

import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, LinkError, RunError
from tacit.flower.deploy.app import write_app
from tacit.flower.deploy.certificates import Certificates, write_certificates, write_node_key
from tacit.flower.deploy.nodes import NodeConfig, clear, node_words, nodes_of, runnable, unfinished
from tacit.flower.deploy.processes import LOOPBACK, Processes, check_free, ended_by_signals, free_ports
from tacit.flower.deploy.watchdog import VARIABLE, watched
from tacit.flower.log import ERROR, NOTE
from tacit.flower.trial import LocalParties
from tacit.limits import cores
from tacit.runs.folder import JOURNAL, RESULT, records_of
from tacit.runs.journal import Attempt, End, Record, Resume, Round, Start
from tacit.runs.observer import Observer
from tacit.runs.result import Result

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_QUICK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}  # seconds, of the processes that start apps; by default 1
_SUPERLINK, _RUN = "superlink", "run"
_NAME = "tacit-local"  # of the app, and of the connection in Flower's configuration
_DAYS = 7
_PATIENCE = 120.0  # seconds for the SuperLink to come up, or for a short command
_TELL_AFTER = 10.0
_PAUSE = 0.2
_LAST_WORDS = 30.0  # seconds for Flower to pass on what was said at the end


@dataclass(frozen=True, kw_only=True)
class LocalFederation:
    """A running federation; runs can be sent to it one after another.

    Attributes:
        folder: where everything of it lies while it runs.
        address: the SuperLink's, with its port.
        authority: the certificate by which it is known.
        processes: the SuperLink's and the nodes', by name.
    """

    folder: Path
    address: str
    authority: Path
    processes: Processes

    @property
    def home(self) -> Path:
        """Flower's configuration folder, in which this federation is called ``tacit-local``."""
        return self.folder / "home"

    def run(self, config: Resolved, observer: Observer) -> Result:
        """Send a run to the federation, watch it and return its result; ``config`` names its folder."""
        if config.out is None:
            raise ConfigError("out has to be set: the folder of the run.")
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            app = write_app(Path(place) / _NAME, config)
            earlier = list(records_of(config.out)) if unfinished(config.out) else []
            if earlier:
                observer.note(f"{config.out} holds a deployment that was not finished: it goes on, with its ledger.")
            self.processes.start(_RUN, [_tool("flwr"), "run", str(app), _NAME, "--stream"], home=self.home)
            try:
                return follow(
                    config, self.processes, run=_RUN, superlink=_SUPERLINK, observer=observer, earlier=earlier
                )
            finally:
                self.processes.end(_RUN)


def deploy(
    config: RunConfig,
    *,
    observer: Observer,
    port: int = 0,
    force: bool = False,
    meanwhile: Callable[[LocalFederation], None] = lambda _: None,
) -> Result:
    """Bring up a federation of as many nodes as ``config`` has clients and key holders, run it and take it down.

    Args:
        config: the run's.
        observer: is told of every round.
        port: the SuperLink's; 0 for a free one.
        force: replace a run that the folder holds already.
        meanwhile: is called when the run is done and the federation still there.
    """
    resolved = runnable(config)
    assert resolved.out is not None
    if port:
        check_free(port)  # before keys are made, which can take minutes
    clear(resolved.out, force=force)
    with ended_by_signals():
        there = LocalParties(resolved, at_once=cores())
        with there.up(), federation(nodes_of(there), note=observer.note, port=port, ready=there.wait) as up:
            result = up.run(resolved, observer)
            meanwhile(up)
        return result


@contextmanager
def federation(
    nodes: Mapping[str, NodeConfig],
    *,
    note: Callable[[str], None],
    port: int = 0,
    patience: float = _PATIENCE,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[LocalFederation]:
    """Bring a federation up on the loopback address; when the context ends nothing of it is left.

    Args:
        nodes: the config of each SuperNode, by a name for its log.
        note: is told what takes long.
        port: the SuperLink's; 0 for a free one.
        patience: seconds to wait for the SuperLink.
        ready: waits for what the nodes need.
    """
    if find_spec("flwr") is None:
        raise ConfigError("A deployment needs Flower, which is not installed: pip install 'tacit[flower]'.")
    if port:
        check_free(port)
    with (
        tempfile.TemporaryDirectory(prefix="tacit-deploy-") as place,  # for its owner alone
        watched(Path(place)) as watchdog,
    ):
        folder = Path(place)
        processes = Processes(folder=folder, environment=_QUIET | _QUICK | {VARIABLE: watchdog.mark})
        try:
            numbers = free_ports(len(nodes) + 1)
            address = f"{LOOPBACK}:{port or numbers[0]}"
            note(f"Starting a SuperLink at {address} and {len(nodes)} SuperNode{'s' * (len(nodes) > 1)}.")
            certificates = write_certificates(folder, [LOOPBACK], days=_DAYS)
            up = LocalFederation(folder=folder, address=address, authority=certificates.authority, processes=processes)
            _write_connection(up)
            _start_superlink(up, certificates, note, patience)
            ready()
            for (name, config), number in zip(nodes.items(), numbers[1:], strict=True):
                _start_node(up, name, config, number)
            processes.look()  # while everything is there
            yield up
        finally:
            processes.stop()


def _write_connection(up: LocalFederation) -> None:
    up.home.mkdir(mode=0o700)
    (up.home / "config.toml").write_text(
        f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\naddress = "{up.address}"\n'
        f'root-certificates = "{up.authority}"\n'
    )


def _start_superlink(
    up: LocalFederation, certificates: Certificates, note: Callable[[str], None], patience: float
) -> None:
    host, _, port = up.address.rpartition(":")
    command = [
        _tool("flower-superlink"),
        *("--host", host, "--port", port),
        *("--ssl-certfile", str(certificates.certificate), "--ssl-keyfile", str(certificates.key)),
        *("--ssl-ca-certfile", str(certificates.authority)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]
    up.processes.start(_SUPERLINK, command, home=up.folder / f"home-{_SUPERLINK}")
    wait_for(up.address, up.authority, up.processes, note=note, patience=patience)


def wait_for(
    address: str,
    authority: Path,
    processes: Processes,
    *,
    note: Callable[[str], None],
    patience: float,
    tell_after: float = _TELL_AFTER,
) -> None:
    """Ask the SuperLink for its health until it answers; say so where it takes long, and why where it never does."""
    context = ssl.create_default_context(cafile=str(authority))
    start, told = time.monotonic(), False
    while True:
        try:
            with urllib.request.urlopen(f"https://{address}/health", context=context, timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
        if processes.status(_SUPERLINK) is not None:
            raise LinkError(
                f"The SuperLink ended while it started. The end of its log:\n{processes.last_lines(_SUPERLINK)}"
            )
        waited = time.monotonic() - start
        if waited > patience:
            raise LinkError(
                f"The SuperLink at {address} can't be reached after {patience:g} s: {reason}. The end of its log:\n"
                f"{processes.last_lines(_SUPERLINK)}"
            )
        if waited > tell_after and not told:
            told = True
            note(f"The SuperLink at {address} can't be reached yet: {reason}. Trying for up to {patience:g} s.")
        time.sleep(_PAUSE)


def _start_node(up: LocalFederation, name: str, config: NodeConfig, port: int) -> None:
    key = write_node_key(up.folder, name)
    up.processes.call(
        [_tool("flwr"), "supernode", "register", str(key.public), _NAME], home=up.home, patience=_PATIENCE
    )
    command = [
        _tool("flower-supernode"),
        *("--superlink", up.address, "--root-certificates", str(up.authority)),
        *("--auth-supernode-private-key", str(key.private)),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--node-config", node_words(config)),
    ]
    up.processes.start(name, command, home=up.folder / f"home-{name}")


def _tool(name: str) -> str:
    """Return the path of one of Flower's commands, that of this very environment."""
    path = Path(sys.executable).parent / name
    return str(path) if path.exists() else name


def follow(
    config: Resolved,
    processes: Processes,
    *,
    run: str,
    superlink: str,
    observer: Observer,
    earlier: Sequence[Record] = (),
) -> Result:
    """Pass a run's progress to ``observer`` and return its result.

    Args:
        config: the run's; names its folder.
        processes: has the process that sent the run, which prints its log and ends with it, and the SuperLink.
        run: the name of the former.
        superlink: of the latter.
        observer: is told.
        earlier: what the journal held before, of a run that goes on.
    """
    assert config.out is not None
    lines = _Lines(path=processes.log(run))
    records = _Records(path=config.out / JOURNAL, _read=len(earlier))
    rounds = config.federate.rounds
    while True:
        ended = processes.status(run) is not None  # before the last look, so that nothing is missed
        failure = _tell_lines(lines, observer)
        complete = _tell_records(records, observer, rounds, earlier)
        if failure is not None:
            raise RunError(failure)
        if complete and (config.out / RESULT).exists():
            result = Result.read(config.out / RESULT)
            end = time.monotonic() + _LAST_WORDS
            while processes.status(run) is None and time.monotonic() < end:
                time.sleep(_PAUSE)
            _tell_lines(lines, observer)
            observer.finished(result)
            return result
        if processes.status(superlink) is not None:
            raise RunError(f"The SuperLink ended. The end of its log:\n{processes.last_lines(superlink)}")
        if ended:
            raise RunError(
                f"The run ended without a result. What Flower said of it:\n{processes.last_lines(run)}\n"
                f"The end of the SuperLink's log:\n{processes.last_lines(superlink)}"
            )
        time.sleep(_PAUSE)


@dataclass(kw_only=True)
class _Lines:
    """Whole new lines of a file that grows."""

    path: Path
    _read: int = 0

    def new(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()


@dataclass(kw_only=True)
class _Records:
    """New records of a journal."""

    path: Path
    _read: int = 0

    def new(self) -> list[Record]:
        if not self.path.exists():
            return []
        records = list(records_of(self.path.parent))[self._read :]
        self._read += len(records)
        return records


def _tell_lines(lines: _Lines, observer: Observer) -> str | None:
    """Pass notes on, and return why the run failed if it did."""
    for line in lines.new():
        if line.startswith(NOTE):
            observer.note(line.removeprefix(NOTE))
        elif line.startswith(ERROR):
            return line.removeprefix(ERROR)
    return None


def _tell_records(records: _Records, observer: Observer, rounds: int, earlier: Sequence[Record]) -> bool:
    """Pass rounds on, and return whether the last is done."""
    complete = False
    for record in records.new():
        match record:
            case Start() | Resume():
                began = next(one for one in (*earlier, record) if isinstance(one, Start))
                done = {one.round: one.record for one in earlier if isinstance(one, Round)}
                observer.started(title=began.title, rounds=rounds, done=tuple(done[number] for number in sorted(done)))
            case Attempt():
                observer.progress(replied=0, asked=record.clients or 0)
            case Round():
                observer.round_done(record.record)
            case End():
                complete = True
    return complete
