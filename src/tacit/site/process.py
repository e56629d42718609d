"""What a site's own process does with a frame: it holds the data and the rules, and nobody else's word is one.

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

import functools
import hashlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import foreign, wire
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError, WireError
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
from tacit.service import Message
from tacit.site import rules
from tacit.site.contract import MEMORY, Contract
from tacit.site.costs import price_of
from tacit.site.data import Rows
from tacit.site.ledger import Ledger, Release

if TYPE_CHECKING:
    from tacit.federated.plan import Plan
    from tacit.runs.job import Job
    from tacit.tasks.data import DataSet
    from tacit.tasks.tables import Encoding

_LOG = logging.getLogger("tacit.site")
_LARGEST_RUN = 1 << 128
_MOST_RUNS = 10_000  # that are remembered: a relay can name as many as it likes


class Workshop:
    """The data, and what settings come to; sites of a trial that live in one process share one.

    Args:
        contract: where the data are, and which GPU trains.
        rows: the site's data; None where they are its part of a public data set.
        workers: how many cores train; None for all.
    """

    def __init__(self, contract: Contract, rows: Rows | None, *, workers: int | None = None) -> None:
        self.rows = rows
        self.one = threading.Lock()  # a site is one client: it does one thing at a time
        self.config = functools.lru_cache(maxsize=8)(self._config)
        self.plan = functools.lru_cache(maxsize=8)(self._plan)
        self.job = functools.lru_cache(maxsize=2)(self._job)
        self._own: dict[str, Any] = {"gpu": contract.gpu, "data.download": False, "data.folder": contract.data.folder}
        self._own |= {} if workers is None else {"train.workers": workers}
        self._loaded = functools.lru_cache(maxsize=1)(self._load)

    def prepare(self, settings: str) -> None:
        """Make ready for a run, so that processes that part from this one are."""
        import torch

        self.plan(settings)
        self._loaded(settings)
        if not torch.cuda.is_available():  # where it is, a step of training starts threads that no other process has
            self.job(settings)

    def _config(self, settings: str) -> Resolved:
        config = resolve(from_dotted({**foreign.json_object(settings), **self._own, "engine": "flower"}))
        Terms(settings=settings).agree(config)
        return config

    def _plan(self, settings: str) -> Plan:
        config = self.config(settings)
        clients = config.federate.clients
        if clients is None:
            raise ConfigError("federate.clients has to be set: how many clients the federation has")
        return plan_of(config, clients)

    def _load(self, settings: str) -> tuple[DataSet, Encoding | None]:
        from tacit.runs import job as jobs

        return jobs.load(self.config(settings))

    def _job(self, settings: str) -> tuple[Job, Randomness]:
        from tacit.runs import job as jobs
        from tacit.runs.remote_jobs import client_job
        from tacit.tasks import models

        config = self.config(settings)
        randomness = Randomness.of(seed=config.seed)
        rows = self.rows
        if rows is None:
            return jobs.build(config, randomness, Silent(), loaded=self._loaded(settings)), randomness

        def build() -> Any:
            shape = rows.features.shape[1:]
            return models.build(config.model.name, shape=shape, classes=rows.classes, seed=randomness.number("weights"))

        return client_job(config, randomness, build=build, data=(rows.features, rows.labels)), randomness


class Site(Party):
    """Answers for the one client that a site is.

    Args:
        folder: of the site.
        contract: in it.
        ledger: in it, open.
        workshop: with its data.
    """

    def __init__(self, *, folder: Path, contract: Contract, ledger: Ledger, workshop: Workshop) -> None:
        self._folder = folder
        self._contract = contract
        self._ledger = ledger
        self._workshop = workshop
        self._planned = functools.lru_cache(maxsize=8)(self._plan)

    def answer(self, message: Message) -> Message:
        """Answer a request of whoever carries frames."""
        try:
            call = self._call(message)
        except (WireError, ValueError, KeyError, TypeError) as error:
            return Message(body=failure(wire.Turn(round_number=0), WireError(f"Not a request to a site: {error}")))
        with self._workshop.one:
            answer = self(call)
        told = {**answer.seconds} if "seconds" in self._contract.rules.tell else {}
        return Message(head={"seconds": told}, body=answer.frame)

    def _call(self, message: Message) -> Call:
        head = message.head
        keys = self._contract.keys
        given = {"tacit-pin": keys.pin, "tacit-identity": keys.identity, "tacit-clients": keys.clients}
        given |= {"tacit-key": keys.shared}
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
        config = self._workshop.config(settings)
        rules.check_settings(config, self._contract)
        if not self._contract.simulation and config.seed is not None:
            raise RefusalError(wire.Failure.PREDICTABLE, f"The run has seed={config.seed}, and simulation is false")
        plan = self._workshop.plan(settings)
        rules.check_plan(plan, self._contract)
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
        always, rows = mode_of(request.config.mode).examples == "always", self._workshop.rows
        return len(rows.labels) if always and rows is not None else None

    def _hold_key(self, request: Request) -> Answer:
        if self._contract.keys.shared is None:
            raise RefusalError(wire.Failure.PARTY, f"A site holds no key, and was asked for {request.frame.kind.name}")
        return super()._hold_key(request)

    def _protocol(self, request: Request) -> SumProtocol:
        return self._planned(request.terms.settings)[1].protocol

    def _work(self, request: Request) -> Answer:
        party = request.call.party
        job, randomness = self._workshop.job(request.terms.settings)
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


def _whole(value: Any) -> int:
    if type(value) is not int or not -_LARGEST_RUN < value < _LARGEST_RUN:
        raise WireError(f"expected a whole number, got {value!r:.40}")
    return value
