from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.tasks import models
from tacit.training.parameters import Parameters, held_by, hooked


def _net() -> Any:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False))


def test_the_vector_is_parameters_in_order_and_then_float_buffers() -> None:
    layout = Parameters.of(_net())
    assert [(slot.name, slot.start, slot.size, slot.trains) for slot in layout.slots] == [
        ("0.weight", 0, 6, True),
        ("0.bias", 6, 3, True),
        ("1.weight", 9, 3, True),
        ("1.bias", 12, 3, True),
        ("2.weight", 15, 6, True),
        ("1.running_mean", 21, 3, False),
        ("1.running_var", 24, 3, False),
    ]
    assert layout.size == 27
    assert [slot.name for slot in layout.trained] == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight"]


def test_the_labs_cnn_has_21840_numbers() -> None:
    assert Parameters.of(models.cnn((1, 28, 28), 10)).size == 21_840


def test_write_and_read_round_trip_and_leave_counters_alone() -> None:
    module = _net()
    module(torch.randn(4, 2))
    layout = Parameters.of(module)
    values = torch.arange(27, dtype=torch.float32)
    layout.write(module, values)
    assert torch.equal(layout.read(module), values)
    assert torch.equal(module[0].weight, torch.arange(6, dtype=torch.float32).view(3, 2))
    assert torch.equal(module[1].running_var, torch.tensor([24.0, 25.0, 26.0]))
    assert int(module[1].num_batches_tracked) == 1
    assert module[0].weight.requires_grad


def test_reading_copies() -> None:
    module = _net()
    layout = Parameters.of(module)
    vector = layout.read(module)
    vector.zero_()
    assert float(module[0].weight.detach().abs().sum()) > 0
    assert not vector.requires_grad


def test_splitting_gives_views_in_the_tensors_shapes() -> None:
    layout = Parameters.of(_net())
    vector = torch.zeros(27)
    parts = layout.split(vector)
    assert [part.shape for part in parts] == [slot.shape for slot in layout.slots]
    parts[0][0, 0] = 5.0
    assert vector[0] == 5.0


def test_a_vector_of_another_length_is_refused() -> None:
    module = _net()
    with pytest.raises(RuntimeError):
        Parameters.of(module).write(module, torch.zeros(26))


def test_frozen_parameters_stay_outside() -> None:
    module = _net()
    module[0].requires_grad_(False)
    layout = Parameters.of(module)
    assert layout.slots[0].name == "1.weight"
    before = module[0].weight.clone()
    layout.write(module, torch.zeros(layout.size))
    assert torch.equal(module[0].weight, before)


def test_constants_stay_outside_and_statistics_of_norms_do_not() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    first: Any = module[0]
    first.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    first.register_buffer("table", torch.ones(3), persistent=False)
    first.register_buffer("seen", torch.ones(3))
    module[1].running_var.fill_(torch.inf)  # type: ignore[operator]  # a tensor
    assert [slot.name for slot in Parameters.of(module).slots if not slot.trains] == [
        "0.seen",
        "1.running_mean",
        "1.running_var",
    ]


def test_a_shared_parameter_is_in_the_vector_once() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    assert Parameters.of(nn.Sequential(first, second)).size == 4 + 2 + 2


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("part", [slice(0, 3), slice(1, 2)])
def test_tensors_in_the_memory_of_one_that_trains_are_refused(part: slice, frozen: bool) -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(not frozen)
    second.weight.data = first.weight.data[part]
    with pytest.raises(ConfigError, match=r"'0\.weight' and '1\.weight' lie in the same memory"):
        Parameters.of(nn.Sequential(first, second))


def test_a_buffer_in_the_memory_of_one_that_trains_is_refused() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("own", module.weight.data.view(-1), persistent=False)
    with pytest.raises(ConfigError, match="lie in the same memory"):
        Parameters.of(module)


def test_tensors_side_by_side_in_one_memory_are_apart_as_on_gpus() -> None:
    whole, first, second = torch.randn(2, 3, 3), nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)
    first.weight.data, second.weight.data = whole[0], whole[1]
    frozen = nn.Linear(3, 3).requires_grad_(False)  # nobody parts what stays
    frozen.weight.data = second.weight.data
    assert Parameters.of(nn.Sequential(first, second, frozen)).size == 12


@pytest.mark.parametrize("module", [nn.ReLU(), nn.BatchNorm1d(3, affine=False), nn.Linear(2, 2).requires_grad_(False)])
def test_a_model_without_anything_to_train_is_refused(module: nn.Module) -> None:
    with pytest.raises(ConfigError, match="parameters to train"):
        Parameters.of(module)


def test_other_precisions_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"float32 in '1.weight', got torch.float64"):
        Parameters.of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def test_what_a_part_holds_in_lists_is_looked_at_unless_it_is_a_table() -> None:
    layer: Any = nn.Linear(2, 2)
    layer.held, layer.words = {"scale": [1.0]}, {str(number): number for number in range(1000)}
    before = held_by([layer])
    assert len(before) < 10
    layer.held["scale"][0] = 2.0
    assert held_by([layer]) != before
    layer.held["scale"][0] = 1.0
    assert held_by([layer]) == before
    layer.words["more"] = 0
    assert held_by([layer]) != before


@pytest.mark.parametrize("way", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_whoever_listens_to_a_part_is_seen(way: str) -> None:
    layer = nn.Linear(2, 2)
    assert not hooked([layer])
    getattr(layer, f"register_{way}_hook")(lambda *_: None)
    assert hooked([layer])
