r"""Membership inference: whether an example was trained on, by the likelihood-ratio attack (LiRA), offline.

Carlini et al., "Membership inference attacks from first principles", 2022. Shadow runs are trained as the run was, on
random halves of training and test data. Of an example, the confidence :math:`\log(p / (1 - p))` of the shadows that did
not have it is normal, nearly; its score is how far the run's own confidence lies above their mean, in their deviation.
Members are examples that the run trained on, others are of the test set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.accounting.risk import Risk
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError, RunError
from tacit.federated.plan import Privacy
from tacit.modes.catalogue import plan_of
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.connection import InProcess
from tacit.runs.folder import config_of, must_have_begun
from tacit.runs.observer import Silent
from tacit.runs.progress import complete
from tacit.runs.remarks import risk_of
from tacit.runs.run import is_own
from tacit.runs.runner import Runner
from tacit.runs.trained import load
from tacit.tasks import catalogue, models, partition
from tacit.tasks.data import DataSet, Examples

RATES = (0.001, 0.01, 0.1)  # of false alarms
_MOST = 2000  # examples of each kind that are tested
_LEAST_SPREAD = 0.05  # of a confidence: four shadows may agree by chance


@dataclass(frozen=True, kw_only=True)
class Membership:
    """How well members are told from others.

    Attributes:
        members: how many examples that were trained on were tested.
        others: how many that were not.
        shadows: how many runs the attack was trained with.
        alarms: rates of false alarms, ascending, and
        found: the share of members that is found at each.
        area: under that curve; one half is chance.
        at: the share that is found at each of ``RATES``.
        allowed: the most that the run's claim allows at each, or None where it claims nothing.
        curve: the same at each of ``alarms``.
    """

    members: int
    others: int
    shadows: int
    alarms: tuple[float, ...]
    found: tuple[float, ...]
    area: float
    at: tuple[float, ...]
    allowed: tuple[float, ...] | None
    curve: tuple[float, ...] | None


def membership(folder: Path, *, shadows: int, seed: int, told: Callable[[str], None]) -> Membership:
    """Attack a finished run.

    Args:
        folder: the run's.
        shadows: how many runs to train like it.
        seed: of their halves and their training.
        told: is told how far it is.
    """
    if shadows < 2:
        raise ConfigError(f"Expected 2 shadow runs or more, got {shadows}.")
    must_have_begun(folder)
    result = complete(folder)
    if result is None:
        raise RunError(f"The run in {folder} is not finished. Go on with it by `tacit resume {folder}`.")
    config = config_of(folder)
    if is_own(config.data.name) or config.single_holder:
        raise ConfigError("Expected a federated run on one of Tacit's data sets: its test part gives the non-members.")
    data = jobs.features_of(config.data).of_data(
        catalogue.load(config.data.name, folder=config.data.folder, download=config.data.download),
        torch.device("cpu"),
        told,
    )
    draw = Randomness.of(seed=seed)
    inside = _some(data.train, draw.stream("members"))
    outside = _some(data.test, draw.stream("others"))
    pool = Examples(
        features=np.concatenate([data.train.features, data.test.features]),
        labels=np.concatenate([data.train.labels, data.test.labels]),
    )
    asked = np.concatenate([inside, len(data.train) + outside])
    seen = []
    for number in range(shadows):
        told(f"shadow run {number + 1} of {shadows}")
        half = draw.stream("half", number).random(len(pool)) < 0.5
        module = _shadow(config, data, pool.take(np.flatnonzero(half)), draw.within("shadow", number))
        seen.append(np.where(half[asked], np.nan, _confidence(module, pool.take(asked))))
    own = _confidence(load(folder).model, pool.take(asked))
    scores = _scores(own, np.array(seen))
    return _curve(scores[: len(inside)], scores[len(inside) :], shadows, result.privacy)


def _some(examples: Examples, draw: np.random.Generator) -> NDArray[np.int64]:
    count = min(_MOST, len(examples))
    return np.sort(draw.choice(len(examples), count, replace=False))


def _shadow(config: Resolved, data: DataSet, half: Examples, randomness: Randomness) -> nn.Module:
    """Train a run with the same settings on other data, and return its model."""
    clients = config.federate.clients or 1
    config = config.model_copy(update={"out": None, "audit": type(config.audit)(), "log": ()})
    module = models.build(
        config.model.name,
        shape=data.train.features.shape[1:],
        classes=data.classes,
        seed=randomness.number("weights"),
    )
    split = "iid" if config.data.split == "natural" else config.data.split
    job = jobs.assemble(
        config=config,
        title="shadow",
        dataset=data.name,
        model_name=config.model.name,
        module=module,
        plan=plan_of(config, clients),
        train=(torch.from_numpy(half.features), torch.from_numpy(half.labels)),
        rows=partition.parse(split).assign(
            half.labels, clients=clients, groups=None, generator=randomness.stream("split")
        ),
        test=None,
        device=torch.device("cpu"),
        randomness=randomness,
    )
    try:
        runner = Runner(job=job, connection=InProcess(job), randomness=randomness, folder=None, observer=Silent())
        runner.run(None, (), setup_seconds=0.0)
    finally:
        job.close()
    return module


def _confidence(module: nn.Module, examples: Examples) -> NDArray[np.float64]:
    """Return log p over 1 - p of the true label, example by example."""
    module.eval()
    with torch.no_grad():
        logs = nn.functional.log_softmax(module(torch.from_numpy(examples.features)).double(), dim=1).numpy()
    own = logs[np.arange(len(examples)), examples.labels]
    rest = logs.copy()
    rest[np.arange(len(examples)), examples.labels] = -np.inf
    return np.asarray(own - np.logaddexp.reduce(rest, axis=1))


def _scores(own: NDArray[np.float64], shadows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each confidence lies above that of the shadows without the example, in deviations.

    The deviation is one for all: few shadows know little of each.
    """
    known = ~np.isnan(shadows)
    counts = known.sum(axis=0)
    means = np.where(counts > 0, np.nansum(shadows, axis=0) / np.maximum(counts, 1), np.nan)
    means = np.where(np.isnan(means), np.nanmean(means), means)
    spread = math.sqrt(float(np.nanmean((shadows - means) ** 2)))
    return np.asarray((own - means) / max(spread, _LEAST_SPREAD))


def _curve(
    inside: NDArray[np.float64], outside: NDArray[np.float64], shadows: int, claim: Privacy | None
) -> Membership:
    marks = np.unique(np.concatenate([inside, outside]))[::-1]
    alarms = np.concatenate([[0.0], (outside[:, None] >= marks).mean(axis=0)])
    found = np.concatenate([[0.0], (inside[:, None] >= marks).mean(axis=0)])
    least = np.unique(np.concatenate([np.geomspace(RATES[0], 1.0, 60), RATES]))
    most = [float(found[alarms <= rate].max()) for rate in least]
    allowed = None if claim is None else _allowed(claim)
    return Membership(
        members=len(inside),
        others=len(outside),
        shadows=shadows,
        alarms=tuple(float(rate) for rate in least),
        found=tuple(most),
        area=float((np.diff(alarms) * (found[1:] + found[:-1]) / 2.0).sum()),
        at=tuple(float(found[alarms <= rate].max()) for rate in RATES),
        allowed=None if allowed is None else tuple(allowed(rate) for rate in RATES),
        curve=None if allowed is None else tuple(allowed(float(rate)) for rate in least),
    )


def _allowed(claim: Privacy) -> Callable[[float], float]:
    """Return the most that a test may find of examples, by its false alarms.

    Where the claim hides a client that is there or not, one with and one without an example are two steps apart: each
    is a step from a federation without it.
    """
    if claim.epsilon == math.inf:
        return lambda _: 1.0
    risk: Risk = risk_of(claim)
    if claim.unit == "example" or claim.neighbours == "replace-one":
        return risk.power
    return lambda rate: risk.power(risk.power(rate))
