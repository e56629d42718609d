r"""Canaries in a run: made-up clients, or examples of DP-SGD, that are looked for in what is released.

Every canary has a direction of its own: signs on coordinates that no other canary has, drawn at random. A fair coin
puts it into the training or leaves it out. One that is in answers in rounds like any client, by the mode's own
mechanism and protocol, with an update far beyond the clip; it is drawn as clients are, and adds nothing to the number
that sums are divided by, to minimum cohorts or to what is told of a round. Its score is how far releases went its way;
:mod:`tacit.accounting.one_run` says what the scores mean.

What real clients are promised stays as it is: the server's noise is complete without any client, and canaries depend on
nobody's data. Scores are computed from releases alone, so that the bound is post-processing: to publish it costs
nothing. The price is accuracy: n canaries in the training add a vector of norm :math:`C \sqrt n` to sums whose noise
has the norm :math:`z C \sqrt d`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger
from tacit.accounting.one_run import OneRun, held_against
from tacit.errors import ConfigError
from tacit.federated.examples import ExamplePlan
from tacit.federated.plan import Claim, Plan
from tacit.federated.round import Finish, LocalClients, sum_flow
from tacit.flow import ClientId, InProcessEngine, drive
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.protocols.protocol import Total
from tacit.randomness import Randomness
from tacit.runs.job import Job
from tacit.vectors import Vector
from tacit.wire import Task

_FAR = 1e4  # the norm of an update, beyond any clip
_EXAMPLES = 2**40  # that a canary says to hold: as much weight as a client may have


@dataclass(frozen=True, kw_only=True)
class Flock:
    """Directions that share no coordinate, and which of them are in the training.

    Attributes:
        owner: whose each coordinate of the model is.
        signs: the direction's sign there.
        inside: of each canary, whether it is in the training.
    """

    owner: NDArray[np.int64]
    signs: Vector
    inside: NDArray[np.bool_]

    @classmethod
    def of(cls, count: int, parameters: int, randomness: Randomness) -> Flock:
        """Draw ``count`` canaries for a model of so many parameters, the same for the same run."""
        if count > parameters:
            raise ConfigError(
                f"audit.canaries={count}: expected at most {parameters}, as every canary needs a number of the model "
                "that no other has."
            )
        draw = randomness.stream("canaries")
        return cls(
            owner=draw.permutation(parameters) % count,
            signs=np.where(draw.random(parameters) < 0.5, 1.0, -1.0).astype(np.float32),
            inside=draw.random(count) < 0.5,
        )

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.inside)

    def along(self, moved: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return how far a vector goes in each canary's direction."""
        sums = np.bincount(self.owner, weights=self.signs * np.asarray(moved, np.float64), minlength=self.count)
        return np.asarray(sums / np.sqrt(np.bincount(self.owner, minlength=self.count)))


class Canaries:
    """The canaries of a run, and their scores."""

    def __init__(
        self,
        *,
        count: int,
        first: Vector,
        claim: Claim,
        rate: float,
        noise_multiplier: float,
        randomness: Randomness,
    ) -> None:
        """Draw the canaries.

        Args:
            count: how many there are.
            first: the model before the first round.
            claim: what the run promises.
            rate: with which each of them, if it is in the training, is in a release.
            noise_multiplier: the claimed z of a release.
            randomness: the run's.
        """
        self._claim = claim
        self._rate = rate
        self._z = noise_multiplier
        self._first = first
        self._randomness = randomness.within("canaries")
        self.flock = Flock.of(count, len(first), randomness)
        self.scores: NDArray[np.float64] = np.zeros(count)

    @property
    def remark(self) -> str:
        """What people should know of them."""
        inside = int(self.flock.inside.sum())
        return (
            f"Canaries are in the training: {inside:,} of {self.flock.count:,} made-up {self._claim.unit}s, chosen by "
            "coins, whose updates are random directions at the clip. They make the model slightly worse, and epsilon "
            "no larger."
        )

    def found(self, ledger: Ledger, model: Vector) -> OneRun:
        """Return what the canaries found, of a run that charged this and ended in this model."""
        return held_against(
            Claimed(ledger=ledger, delta=self._claim.delta),
            self.scores,
            self.flock.inside,
            final=self._final_scores(model),
            normal=self._rate >= 1.0,
        )

    def _final_scores(self, model: Vector) -> NDArray[np.float64] | None:
        """Return the scores by the final model alone, where canaries are in it."""
        return self.flock.along(model - self._first)

    def _asked(self, *release: int) -> NDArray[np.int64]:
        """Return those that are in a release."""
        inside = np.flatnonzero(self.flock.inside)
        if self._rate >= 1.0:
            return inside
        return inside[self._randomness.secret("cohort", *release).random(len(inside)) < self._rate]

    def _saw(self, noisy: NDArray[np.floating]) -> None:
        """Add what a noisy sum, over the clip, says of each: how much likelier it is where the canary may be in it."""
        gain = (2.0 * self.flock.along(noisy) - 1.0) / (2.0 * self._z**2)
        rate = self._rate
        self.scores = self.scores + (gain if rate >= 1.0 else np.logaddexp(math.log1p(-rate), math.log(rate) + gain))


class ClientCanaries(Canaries):
    """Canary clients: joined to a round's sum by its own mechanism and protocol."""

    def __init__(self, *, plan: Plan, count: int, first: Vector, randomness: Randomness) -> None:
        """Draw the canaries of a run whose mechanism stays the same from round to round."""
        assert plan.claim is not None
        assert isinstance(plan.mechanism, GaussianMechanism)
        self._plan = plan
        self._mechanism: GaussianMechanism = plan.mechanism
        super().__init__(
            count=count,
            first=first,
            claim=plan.claim,
            rate=plan.claim.rate,
            noise_multiplier=plan.mechanism.noise_multiplier,
            randomness=randomness,
        )
        self._clients = LocalClients(
            plan=plan, trainer=_Sings(self.flock), examples=[_EXAMPLES] * count, randomness=self._randomness
        )

    def joined(self, total: Total, task: Task) -> Total:
        """Return a round's sum with the canaries that are in it."""
        asked = self._asked(task.turn.round_number, task.turn.attempt)
        if not len(asked):
            return total
        engine = InProcessEngine(answer=self._clients.answer)
        added = drive(sum_flow(self._plan, self._mechanism, asked.tolist(), task), engine)
        return replace(total, vector=total.vector + added.vector)

    def saw_release(self, update: Vector) -> None:
        """Look at what a round released."""
        self._saw(update * (self._mechanism.expected_clients / self._mechanism.clip_bound))


class ExampleCanaries(Canaries):
    """Canary examples of DP-SGD: gradients at the clip that steps draw like any other (Steinke et al. 2023).

    A batch's gradient is long beside a canary's, and a small model has no room for both. So every canary has a number
    of its own behind the model's: as an example would that alone has some feature, in a model with a weight for it.
    Steps draw it, add it up and add noise by the same code, and the model stays what it is without them.
    """

    def __init__(self, *, plan: Plan, examples: ExamplePlan, count: int, randomness: Randomness) -> None:
        """Draw the canaries of a data holder that trains alone."""
        assert plan.example_claim is not None
        self._clip = examples.level.clip
        super().__init__(
            count=count,
            first=np.zeros(count, np.float32),
            claim=plan.example_claim,
            rate=examples.rates[0],
            noise_multiplier=examples.noise_multiplier,
            randomness=randomness,
        )

    @property
    def numbers(self) -> int:
        """How many numbers they have behind the model's."""
        return self.flock.count

    @property
    def remark(self) -> str:
        """What people should know of them."""
        inside = int(self.flock.inside.sum())
        return (
            f"Canaries are in the training: {inside:,} of {self.flock.count:,} made-up examples, chosen by coins, with "
            "gradients at the clip in numbers of their own. Model and epsilon are the same without them."
        )

    def added(self, step: int) -> NDArray[np.float64]:
        """Return the sum of the gradients of those that a step draws, in their own numbers."""
        drawn = np.zeros(self.flock.count)
        drawn[self._asked(step)] = self._clip
        return np.asarray(drawn[self.flock.owner] * self.flock.signs, np.float64)

    def saw(self, released: NDArray[np.float64]) -> None:
        """Look at the noisy sum of a step, in their own numbers."""
        self._saw(released / self._clip)

    def _final_scores(self, model: Vector) -> None:
        """Return nothing: they are not in the model."""


def of_job(job: Job, randomness: Randomness) -> Canaries | None:
    """Return the canaries that a job's settings ask for."""
    count = job.config.audit.canaries
    if count is None:
        return None
    if job.examples is not None and job.plan.claim is None:
        return ExampleCanaries(plan=job.plan, examples=job.examples, count=count, randomness=randomness)
    first = job.trainer.layout.read(job.module).cpu().numpy()
    return ClientCanaries(plan=job.plan, count=count, first=first, randomness=randomness)


class _Sings:
    """A trainer that returns every canary's direction, far beyond the clip."""

    workers = 1

    def __init__(self, flock: Flock) -> None:
        order = np.argsort(flock.owner, kind="stable")
        places = np.split(order, np.cumsum(np.bincount(flock.owner, minlength=flock.count))[:-1])
        self._updates = [(own, np.float32(_FAR / math.sqrt(len(own))) * flock.signs[own]) for own in places]

    def train(
        self, model: Vector, clients: Sequence[ClientId], keys: NDArray[np.int64], round_number: int, finish: Finish
    ) -> None:
        """Hand over the updates, with a loss of zero."""
        del keys, round_number
        for client in clients:
            places, numbers = self._updates[client]
            update = np.zeros(len(model), np.float32)
            update[places] = numbers
            finish(client, update, 0.0)
