"""The site's own process: it holds the data and the rules, and answers frames over a socket.

::

    serve(Path("site/"))        # what `tacit site serve` does; until SIGTERM

Whoever carries the frames (a Flower app, an NVFlare executor, a test) says which run they belong to and hands over the
server's terms and the frame. All of that is a stranger's word: it is read, compared with the contract, and held to what
was said first. Whatever is asked, the same happens in the same order:

1. The terms become settings, which have to be complete and known; the contract's rules are held against them.
2. What was said first of the run is on disk, and anything else is refused (:mod:`tacit.parties.memory`).
3. A task's turn is on disk; a turn is answered once, and turns only rise.
4. The reply's price is charged to the ledger for life, on disk, or refused.
5. The model trains on the site's rows; clip, noise, masks or encryption; the reply leaves.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import foreign, wire
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError, RunError, TacitError, WireError
from tacit.flow import ClientId
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.parties.calls import Answer, Call, Value
from tacit.parties.hello import Terms
from tacit.parties.memory import InFile
from tacit.parties.party import Party, Request
from tacit.parties.refusals import RefusalError, failure
from tacit.parties.settings import from_dotted
from tacit.parties.work import worked
from tacit.protocols.protocol import SumProtocol
from tacit.randomness import Randomness
from tacit.runs.observer import Silent
from tacit.service import Message, Service, stopped_by_signals
from tacit.site import data as datas
from tacit.site import rules
from tacit.site.contract import LEDGER, MEMORY, Contract, check_private, read
from tacit.site.costs import price_of
from tacit.site.ledger import Ledger, Release

if TYPE_CHECKING:
    from tacit.federated.plan import Plan
    from tacit.runs.job import Job

_LOG = logging.getLogger("tacit.site")
_LARGEST_RUN = 1 << 128
_MOST_RUNS = 10_000  # that are remembered: a relay can name as many as it likes
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Site(Party):
    """Answers for the one client that a site is.

    Args:
        folder: of the site.
        contract: in it.
        ledger: in it, open.
        rows: the site's data; None where they are its part of a public data set.
    """

    def __init__(self, *, folder: Path, contract: Contract, ledger: Ledger, rows: datas.Rows | None) -> None:
        self._folder = folder
        self._contract = contract
        self._ledger = ledger
        self._rows = rows
        self._one = threading.Lock()  # a site is one client: it does one thing at a time
        self._planned = functools.lru_cache(maxsize=8)(self._plan)
        self._jobs = functools.lru_cache(maxsize=2)(self._job)

    def answer(self, message: Message) -> Message:
        """Answer a request of whoever carries frames."""
        try:
            call = self._call(message)
        except (WireError, ValueError, KeyError, TypeError) as error:
            return Message(body=failure(wire.Turn(round_number=0), WireError(f"Not a request to a site: {error}")))
        with self._one:
            answer = self(call)
        told = {**answer.seconds} if "seconds" in self._contract.rules.tell else {}
        return Message(head={"seconds": told}, body=answer.frame)

    def _call(self, message: Message) -> Call:
        head = message.head
        keys = self._contract.keys
        given = {"tacit-pin": keys.pin, "tacit-identity": keys.identity, "tacit-clients": keys.clients}
        node: dict[str, Value] = {name: str(path) for name, path in given.items() if path is not None}
        number = head.get("partition") if self._contract.number is None else self._contract.number
        if number is not None:
            node["partition-id"] = _whole(number)
        said = head["said"]
        if not isinstance(said, dict):
            raise WireError("expected the server's terms")
        return Call(
            party=_whole(head["party"]), frame=message.body, said=said, node=node, run={}, run_id=_whole(head["run"])
        )

    def _memory(self, call: Call) -> InFile:
        name = hashlib.sha256(str(call.run_id).encode()).hexdigest()[:32]
        return InFile(path=self._folder / MEMORY / f"run-{name}.json", most=_MOST_RUNS)

    def _plays(self, call: Call) -> bool:
        return self._contract.simulation

    def _who(self, call: Call) -> str:
        return self._contract.name

    def _config(self, call: Call, terms: Terms) -> Resolved:
        if terms.numbers is not None or terms.weighted_by:
            raise WireError("Expected the terms of a run that Tacit trains, got those of a wrapped strategy")
        config, _ = self._planned(terms.settings)
        return config

    def _plan(self, settings: str) -> tuple[Resolved, Plan]:
        """Return settings that the contract allows, and what they come to."""
        contract = self._contract
        own: dict[str, Any] = {"gpu": contract.gpu, "data.download": False, "data.folder": contract.data.folder}
        config = resolve(from_dotted({**foreign.json_object(settings), **own, "engine": "flower"}))
        Terms(settings=settings).agree(config)
        rules.check_settings(config, contract)
        if not contract.simulation and config.seed is not None:
            raise RefusalError(wire.Failure.PREDICTABLE, f"The run has seed={config.seed}, and simulation is false")
        clients = config.federate.clients
        if clients is None:
            raise ConfigError("federate.clients has to be set: how many clients the federation has")
        plan = plan_of(config, clients)
        rules.check_plan(plan, contract)
        return config, plan

    def _parties(self, request: Request) -> tuple[ClientId, ...]:
        number = request.call.node.get("partition-id")
        clients = request.config.federate.clients or 0
        if not isinstance(number, int) or not 0 <= number < clients:
            raise RefusalError(
                wire.Failure.PARTY,
                f"This site is client {number!r} (number in site.yaml, or partition-id at the SuperNode), and the run "
                f"has clients 0 to {clients - 1}",
            )
        request.memory.change(lambda kept: kept.held_to({"this client's number is": str(number)}))
        return (number,)

    def _examples(self, request: Request) -> int | None:
        always = mode_of(request.config.mode).examples == "always"
        return len(self._rows.labels) if always and self._rows is not None else None

    def _hold_key(self, request: Request) -> Answer:
        raise RefusalError(wire.Failure.PARTY, f"A site holds no key, and was asked for {request.frame.kind.name}")

    def _protocol(self, request: Request) -> SumProtocol:
        return self._planned(request.terms.settings)[1].protocol

    def _work(self, request: Request) -> Answer:
        party = request.call.party
        job, randomness = self._jobs(request.terms.settings)
        task = wire.unpack_task(request.frame)
        if len(task.model) != job.trainer.layout.size or not np.isfinite(task.model).all():
            raise WireError(
                f"Expected a model of {job.trainer.layout.size} finite numbers, got {len(task.model)} or others"
            )
        mechanism = job.plan.mechanism.with_state(task.extras)
        rules.check_clip(job.plan.mechanism, mechanism, self._contract)
        rules.check_passes(job.examples, party, self._contract)
        price = price_of(job.plan, mechanism, examples=job.examples, party=party)
        rules.check_price(price, self._contract)
        release = Release(
            run=str(request.call.run_id),
            turn=task.turn,
            mode=request.config.mode,
            settings=hashlib.sha256(request.terms.settings.encode()).hexdigest()[:16],
            price=price,
        )
        spent = self._ledger.charge(release, self._contract)
        _LOG.info("round %d of run %s: epsilon is %.4g now", task.turn.round_number, release.run, spent)
        return worked(
            request,
            plan=job.plan,
            protocol=self._as_client(request, job.plan.protocol),
            trainer=job.trainer,
            examples=len(job.holdings.rows[party]),
            randomness=randomness,
        )

    def _job(self, settings: str) -> tuple[Job, Randomness]:
        from tacit.runs import job as jobs
        from tacit.runs.remote_jobs import client_job
        from tacit.tasks import models

        config, _ = self._planned(settings)
        randomness = Randomness.of(seed=config.seed)
        rows = self._rows
        if rows is None:
            if config.seed is None and config.data.split_seed is None:
                raise ConfigError("data.split_seed has to be set: without it every site would split the data otherwise")
            return jobs.build(config, randomness, Silent()), randomness

        def build() -> Any:
            shape = rows.features.shape[1:]
            return models.build(config.model.name, shape=shape, classes=rows.classes, seed=randomness.number("weights"))

        return client_job(config, randomness, build=build, data=(rows.features, rows.labels)), randomness


def serve(*folders: Path, ready: Callable[[Path], None] = lambda _: None) -> None:
    """Answer at the sockets of sites, in a process for each, until SIGTERM.

    Several sites are for trials on one machine: what takes long to import is imported once, and then each gets a
    process of its own (fork), which reads its own contract, data and ledger.

    Args:
        *folders: of the sites.
        ready: is called in a site's process once it answers.
    """
    if len(folders) == 1:
        _serve(folders[0].absolute(), ready)
        return
    import tacit.runs.job  # noqa: F401 - and torch with it, before the processes part

    children: dict[int, Path] = {}

    def pass_on(number: int, _: FrameType | None) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    for one in _SIGNALS:
        signal.signal(one, pass_on)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until all are there whom it is passed on to
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: libraries' own, which idle
        for folder in folders:
            child = os.fork()
            if child == 0:
                os._exit(_served(folder.absolute(), ready))
            children[child] = folder
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    ended = []
    while children:
        child, status = os.wait()
        folder = children.pop(child)
        ended += [str(folder)] if status else []
    if ended:
        raise RunError(f"The process of {', '.join(ended)} ended with an error; its words are above.")


def _served(folder: Path, ready: Callable[[Path], None]) -> int:
    """Answer for one of several sites, and return the exit status of its process."""
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        _serve(folder, ready)
    except TacitError as error:
        sys.stderr.write(f"{folder}: {error}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _serve(folder: Path, ready: Callable[[Path], None]) -> None:
    check_private(folder)
    contract = read(folder)
    datas.check_same(contract.data)
    with Ledger.open(folder / LEDGER, contract) as ledger:
        rows = datas.load(contract.data)
        site = Site(folder=folder, contract=contract, ledger=ledger, rows=rows)
        service = Service(path=contract.socket, answer=site.answer, group=contract.group)
        with service, stopped_by_signals(service):
            import tacit.runs.job  # noqa: F401 - it takes seconds, and nobody waits for an answer yet

            ready(folder)
            service.run()


def _whole(value: Any) -> int:
    if type(value) is not int or not -_LARGEST_RUN < value < _LARGEST_RUN:
        raise WireError(f"expected a whole number, got {value!r:.40}")
    return value
