"""What each adversary could make of a client's images: gradient inversion on what everybody really gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tacit.audit.inversion import Score, inverted, paired, scored
from tacit.audit.views import views
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError
from tacit.modes.catalogue import MODES
from tacit.randomness import Randomness
from tacit.runs.folder import config_of, must_have_begun
from tacit.tasks import catalogue, models
from tacit.tasks.data import DataSet
from tacit.tasks.pictures import Pixels, Scale, scale_of

LARGEST = 16  # images of a batch
_OTHERS = 500  # images among which the originals have to be found again
_EPSILON = 8.0
_INSTEAD = "mlp"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attack on one view."""

    mode: str
    who: str
    sees: str
    found: Pixels
    score: Score


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Whose images are attacked, and through which model."""

    data: DataSet
    module: nn.Module
    scale: Scale
    batch: int
    epsilon: float
    notes: tuple[str, ...]
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    seed: int

    @property
    def originals(self) -> Pixels:
        """The victim's images."""
        return self.scale.pixels(self.data.train.features[self.rows[: self.batch]])

    def attempts(self, modes: Sequence[str] = tuple(MODES), *, steps: int) -> Iterator[Attempt]:
        """Yield the attack on each adversary's view in each mode."""
        examples = self.data.train.take(self.rows)
        others = self.scale.pixels(self.data.test.features[:_OTHERS])
        shape = self.data.train.features.shape[1:]
        labels = torch.from_numpy(examples.labels[: self.batch])
        for mode in modes:
            self.module.train()
            seen = views(
                mode, data=examples, module=self.module, batch=self.batch, epsilon=self.epsilon, seed=self.seed
            )
            self.module.eval()
            for view in seen:
                images = inverted(
                    self.module,
                    view.vector,
                    shape=shape,
                    scale=self.scale,
                    labels=labels,
                    steps=steps,
                    seed=self.seed,
                )
                found = paired(self.originals, images)
                score = scored(self.originals, found, others)
                yield Attempt(mode=mode, who=view.who, sees=view.sees, found=found, score=score)


def scene(folder: Path, *, batch: int, seed: int) -> Scene:
    """Return what is attacked of a run: images of its own data set, and its own model before the first round.

    Args:
        folder: the run's.
        batch: how many images the victim's step has.
        seed: of which images, and of everything else.
    """
    if not 1 <= batch <= LARGEST:
        raise ConfigError(f"Expected 1 to {LARGEST} images, got {batch}.")
    must_have_begun(folder)
    config = config_of(folder)
    scale = scale_of(config.data.name)
    data = catalogue.load(config.data.name, folder=config.data.folder, download=config.data.download)
    randomness = Randomness.of(seed=seed)
    notes, name = _model(config)
    module = models.build(
        name, shape=data.train.features.shape[1:], classes=data.classes, seed=randomness.number("weights")
    )
    if any(isinstance(layer, nn.Dropout | nn.Dropout2d) for layer in module.modules()):
        notes += (f"The run's model has dropout, which hides; the attack is on {_INSTEAD} instead.",)
        module = models.build(
            _INSTEAD, shape=data.train.features.shape[1:], classes=data.classes, seed=randomness.number("weights")
        )
    rows = randomness.stream("victim").choice(len(data.train), 8 * batch, replace=False)
    epsilon = config.dp.epsilon or _EPSILON
    return Scene(data=data, module=module, scale=scale, batch=batch, epsilon=epsilon, notes=notes, rows=rows, seed=seed)


def _model(config: Resolved) -> tuple[tuple[str, ...], str]:
    if config.data.features == "none":
        return (), config.model.name
    return (f"The run's model sees features, not pixels; the attack is on {_INSTEAD} on pixels instead.",), _INSTEAD
