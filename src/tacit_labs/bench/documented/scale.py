"""How the cost of a run in one process grows: with the population, the cohort, the parameters and the rounds; and Ray.

Every case is a run on synthetic clients (``--data synthetic:N``) in a process of its own, so that its peak memory is
its own. Seconds are by the clock; where rounds are compared with each other it is the processor's time as well, which
others on the machine do not change.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit.limits import cores
from tacit.runs.observer import Silent
from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.machine import describe

_MODULE = "tacit_labs.bench.documented.scale"
_QUIET = 0.8  # the share of all cores that has to be there for a figure
_SPIN = [sys.executable, "-I", "-c", "x = 0\nfor i in range(6_000_000): x += i"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that is measured.

    Attributes:
        clients: the population.
        per_round: how many of them take part in a round.
        rounds: how many.
        settings: of the run.
        width: of two hidden layers, where the run is a ``Federation`` in Python over arrays of all clients.
        kept: whether the run is kept in a folder.
        killed: after which round it is killed, to go on in another process.
    """

    clients: int
    per_round: int
    rounds: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)
    width: int | None = None
    kept: bool = False
    killed: int | None = None


_MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dp": {"mode": "dp", "dp": {"noise": 5.0}},
    "local-dp": {"mode": "local-dp", "dp": {"noise": 50.0}},
    "dp-sgd": {"mode": "dp-sgd", "dp": {"noise": 5.0}},
    "masks": {"mode": "masks"},
}
_MILLION = 1_000_000
CASES: dict[str, dict[str, Case]] = {
    "population": {
        **{f"plain {n}": Case(clients=n, per_round=100) for n in (1_000, 10_000, 100_000)},
        **{f"{mode} {_MILLION}": Case(clients=_MILLION, per_round=100, settings=_MODES[mode]) for mode in _MODES},
        f"Federation {_MILLION}": Case(clients=_MILLION, per_round=100, width=0),
    },
    "cohort": {
        **{f"plain {n}": Case(clients=10_000, per_round=n, rounds=4) for n in (100, 1_000, 10_000)},
        "dp 10000": Case(clients=_MILLION, per_round=10_000, rounds=4, settings=_MODES["dp"]),
        "mlp 10000": Case(clients=10_000, per_round=10_000, rounds=4, settings={"model": {"name": "mlp"}}),
    },
    "parameters": {
        f"width {width}": Case(clients=1_000, per_round=100, rounds=4, width=width) for width in (0, 90, 310, 1_000)
    },
    "rounds": {
        "plain": Case(clients=1_000, per_round=10, rounds=5_000, kept=True, killed=4_000),
        "dp": Case(clients=1_000, per_round=10, rounds=5_000, settings=_MODES["dp"]),
        "local-dp": Case(clients=1_000, per_round=10, rounds=5_000, settings=_MODES["local-dp"]),
        "dp-sgd": Case(clients=1_000, per_round=10, rounds=1_000, settings=_MODES["dp-sgd"]),
    },
    "ray": {f"flower {n}": Case(clients=n, per_round=n, rounds=3, settings={"engine": "flower"}) for n in (100, 1_000)},
}


class Clock(Silent):
    """An observer that notes when rounds end, by the clock and by the processor's time of this process."""

    def __init__(self, *, dies_at: int | None = None) -> None:
        self.walls: list[float] = []
        self.processor: list[float] = []
        self.ready = 0.0
        self._dies_at = dies_at

    def started(self, *, title: str, rounds: int, done: Any) -> None:
        """Note the processor's time before the first round."""
        self.ready = time.process_time()

    def round_done(self, record: Any) -> None:
        """Note the time; the end of the round after which the process is killed."""
        self.walls.append(time.perf_counter())
        self.processor.append(time.process_time())
        if record.round == self._dies_at:
            print(json.dumps(self.told()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def told(self) -> dict[str, float]:
        """Return milliseconds per round: the median, and of the first and the last tenth."""
        walls = [1e3 * (after - before) for before, after in zip(self.walls, self.walls[1:], strict=False)]
        cpu = [1e3 * (after - before) for before, after in zip(self.processor, self.processor[1:], strict=False)]
        few = max(1, len(walls) // 10)
        return {
            "setup_cpu_seconds": self.ready,
            "ms_per_round": statistics.median(walls),
            "first_ms": statistics.median(walls[:few]),
            "last_ms": statistics.median(walls[-few:]),
            "first_cpu_ms": statistics.median(cpu[:few]),
            "last_cpu_ms": statistics.median(cpu[-few:]),
        }


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Run a case in this process, and return what it took."""
    clock = Clock(dies_at=case.killed)
    start = time.perf_counter()
    with _whole_memory(wanted="engine" in case.settings) as seen:
        result = _federation(case, clock) if case.width is not None else _named(case, folder, clock)
    examples = 4 * case.clients
    found = {
        "clients": result.clients,
        "per_round": case.per_round,
        "rounds": len(result.rounds),
        "parameters": result.parameters,
        "form": result.form,
        "setup_seconds": result.setup_seconds,
        "end_seconds": time.perf_counter() - clock.walls[-1],
        "run_seconds": time.perf_counter() - start,
        "bytes_up_per_client": result.bytes_up / sum(one.senders for one in result.rounds),
        "peak_mb": _peak(),
        "data_mb": examples * (8 * 4 + 8 + 8) / 1e6,  # features, labels, holders
        **({"with_children_mb": max(seen)} if seen else {}),
        **clock.told(),
    }
    return found | ({"files": _files(folder)} if case.kept else {})


def go_on(folder: Path) -> dict[str, Any]:
    """Go on with a run that was killed, and return how soon it did, and what its pages take."""
    from tacit.report.run.page import run_page
    from tacit.runs import history
    from tacit.runs.run import resume

    clock = Clock()
    start = time.perf_counter()
    resume(folder, observer=clock)
    found = {"resume_seconds": clock.walls[0] - start, "peak_mb": _peak(), **clock.told(), "files": _files(folder)}
    start = time.perf_counter()
    page = run_page(history.read(folder), full=False).html()
    return found | {"report_seconds": time.perf_counter() - start, "report_bytes": len(page.encode())}


def _named(case: Case, folder: Path, clock: Clock) -> Any:
    import tacit

    values: dict[str, Any] = {
        "seed": 1,
        "data": {"name": f"synthetic:{case.clients}"},
        "federate": {"per_round": case.per_round, "rounds": case.rounds},
        "evaluate": {"train": False},
        **({"out": folder} if case.kept else {}),
    }
    return tacit.run(tacit.RunConfig(**values | dict(case.settings)), observer=clock, force=True)


def _federation(case: Case, clock: Clock) -> Any:
    from torch import nn

    import tacit
    from tacit.tasks.synthetic import CLASSES, FEATURES, load_synthetic

    data, width = load_synthetic(case.clients), case.width or 0
    hidden = [nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()] if width else []
    model = nn.Sequential(*hidden, nn.Linear(width or FEATURES, CLASSES))
    start = time.perf_counter()
    federation = tacit.Federation(
        model=model,
        clients=(data.train.features, data.train.labels),
        client=data.groups,
        test=(data.test.features, data.test.labels),
        seed=1,
        federate={"per_round": case.per_round},
        evaluate={"train": False},
        **case.settings,
    )
    made = time.perf_counter() - start
    result = federation.fit(rounds=case.rounds, observer=clock)
    return _replaced(result, setup_seconds=result.setup_seconds + made)


def _replaced(result: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(result, **changes)


def _files(folder: Path) -> dict[str, int]:
    from tacit.runs.folder import CHECKPOINT, JOURNAL, RESULT

    return {name: (folder / name).stat().st_size for name in (JOURNAL, CHECKPOINT, RESULT) if (folder / name).exists()}


def _peak() -> float:
    """Return the most memory that this process had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


@contextmanager
def _whole_memory(*, wanted: bool) -> Iterator[list[float]]:
    """Yield a list to which the memory of this process and all below it is added every two seconds, in megabytes."""
    seen: list[float] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(2.0):
            seen.append(sum(map(_proportional, _below(os.getpid()))))

    if not wanted:
        yield seen
        return
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _below(root: int) -> set[int]:
    """Return a process and all that it started, directly or not."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it has ended
            continue
    found = {root}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _proportional(process: int) -> float:
    """Return the memory of a process, pages that are shared counted in proportion."""
    try:
        told = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(re.search(r"^Pss:\s+(\d+) kB", told, re.MULTILINE)[1]) * 1024 / 1e6 if "Pss:" in told else 0.0  # type: ignore[index]  # it is there


def measure(kind: str, name: str) -> dict[str, Any]:
    """Return what a case took, measured in a process of its own."""
    case, free = CASES[kind][name], round(_free(), 2)
    with tempfile.TemporaryDirectory(prefix="tacit-scale-") as place:
        folder = Path(place) / "run"
        found = _child("run", folder, case)
        if case.killed is not None:
            found = {"first": found, **_child("go on", folder, case), "rounds": case.rounds, "killed": case.killed}
    return {**found, "cores_free": free}


def _free() -> float:
    """Return the share of all cores that is there to be used just now: 1 on a machine that does nothing else."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = [subprocess.Popen(_SPIN) for _ in range(cores())]
    for one in running:
        one.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / (time.perf_counter() - start) / len(running)


def _child(what: str, folder: Path, case: Case) -> dict[str, Any]:
    told = json.dumps({"what": what, "folder": str(folder), "case": asdict(case)})
    done = subprocess.run([sys.executable, "-P", "-m", _MODULE, told], stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, -signal.SIGKILL if case.killed and what == "run" else 0):
        raise RuntimeError(f"{what} of {case} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def all_of(kinds: Mapping[str, Any] | list[str], *, results: Path, page: Path) -> None:
    """Measure kinds of cases, keep each as it comes, and fill in the tables of a page."""
    known: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    for kind in kinds:
        known.setdefault(kind, {})
        for name in CASES[kind]:
            known[kind][name] = measure(kind, name)
            known["machine"] = asdict(describe(("torch", "numpy", "flwr", "ray")))
            keep(known, results)
            print(kind, name, json.dumps(known[kind][name]), flush=True)
    text = page.read_text()
    for kind, told in tables(known).items():
        marks = re.compile(rf"(<!-- scale {kind}:begin -->\n).*?(<!-- scale {kind}:end -->)", re.DOTALL)
        assert marks.search(text), f"no place for {kind} in {page}"
        text = marks.sub(rf"\g<1>\n{told}\n\n\g<2>", text)
    page.write_text(text)


def tables(known: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of the page, by what grows in them; what was not measured is left out."""
    made = {"population": _population, "cohort": _cohort, "parameters": _parameters, "rounds": _rounds, "ray": _ray}
    told = {kind: table(known[kind]) + _when(known, kind) for kind, table in made.items() if known.get(kind)}
    needed = known.get("cohort", {}).get("mlp 10000"), known.get("ray", {}).get("flower 1000")
    return told if None in needed else told | {"cluster": _cluster(known["machine"]["cores"], *needed)}


def _when(known: Mapping[str, Any], kind: str) -> str:
    machine, free = known["machine"], min(row["cores_free"] for row in known[kind].values())
    busy = "" if free >= _QUIET else f" Others took up to {1 - free:.0%} of the cores: to be measured again."
    return f"\n\n{machine['processor']}, {machine['cores']} cores.{busy}"


def _table(head: str, rows: list[str]) -> str:
    count = head.count("|") - 1
    return "\n".join([head, "|" + "---|" * count, *rows])


def _population(rows: Mapping[str, Any]) -> str:
    return _table(
        "| clients | run | set-up (processor) | round of 100 (processor) | memory beside the data | data |",
        [
            f"| {row['clients']:,} | {name.split()[0]} | {row['setup_seconds']:.1f} s "
            f"({row['setup_cpu_seconds']:.1f} s) | {row['ms_per_round']:.0f} ms ({row['last_cpu_ms']:.0f} ms) | "
            f"{row['peak_mb'] - row['data_mb']:,.0f} MB | {row['data_mb']:,.0f} MB |"
            for name, row in rows.items()
        ],
    )


def _cohort(rows: Mapping[str, Any]) -> str:
    return _table(
        "| clients per round | run | parameters | round (processor) | per client (processor) | memory |",
        [
            f"| {row['per_round']:,} | {name.split()[0]} of {row['clients']:,} | {row['parameters']:,} | "
            f"{row['ms_per_round'] / 1e3:.2f} s ({row['last_cpu_ms'] / 1e3:.2f} s) | "
            f"{1e3 * row['ms_per_round'] / row['per_round']:.0f} µs "
            f"({1e3 * row['last_cpu_ms'] / row['per_round']:.0f} µs) | "
            f"{row['peak_mb']:,.0f} MB |"
            for name, row in rows.items()
        ],
    )


def _parameters(rows: Mapping[str, Any]) -> str:
    return _table(
        "| parameters | form | round of 100 (processor) | sent per client | memory |",
        [
            f"| {row['parameters']:,} | {row['form']} | {row['ms_per_round'] / 1e3:.2f} s "
            f"({row['last_cpu_ms'] / 1e3:.2f} s) | "
            f"{row['bytes_up_per_client'] / 1e3:,.1f} kB | {row['peak_mb']:,.0f} MB |"
            for row in rows.values()
        ],
    )


def _rounds(rows: Mapping[str, Any]) -> str:
    lines = []
    for name, row in rows.items():
        begun = row.get("first", row)
        growth = row["last_cpu_ms"] / begun["first_cpu_ms"]
        lines.append(
            f"| {name} | {row['rounds']:,} | {begun['first_ms']:.1f} ms | {row['last_ms']:.1f} ms | "
            f"{begun['first_cpu_ms']:.1f} ms, {row['last_cpu_ms']:.1f} ms ({growth:.2f}x) | {row['peak_mb']:,.0f} MB |"
        )
    table = _table("| mode | rounds | round, first tenth | last tenth | processor's time of both | memory |", lines)
    kept = next((row for row in rows.values() if "resume_seconds" in row), None)
    if kept is None:
        return table
    files = kept["files"]
    return (
        f"{table}\n\nThe first is kept in a folder, and waits for the disk four times per round. Killed after round "
        f"{kept['killed']:,}, it went on {kept['resume_seconds']:.1f} s after `tacit resume` "
        f"({kept['setup_cpu_seconds']:.1f} s of the processor; a new run takes "
        f"{kept['first']['setup_cpu_seconds']:.1f} s). Its journal has "
        f"{files['journal.jsonl'] / kept['rounds']:,.0f} bytes per round ({files['journal.jsonl'] / 1e6:.1f} MB), "
        f"`result.json` {files['result.json'] / 1e6:.1f} MB; its page takes {kept['report_seconds']:.1f} s and "
        f"{kept['report_bytes'] / 1e6:.1f} MB, most of it the charting library."
    )


def _ray(rows: Mapping[str, Any]) -> str:
    return _table(
        "| clients | round | per client | the whole run of 3 rounds | memory, all processes |",
        [
            f"| {row['clients']:,} | {row['ms_per_round'] / 1e3:.1f} s | "
            f"{row['ms_per_round'] / row['clients']:.1f} ms | {row['run_seconds']:.0f} s | "
            f"{row['with_children_mb']:,.0f} MB |"
            for row in rows.values()
        ],
    )


def _cluster(count: int, alone: Mapping[str, Any], ray: Mapping[str, Any]) -> str:
    """Return what a cluster is estimated to take, by the formula of the page."""
    clients, rounds, node, network = 10_000, 1_000, 16, 1.25e8
    training = alone["last_cpu_ms"] / 1e3 / alone["per_round"]  # seconds of a core, with all that is around training
    way = count * ray["ms_per_round"] / 1e3 / ray["clients"]
    sent = 2 * alone["bytes_up_per_client"]
    rows = [f"| this machine, one process | {alone['ms_per_round'] / 1e3:.1f} s (measured) | |"]
    for seconds, what in ((training, "these clients"), (1.0, "clients that train for a second")):
        for nodes in (1, 10):
            lasts = clients * (seconds + way) / (nodes * node) + clients * sent / network
            rows.append(
                f"| {what}, {nodes} node{'s' * (nodes > 1)} of {node} cores | {lasts:,.1f} s | "
                f"{nodes * rounds * lasts / 3600:,.1f} node-hours |"
            )
    quiet = min(alone["cores_free"], ray["cores_free"]) >= _QUIET
    busy = "" if quiet else " From figures of a busy machine: to be made anew with them."
    head = f"| {clients:,} clients per round, {alone['parameters']:,} parameters | a round | {rounds:,} rounds |"
    return (
        f"{_table(head, rows)}\n\nWith o = {1e3 * way:.1f} ms, t = {1e3 * training:.2f} ms for these clients, "
        f"b = {sent / 1e3:,.0f} kB, w = 1 Gbit/s and s left out.{busy}"
    )


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    place = Path(asked["folder"])
    print(json.dumps(run(Case(**asked["case"]), place) if asked["what"] == "run" else go_on(place)))
