from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.private.normalisation import check_normalisation, without_batch_norm
from tacit.training.private.probe import check_examples_apart


class Centre(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, value: Tensor) -> Tensor:
        return value - value.mean(0)


class Counting(nn.Module):
    """Keeps a running mean of its inputs."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, value: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(value.detach().mean(0), alpha=0.1)
        return value


class OwnDropout(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return nn.functional.dropout(value, training=self.training)


class AcrossBatch(nn.Module):
    """Attention that takes the batch for the sequence: a common mistake with batch_first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1)
        self.out = nn.Linear(4, 2)

    def forward(self, value: Tensor) -> Tensor:
        mixed, _ = self.attention(value, value, value)
        output: Tensor = self.out(mixed)
        return output


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Sequential(nn.Linear(4, 4), Centre(), nn.Linear(4, 2)), r"The layer '1' \(Centre\)"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=0), nn.Linear(4, 2)), r"The layer '1' \(Softmax\)"),
        (AcrossBatch(), "mixes the examples of a batch"),
    ],
)
def test_layers_that_mix_examples_are_named(model: nn.Module, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_examples_apart(model, torch.randn(5, 4))


def test_a_statistic_that_is_kept_is_refused_and_left_as_it_was() -> None:
    model = nn.Sequential(Counting(), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"The buffer '0\.mean' changes with the data"):
        check_examples_apart(model, torch.randn(5, 4))
    assert dict(model.named_buffers())["0.mean"].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 4), OwnDropout(), nn.Linear(4, 2)),
    ],
)
def test_what_keeps_examples_apart_passes(model: nn.Sequential) -> None:
    model.eval()
    model[0].train()
    check_examples_apart(model, torch.randn(5, 4))
    assert [m.training for m in model.modules()][:2] == [False, True]  # its modes are as they were
    check_examples_apart(model, torch.randn(1, 4))


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.InstanceNorm2d(4, track_running_stats=True)],
)
def test_batch_norm_is_refused_with_a_way_out(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), layer)
    with pytest.raises(ConfigError, match=rf"{type(layer).__name__} at '1'.*GroupNorm.*without_batch_norm"):
        check_normalisation(model)
    check_normalisation(without_batch_norm(model))


def test_instance_norm_without_statistics_is_one_examples_own() -> None:
    check_normalisation(nn.Sequential(nn.InstanceNorm2d(4)))


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (2, 1), (4, 2), (32, 16), (48, 24), (64, 32), (7, 1)])
def test_the_converter_keeps_scale_and_shift(channels: int, groups: int) -> None:
    model = nn.Sequential(nn.Sequential(nn.BatchNorm2d(channels)))
    nn.init.constant_(model[0][0].weight, 3.0)  # type: ignore[index]
    converted = without_batch_norm(model)
    norm = converted[0][0]  # type: ignore[index]
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == groups
    assert norm.weight.tolist() == [3.0] * channels
    assert isinstance(model[0][0], nn.BatchNorm2d)  # type: ignore[index]  # the model itself stays
