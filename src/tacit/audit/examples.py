"""DP-SGD's own steps on worst-case examples: what a data holder's model tells of one of them.

The steps, batches, clipping and noise are those of :mod:`tacit.training.private`. The model is linear and starts at
zero, so that an example's gradient is its features times a constant: one example's are far beyond the clip, and all
others' are zero, or opposed to it. Where the example is not there, one without features is in its place: it is drawn
like any other and adds nothing, which under Poisson batches is the law of data without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.accounting.events import Event, GaussianEvent, SampledEvent
from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger, once
from tacit.audit.event import Rows
from tacit.audit.subject import Pair, Subject
from tacit.errors import RunError
from tacit.randomness import Randomness
from tacit.training.batches import Holdings
from tacit.training.private.clients import PrivateClients
from tacit.training.private.clipping import Clipping
from tacit.training.private.steps import PoissonBatches
from tacit.training.settings import LocalTraining, cross_entropy

RELEASES = 2
_FEATURES, _CLASSES, _FAR = 16, 2, 1e4
_FEW, _MOST = 20, 100_000  # examples
Model = Callable[[], nn.Module]
_LINEAR: Model = functools.partial(nn.Linear, _FEATURES, _CLASSES, bias=False)


@dataclass(frozen=True, kw_only=True)
class Training:
    """DP-SGD as a run has it.

    Attributes:
        noise_multiplier: z.
        rate: q, of a Poisson batch.
        clipping: of an example's gradient.
        delta: of the claim.
        against: the adversary for whom it is made.
        model: makes the model; a linear one by default.
    """

    noise_multiplier: float
    rate: float
    clipping: Clipping
    delta: float
    against: str
    model: Model = _LINEAR

    @property
    def batches(self) -> PoissonBatches:
        """Batches of this rate, or nearly: of as few examples as have it."""
        expected = max(1, round(self.rate * _FEW))
        return PoissonBatches(examples=max(expected, min(_MOST, round(expected / self.rate))), expected=expected)

    @property
    def claimed(self) -> Claimed:
        """What the account charges for the steps of a trial."""
        event = SampledEvent(event=GaussianEvent(noise_multiplier=self.noise_multiplier), rate=self.batches.rate)
        ledger = Ledger(unit="example")
        for number in range(RELEASES):
            ledger = ledger.charged(event, round_number=number + 1)
        return Claimed(ledger=ledger, delta=self.delta)


def charged(event: Event) -> tuple[float, float]:
    """Return noise multiplier and rate of the steps that a run was charged for."""
    event, _ = once(event)
    rate = 1.0
    if isinstance(event, SampledEvent):
        rate = event.rate
        event = event.event
    if not isinstance(event, GaussianEvent):
        raise RunError(f"The run's steps were charged as {type(event).__name__}: expected Gaussian ones.")
    return event.noise_multiplier, rate


def subject(name: str, training: Training, *, randomness: Randomness) -> Subject:
    """Return what there is to audit of a training with DP-SGD."""
    along = torch.from_numpy(np.where(np.arange(_FEATURES) % 2 == 0, 1.0, -1.0).astype(np.float32))
    none, far = torch.zeros(_FEATURES), _FAR * along
    broken = far.clone()
    broken[::3] = torch.nan
    tried = {
        "an example beyond the clip": ((far, far), none),
        "examples that turn around": ((far, -far), none),
        "others that cancel it": ((far, far), -far),
        "an example near the end of floats": ((1e30 * along, 1e30 * along), none),
        "an example that is no number": ((broken, broken), none),
    }
    claimed = training.claimed
    pairs = []
    for attack, (canaries, others) in tried.items():
        own = randomness.within(attack)
        worlds = (
            _World(training, canaries, others, own.within("with")),
            _World(training, tuple(none for _ in canaries), others, own.within("without")),
        )
        pairs.append(Pair(name=attack, claimed=claimed, worlds=(worlds[0].play, worlds[1].play)))
    return Subject(name=name, pairs=pairs, against=training.against, releases=RELEASES)


class _World:
    """A data holder whose last example is made up, one for each release of a trial."""

    def __init__(
        self, training: Training, canaries: tuple[Tensor, ...], others: Tensor, randomness: Randomness
    ) -> None:
        self._training = training
        self._canaries = canaries
        self._others = others
        self._randomness = randomness
        self._played = 0
        self._holders: list[PrivateClients] | None = None

    def play(self, trials: int) -> Rows:
        """Play so many trials more."""
        if self._holders is None:
            self._holders = [self._holder(canary) for canary in self._canaries]
        rows = []
        for _ in range(trials):
            seen: list[float] = []
            for release, holder in enumerate(self._holders):
                key = self._randomness.number("trial", self._played, release) >> 1
                seen += _looks(self._step(holder, key))
            rows.append(seen)
            self._played += 1
        return np.array(rows)

    def _holder(self, canary: Tensor) -> PrivateClients:
        training, examples = self._training, self._training.batches.examples
        features = self._others.repeat(examples, 1)
        features[-1] = canary
        return PrivateClients(
            module=training.model(),
            holdings=Holdings(
                features=features, labels=torch.zeros(examples, dtype=torch.int64), rows=[np.arange(examples)]
            ),
            settings=LocalTraining(epochs=1, batch_size=1, rounds=1, lr=1.0, momentum=0.0),
            loss=cross_entropy,
            clipping=training.clipping,
            noise_multiplier=training.noise_multiplier,
            batches=[training.batches],
            steps=[1],
            randomness=self._randomness,
            workers=1,
        )

    @staticmethod
    def _step(holder: PrivateClients, key: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        found: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []

        def finish(_: int, update: np.ndarray[tuple[int], np.dtype[np.float32]], loss: float) -> None:
            del loss  # it stays with the holder
            found.append(update.astype(np.float64))

        start = np.zeros(holder.layout.size, np.float32)
        holder.train(start, [0], np.array([key]), 1, finish)
        return found[0]


def _looks(moved: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Return what an adversary looks at: along the gradient of each class, beside it, and the size."""
    signs = np.where(np.arange(_FEATURES) % 2 == 0, 1.0, -1.0)
    weights = moved[: _FEATURES * _CLASSES].reshape(_CLASSES, _FEATURES)
    along = weights @ signs
    return [
        float(along[0] - along[1]),
        float(along.sum()),
        float(moved[_FEATURES * _CLASSES :].sum()),
        float(moved @ moved),
    ]
