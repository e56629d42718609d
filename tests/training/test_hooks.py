from __future__ import annotations

from collections import Counter
from contextlib import closing

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.tasks import models
from tacit.training import hooks as points
from tacit.training.evaluation import Evaluator
from tacit.training.hooks import POINTS, Context, Hooks
from tacit.training.settings import cross_entropy
from tests.training.common import Run, make_holdings, settings


def _module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 3))


HOLDINGS = make_holdings((4,), [9, 5])


def test_points_come_in_order() -> None:
    hooks, seen = Hooks.for_training(), list[tuple[str, int, int]]()
    for point in POINTS:
        hooks.register(point, lambda context, point=point: seen.append((point, context.epoch, context.batch)))  # type: ignore[misc]
    Run(_module(), HOLDINGS, settings(epochs=2, batch_size=5), hooks=hooks, clients=[0])
    batch = ["on_batch_start", "on_batch_forward", "on_batch_backward", "on_batch_end"]
    epoch = ["on_epoch_start", *batch, *batch, "on_epoch_end"]
    assert [point for point, _, _ in seen] == ["on_fit_start", *epoch, *epoch, "on_fit_end"]
    assert [(e, b) for point, e, b in seen if point == "on_batch_end"] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_hooks_see_who_trains_and_what() -> None:
    hooks, batches = Hooks.for_training(), Counter[int | None]()

    def look(context: Context) -> None:
        assert context.training
        assert context.model.training
        assert context.round_number == 1
        assert context.features is not None
        assert context.labels is not None
        assert context.outputs is not None
        assert context.loss is not None
        assert context.outputs.shape == (len(context.labels), 3)
        batches[context.client] += len(context.features)

    hooks.register("on_batch_end", look)
    run = Run(_module(), HOLDINGS, settings(), hooks=hooks)
    assert batches == {0: 9, 1: 5}
    assert (run.form, run.reason) == ("loop", "hooks see one client at a time")


def test_notes_live_as_long_as_a_fit() -> None:
    hooks, ends = Hooks.for_training(), list[int]()
    hooks.register("on_batch_end", lambda context: context.notes.update(n=context.notes.get("n", 0) + 1))
    hooks.register("on_fit_end", lambda context: ends.append(context.notes["n"]))
    Run(_module(), HOLDINGS, settings(epochs=2), hooks=hooks)
    assert ends == [6, 4]


def test_a_hook_that_does_nothing_changes_nothing() -> None:
    hooks = Hooks.for_training()
    hooks.register("on_batch_start", lambda context: None)
    Run(_module(), HOLDINGS, settings(), hooks=hooks).equals(
        Run(_module(), HOLDINGS, settings(), form="loop"), exactly=True
    )
    Run(_module(), HOLDINGS, settings(), hooks=hooks).equals(Run(_module(), HOLDINGS, settings()))


def test_a_position_is_before_the_hook_now_there() -> None:
    hooks, seen = Hooks.for_training(), list[str]()

    def note(name: str) -> points.Hook:
        return lambda context: seen.append(f"{name} {'after' if context.outputs is not None else 'before'}")

    hooks.register("on_batch_forward", note("last"))
    hooks.register("on_batch_forward", note("first"), position=0)
    hooks.register("on_batch_forward", note("second"), 1)
    Run(_module(), HOLDINGS, settings(batch_size=9), hooks=hooks, clients=[0])
    assert seen == ["first before", "second before", "last after"]


def test_a_hook_may_change_the_gradient() -> None:
    hooks = Hooks.for_training()

    def only_bias(context: Context) -> None:
        assert context.loss is not None
        assert context.optimizer is not None
        context.optimizer.zero_grad()
        context.loss.backward()  # type: ignore[no-untyped-call]
        for name, parameter in context.model.named_parameters():
            if name.endswith("weight"):
                parameter.grad = None
        context.optimizer.step()

    hooks.remove("on_batch_backward", points.backward)
    hooks.register("on_batch_backward", only_bias)
    run = Run(_module(), HOLDINGS, settings(), hooks=hooks, clients=[0])
    moved = {
        slot.name: bool(np.abs(run.updates[0][slot.start : slot.start + slot.size]).max() > 0)
        for slot in run.layout.slots
    }
    assert moved == {"0.weight": False, "0.bias": True, "3.weight": False, "3.bias": True}


def test_removing_is_by_identity_and_point() -> None:
    hooks, seen = Hooks.for_training(), list[int]()

    def count(context: Context) -> None:
        seen.append(1)

    hooks.register("on_fit_start", count)
    hooks.remove("on_fit_start", count)
    Run(_module(), HOLDINGS, settings(), hooks=hooks)
    assert seen == []
    with pytest.raises(ConfigError, match="not registered at 'on_fit_start'"):
        hooks.remove("on_fit_start", count)


@pytest.mark.parametrize("verb", ["register", "remove"])
def test_an_unknown_point_lists_the_known(verb: str) -> None:
    with pytest.raises(ConfigError, match=r"on_fit_start, .*on_fit_end, got 'on_batch'"):
        getattr(Hooks.for_training(), verb)("on_batch", lambda context: None)


def test_tables_do_not_share() -> None:
    one, other = Hooks.for_training(), Hooks.for_training()
    one.register("on_fit_start", lambda context: None)
    assert one.changed
    assert not other.changed


def test_evaluation_has_hooks_of_its_own() -> None:
    hooks, seen = Hooks.for_evaluation(), list[str]()
    for point in POINTS:
        hooks.register(point, lambda context, point=point: seen.append(point))  # type: ignore[misc]

    def look(context: Context) -> None:
        assert not context.training
        assert not context.model.training
        assert context.client is None
        assert context.optimizer is None
        assert not torch.is_grad_enabled()

    hooks.register("on_batch_end", look)
    module = models.logistic((4,), 3)
    evaluator = Evaluator(module=module, loss=cross_entropy, device=torch.device("cpu"), workers=2, hooks=hooks)
    with closing(evaluator):
        vector = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()
        evaluator.score(vector, torch.randn(1_100, 4), torch.zeros(1_100, dtype=torch.int64))
    batch = ["on_batch_start", "on_batch_forward", "on_batch_end"]
    assert seen == ["on_fit_start", "on_epoch_start", *batch * 3, "on_epoch_end", "on_fit_end"]


def test_an_evaluation_hook_may_change_the_examples() -> None:
    def blank(context: Context) -> None:
        assert context.features is not None
        context.features = torch.zeros_like(context.features)

    hooks = Hooks.for_evaluation()
    hooks.register("on_batch_start", blank)
    module = nn.Linear(2, 2)
    vector = np.array([1, 0, 0, 1, 0, 3], np.float32)  # the bias is for class 1
    labels = torch.tensor([0, 0, 0, 1])
    features = torch.eye(2)[labels] * 10
    scores = []
    for chosen in (None, hooks):
        evaluator = Evaluator(module=module, loss=cross_entropy, device=torch.device("cpu"), workers=1, hooks=chosen)
        with closing(evaluator):
            scores.append(evaluator.score(vector, features, labels).accuracy)
    assert scores == [1.0, 0.25]
