"""Paillier side by side: Tacit on each backend, the peers' libraries and Python integers, interleaved in one run.

The unit is the update of a small CNN, 21,840 floats, under keys of 2048 bits. One-thread figures are the processor's
time, so that a busy machine changes them little; figures of two cores are by the clock. The best of several counts.
Tacit works on whole vectors. Peers that encrypt one float per ciphertext are timed on a sample and scaled.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tacit_labs.bench import machine
from tacit_labs.bench.crypto.measured import Labs, Memory, Own, Ratios, Results, Row, TwoCores
from tacit_labs.bench.worker import Worker, WorkerError

LENGTH = 21840
CLIENTS = 100
PEERS = ("phe", "lightphe", "pypaillier", "TenSEAL CKKS", "TenSEAL BFV")
PACKING_PEERS = ("TenSEAL CKKS", "TenSEAL BFV")
INTEGER_BITS = (10, 100, 1000)

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured."""

    repeats: int
    slow_sample: int  # floats of libraries that take a tenth of a second for one
    sample: int
    bulk: int  # floats for two cores against one
    bulk_repeats: int
    memory_kind: str
    labs: int


FULL = Scale(repeats=5, slow_sample=5, sample=100, bulk=1_000_000, bulk_repeats=2, memory_kind="standard", labs=1000)
QUICK = Scale(repeats=2, slow_sample=1, sample=10, bulk=200_000, bulk_repeats=1, memory_kind="subgroup", labs=50)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured thing: the best of its runs, scaled to the whole vector."""

    side: str
    what: str
    scale: float = 1.0
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The processor's time of the best run."""
        return self.scale * self.best("seconds")

    @property
    def wall(self) -> float:
        """The clock's time of the best run."""
        return self.scale * self.best("wall")

    def best(self, name: str) -> float:
        """Return the smallest of what the runs call ``name``."""
        return float(min(run[name] for run in self.runs))


def measure(
    *,
    quick: bool = False,
    peers_python: str | None = None,
    progress: Progress = lambda _: None,
) -> Results:
    """Return all figures.

    Args:
        quick: smaller samples and fewer repeats, in less than a minute.
        peers_python: the interpreter of an environment that has the peers; by default this one.
        progress: is told what is being measured.
    """
    scale = QUICK if quick else FULL
    absent: dict[str, str] = {}
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        backends = {}
        for name in ("gmpy2", "native"):
            worker = stack.enter_context(_own(name))
            try:
                worker.ask("which")
                backends[name] = worker
            except WorkerError as error:
                absent[f"Tacit ({name})"] = str(error)
        progress("keys of the peers")
        peers = stack.enter_context(Worker("tacit_labs.bench.crypto.peers", python=peers_python or sys.executable))
        present = []
        for peer in PEERS:
            try:
                made = peers.ask("prepare", peer=peer)
            except WorkerError as error:
                absent[peer] = str(error)
                continue
            present.append(peer)
            versions[made["package"]] = made["version"]
        figures = _interleaved(list(_jobs(backends, peers, present, scale)), scale.repeats, progress)
        figures |= _interleaved(list(_bulk_jobs(backends, scale)), scale.bulk_repeats, progress)
    memory = {}
    for name in backends:
        progress(f"memory ({name})")
        with _own(name) as worker:
            memory[name] = worker.ask("memory", kind=scale.memory_kind, length=1_000_000, workers=1)
    return Results(
        machine=machine.describe(["gmpy2", "numpy"]),
        peers=versions,
        two_processes_against_one=machine.second_core(1 if quick else 3),
        quick=quick,
        key_bits=2048,
        floats=LENGTH,
        repeats=scale.repeats,
        samples={"lightphe and Python integers": scale.slow_sample, "phe and pypaillier": scale.sample},
        absent=absent,
        rows=_rows(figures, list(backends), present),
        own={name: _own_figures(figures, name, memory[name], scale) for name in backends},
        labs=_labs(figures, list(backends), present, scale),
    )


def _own(name: str) -> Worker:
    return Worker("tacit_labs.bench.crypto.tacit_jobs", settings={"TACIT_CRYPTO_BACKEND": name})


Job = tuple[str, str, float, Callable[[], dict[str, Any]]]  # side, what, scale to the vector, the work


def _jobs(backends: dict[str, Worker], peers: Worker, present: Sequence[str], scale: Scale) -> Iterator[Job]:
    """Yield everything that is timed on one thread, in the order of one pass."""
    for what in ("encrypt", "decrypt", "add"):
        for peer in present:
            packs = peer in PACKING_PEERS
            sample = LENGTH if packs else scale.slow_sample if peer == "lightphe" else scale.sample
            times = LENGTH / sample * (CLIENTS - 1 if what == "add" else 1)
            yield peer, what, times, _ask(peers, "work", peer=peer, job=what, sample=sample)
        yield from _python_integers(next(iter(backends.values())), what, scale.slow_sample)
        for name, worker in backends.items():
            yield from _own_jobs(name, worker, what)
    for bits in INTEGER_BITS:
        if "phe" in present:
            yield "phe", f"labs {bits}", 1000 / scale.labs, _ask(peers, "labs", bits=bits, repeats=scale.labs)
        for name, worker in backends.items():
            yield name, f"labs {bits}", 1000 / scale.labs, _ask(worker, "labs", bits=bits, repeats=scale.labs)


def _python_integers(worker: Worker, what: str, sample: int) -> Iterator[Job]:
    counted = 100 * sample if what == "add" else sample
    times = LENGTH / counted * (CLIENTS - 1 if what == "add" else 1)
    yield "Python integers", what, times, _ask(worker, "python integers", job=what, sample=sample)


def _own_jobs(name: str, worker: Worker, what: str) -> Iterator[Job]:
    if what == "add":
        yield name, "add", 1, _ask(worker, "add", count=CLIENTS, length=LENGTH)
        yield name, "parse", 1, _ask(worker, "parse", count=CLIENTS, length=LENGTH)
        return
    for kind in ("standard", "subgroup"):
        if what == "decrypt":
            yield name, f"decrypt {kind}", 1, _ask(worker, "decrypt", kind=kind, length=LENGTH, workers=1)
            yield name, f"decrypt {kind} two", 1, _ask(worker, "decrypt", kind=kind, length=LENGTH, workers=2)
            yield name, f"powers {kind}", 1, _ask(worker, "powers", kind=kind, length=LENGTH)
        else:
            for by in ("public", "holder", "pool"):
                yield name, f"{by} {kind}", 1, _ask(worker, "encrypt", kind=kind, by=by, length=LENGTH, workers=1)


def _bulk_jobs(backends: dict[str, Worker], scale: Scale) -> Iterator[Job]:
    """Yield the large vector on one core and on two; the first run of two starts its helpers and is not the best."""
    for name, worker in backends.items():
        for workers in (2, 1, 2):
            arguments = {"kind": "standard", "by": "public", "length": scale.bulk, "workers": workers}
            yield name, f"bulk {workers}", 1, _ask(worker, "encrypt", **arguments)


def _ask(worker: Worker, job: str, /, **arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: worker.ask(job, **arguments)


def _interleaved(jobs: Sequence[Job], repeats: int, progress: Progress) -> dict[tuple[str, str], Figure]:
    figures: dict[tuple[str, str], Figure] = {}
    for repeat in range(repeats):
        for side, what, times, work in jobs:
            progress(f"{repeat + 1}/{repeats}  {side}: {what}")
            figure = figures.setdefault((side, what), Figure(side=side, what=what, scale=times))
            figure.runs.append(work())
    return figures


def _rows(figures: dict[tuple[str, str], Figure], backends: Sequence[str], present: Sequence[str]) -> list[Row]:
    """Return the comparison: a row for each way to encrypt."""
    rows = [
        Row(
            name=peer,
            scaled=peer not in PACKING_PEERS,
            encrypt=figures[peer, "encrypt"].seconds,
            decrypt=figures[peer, "decrypt"].seconds,
            sum=figures[peer, "add"].seconds,
            bytes=figures[peer, "encrypt"].best("bytes") / figures[peer, "encrypt"].best("floats"),
        )
        for peer in [*present, "Python integers"]
    ]
    titles = {"public": "public key", "holder": "key holder", "pool": "noise pool, online part"}
    for name in backends:
        for kind in ("standard", "subgroup"):
            for by, title in titles.items():
                encrypt = figures[name, f"{by} {kind}"]
                rows.append(
                    Row(
                        name=f"Tacit ({name}), {'subgroup key, ' if kind == 'subgroup' else ''}{title}",
                        scaled=False,
                        encrypt=encrypt.seconds,
                        decrypt=figures[name, f"decrypt {kind}"].seconds,
                        sum=figures[name, "add"].seconds,
                        bytes=encrypt.best("bytes") / LENGTH,
                    )
                )
    if "phe" not in present:
        return rows
    phe = rows[list(present).index("phe")]
    return [replace(row, times_phe=_against(phe, row)) for row in rows]


def _against(phe: Row, row: Row) -> Ratios:
    return Ratios(encrypt=phe.encrypt / row.encrypt, decrypt=phe.decrypt / row.decrypt, sum=phe.sum / row.sum)


def _own_figures(figures: dict[tuple[str, str], Figure], name: str, memory: dict[str, Any], scale: Scale) -> Own:
    """Return what is measured of Tacit alone."""
    pool, parse = figures[name, "pool standard"], figures[name, "parse"]
    add = figures[name, "add"].seconds

    def with_plain_powers(kind: str) -> float:
        powers = figures[name, f"powers {kind}"]
        return figures[name, f"decrypt {kind}"].seconds - powers.best("secret") + powers.best("plain")

    return Own(
        microseconds_a_ciphertext={
            by: figures[name, f"{by} standard"].seconds / pool.best("ciphertexts") * 1e6
            for by in ("public", "holder", "pool")
        },
        parse_and_validate=parse.seconds,
        parse_against_additions=parse.seconds / add,
        parse_each_validated_alone_against_additions=parse.best("each") / add,
        two_cores=TwoCores(
            decrypt=figures[name, "decrypt standard"].wall / figures[name, "decrypt standard two"].wall,
            bulk_encrypt=figures[name, "bulk 1"].wall / figures[name, "bulk 2"].wall,
            bulk_floats=scale.bulk,
        ),
        memory=Memory(
            floats=memory["floats"],
            key=scale.memory_kind,
            peak_megabytes=memory["peak"] / 1e6,
            before_megabytes=memory["before"] / 1e6,
        ),
        decrypt_standard_with_plain_powers=with_plain_powers("standard"),
        decrypt_subgroup_with_plain_powers=with_plain_powers("subgroup"),
    )


def _labs(
    figures: dict[tuple[str, str], Figure], backends: Sequence[str], present: Sequence[str], scale: Scale
) -> Labs:
    sides = [*(["phe"] if "phe" in present else []), *backends]
    seconds = {side: {str(bits): figures[side, f"labs {bits}"].seconds for bits in INTEGER_BITS} for side in sides}
    return Labs(repeats=1000, timed=scale.labs, key_bits=1024, seconds=seconds)
