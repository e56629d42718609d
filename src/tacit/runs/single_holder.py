"""One data holder, no federation: the loop over stretches of DP-SGD steps.

A stretch is to `tacit train` what a round is to `tacit run`: it is charged, on disk, before its first step, and ends
in a test and a checkpoint. The order on disk and resuming are :mod:`tacit.runs.runner`'s.
"""

from __future__ import annotations

import time

from tacit.errors import RunError
from tacit.federated.plan import State
from tacit.flow import Engine
from tacit.runs.canaries import ExampleCanaries
from tacit.runs.folder import Checkpoint
from tacit.runs.journal import Attempt, Round
from tacit.runs.result import RoundRecord
from tacit.runs.runner import Runner
from tacit.training.private.clients import PrivateHolder
from tacit.vectors import first_not_finite


class SingleHolderRunner(Runner):
    """Runs the job of one data holder to its last step."""

    @property
    def _holder(self) -> PrivateHolder:
        assert isinstance(self._job.trainer, PrivateHolder)
        return self._job.trainer

    def _first_state(self, parameters: int) -> State:
        return self._holder.first_state(parameters)

    def _round(
        self,
        engine: Engine,
        number: int,
        before: Checkpoint,
        *,
        last: bool,
    ) -> tuple[Checkpoint, RoundRecord]:
        assert self._job.examples is not None
        assert self._examples is not None
        start = time.perf_counter()
        self._stopwatch.restart()
        total, stretches = self._job.examples.steps[0], self._job.config.federate.rounds
        first, end = total * (number - 1) // stretches, total * number // stretches
        charge = self._examples.charge([0], round_number=number, steps=end - first)
        self._charged(Attempt(round=number, attempt=0, charge=None, clients=1, example_charges=charge))
        with self._stopwatch.measure("train"):
            model, state, loss = self._holder.advance(
                before.model,
                before.state,
                first=first,
                last=end,
                total=total,
                on_step=lambda step: self._observer.progress(replied=step - first, asked=end - first),
                canaries=self._canaries if isinstance(self._canaries, ExampleCanaries) else None,
            )
        if first_not_finite(model) is not None:
            raise RunError(
                f"The model became {model[first_not_finite(model)]} before step {end}; that of step {first} is kept. "
                "Lower optimizer.lr (--lr)."
            )
        scores = self._evaluate(model, number, last=last)
        wall = time.perf_counter() - start
        record = RoundRecord(
            round=number,
            attempts=1,
            train_loss=loss,
            **scores,
            clients_expected=1.0,
            clients_asked=1,
            clients_replied=1,
            bytes_up=0,
            bytes_down=0,
            epsilon=self._examples.epsilon,
            example_epsilon=self._examples.epsilon,
            steps=end,
            seconds={stage: round(seconds, 6) for stage, seconds in self._stopwatch.seconds.items()},
            wall_seconds=round(wall, 6),
        )
        after = Checkpoint(
            round_number=number,
            model=model,
            state=state,
            mechanism=b"",
            seconds=self._spent(before, wall),
            record=Round.of(record),
            canaries=None if self._canaries is None else self._canaries.scores,
        )
        self._save(after)
        return after, record
