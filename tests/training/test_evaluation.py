from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.tasks import models
from tacit.training.cohort import learning_rate
from tacit.training.evaluation import Evaluator, Score
from tacit.training.parameters import Parameters
from tacit.training.settings import LocalTraining, Loss, cross_entropy, squared_error
from tacit.vectors import Vector


def _score(
    module: nn.Module,
    features: Tensor,
    labels: Tensor,
    *,
    workers: int = 1,
    loss: Loss = cross_entropy,
    vector: Vector | None = None,
) -> Score:
    evaluator = Evaluator(module=module, loss=loss, device=torch.device("cpu"), workers=workers)
    with closing(evaluator):
        model = Parameters.of(module).read(module).numpy() if vector is None else vector
        return evaluator.score(model, features, labels)


def _examples(count: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, *shape, generator=generator), torch.randint(0, 4, (count,), generator=generator)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 499, 500, 501, 1_203])
def test_it_is_a_plain_torch_evaluation(count: int, workers: int) -> None:
    torch.manual_seed(0)
    module = models.mlp((6,), 4)
    features, labels = _examples(count, (6,))
    score = _score(module, features, labels, workers=workers)
    with torch.no_grad():
        outputs = module(features)
    assert score.loss == pytest.approx(float(F.cross_entropy(outputs, labels)), rel=1e-5)
    assert score.accuracy == float((outputs.argmax(1) == labels).double().mean())


@pytest.mark.parametrize("name", ["cnn", "batch norm", "conv3d"])
def test_dropout_is_off_and_running_statistics_are_used(name: str) -> None:
    torch.manual_seed(0)
    module: nn.Module
    shape: tuple[int, ...] = (1, 16, 16)
    if name == "cnn":
        module = models.cnn(shape, 4)
    elif name == "batch norm":
        module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 14 * 14, 4))
        module(torch.randn(8, *shape))
    else:
        shape = (1, 4, 4, 4)
        module = nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(54, 4))
    features, labels = _examples(30, shape)
    module.train()
    score = _score(module, features, labels, workers=2)
    assert module.training
    with torch.no_grad():
        outputs = module.eval()(features)
    assert score.loss == pytest.approx(float(F.cross_entropy(outputs, labels)), rel=1e-4)
    assert score.accuracy == float((outputs.argmax(1) == labels).double().mean())


class Viewed(nn.Module):
    """Takes a view of its images: there is none where their channels are innermost."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer, self.out = nn.Conv2d(3, channels, 3), nn.Linear(64 * channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x).view(len(x), -1))  # type: ignore[no-any-return]  # torch gives it no types


@pytest.mark.parametrize("channels", [6, 16])
def test_a_model_may_take_views_of_its_images(channels: int) -> None:
    torch.manual_seed(0)
    module = Viewed(channels)
    features, labels = _examples(501, (3, 10, 10))
    evaluator = Evaluator(module=module, loss=cross_entropy, device=torch.device("cpu"), workers=2)
    with closing(evaluator), torch.no_grad():
        for scale in (1.0, 0.5):
            model = np.float32(scale) * Parameters.of(module).read(module).numpy()
            score, outputs = evaluator.score(model, features, labels), evaluator.outputs(model, features)
            Parameters.of(module).write(module, torch.from_numpy(model))
            assert score.loss == pytest.approx(float(F.cross_entropy(module(features), labels)), rel=1e-5)
            np.testing.assert_allclose(outputs, module(features), rtol=1e-4, atol=1e-5)


def test_the_vector_counts_and_the_module_is_left_alone() -> None:
    module = nn.Linear(2, 2)
    before = [p.clone() for p in module.parameters()]
    swap = np.array([0, 9, 9, 0, 0, 0], np.float32)
    assert _score(module, torch.eye(2), torch.tensor([1, 0]), vector=swap).accuracy == 1.0
    assert _score(module, torch.eye(2), torch.tensor([0, 1]), vector=swap).accuracy == 0.0
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))


class Drifts(nn.Module):
    """Moves what is frozen in each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)

    def forward(self, value: Tensor) -> Tensor:
        self.frozen.data += 1
        return self.layer(value * self.frozen)  # type: ignore[no-any-return]  # torch gives it no types


def test_passes_that_move_what_is_frozen_are_refused() -> None:
    with pytest.raises(ConfigError, match="'frozen' is frozen, and a pass in evaluation mode changed it"):
        _score(Drifts(), torch.eye(2), torch.tensor([1, 0]), workers=2)


def test_accuracy_has_no_meaning_in_regression() -> None:
    module = nn.Linear(3, 1)
    features, labels = torch.randn(10, 3), torch.randn(10)
    score = _score(module, features, labels, workers=2, loss=squared_error)
    with torch.no_grad():
        expected = float(F.mse_loss(module(features)[:, 0], labels))
    assert score.accuracy is None
    assert score.loss == pytest.approx(expected, rel=1e-5)


def test_a_rate_decays_from_the_second_round() -> None:
    settings = LocalTraining(epochs=1, batch_size=1, lr=0.1, decay=0.5)
    assert [learning_rate(settings, number) for number in (1, 2, 4)] == pytest.approx([0.1, 0.05, 0.0125])
    assert learning_rate(LocalTraining(epochs=1, batch_size=1, lr=0.1), 100) == 0.1


def test_losses_are_one_number_an_example() -> None:
    outputs, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(cross_entropy(outputs, labels).mean(), F.cross_entropy(outputs, labels))
    assert cross_entropy(outputs, labels).shape == (5,)
    targets = torch.randn(5, 4)
    torch.testing.assert_close(squared_error(outputs, targets), (outputs - targets).square().mean(1))
    torch.testing.assert_close(squared_error(outputs[:, :1], labels), (outputs[:, 0] - labels).square())
    torch.testing.assert_close(squared_error(outputs[:, 0], labels), (outputs[:, 0] - labels).square())


def test_a_model_may_write_to_the_examples_that_it_is_tested_with() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x.sub_(0.5).mul_(2.0))  # type: ignore[no-any-return]  # torch gives it no types

    module, (features, labels) = Writes(), _examples(600, (6,))
    before = features.clone()
    assert _score(module, features, labels) == _score(module, features, labels)
    assert torch.equal(features, before)


def test_a_loss_may_write_to_the_labels_that_a_model_is_tested_with() -> None:
    def writes(outputs: Tensor, labels: Tensor) -> Tensor:
        ignored = labels < 0
        labels[ignored] = 0
        return cross_entropy(outputs, labels) * ~ignored

    module, (features, labels) = nn.Linear(6, 4), _examples(600, (6,))
    labels[::3] = -1
    before = labels.clone()
    assert _score(module, features, labels, loss=writes) == _score(module, features, labels, loss=writes)
    assert torch.equal(labels, before)
