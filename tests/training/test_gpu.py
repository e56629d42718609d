"""On an NVIDIA GPU: the captured graph gives what the CPU gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.tasks.models import build
from tacit.training.cohort import Holdings, Moved
from tacit.training.evaluation import Evaluator
from tacit.training.forms import Form, cohort_trainer
from tacit.training.settings import LocalTraining, cross_entropy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
]

SMOOTH = LocalTraining(epochs=2, batch_size=8, lr=0.05, momentum=0.9, weight_decay=1e-3, grad_clip=1.0, mu=0.1)
ONE_EPOCH = LocalTraining(epochs=1, batch_size=10, lr=0.05)


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


def smooth_cnn() -> nn.Module:
    """A model without rectifiers and max-pools, on which rounding errors stay small."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.GroupNorm(2, 8),
        nn.Tanh(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 6 * 6, 10),
    )  # fmt: skip


def train(
    module: nn.Module, device: str, settings: LocalTraining, sizes: list[int], *, form: Form = "auto", rounds: int = 1
) -> NDArray[np.float32]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(sum(sizes), 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (sum(sizes),), generator=generator)
    ends = np.cumsum(sizes)
    holdings = Holdings(
        features=features.to(device), labels=labels.to(device), rows=np.split(np.arange(ends[-1]), ends[:-1])
    )
    trainer = cohort_trainer(module=module, holdings=holdings, settings=settings, loss=cross_entropy, form=form)
    model = trainer.layout.read(module).numpy()
    updates = np.zeros((len(sizes), len(model)), np.float32)

    def finish(client: int, update: NDArray[np.float32], loss: float) -> None:
        assert np.isfinite(loss)
        updates[client] = update

    for number in range(1, rounds + 1):  # later rounds replay the captured graph
        keys = np.arange(len(sizes), dtype=np.int64) + 100 * number
        trainer.train(model, list(range(len(sizes))), keys, number, finish)
        model = model + updates.mean(0)
    trainer.close()
    return updates


@pytest.mark.parametrize("form", ["grouped", "vmap", "loop"])
@pytest.mark.parametrize("sizes", [[16, 16, 16], [21, 9, 3]], ids=["even", "ragged"])
def test_same_updates_as_on_the_cpu(form: Form, sizes: list[int]) -> None:
    module = smooth_cnn()
    expected = train(module, "cpu", SMOOTH, sizes, form="loop", rounds=2)
    found = train(module, "cuda", SMOOTH, sizes, form=form, rounds=2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("form", ["grouped", "vmap"])
def test_updates_that_stay_on_the_gpu_are_the_same(form: Form) -> None:
    module, features, labels = smooth_cnn(), torch.randn(40, 1, 28, 28), torch.randint(0, 10, (40,))
    rows = np.split(np.arange(40), [16, 32])
    holdings = Holdings(features=features.cuda(), labels=labels.cuda(), rows=rows)
    trainer = cohort_trainer(module=module, holdings=holdings, settings=ONE_EPOCH, loss=cross_entropy, form=form)
    assert trainer.adds
    model, keys = trainer.layout.read(module).numpy(), np.arange(3)
    expected: dict[int, NDArray[np.float32]] = {}
    trainer.train(model, [0, 1, 2], keys, 1, lambda client, update, _: expected.__setitem__(client, update.copy()))
    found: dict[int, NDArray[np.float32]] = {}

    def take(clients: Sequence[int], moved: Moved, losses: NDArray[np.float64]) -> None:
        found.update({client: moved.row(place) for place, client in enumerate(clients)})
        stacked = np.stack([moved.row(place) for place in range(len(clients))]).astype(np.float64)
        np.testing.assert_allclose(moved.norms(), np.linalg.norm(stacked, axis=1))
        factors = np.linspace(0.5, 1.5, len(clients))
        np.testing.assert_allclose(moved.weighted_sum(factors), factors @ stacked, rtol=1e-5, atol=1e-7)

    trainer.train_rows(model, [0, 1, 2], keys, 1, take)
    trainer.close()
    for client, update in expected.items():
        np.testing.assert_allclose(found[client], update, rtol=1e-5, atol=1e-8)


def test_the_lab_cnn_on_a_cohort() -> None:
    module = build("cnn", shape=(1, 28, 28), classes=10, seed=1)
    expected = train(module, "cpu", ONE_EPOCH, [60] * 20)
    found = train(module, "cuda", ONE_EPOCH, [60] * 20)
    # Rectifiers and max-pools: a rounding error may flip a unit of one client, so norms are compared.
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 5e-3


def test_the_learning_rate_of_a_captured_graph_can_change() -> None:
    module = smooth_cnn()
    settings = LocalTraining(epochs=1, batch_size=8, lr=0.1, decay=0.5)
    expected = train(module, "cpu", settings, [16, 16], form="loop", rounds=3)
    np.testing.assert_allclose(train(module, "cuda", settings, [16, 16], rounds=3), expected, rtol=1e-3, atol=2e-6)


def test_evaluation() -> None:
    module = smooth_cnn()
    features, labels = torch.randn(700, 1, 28, 28), torch.randint(0, 10, (700,))
    scores = []
    for device in ("cpu", "cuda"):
        evaluator = Evaluator(module=module, loss=cross_entropy, device=torch.device(device), workers=2)
        vector = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()
        scores.append(evaluator.score(vector, features.to(device), labels.to(device)))
        evaluator.close()
    assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-4)
    assert scores[0].accuracy == pytest.approx(scores[1].accuracy, abs=0.005)
