"""Optimisers on clients: every form steps as torch's own do, and rates follow their schedules."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.errors import ConfigError
from tacit.training.batches import Holdings
from tacit.training.cohort import learning_rate
from tacit.training.forms import cohort_trainer
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.vectors import Vector

SIZES = (12, 5, 20)


def _holdings() -> Holdings:
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(sum(SIZES), 4, generator=generator)
    ends = np.cumsum(SIZES)
    return Holdings(
        features=features, labels=(features[:, 0] > 0).long(), rows=np.split(np.arange(ends[-1]), ends[:-1])
    )


def _model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def _updates(form: Any, settings: LocalTraining) -> dict[int, Vector]:
    model, found = _model(), dict[int, Vector]()
    trainer = cohort_trainer(
        module=copy.deepcopy(model), holdings=_holdings(), settings=settings, loss=cross_entropy, form=form, workers=1
    )
    try:
        start = trainer.layout.read(model).numpy()
        keys = np.arange(len(SIZES), dtype=np.int64)
        trainer.train(start, range(len(SIZES)), keys, 1, lambda client, update, _: found.__setitem__(client, update))
    finally:
        trainer.close()
    return found


@pytest.mark.parametrize("form", ["grouped", "vmap"])
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "adam"},
        {"name": "adamw"},
        {"name": "adam", "weight_decay": 0.1, "beta1": 0.5},
        {"name": "adamw", "weight_decay": 0.1, "beta2": 0.9, "grad_clip": 0.1, "mu": 0.5},
    ],
)
def test_every_form_steps_as_torchs_optimisers_do(form: str, changes: dict[str, Any]) -> None:
    settings = LocalTraining(epochs=2, batch_size=4, lr=0.01, **changes)
    expected = _updates("loop", settings)
    found = _updates(form, settings)
    for client, update in expected.items():
        np.testing.assert_allclose(found[client], update, rtol=2e-3, atol=2e-5)


def test_the_fast_lanes_know_sgd_alone_and_say_so() -> None:
    model, features = _model(), np.random.RandomState(1).normal(size=(20, 4)).astype(np.float32)
    data = [(features, (features[:, 0] > 0).astype(int))] * 2
    forms = {}
    for name in ("sgd", "adam"):
        result = tacit.Federation(model=model, clients=data, optimizer=name, seed=1).fit(rounds=1, quiet=True)
        forms[name] = (result.form, result.form_reason)
    assert forms["adam"] == ("grouped", "the fast lanes know SGD, not adam")
    with pytest.raises(ConfigError, match=r"train\.form=lanes.*know SGD, not adam"):
        tacit.Federation(model=model, clients=data, optimizer="adam", train={"form": "lanes"}).fit(rounds=1, quiet=True)


def test_a_function_of_ones_own_makes_the_optimiser_of_each_client() -> None:
    made: list[torch.optim.Optimizer] = []

    def make(parameters: Any) -> torch.optim.Optimizer:
        made.append(torch.optim.RMSprop(parameters, lr=0.01))
        return made[-1]

    features = np.random.RandomState(1).normal(size=(20, 4)).astype(np.float32)
    data = [(features, (features[:, 0] > 0).astype(int))] * 3
    result = tacit.Federation(model=_model(), clients=data, optimizer=make, seed=1).fit(rounds=2, quiet=True)
    assert (result.form, result.form_reason) == ("loop", "an optimiser of your own sees one client at a time")
    assert len(made) == 6
    assert {group["lr"] for one in made for group in one.param_groups} == {0.01}
    class_of_torch = tacit.Federation(model=_model(), clients=data, optimizer=torch.optim.AdamW, seed=1)
    by_name = tacit.Federation(
        model=_model(), clients=data, optimizer={"name": "adamw", "weight_decay": 0.01, "final": 1.0},
        train={"form": "loop"}, seed=1,
    )  # fmt: skip
    losses = [one.fit(rounds=2, quiet=True).rounds[-1].train_loss for one in (class_of_torch, by_name)]
    assert losses[0] == losses[1]


def test_dp_sgd_clients_may_step_with_adam_and_a_single_holder_may_not() -> None:
    features = np.random.RandomState(1).normal(size=(60, 4)).astype(np.float32)
    data = [(features, (features[:, 0] > 0).astype(int))] * 2
    given: dict[str, Any] = {"clients": data, "mode": "dp-sgd", "dp": {"noise": 1.0}, "seed": 1}
    losses = set()
    for name in ("sgd", "adam"):
        model = _model()
        tacit.Federation(model=model, optimizer={"name": name, "lr": 0.05}, **given).fit(rounds=2, quiet=True)
        losses.add(sum(float(p.detach().sum()) for p in model.parameters()))
    assert len(losses) == 2
    config = tacit.RunConfig(mode="dp-sgd", single_holder=True, data={"name": "digits"}, optimizer={"name": "adam"})
    with pytest.raises(ConfigError, match="One data holder alone steps with SGD"):
        tacit.run(config.model_copy(update={"dp": config.dp.model_copy(update={"noise": 1.0})}), quiet=True)


def test_rates_follow_their_schedule() -> None:
    def rates(**changes: Any) -> list[float]:
        settings = LocalTraining(epochs=1, batch_size=1, lr=1.0, rounds=5, **changes)
        return [learning_rate(settings, number) for number in range(1, 6)]

    assert rates(final=0.5) == [1.0, 0.875, 0.75, 0.625, 0.5]
    assert rates(final=0.2, schedule="constant") == [1.0] * 5
    cosine = rates(final=0.0, schedule="cosine")
    assert cosine == pytest.approx([(1 + math.cos(math.pi * share / 4)) / 2 for share in range(5)])
    assert rates(final=1.0, warmup=3) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates(own_schedule=lambda number: 0.1 / number) == pytest.approx([0.1 / number for number in range(1, 6)])


def test_a_schedule_of_ones_own_sets_the_rate_of_each_round() -> None:
    asked: list[int] = []

    def rate(number: int) -> float:
        asked.append(number)
        return 0.1

    features = np.random.RandomState(1).normal(size=(20, 4)).astype(np.float32)
    data = [(features, (features[:, 0] > 0).astype(int))]
    tacit.Federation(model=_model(), clients=data, schedule=rate, seed=1).fit(rounds=3, quiet=True)
    assert asked == [1, 2, 3]
