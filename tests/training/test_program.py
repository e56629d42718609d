from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.tasks import models
from tacit.training.dropout import use_keys
from tacit.training.parameters import Parameters
from tacit.training.program import (
    Combine,
    Convolution,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    LayerNorm,
    Linear,
    NoProgram,
    Operation,
    Pointwise,
    Pool,
    Program,
    graph_of,
    trace,
)
from tests.training.common import Custom, Handwritten, Residual


def _program(module: nn.Module, example: Tensor) -> Program:
    layout = Parameters.of(module)
    use_keys(module)
    return trace(graph_of(module), layout, example)


def _kinds(program: Program) -> list[type[Operation]]:
    return [type(step.operation) for step in program.steps]


def test_the_cnn_is_a_straight_list() -> None:
    program = _program(models.cnn((1, 28, 28), 10), torch.zeros(1, 28, 28))
    assert _kinds(program) == [
        Convolution, Pool, Pointwise, Convolution, Dropout, Pool, Pointwise, Flatten, Linear, Pointwise, Dropout,
        Linear,
    ]  # fmt: skip
    assert [step.shape for step in program.steps][-5:] == [(320,), (50,), (50,), (50,), (10,)]
    assert [step.inputs for step in program.steps] == [(i,) for i in range(12)]
    assert program.input_shape == (1, 28, 28)
    assert program.kinds == {Convolution, Pool, Pointwise, Dropout, Flatten, Linear}


def test_weights_are_named_by_their_place_in_the_vector() -> None:
    program = _program(models.lenet((1, 28, 28), 10), torch.zeros(1, 28, 28))
    first, second, linear = (program.steps[i].operation for i in (0, 3, 7))
    assert first == Convolution(weight=0, bias=None, stride=(1, 1), padding=(2, 2), dilation=(1, 1), groups=1)
    assert second == Convolution(weight=1, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    assert linear == Linear(weight=2, bias=3)


def test_functions_in_forward_are_followed() -> None:
    program = _program(Handwritten(), torch.zeros(1, 10, 10))
    assert _kinds(program) == [
        Convolution, Pool, Pointwise, Convolution, Pointwise, Dropout, Flatten, Linear, Pointwise, Dropout, Linear,
    ]  # fmt: skip
    dropouts = [step.operation for step in program.steps if isinstance(step.operation, Dropout)]
    assert dropouts == [
        Dropout(probability=0.25, per_channel=True, site=0),
        Dropout(probability=0.5, per_channel=False, site=1),
    ]


def test_a_residual_knows_both_its_inputs() -> None:
    program = _program(Residual(), torch.zeros(1, 8, 8))
    combine = next(step for step in program.steps if isinstance(step.operation, Combine))
    assert combine.inputs == (2, 4)
    assert combine.shape == (4, 8, 8)


@pytest.mark.parametrize(
    ("module", "example", "operation"),
    [
        (
            nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)),
            torch.zeros(4),
            LayerNorm(axes=1, weight=2, bias=3, epsilon=1e-5),
        ),
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4, eps=0.1)),
            torch.zeros(1, 5, 5),
            GroupNorm(groups=2, weight=2, bias=3, epsilon=0.1),
        ),
        (nn.Sequential(nn.Embedding(5, 3)), torch.zeros(4, dtype=torch.int64), Embedding(weight=0)),
        (
            nn.Sequential(
                nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False)
            ),
            torch.zeros(2, 8, 8),
            Convolution(weight=0, bias=None, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        ),
        (
            nn.Sequential(nn.Conv2d(1, 1, 1), nn.AvgPool2d(3, stride=2, padding=1)),
            torch.zeros(1, 8, 8),
            Pool(function=F.avg_pool2d, kernel=(3, 3), stride=(2, 2), padding=(1, 1)),
        ),
        (
            Custom(lambda m, x: F.max_pool2d(m.c(x), (2, 1), padding=(1, 0)), c=nn.Conv2d(1, 1, 1)),
            torch.zeros(1, 8, 8),
            Pool(function=F.max_pool2d, kernel=(2, 1), stride=(2, 1), padding=(1, 0)),
        ),
    ],
)
def test_the_settings_of_a_layer_are_kept(module: nn.Module, example: Tensor, operation: Operation) -> None:
    assert _program(module, example).steps[-1].operation == operation


POINTWISE: list[Callable[[Tensor], Tensor]] = [
    F.relu,
    F.gelu,
    F.silu,
    torch.tanh,
    torch.sigmoid,
    lambda x: F.leaky_relu(x, 0.3),
    lambda x: F.elu(x, alpha=0.7),
    lambda x: F.relu(x, inplace=True),
    lambda x: x.tanh(),
    lambda x: x.relu().contiguous(),
    nn.Hardtanh(-0.5, 0.4),
    nn.Softplus(2.0),
    nn.Identity(),
]


@pytest.mark.parametrize("function", POINTWISE)
def test_pointwise_functions_keep_their_settings(function: Callable[[Tensor], Tensor]) -> None:
    parts = {"own": function} if isinstance(function, nn.Module) else {}
    module = Custom(lambda m, x: getattr(m, "own", function)(m.a(x)), a=nn.Linear(4, 4), **parts)
    program = _program(module, torch.zeros(4))
    values = torch.linspace(-2, 2, 9)
    result = values.clone()
    for step in program.steps[1:]:
        assert isinstance(step.operation, Pointwise)
        result = step.operation.function(result)
    torch.testing.assert_close(result, function(values.clone()))


@pytest.mark.parametrize("reshape", [
    lambda x: x.view(x.size(0), -1), lambda x: x.reshape(-1, 18), lambda x: x.flatten(1), lambda x: torch.flatten(x, 1),
    lambda x: torch.reshape(x, (x.shape[0], 18)),
])  # fmt: skip
def test_ways_to_flatten(reshape: Callable[[Tensor], Tensor]) -> None:
    program = _program(Custom(lambda m, x: m.a(reshape(x)), a=nn.Linear(18, 2)), torch.zeros(2, 3, 3))
    assert _kinds(program) == [Flatten, Linear]


REASONS: list[tuple[nn.Module, tuple[int, ...], str]] = [
    (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), (1, 5, 5), "module BatchNorm2d has no rule"),
    (nn.Sequential(nn.Conv2d(1, 2, 3, padding="same")), (1, 5, 5), "module Conv2d has no rule"),
    (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")), (1, 5, 5), "module Conv2d has no rule"),
    (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, ceil_mode=True)), (1, 5, 5), "module MaxPool2d has no rule"),
    (nn.Sequential(nn.Conv1d(1, 2, 3)), (1, 5), "module Conv1d has no rule"),
    (nn.Sequential(nn.Linear(4, 4), nn.PReLU()), (4,), "module PReLU has no rule"),
    (nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout()), (4,), "module AlphaDropout has no rule"),
    (nn.Sequential(nn.Linear(5, 4)), (2, 3, 5), "Linear of a value of shape (2, 3, 5) has no rule"),
    (nn.Sequential(nn.Linear(5, 4)), (3,), "its shapes can't be followed"),
    (Custom(lambda m, x: m.a(x) if x.sum() > 0 else x, a=nn.Linear(4, 4)), (4,), "it can't be traced: it branches"),
    (Custom(lambda m, x: m.a(x) / len(x), a=nn.Linear(4, 4)), (4,), "it can't be traced: it takes len() of a tensor"),
    (Custom(lambda m, x: sum(m.a(x)), a=nn.Linear(4, 4)), (4,), "it can't be traced: it loops over a tensor"),
    (Custom(lambda m, x: m.a(x)[:2], a=nn.Linear(4, 4)), (4,), "function getitem has no rule"),
    (Custom(lambda m, x: m.a(x).view(-1, 2), a=nn.Linear(4, 4)), (4,), "method view has no rule"),
    (Custom(lambda m, x: m.a(x) + m.b(x).sum(1, keepdim=True), a=nn.Linear(4, 4), b=nn.Linear(4, 4)), (4,), "sum"),
    (
        Custom(lambda m, x: m.a(x) * m.scale, a=nn.Linear(4, 4), scale=nn.Parameter(torch.ones(4))),
        (4,),
        "get_attr scale",
    ),
    (Custom(lambda m, x: (m.a(x), x)[0], a=nn.Linear(4, 4), idle=nn.Linear(2, 2)), (4,), "idle.weight takes no part"),
    (Custom(lambda m, x: (m.a(x), m.b(x))[0], a=nn.Linear(4, 4), b=nn.Linear(4, 4)), (4,), "not its last step"),
    (Custom(lambda m, x: (m.a(x), x), a=nn.Linear(4, 4)), (4,), "not its last step"),  # type: ignore[arg-type,return-value]
    (Custom(lambda m, x: F.dropout(m.a(x), training=False), a=nn.Linear(4, 4)), (4,), "function dropout has no rule"),
]


@pytest.mark.parametrize(("module", "shape", "reason"), REASONS, ids=[reason for _, _, reason in REASONS])
def test_what_has_no_rule_is_named(
    module: nn.Module, shape: tuple[int, ...], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NoProgram, match=re.escape(reason)):
        _program(module, torch.zeros(shape))
    assert capfd.readouterr().err == ""  # torch.fx would print a traceback


class _TakesAll(Custom):
    def forward(self, *args: Tensor, **named: Tensor) -> Tensor:  # as every model of peft's does
        return super().forward(*args, **named)


class _TakesNamed(Custom):
    def forward(self, x: Tensor, **named: Tensor) -> Tensor:
        return super().forward(x, **named)


class _Counts(Custom):
    def forward(self, *args: Tensor) -> Tensor:
        return super().forward(args[len(args) - 1])


@pytest.mark.parametrize(("kind", "taken"), [(_TakesAll, "**named"), (_TakesNamed, "**named"), (_Counts, "*args")])
def test_a_pass_that_takes_any_arguments_is_named_as_such(kind: type[Custom], taken: str) -> None:
    """They were called a loop over a tensor, which the model does not have."""
    reason = f"it can't be traced: its forward pass takes {taken}, which can't be followed"
    with pytest.raises(NoProgram, match=re.escape(reason)):
        _program(kind(lambda m, x: m.a(x), a=nn.Linear(4, 4)), torch.zeros(4))


@pytest.mark.parametrize(
    "layer",
    [nn.Embedding(5, 3, padding_idx=0), nn.Embedding(5, 3, max_norm=1.0), nn.Embedding(5, 3, scale_grad_by_freq=True)],
)
def test_embeddings_with_rules_of_their_own_have_no_rule(layer: nn.Module) -> None:
    with pytest.raises(NoProgram, match="Embedding"):
        _program(nn.Sequential(layer), torch.zeros(4, dtype=torch.int64))


def test_an_error_without_words_is_a_reason_too() -> None:
    def refuse(module: Any, x: Tensor) -> Tensor:
        raise ValueError

    with pytest.raises(NoProgram, match=r"it can't be traced: ValueError"):
        _program(Custom(refuse, a=nn.Linear(4, 4)), torch.zeros(4))


def test_two_inputs_are_too_many() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.a(x)  # type: ignore[no-any-return]

    with pytest.raises(NoProgram, match="more than one input"):
        _program(Two(), torch.zeros(4))


def test_what_a_pass_may_be_given_too_is_as_nobody_gives_it() -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor, cache: Tensor | None = None, *, twice: bool = True) -> Tensor:
            x = self.a(x) if cache is None else self.b(x)
            return self.b(x) if twice else x

    program = _program(Optional(), torch.zeros(4))
    assert [step.operation for step in program.steps] == [Linear(weight=0, bias=1), Linear(weight=2, bias=3)]


def test_a_keyed_dropout_stands_for_every_call() -> None:
    drop = nn.Dropout(0.3)
    module = Custom(lambda m, x: m.drop(m.a(m.drop(x))), a=nn.Linear(4, 4), drop=drop)
    program = _program(module, torch.zeros(4))
    sites = [step.operation.site for step in program.steps if isinstance(step.operation, Dropout)]
    assert sites == [0, 1]
