"""The loop over rounds: charge, exchange, check, journal.

Order on disk, so that a crash at any point loses at most the round in flight:

1. ``attempt`` in the journal, before anything is sent (what a release costs is charged here);
2. the round itself;
3. the checkpoint, replaced atomically, with the round's record inside;
4. ``round`` in the journal. A crash between 3 and 4 is mended from the checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

import tacit
from tacit.errors import BudgetError, ClientError, DropoutError, RunError, SpoiledError
from tacit.federated.plan import Privacy, State
from tacit.federated.round import Outcome, broadcast, recalled, release, sum_flow
from tacit.flow import Engine, Flow, Stopwatch, Traffic, drive
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.mechanism import Mechanism
from tacit.modes.catalogue import mode_of
from tacit.modes.dp_sgd import methods
from tacit.progress import telling
from tacit.protocols.protocol import Total
from tacit.randomness import Randomness
from tacit.runs.account import Account, ExampleAccount
from tacit.runs.book import Book
from tacit.runs.canaries import Canaries, ClientCanaries, of_job
from tacit.runs.connection import Connection, Watch
from tacit.runs.folder import MODEL, RESULT, WALL, Checkpoint, RunFolder
from tacit.runs.job import Job
from tacit.runs.journal import Attempt, Audit, Disclosure, End, Failed, Note, Record, Secret
from tacit.runs.ledger import replay
from tacit.runs.observer import Computing, Observer
from tacit.runs.result import Result, RoundRecord
from tacit.storage import write_atomically
from tacit.vectors import Vector, first_not_finite
from tacit.wire import Turn

_AT_FIRST = 1_000  # so many clients take part in a protocol's set-up, asked or not
_SCORES = ("test_loss", "test_accuracy", "train_data_loss", "train_accuracy")  # of a round's record


class Runner:
    """Runs a job to its last round, in a folder or in memory."""

    def __init__(
        self,
        *,
        job: Job,
        connection: Connection,
        randomness: Randomness,
        folder: RunFolder | None,
        observer: Observer,
        earlier: Iterable[Record] = (),
        book: Book | None = None,
    ) -> None:
        self._job = job
        self._connection = connection
        self._randomness = randomness
        self._folder = folder
        self._observer = observer
        self._stopwatch = Stopwatch()
        self._book = book
        self._account = None if job.plan.claim is None else Account(job.plan.claim)
        self._examples = None
        if job.examples is not None:
            assert job.plan.example_claim is not None
            notes = (*job.plan.example_claim.notes, *methods(job.examples))
            claim = replace(job.plan.example_claim, notes=notes)
            self._examples = ExampleAccount(job.examples, claim)
        replay(earlier, self._account, self._examples)
        self._replied = self._asked = 0
        self._in_flight: int | None = None  # the round whose clients are asked just now
        self._plan = job.plan
        self._mechanism = job.plan.mechanism  # of the next round, with what it remembers of the last ones
        self._tells = Disclosure(plan=job.plan)
        self._computing = Computing(observer)
        self._remarks = job.remarks + (() if book is None else book.notes())
        self._canaries: Canaries | None = None
        self._unmoved = False  # whether it was told that a round moved nothing

    def run(self, start: Checkpoint | None, done: tuple[RoundRecord, ...], *, setup_seconds: float) -> Result:
        """Run the rounds after ``start``, or all of them, and return the result of the whole run."""
        watch = Watch(stopwatch=self._stopwatch, on_reply=self._count_reply, note=self._note)
        self._release_canaries(start)
        with self._connection.open(self._job, self._randomness, watch) as engine:
            return self._run(engine, start, done, setup_seconds)

    def _run(
        self, engine: Engine, start: Checkpoint | None, done: tuple[RoundRecord, ...], setup_seconds: float
    ) -> Result:
        job = self._job
        layout = job.trainer.layout
        checkpoint = start or Checkpoint(
            round_number=0,
            model=layout.read(job.module).cpu().numpy(),
            state=self._first_state(layout.size),
            mechanism=job.plan.mechanism.public_state(),
            seconds={},
            record=None,
        )
        if len(checkpoint.model) != layout.size:
            raise RunError(
                f"The checkpoint holds {len(checkpoint.model)} parameters, the model has {layout.size}. "
                "Was the model's code changed since the run began?"
            )
        if checkpoint.state.keys() != self._first_state(0).keys():
            raise RunError(
                f"The checkpoint's server optimiser kept {sorted(checkpoint.state) or 'nothing'}; "
                f"server.name={job.plan.optimizer.name} keeps something else. Was config.yaml changed?"
            )
        if self._folder is not None and start is None:
            self._folder.save(checkpoint)
        records = list(done)
        tries = [record.attempts - 1 for record in records]
        self._mechanism = recalled(
            job.plan.mechanism.with_state(checkpoint.mechanism), tries, layout.size, self._randomness
        )
        rounds = job.config.federate.rounds
        self._observer.doing("preparing the parties")
        self._plan = replace(job.plan, protocol=drive(job.plan.protocol.setup(self._first_comers()), engine))
        for note in self._remarks:
            self._observer.note(note)
        self._observer.started(title=job.title, rounds=rounds, done=done)
        stopped: tuple[str, ...] = ()
        try:
            for number in range(checkpoint.round_number + 1, rounds + 1):
                checkpoint, record = self._round(engine, number, checkpoint, last=number == rounds)
                records.append(record)
                self._observer.round_done(record)
                reasons = [reason for stop in job.stops if (reason := stop(records)) is not None]
                if reasons and number < rounds:
                    if record.test_loss is None:
                        records[-1] = replace(record, **self._evaluate(checkpoint.model, number, last=True))
                    stopped = (f"Stopped after round {number} of {rounds}: {reasons[0]}.",)
                    self._observer.note(stopped[0])
                    break
        except BudgetError as error:
            if not records:
                raise BudgetError(f"{error} Not one round fits: {self._advice()}.") from error
            records[-1] = replace(records[-1], **self._evaluate(checkpoint.model, len(records), last=True))
            stopped = (f"Stopped after round {len(records)} of {rounds}: {error}",)
            self._observer.note(stopped[0])
        finally:
            self._keep(checkpoint.model)
        result = self._audited(self._result(checkpoint, tuple(records), setup_seconds, stopped), checkpoint.model)
        if self._folder is not None:
            write_atomically(self._folder.path / RESULT, result.to_json().encode(), mode=0o600)  # it may name the seed
            self._folder.journal.append(End(rounds=len(records)))
        self._observer.finished(result)
        return result

    def _release_canaries(self, start: Checkpoint | None) -> None:
        """Let the canaries in, where the settings ask for some, with the scores they had."""
        self._canaries = of_job(self._job, self._randomness)
        if self._canaries is None:
            return
        if start is not None and start.canaries is not None:
            if start.canaries.shape != self._canaries.scores.shape:
                raise RunError(
                    f"The checkpoint has scores of {start.canaries.size} canaries, config.yaml asks for "
                    f"{self._canaries.scores.size}. Restore it."
                )
            self._canaries.scores = start.canaries
        self._remarks += (self._canaries.remark,)

    def _audited(self, result: Result, model: Vector) -> Result:
        """Return the result with what the canaries found, where there are any."""
        account = self._account or self._examples
        if self._canaries is None or account is None:
            return result
        self._observer.doing("looking for the canaries")
        found = self._canaries.found(account.ledger, model)
        self._write(Audit(**asdict(found)))
        return replace(result, audit=found)

    def _advice(self) -> str:
        """Return what to do about a budget that leaves nothing."""
        if self._book is None or not self._book.fits:
            return "raise the budget, the noise or the cohort"
        return (
            f"the {self._book.fits} fits before released {self._book.releases} times, and all count together. Set "
            "dp.noise, and dp.max_epsilon as the budget of all fits, instead of dp.epsilon, which is all of it for one"
        )

    def _first_comers(self) -> range:
        """Return whom the protocol sets up before the first round: everyone, or of a large population hardly anyone.

        A round sets up those of its cohort who are new.
        """
        clients = range(len(self._job.holdings.sizes))
        return clients if len(clients) <= max(_AT_FIRST, self._job.plan.sampler.expected) else clients[:1]

    def _first_state(self, parameters: int) -> State:
        """Return what the optimiser remembers before the first round."""
        return self._job.plan.optimizer.start(parameters)

    def _round(self, engine: Engine, number: int, before: Checkpoint, *, last: bool) -> tuple[Checkpoint, RoundRecord]:
        start = time.perf_counter()
        self._stopwatch.restart()
        traffic = Traffic()
        mechanism = self._mechanism
        outcome, cohort, attempts = self._attempts(engine, number, before, mechanism, traffic)
        scores = self._evaluate(outcome.model, number, last=last)
        example_epsilon = None if self._examples is None else self._examples.epsilon
        wall = time.perf_counter() - start
        record = RoundRecord(
            round=number,
            attempts=attempts,
            train_loss=outcome.train_loss,
            **scores,
            clipped=outcome.clipped,
            epsilon=example_epsilon if self._account is None else self._account.epsilon,
            example_epsilon=example_epsilon,
            **self._tells.clients(cohort, outcome.clients),
            **self._tells.traffic(traffic, mechanism, len(outcome.model)),
            **self._tells.time(self._stopwatch.seconds, wall),
        )
        after = Checkpoint(
            round_number=number,
            model=outcome.model,
            state=outcome.state,
            mechanism=outcome.mechanism.public_state(),
            seconds=self._spent(before, wall),
            record=self._tells.round(record, cohort, outcome.clients),
            canaries=None if self._canaries is None else self._canaries.scores,
        )
        self._save(after)
        self._mechanism = outcome.mechanism
        return after, record

    def _attempts(
        self, engine: Engine, number: int, before: Checkpoint, mechanism: Mechanism, traffic: Traffic
    ) -> tuple[Outcome, Sequence[int], int]:
        """Try the round until enough clients answer; return the outcome, the cohort and the number of tries."""
        retries = self._job.config.federate.retries
        for attempt in range(retries + 1):
            turn = Turn(round_number=number, attempt=attempt)
            # Each try draws anew: clients that did not answer would most likely not answer again.
            cohort = self._job.plan.sampler.cohort(number, self._randomness.secret("cohort", number, attempt))
            self._charge(turn, cohort, mechanism)
            self._replied, self._asked, self._in_flight = 0, len(cohort), number
            self._observer.doing("training")
            try:
                task = broadcast(self._plan, mechanism, before.model, turn)
                total = self._exchange(engine, sum_flow(self._plan, mechanism, cohort, task), traffic)
                if isinstance(self._canaries, ClientCanaries):
                    total = self._canaries.joined(total, task)
                with self._stopwatch.measure("recover"):
                    outcome = release(self._plan, mechanism, total, task, before.state, self._randomness)
            except DropoutError as error:  # nothing was released, and what was charged stays charged
                self._write(Failed(round=number, attempt=attempt, reason=str(error)))
                if attempt == retries:
                    raise DropoutError(
                        f"{error} Tried {retries + 1} times; the model of round {number - 1} is kept."
                    ) from error
                self._observer.note(f"Round {number}, try {attempt + 1}: {error} Trying again with a new cohort.")
            except (ClientError, SpoiledError) as error:  # somebody lied or broke: another cohort would not mend it
                self._write(Failed(round=number, attempt=attempt, reason=str(error)))
                raise
            else:
                if not np.isfinite(outcome.model).all():  # it must not replace the last good one on disk
                    became = outcome.model[first_not_finite(outcome.model)]
                    raise RunError(
                        f"The global model became {became} in round {number}; the model of round {number - 1} is kept. "
                        f"{self._job.advice}"
                    )
                for note in outcome.notes:
                    self._note(note)
                self._tell_unmoved(number, mechanism, outcome.update)
                if isinstance(self._canaries, ClientCanaries):
                    self._canaries.saw_release(outcome.update)
                return outcome, cohort, attempt + 1
            finally:
                self._in_flight = None
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _tell_unmoved(self, number: int, mechanism: Mechanism, update: Vector) -> None:
        """Say once where a round's sum is all zeros, without noise: the run would pass for one in which clients train.

        It tells nothing of who took part, so that everyone may know it, and it is in the result.
        """
        if self._unmoved or mechanism.event is not None or update.any():
            return
        self._unmoved = True
        text = f"Round {number} moved nothing: the sum of the clients' updates is zero in every number."
        advice = "Raise optimizer.lr"
        if isinstance(mechanism, BoundedMean) and mechanism.rounding:
            text += f" Numbers below {mechanism.rounding:.1g} are rounded to zero there."
            advice += f", or lower {mode_of(self._job.config.mode).section}.clip"
        self._remarks += (f"{text} {advice}, unless nothing is left to learn.",)
        self._observer.note(self._remarks[-1])

    def _charge(self, turn: Turn, cohort: Sequence[int], mechanism: Mechanism) -> None:
        """Charge a try, on disk before anything of it is sent: a crash may lose the round, never its cost."""
        clients = range(len(self._job.holdings.sizes))
        spent = charge = None
        if self._examples is not None:  # who is charged for its own steps took part: where nobody may know, all are
            charged = cohort if self._tells.sizes else clients
            spent = self._examples.charge(charged, round_number=turn.round_number)
        if self._account is not None:
            planned = self._job.config.federate.rounds - turn.round_number + 1
            charge = self._account.charge(mechanism, turn=turn, planned=planned, cohort=cohort)
        self._charged(self._tells.attempt(turn, cohort, population=len(clients), charge=charge, example_charges=spent))

    def _exchange(self, engine: Engine, flow: Flow[Total], traffic: Traffic) -> Total:
        """Drive the flow; what is not the time of clients and key holders is aggregation."""
        start = time.perf_counter()
        counted = sum(self._stopwatch.seconds.values())
        # Who watches a bar of every client's encryption counts the clients.
        watched = telling(self._computing) if self._tells.sizes else nullcontext()
        try:
            with watched:
                return drive(flow, engine, traffic)
        finally:
            elsewhere = sum(self._stopwatch.seconds.values()) - counted
            self._stopwatch.add("aggregate", time.perf_counter() - start - elsewhere)

    def _evaluate(self, model: Vector, number: int, *, last: bool) -> dict[str, Any]:
        """Return a round's scores on the test data and, where evaluate.train asks for it, on the clients' own."""
        job = self._job
        found: dict[str, Any] = dict.fromkeys(_SCORES)
        metrics: dict[str, float] | None = None
        if not (last or number % job.config.evaluate.every == 0) or (
            job.test is None and not job.config.evaluate.train
        ):
            return found
        self._observer.doing("testing")
        with self._stopwatch.measure("evaluate"):
            if job.test is not None:
                tested = job.evaluator.score(model, *job.test)
                found |= {"test_loss": tested.loss, "test_accuracy": tested.accuracy}
                metrics = dict(tested.metrics) or None
            if job.config.evaluate.train:
                trained = job.evaluator.score(model, *self._training_data())
                found |= {"train_data_loss": trained.loss, "train_accuracy": trained.accuracy}
        for name, value in found.items():
            if value is not None and not math.isfinite(value):
                raise RunError(
                    f"The {name.replace('_', ' ').replace(' data', '')} became {value} in round {number}; the model of "
                    f"round {number - 1} is kept. {self._job.advice}"
                )
        return found if metrics is None else found | {"metrics": metrics}

    def _spent(self, before: Checkpoint, wall: float) -> dict[str, float]:
        """Return the seconds of all rounds up to the one that just ended."""
        now = dict(self._stopwatch.seconds) | {WALL: wall}
        return {stage: round(before.seconds.get(stage, 0.0) + seconds, 6) for stage, seconds in now.items()}

    @staticmethod
    def _by_stage(end: Checkpoint) -> dict[str, float]:
        stages = {stage: seconds for stage, seconds in end.seconds.items() if stage != WALL}
        return stages | {"other": round(max(0.0, end.seconds.get(WALL, 0.0) - sum(stages.values())), 6)}

    def _result(
        self, end: Checkpoint, rounds: tuple[RoundRecord, ...], setup_seconds: float, stopped: tuple[str, ...]
    ) -> Result:
        job, config = self._job, self._job.config
        start = time.perf_counter()
        training = rounds[-1].train_accuracy
        if training is None and self._tells.training_score(config.evaluate.train):
            self._observer.doing("testing on the training data")
            training = job.evaluator.score(end.model, *self._training_data()).accuracy
        scores: dict[str, dict[str, float]] = {}
        if config.evaluate.clients:
            self._observer.doing("testing on each client's data")
            scores = {
                job.name_of(client): self._score_on(end.model, client) for client in range(len(job.holdings.sizes))
            }
        self._observer.doing("accounting")
        accuracy = rounds[-1].test_accuracy
        chance = None if accuracy is None else job.chance
        return Result(
            version=tacit.__version__,
            mode=config.mode,
            engine=self._connection.name,
            device=str(job.holdings.features.device),
            dataset=job.dataset,
            split=config.data.split,
            model=job.model_name,
            parameters=job.trainer.layout.size,
            clients=len(job.holdings.sizes),
            per_round=round(job.plan.sampler.expected),
            seed=config.seed,
            simulation=self._randomness.simulation,
            form=job.trainer.form,
            form_reason=job.trainer.reason,
            rounds=rounds,
            test_accuracy=accuracy,
            train_accuracy=training,
            test_loss=rounds[-1].test_loss,
            seconds=round(end.seconds.get(WALL, 0.0) + time.perf_counter() - start, 3),
            stage_seconds=self._by_stage(end),
            setup_seconds=round(setup_seconds, 3),
            bytes_up=sum(r.bytes_up for r in rounds),
            bytes_down=sum(r.bytes_down for r in rounds),
            privacy=self._privacy(),
            example_privacy=None if self._examples is None or self._account is None else self._examples.final(),
            sees=asdict(job.plan.guarantee),
            notes=job.notes + self._remarks + self._tells.notes(training_score=training is not None) + stopped,
            folder=None if self._folder is None else str(self._folder.path),
            chance=None if chance is None else chance.share,
            test_examples=None if chance is None else chance.examples,
            at_chance=None if chance is None or accuracy is None else chance.holds(accuracy, loss=rounds[-1].test_loss),
            client_names=job.told_names,
            client_scores=scores,
        )

    def _privacy(self) -> Privacy | None:
        """Return the run's claim: about clients where it makes one, or else about examples."""
        account = self._account or self._examples
        return None if account is None else account.final()

    def _training_data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the examples that clients hold; with some splits not every example has an owner."""
        holdings = self._job.holdings
        rows = holdings.shares.order
        if len(rows) == len(holdings.labels):
            return holdings.features, holdings.labels
        index = torch.from_numpy(rows).to(holdings.labels.device)
        return holdings.features[index], holdings.labels[index]

    def _score_on(self, model: Vector, client: int) -> dict[str, float]:
        """Return what the model is worth on one client's data."""
        holdings = self._job.holdings
        index = torch.from_numpy(holdings.rows[client]).to(holdings.labels.device)
        return self._job.evaluator.score(model, holdings.features[index], holdings.labels[index]).told()

    def _keep(self, model: Vector) -> None:
        """Write the last good model into the module, and into the folder by its tensors' names."""
        module = self._job.module
        self._job.trainer.layout.write(module, torch.from_numpy(np.array(model)))
        if self._folder is not None:
            tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in module.state_dict().items()}
            write_atomically(self._folder.path / MODEL, save(tensors))

    def _charged(self, attempt: Attempt) -> None:
        """Write down what a try costs before anything of it is sent."""
        self._write(attempt)
        if self._book is not None:
            self._book.add(attempt)

    def _save(self, after: Checkpoint) -> None:
        """Keep a round: first the state it ended in, with its record inside, then the record."""
        if self._folder is not None and after.record is not None:
            self._folder.save(after)
            self._folder.journal.append(after.record)

    def _write(self, record: Record) -> None:
        if self._folder is not None:
            self._folder.journal.append(record)

    def _count_reply(self) -> None:
        if self._tells.sizes:
            self._replied += 1
            self._observer.progress(replied=self._replied, asked=self._asked)

    def _note(self, text: str) -> None:
        """Pass a note on; what would tell who takes part in a round goes to the journal alone, the server's secret."""
        if self._in_flight is None:
            self._observer.note(text)
        elif self._tells.sizes:
            self._write(Note(round=self._in_flight, text=text))
            self._observer.note(f"Round {self._in_flight}: {text}")
        else:
            self._write(Secret(round=self._in_flight, text=text))
