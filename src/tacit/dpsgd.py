"""DP-SGD for a model of your own: example-level differential privacy in a few lines.

::

    private = tacit.dpsgd.make_private(model, optimizer, (features, labels), noise_multiplier=1.1, clip=1.0)
    for batch in private.batches(epochs=10):
        private.step(batch)
    print(private.epsilon(delta=1e-5))

Linear layers, convolutions, embeddings, norms, recurrent layers and attention are clipped by book-keeping, which
forms no gradient that it need not, tied weights too; a model with anything else goes through :mod:`torch.func`. Every
step is charged to a ledger before it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from tacit.accounting import accountant
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.calibration import calibrate
from tacit.accounting.events import Event, GaussianEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Ledger
from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.rounding import epsilon_text
from tacit.tasks.features import Features, Kind
from tacit.training.examples import UserData, tensors
from tacit.training.made import Frozen
from tacit.training.private.clipping import Clipping, Rule
from tacit.training.private.gradient import Form, PrivateGradient
from tacit.training.private.normalisation import without_batch_norm
from tacit.training.private.steps import Batch, PoissonBatches, PrivateSteps
from tacit.training.settings import Loss, loss_named
from tacit.training.trial import check_fit, check_trains

__all__ = ["Batch", "PrivateTraining", "Spent", "make_private", "without_batch_norm"]

_BATCH = 512
_LOOKED_AT = 64  # steps: what is frozen is looked at after the first, second, fourth and so on, and this often
_SIMULATION = "a simulation: whoever knows the seed can compute the noise"


@dataclass(frozen=True, kw_only=True)
class Spent(PrivacyCost):
    """What a training has cost; ``simulation`` says that it was seeded, and protects nobody who matters."""

    simulation: bool


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: UserData,
    *,
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    epochs: float | None = None,
    batch_size: int | None = None,
    clipping: Rule = "flat",
    micro_batch: int | None = None,
    loss: str | Loss = "cross-entropy",
    form: Form = "auto",
    features: Kind = "none",
    seed: int | None = None,
) -> PrivateTraining:
    """Make the training of ``model`` by ``optimizer`` on ``data`` differentially private.

    Args:
        model: the module to train, in place.
        optimizer: any of :mod:`torch.optim`, over the model's parameters.
        data: a map-style data set or a pair of arrays, features and labels; brought into memory once.
        clip: C, the largest norm of an example's gradient.
        noise_multiplier: z; the noise on a batch's sum has standard deviation z C.
        epsilon: instead of ``noise_multiplier``: the budget that ``epochs`` passes may cost at ``delta``.
        delta: the probability that the budget may fail with.
        epochs: how many passes the budget is for.
        batch_size: the mean size of a batch; 512 by default, or all examples where they are fewer.
        clipping: ``flat``, ``per-layer`` or ``automatic``; see :mod:`tacit.training.private.clipping`.
        micro_batch: how many examples go through the model at once, to save memory.
        loss: ``cross-entropy``, ``squared-error``, or a function from outputs and labels to one loss per example.
        form: ``book-keeping``, ``functional``, or the faster of them that fits.
        features: ``scatter`` trains on scattering features of images, a fixed transform that costs no privacy; what the
            model then sees of other images is :meth:`PrivateTraining.features`.
        seed: makes a simulation that can be repeated; without it batches and noise come from the system.

    Raises:
        ConfigError: a value is out of its domain, or the model can't be clipped example by example.
        DataError: the data hold NaN or infinity, or can't be stacked.
    """
    if features not in get_args(Kind):
        raise ConfigError(f"Unknown features {features!r}. Choose one of {', '.join(get_args(Kind))}.")
    seen = Features(kind=features)
    examples, labels = tensors(data, "the data set")
    examples = seen.of(examples, "the data set")
    trained = [p for p in model.parameters() if p.requires_grad]
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if {id(p) for p in trained} != {id(p) for p in held if p.requires_grad}:
        raise ConfigError(
            f"Expected the optimiser to hold the model's {len(trained)} trained parameters and no others, it holds "
            f"{len(held)}. Build it with {type(optimizer).__name__}(model.parameters(), ...)."
        )
    function = loss_named(loss)
    check_fit(model, function, examples, labels)
    check_trains(model, function, examples, labels)
    batches = PoissonBatches(
        examples=len(labels), expected=min(_BATCH, len(labels)) if batch_size is None else batch_size
    )
    if (noise_multiplier is None) == (epsilon is None):
        raise ConfigError("Give noise_multiplier, or epsilon with delta and epochs: one of the two.")
    if noise_multiplier is None:
        if epochs is None:
            raise ConfigError(f"epsilon={epsilon} needs epochs=...: the budget is for a number of passes.")
        assert epsilon is not None
        steps = batches.steps(epochs)
        noise_multiplier = calibrate(epsilon=epsilon, delta=delta, rounds=steps, rate=batches.rate).noise_multiplier
    bound = Clipping(bound=clip, rule=clipping)
    gradient = PrivateGradient(model=model, loss=function, clipping=bound, example=(examples, labels), form=form)
    device = gradient.parameters[0].device
    steps_of = PrivateSteps(
        gradient=gradient,
        optimizer=optimizer,
        features=examples.to(device),
        labels=labels.to(device),
        batches=batches,
        noise_multiplier=noise_multiplier,
        clip_bound=clip,
        randomness=Randomness.of(seed=seed),
        micro_batch=micro_batch,
    )
    return PrivateTraining(
        steps=steps_of,
        gradient=gradient,
        noise_multiplier=noise_multiplier,
        seen=seen,
        simulation=seed is not None,
        frozen=Frozen(model, gradient.parameters),
    )


class PrivateTraining:
    """A model in training, and the account of what its training has released.

    Attributes:
        noise_multiplier: z.
        form: how gradients are clipped: ``book-keeping`` or ``functional``.
        form_reason: why not book-keeping; empty where it is.
        simulation: whether a seed was given. Epsilon is then what the same training would cost without one, and every
            statement of it says so.
    """

    def __init__(
        self,
        *,
        steps: PrivateSteps,
        gradient: PrivateGradient,
        noise_multiplier: float,
        simulation: bool,
        frozen: Frozen,
        seen: Features = Features(),  # noqa: B008 - it is frozen
    ) -> None:
        self._steps = steps
        self._seen = seen
        self._gradient = gradient
        self.noise_multiplier = noise_multiplier
        self.form, self.form_reason = gradient.form, gradient.reason
        self.simulation = simulation
        self._frozen = frozen
        self._taken = 0
        self._drawn: Batch | None = None

    def features(self, images: Tensor) -> Tensor:
        """Return what the model sees of images: their features where it was trained on those, or themselves."""
        return self._seen.of(images, "the images")

    @property
    def rate(self) -> float:
        """The probability with which each example is in a batch."""
        return self._steps.batches.rate

    @property
    def steps_taken(self) -> int:
        """How many releases there were so far."""
        return self._taken

    def batches(self, *, epochs: float | None = None, steps: int | None = None) -> Iterator[Batch]:
        """Draw Poisson batches: ``steps`` of them, or as many as ``epochs`` passes are on average."""
        if (epochs is None) == (steps is None):
            raise ConfigError("Give epochs or steps, one of the two.")
        count = steps if steps is not None else self._steps.batches.steps(epochs or 0.0)
        for _ in range(count):
            self._drawn = self._steps.draw(self._taken)
            yield self._drawn

    def step(self, batch: Batch) -> float | None:
        """Take the step of ``batch`` and return its mean loss, None where no example has a finite one.

        The loss is not protected: it is for the eyes of whoever holds the data.
        """
        if batch is not self._drawn:
            raise ConfigError(
                "Expected the batch that batches() gave last: a batch that was drawn otherwise, or is used twice, "
                "costs more than the ledger says."
            )
        self._drawn = None
        self._taken += 1  # charged before anything is released
        losses = self._steps.accumulate(batch)
        self._steps.release(batch.step)
        if self._taken & (self._taken - 1) == 0 or self._taken % _LOOKED_AT == 0:
            self._frozen.check()
        return float(losses.mean()) if len(losses) else None

    def fit(self, *, epochs: float | None = None, steps: int | None = None) -> list[float | None]:
        """Take all steps of so many passes and return their mean losses, which are not protected."""
        return [self.step(batch) for batch in self.batches(epochs=epochs, steps=steps)]

    @property
    def ledger(self) -> Ledger:
        """What was released: the unit is an example, neighbours differ by one example more or less."""
        ledger = Ledger(unit="example")
        if not self._taken:
            return ledger
        release: Event = SampledEvent(event=GaussianEvent(noise_multiplier=self.noise_multiplier), rate=self.rate)
        note = _SIMULATION if self.simulation else ""
        return ledger.charged(RepeatedEvent(event=release, count=self._taken), round_number=1, note=note)

    def epsilon(self, delta: float = 1e-5) -> float:
        """Return what the steps so far have cost at ``delta``; infinite where there was no noise."""
        return self.spent(delta).epsilon

    def spent(self, delta: float = 1e-5) -> Spent:
        """Return the cost with all that it needs to mean something: unit, neighbours, accountant, and if it is real."""
        return Spent(**vars(accountant.epsilon(self.ledger, delta)), simulation=self.simulation)

    def statement(self, delta: float = 1e-5) -> str:
        """Return the cost in a sentence that may stand alone."""
        spent = self.spent(delta)
        value = epsilon_text(spent.epsilon, digits=4)
        value += "" if math.isfinite(spent.epsilon) else ", there was no noise"
        told = (
            f"epsilon {value} at delta {delta:g} for one {spent.unit} ({spent.neighbours}, {spent.accountant}) against "
            f"whoever sees the model, after {self._taken} steps"
        )
        told = told if self._taken else f"No step was taken: {told}"
        return f"{told}; {_SIMULATION}." if self.simulation else f"{told}."

    def __repr__(self) -> str:
        mark = f"; {_SIMULATION}" if self.simulation else ""
        return (
            f"<PrivateTraining {self.form}, noise multiplier {self.noise_multiplier:.4g}, rate {self.rate:.4g}, "
            f"{self._taken} steps taken{mark}>"
        )

    def gradient_norms(self, features: Any, labels: Any) -> Tensor:
        """Return gradient norms of given examples, to choose a clip bound by; use public examples, or it costs."""
        device = self._gradient.parameters[0].device
        given, wanted = tensors((features, labels), "these examples")
        return self._gradient.norms(given.to(device), wanted.to(device))
