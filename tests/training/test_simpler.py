from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.training.simpler import simplify


def simpler(step: Callable[..., Any], *given: Tensor) -> tuple[fx.GraphModule, int]:
    """Return the graph of a step and how many operations were left out; its numbers are those of the step."""
    graph = make_fx(step)(*given)
    before = sum(node.op == "call_function" for node in graph.graph.nodes)
    simplify(graph, given)
    for others in (given, [torch.randn_like(part) if part.is_floating_point() else part for part in given]):
        for ours, plain in zip(graph(*others), step(*others), strict=True):
            assert torch.equal(ours, plain)
            assert torch.equal(ours.signbit(), plain.signbit())
            assert ours.stride() == plain.stride()
    return graph, before - sum(node.op == "call_function" for node in graph.graph.nodes)


X = torch.randn(4, 1, 3)


def test_the_same_is_computed_once() -> None:
    assert simpler(lambda x: [torch.tanh(x * 2) + torch.exp(x * 2)], X)[1] == 1
    assert simpler(lambda x: [torch.tanh(x * 2) + torch.exp(x * 2.0)], X)[1] == 0  # a whole number is another kind


def test_results_keep_tensors_of_their_own() -> None:
    graph, fewer = simpler(lambda x: [x * 2, x * 2, x.sum(1, keepdim=True), torch.ones_like(x)], X)
    assert fewer == 0
    found = graph(X)
    assert len({own.data_ptr() for own in (X, *found)}) == 5


def test_views_of_results_keep_memory_of_their_own() -> None:
    def step(x: Tensor) -> list[Tensor]:
        first, *_ = torch.ones_like(x).chunk(3, 2)
        own = torch.exp(x)
        products = [torch.matmul(x.view(2, 2, 3), torch.ones_like(x).view(3, 4)) for _ in range(2)]
        return [
            torch.tanh(x).view(12), torch.tanh(x).view(3, 4), first, own, own.sum(1, keepdim=True).view(12), *products
        ]  # fmt: skip

    graph, _ = simpler(step, X)
    found = [*graph(X), *graph(X)]
    assert len({own.untyped_storage().data_ptr() for own in found}) == len(found)


def test_zeros_have_no_sign_behind_a_sum() -> None:
    for value in (torch.full((4, 1, 3), -0.0), torch.zeros(4, 1, 3)):
        simpler(lambda x: [1.0 / torch.relu(x * 1.0).neg().sum(1), 1.0 / (x * 1.0).sum(1, keepdim=True)], value)


def test_a_sum_of_a_single_number_stays() -> None:
    assert simpler(lambda x: [torch.tanh(torch.tanh(x.sum()).sum(0))], X)[1] == 0


def test_random_numbers_are_drawn_as_often() -> None:
    graph = make_fx(lambda x: [torch.bernoulli(x.abs().clamp(max=1)) - torch.bernoulli(x.abs().clamp(max=1))])(X)
    simplify(graph, [X])
    assert sum("bernoulli" in str(node.target) for node in graph.graph.nodes) == 2


def test_what_depends_on_shapes_alone_is_kept() -> None:
    def step(x: Tensor) -> list[Tensor]:
        ones = torch.ones_like(x).expand(2, 4, 1, 3) * 2
        return [x * ones + torch.arange(3.0) + torch.full((3,), 0.5)]

    graph, fewer = simpler(step, X)
    assert fewer == 5
    assert not any("ones_like" in str(node.target) for node in graph.graph.nodes)


def test_large_constants_are_written_anew() -> None:
    assert simpler(lambda x: [x * torch.ones_like(x)], torch.randn(100, 100))[1] == 0


@pytest.mark.parametrize("keepdim", [True, False])
def test_a_sum_over_axes_of_length_one_is_what_it_was_taken_of(keepdim: bool) -> None:
    graph, _ = simpler(lambda x: [torch.tanh(torch.tanh(x).sum(1, keepdim=keepdim))], X)
    assert not any("sum" in str(node.target) for node in graph.graph.nodes)
    for kept in (
        lambda x: [torch.tanh(torch.tanh(x).sum((1, 2), keepdim=keepdim))],  # more than one number
        lambda x: [torch.tanh((x > 0).sum(1, keepdim=keepdim))],  # counts
        lambda x: [torch.tanh(torch.tanh(x.permute(2, 1, 0)).sum(1, keepdim=keepdim))],  # lies in another order
    ):
        graph, _ = simpler(kept, X)
        assert any("sum" in str(node.target) for node in graph.graph.nodes)


def test_a_graph_that_writes_to_tensors_stays_as_it_is() -> None:
    def step(x: Tensor) -> list[Tensor]:
        first, second = x * 2, x * 2
        first.add_(1)
        return [first - second]

    assert simpler(step, X)[1] == 0


def test_several_results_of_one_operation() -> None:
    graph, _ = simpler(lambda x: [x.max(2).values + x.max(2).values, torch.exp(x) - torch.exp(x)], X)
    assert [sum(name in str(node.target) for node in graph.graph.nodes) for name in ("max", "exp")] == [2, 1]
