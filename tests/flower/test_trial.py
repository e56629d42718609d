"""The parties of a run on one machine: what is made for them, and their processes, which nothing outlives."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flwr.serverapp import Grid

from tacit.config.run_config import RunConfig, from_mapping
from tacit.crypto import keyfile
from tacit.crypto.paillier import PrivateKey
from tacit.errors import DropoutError, RunError
from tacit.flower.deploy.watchdog import marked
from tacit.flower.envelope import client_app
from tacit.flower.relay import relay
from tacit.flower.simulation import Simulation, simulated
from tacit.flower.trial import LocalParties, in_memory, prepare, processes_of
from tacit.holder.process import known_clients
from tacit.holder.settings import Settings
from tacit.modes.catalogue import resolve
from tacit.modes.keys import write_keys
from tacit.parties.calls import Answer, Call
from tacit.parties.hello import GREETING, Introduction, Terms
from tacit.parties.operator import pin_of
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.job import Job
from tacit.runs.observer import Silent
from tacit.runs.result import RoundRecord
from tacit.runs.run import execute, run
from tacit.service import Message, ServiceError, call
from tacit.site.contract import read
from tacit.site.trial import Trial
from tests.flower.inside import carried
from tests.runs.common import Watching, digits

pytestmark = [
    pytest.mark.xdist_group("flower"),
    # Ray leaves files and processes to the collector, which says so
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SMALL = {"bits": 512, "insecure_key_size": True}


def _config(**values: Any) -> RunConfig:
    changes = {"data": {"name": "digits"}, "model": {"name": "logistic"}, "federate": {"clients": 2}}
    return from_mapping({"engine": "flower", **changes, **values})


# What is made


def test_all_parties_split_alike_without_a_seed() -> None:
    assert resolve(_config()).data.split_seed == 0
    assert resolve(_config(data={"name": "digits", "split_seed": 5})).data.split_seed == 5
    assert resolve(_config(seed=3)).data.split_seed is None
    assert resolve(_config(engine="in-process")).data.split_seed is None


def test_a_site_of_a_trial_allows_the_run_and_promises_nothing(tmp_path: Path) -> None:
    for seed in (None, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        config = resolve(_config(seed=seed))
        assert prepare(config, folder, processes=1) == (0, 1)
        told = Trial.read(folder)
        assert told.config == config
        contract = told.site(folder, config, 1)
        assert contract == read(folder / "site-1")
        assert (contract.number, contract.simulation, contract.rules.modes) == (1, seed is not None, ("plain",))
        assert contract.budget.epsilon is None


@pytest.mark.parametrize(
    ("settings", "holders", "files"),
    [
        ({}, (-1,), ["private.key", "public.key"]),
        ({"keys": "threshold", "shares": "2/2"}, (-1, -2), ["public.key", "share-1.key", "share-2.key"]),
        ({"keys": "shared"}, (), ["private.key", "public.key"]),
    ],
)
def test_every_key_holder_has_its_key_and_clients_pin_it(
    tmp_path: Path, settings: dict[str, Any], holders: tuple[int, ...], files: list[str]
) -> None:
    config = resolve(_config(mode="paillier", paillier=SMALL | settings))
    assert prepare(config, tmp_path, processes=2) == (0, 1, *holders)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [*files, "trial.json"]
    secret = [path for path in tmp_path.iterdir() if path.is_file() and path.name != "public.key"]
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    held = keyfile.read(tmp_path / files[-2 if len(files) == 2 else -1], insecure_key_size=True).public
    encrypts = getattr(held, "key", held)
    keys = Trial.read(tmp_path).site(tmp_path, config, 0).keys
    assert pin_of({"tacit-pin": str(keys.pin)}, config.paillier) == encrypts.identity
    assert (keys.shared is None) == (keys.identity is not None) == bool(holders)
    for party in holders:
        rules = Settings.read(tmp_path / f"holder-{-party}")
        assert (rules.minimum_clients, rules.rounds, len(known_clients(rules))) == (2, 6, 2)
        assert rules.key in secret


def test_keys_that_are_there_are_used_and_sites_do_not_learn_where(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    prepare(resolve(_config(mode="paillier", paillier=SMALL)), first, processes=1)
    key = first / "private.key"
    prepare(resolve(_config(mode="paillier", paillier={**SMALL, "key": str(key)})), second, processes=1)
    assert Settings.read(second / "holder-1").key == key
    assert (second / "public.key").read_text() == (first / "public.key").read_text()
    assert str(key) not in (second / "trial.json").read_text()


@pytest.mark.parametrize(
    ("clients", "gpu", "at_once", "processes"),
    [(2, -1, 2, 2), (16, -1, 2, 16), (1000, -1, 2, 16), (1000, -1, 64, 64), (10, 0, 2, 2), (3, 0, 8, 3)],
)
def test_a_site_has_a_process_of_its_own_up_to_sixteen_of_them(
    clients: int, gpu: int, at_once: int, processes: int
) -> None:
    assert processes_of(resolve(_config(federate={"clients": clients}, gpu=gpu)), at_once) == processes


def test_a_trial_is_in_memory_where_there_is_room_and_nobody_chose_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    free = {"now": 1 << 30}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["now"]))
    assert (in_memory(100), in_memory(100_000)) == ("/dev/shm", None)
    free["now"] = 1 << 20
    assert in_memory(1) is None
    free["now"] = 1 << 30
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert in_memory(100) is None


# The processes


def _ask(there: LocalParties, party: int, config: Any) -> Introduction:
    head = {"run": 1, "party": party, "said": dict(Terms.of(config).to_record()), "partition": party}
    return Introduction.read(party, call(there.socket(party), Message(head=head, body=GREETING), patience=60).body)


def _until(done: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.02)
    return done()


def test_parties_answer_alone_and_are_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sites in two processes and a key holder, under a path that no socket's address could hold."""
    long = tmp_path / ("a" * 60) / ("b" * 60)
    long.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    config = resolve(_config(mode="paillier", paillier=SMALL, federate={"clients": 3}))
    monkeypatch.setattr("tacit.flower.trial.ALONE", 2)
    there = LocalParties(config, at_once=1)
    assert stat.S_IMODE(there.folder.stat().st_mode) == 0o700
    with there.up():
        there.wait()
        for party in (0, 1, 2, -1):
            assert len(str(there.socket(party))) > 108
            assert stat.S_IMODE(there.socket(party).stat().st_mode) == 0o600
            assert stat.S_IMODE(there.socket(party).parent.stat().st_mode) == 0o700
            assert _ask(there, party, config).parties == (party,)
        sites = [pid for pid in marked(there.mark) if "tacit.site.trial" in _words(pid)]
        assert len(sites) == 3, "the process that was started, and two of sites"
        shared = next(pid for pid in sites if _listens(pid, there.socket(0)))
        assert _listens(shared, there.socket(2))
        assert not _listens(shared, there.socket(1))
        os.kill(shared, signal.SIGKILL)
        with pytest.raises(ServiceError, match=r"No service answers|ended"):
            _ask(there, 2, config)
        assert _ask(there, 1, config).parties == (1,)
        assert _until(lambda: "The process of clients 0, 2 ended by signal 9." in there.said())
    assert not marked(there.mark)
    assert not there.folder.exists()


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _listens(pid: int, path: Path) -> bool:
    """Return whether a process has a lock on the socket, which is the only one's that answers there."""
    lock = path.with_name(f".{path.name}.lock")
    return any(one.resolve() == lock for one in Path(f"/proc/{pid}/fd").iterdir())


def test_sites_that_can_not_start_say_why() -> None:
    config = resolve(_config(data={"name": "no-such-data"}))
    there = LocalParties(config, at_once=1)
    with pytest.raises(RunError, match=r"(?s)process of the sites ended.*no-such-data"), there.up():
        there.wait()
    assert not there.folder.exists()


def test_nobody_waits_for_a_site_that_has_ended_while_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    end = time.monotonic() + 120.0

    def patient(_: float) -> None:
        assert time.monotonic() < end, "it waits for a site that is gone"
        _until(lambda: False, 0.02)

    monkeypatch.setattr("tacit.flower.trial.time", SimpleNamespace(sleep=patient))
    there = LocalParties(resolve(_config()), at_once=1)
    (there.folder / "site-1" / "in the way").mkdir(parents=True)
    with pytest.raises(RunError, match=r"(?s)client 1 ended before all answered.*a ledger is for life"), there.up():
        there.wait()
    assert not there.folder.exists()


def test_what_sites_said_of_a_run_that_failed_is_kept_for_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sites are processes, and the nodes are called in this one."""
    carried(monkeypatch)
    steps = {"lr": 1e6, "weight_decay": 1e6}  # which overflow
    config = digits(engine="flower", out=tmp_path / "run", federate={"clients": 2, "retries": 0}, optimizer=steps)
    watching = Watching()
    with pytest.raises(DropoutError, match="Client 0 failed in round 1: its training diverged"):
        run(config, observer=watching)
    log = tmp_path / "run" / "sites.log"
    assert any(str(log) in note for note in watching.notes)
    assert "DIVERGED" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


# Whole runs, on Ray


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # while the warnings are ignored


@dataclass(frozen=True)
class Spy:
    """The app that is shipped to the nodes, as a server would change it: it leaves word of where it runs."""

    folder: str

    def __call__(self, request: Call) -> Answer:
        (Path(self.folder) / str(os.getpid())).touch()
        return relay(request)


class Spied(Simulation):
    """A simulation with that app."""

    app: Spy

    @contextmanager
    def _nodes(self, job: Job) -> Iterator[Grid]:
        with simulated(client_app(self.app), nodes=2, cpus=float(os.cpu_count() or 1)) as grid:
            yield grid


class Reader(Watching):
    """Reads the memory of all processes after the first round, and kills a site before the second."""

    def __init__(self, spied: Spied, patterns: dict[str, bytes], place: Path) -> None:
        super().__init__()
        self._spied, self._patterns, self._place = spied, patterns, place
        self.found: dict[str, set[str]] = {}

    def round_done(self, record: RoundRecord) -> None:
        super().round_done(record)
        if len(self.records) > 1:
            return
        there = self._spied._parties
        everyone = marked(there.mark)
        holder = {pid for pid in everyone if "holder serve" in _words(pid)}
        sites = {n: next(pid for pid in everyone if _listens(pid, there.socket(n))) for n in range(3)}
        nodes = {int(path.name) for path in self._place.iterdir()}
        kinds = {"node": nodes, "site": set(sites.values()), "holder": holder}
        for kind, numbers in kinds.items():
            assert numbers, kind
            self.found[kind] = {name for pid in numbers for name in _in_memory(pid, self._patterns)}
        assert len(set(sites.values())) == 3
        os.kill(sites[1], signal.SIGKILL)


def _in_memory(pid: int, patterns: dict[str, bytes]) -> set[str]:
    """Return which patterns are anywhere in the memory of a process."""
    found = set()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            start, end = (int(word, 16) for word in span.split("-"))
            if not rights.startswith("rw"):  # what is read from files and never written holds no data
                continue
            try:
                memory.seek(start)
                held = memory.read(end - start)
            except OSError:  # a mapping of a device's
                continue
            found |= {name for name, pattern in patterns.items() if pattern in held}
    return found


def test_neither_data_nor_keys_are_ever_in_a_node_and_a_killed_site_has_dropped_out(tmp_path: Path) -> None:
    """The whole memory of Ray's workers, of the sites and of the key holder is looked through for rows and for keys."""
    keys, place = tmp_path / "keys", tmp_path / "nodes"
    keys.mkdir()
    place.mkdir()
    private = write_keys(from_mapping({"paillier": SMALL}).paillier, keys)
    key = keyfile.load_private(private.secret[-1], insecure_key_size=True)
    assert isinstance(key, PrivateKey)
    config = digits(
        mode="paillier",
        engine="flower",
        federate={"clients": 3, "rounds": 2, "minimum_clients": 2},
        paillier=SMALL | {"key": str(private.secret[-1])},
    )
    rows = jobs.load(resolve(config))[0].train.features
    patterns = {"data": rows[7].tobytes(), "key": key.p.to_bytes(32, "little")}  # as gmpy2 has a number
    made: list[Spied] = []

    def connect(job: Job) -> Spied:
        made.append(Spied(job))
        made[0].app = Spy(str(place))
        reader._spied = made[0]
        return made[0]

    reader = Reader(cast(Any, None), patterns, place)
    randomness = Randomness.of(seed=config.seed)
    result = execute(
        lambda: jobs.build(resolve(config), randomness, Silent()), randomness, tmp_path / "run", reader, connect=connect
    )
    assert reader.found == {"node": set(), "site": {"data"}, "holder": {"key"}}
    assert [(record.clients_asked, record.clients_replied) for record in result.rounds] == [(3, 3), (3, 2)]
    assert any("Client 1" in note and "did not answer" in note for note in reader.notes)
    assert not marked(made[0]._parties.mark)
    assert not made[0]._parties.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_neither_processes_nor_files(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as place:  # short: Ray's sockets are below it
        _ended(number, Path(place))


def _ended(number: signal.Signals, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "TACIT_TRIED": str(tmp_path)}
    command = [sys.executable, "-m", "tacit", "run", "--engine", "flower", "--out", str(tmp_path / "run"), "--quiet"]
    settings = ["data.name=digits", "model.name=logistic", "federate.clients=2", "federate.rounds=100000"]
    process = subprocess.Popen(
        [*command, *settings], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    journal = tmp_path / "run" / "journal.jsonl"
    assert _until(lambda: (journal.exists() and '"round"' in journal.read_text()) or process.poll() is not None, 120)
    assert process.poll() is None, process.communicate()[1]
    assert len(list(tmp_path.glob("tacit-*"))) == 1
    process.send_signal(number)
    process.communicate()
    assert _until(lambda: not _tried(tmp_path)), [_words(pid) for pid in _tried(tmp_path)]
    assert _until(lambda: not list(tmp_path.glob("tacit-*")))


def _tried(folder: Path) -> set[int]:
    """Return the processes that a run of this test has started, whatever they are."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TACIT_TRIED={folder}".encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found
