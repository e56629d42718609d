"""All forms of training give the same result for a client, whoever trains beside it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.tasks import models
from tacit.training import cohort
from tacit.training.batches import Holdings
from tacit.training.cohort import Moved
from tacit.training.forms import Form, _Choice, cohort_trainer
from tacit.training.hooks import Context, Hooks
from tacit.training.outputs import give_tensors
from tacit.training.parameters import Parameters
from tacit.training.settings import cross_entropy, squared_error
from tests.training.common import CLASSES, Custom, Handwritten, Residual, Run, key_of, make_holdings, settings


@dataclass(frozen=True, kw_only=True)
class Case:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: int | None = None
    forms: tuple[Form, ...] = ("grouped", "vmap", "auto")
    scale: float = 1.0


def _group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Conv2d(4, 4, 2, padding=1, bias=False),
        nn.GroupNorm(1, 4, affine=False),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def _repeated() -> nn.Module:
    drop, inner = nn.Dropout(0.3), nn.Linear(4, 4)
    return nn.Sequential(nn.Linear(4, 4), drop, inner, nn.SiLU(), drop, inner)


CASES = {
    "cnn": Case(make=lambda: models.cnn((1, 16, 16), CLASSES), shape=(1, 16, 16)),
    "lenet": Case(make=lambda: models.lenet((1, 16, 16), CLASSES), shape=(1, 16, 16)),
    "mlp": Case(make=lambda: models.mlp((5,), CLASSES), shape=(5,)),
    "mlp on images": Case(make=lambda: models.mlp((2, 3, 3), CLASSES), shape=(2, 3, 3)),
    "logistic": Case(make=lambda: models.logistic((6,), CLASSES), shape=(6,)),
    "a single layer": Case(make=lambda: nn.Linear(6, CLASSES), shape=(6,)),
    "handwritten": Case(make=Handwritten, shape=(1, 10, 10)),
    "residual": Case(make=Residual, shape=(1, 8, 8)),
    "group norm": Case(make=_group_norm, shape=(1, 8, 8)),
    "means of images": Case(
        make=lambda: Custom(
            lambda m, x: m.out(m.b(m.pool(torch.tanh(m.a(x)))).mean((2, 3))),
            a=nn.Conv2d(1, 4, 3, padding=1),
            b=nn.Conv2d(4, 5, 1),
            pool=nn.AdaptiveAvgPool2d((3, 2)),
            out=nn.Linear(5, CLASSES),
        ),
        shape=(1, 6, 6),
    ),
    "layer norm": Case(
        make=lambda: nn.Sequential(
            nn.Linear(4, 6),
            nn.LayerNorm(6),
            nn.GELU(),
            nn.Flatten(),
            nn.LayerNorm(18, bias=False),
            nn.Linear(18, CLASSES),
        ),
        shape=(3, 4),
    ),
    "embedding": Case(
        make=lambda: nn.Sequential(nn.Embedding(11, 5), nn.Flatten(), nn.Dropout(0.2), nn.Linear(30, CLASSES)),
        shape=(6,),
        words=11,
    ),
    "one layer under two names": Case(
        make=_repeated,
        shape=(4,),
    ),
    "rectifiers in place": Case(
        make=lambda: nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3),
            nn.ReLU6(inplace=True),
            nn.Flatten(),
            nn.Linear(16 * 16, CLASSES),
            nn.ELU(inplace=True),
        ),
        shape=(16, 6, 6),
        forms=("images", "grouped", "vmap", "auto"),
    ),
    "channels dropped": Case(
        make=lambda: nn.Sequential(
            nn.Conv2d(2, 5, 3, dilation=2), nn.Dropout2d(0.4), nn.Sigmoid(), nn.Flatten(), nn.Linear(5 * 4 * 4, CLASSES)
        ),
        shape=(2, 8, 8),
    ),
}
OUTSIDE = {  # what no program may claim, with a word of the reason
    "add with a factor": (
        lambda: Custom(lambda m, x: torch.add(m.a(x), m.b(x), alpha=2), a=nn.Linear(4, 3), b=nn.Linear(4, 3)),
        (4,),
        "add",
    ),
    "input by keyword": (lambda: Custom(lambda m, x: m.a(input=x), a=nn.Linear(4, 3)), (4,), "Linear"),
    "flatten by keyword": (
        lambda: Custom(lambda m, x: m.a(torch.flatten(input=x, start_dim=1)), a=nn.Linear(4, 3)),
        (4,),
        "flatten",
    ),
    "a shared bias": (lambda: _tied(nn.Linear(4, 4), nn.Linear(4, 4), "bias"), (4,), "shares parameters"),
    "a shared scale": (lambda: _tied(nn.LayerNorm(4), nn.LayerNorm(4), "weight"), (4,), "shares parameters"),
    "pooling over all": (
        lambda: Custom(
            lambda m, x: m.a(F.avg_pool2d(m.c(x), x.size()[2:]).flatten(1)),
            c=nn.Conv2d(1, 4, 3, padding=1),
            a=nn.Linear(4, 3),
        ),
        (1, 6, 6),
        "avg_pool2d",
    ),
    "pooling with gaps": (
        lambda: Custom(lambda m, x: m.a(F.max_pool2d(x, 2, dilation=2).flatten(1)), a=nn.Linear(4, 3)),
        (1, 6, 6),
        "max_pool2d",
    ),
    "pooling with a divisor": (
        lambda: Custom(lambda m, x: m.a(F.avg_pool2d(x, 3, divisor_override=2).flatten(1)), a=nn.Linear(4, 3)),
        (1, 6, 6),
        "avg_pool2d",
    ),
    "a slope from the shape": (
        lambda: Custom(lambda m, x: m.a(F.leaky_relu(x, x.size(1) / 8)), a=nn.Linear(4, 3)),
        (4,),
        "leaky_relu",
    ),
    "torch's own hooks": (lambda: _hooked(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))), (4,), "hooks"),
    "a frozen layer": (lambda: _frozen(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))), (4,), "frozen"),
    "a 3-D convolution": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(16, 3)),
        (1, 3, 3, 3),
        "Conv3d",
    ),
    "a value that changes in place": (
        lambda: Custom(_changed_in_place, a=nn.Linear(4, 3), relu=nn.ReLU(inplace=True)),
        (4,),
        "ReLU changes in place",
    ),
    "another name of it": (
        lambda: Custom(lambda m, x: _twice(m.a(x)), a=nn.Linear(4, 3)),
        (4,),
        "relu changes in place",
    ),
    "a constant": (lambda: Custom(lambda m, x: m.a(2 * x), a=nn.Linear(4, 3)), (4,), "mul"),
    "inputs that are written over": (
        lambda: Custom(lambda m, x: m.a(x.add_(1.0)), a=nn.Linear(4, 3)),
        (4,),
        "add_",
    ),
}
ONLY_LOOP = {
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), "BatchNorm1d"),
    "its own noise": (lambda: Custom(lambda m, x: m.a(x + torch.rand_like(x)), a=nn.Linear(4, 3)), "rand_like"),
    "noise of a fixed shape": (lambda: Custom(lambda m, x: m.a(x + torch.rand(4)), a=nn.Linear(4, 3)), "no rule"),
    "an idle layer": (lambda: Custom(lambda m, x: m.a(x), a=nn.Linear(4, 3), idle=nn.Linear(2, 2)), "idle.weight"),
    "a branch on data": (lambda: Custom(_branch, a=nn.Linear(4, 3)), "traced"),
}


def _branch(module: Any, x: Tensor) -> Tensor:
    result: Tensor = module.a(x if x.sum() > 0 else -x)
    return result


def _changed_in_place(module: Any, x: Tensor) -> Tensor:
    values: Tensor = module.a(x)
    rectified: Tensor = module.relu(values)
    return values + rectified


def _twice(values: Tensor) -> Tensor:
    return F.relu(values.flatten(1), inplace=True) + values


def _tied(a: nn.Module, b: nn.Module, name: str) -> nn.Module:
    setattr(b, name, getattr(a, name))
    return nn.Sequential(a, nn.Tanh(), b, nn.Linear(4, CLASSES))


def _hooked(module: nn.Sequential) -> nn.Module:
    module[0].register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return module


def _frozen(module: nn.Sequential) -> nn.Module:
    module[0].requires_grad_(False)
    return module


def _make(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return make()


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.param
    return chosen


def test_one_client(case: Case) -> None:
    module, holdings = _make(case.make), make_holdings(case.shape, [10], words=case.words)
    loop = Run(module, holdings, settings(), form="loop")
    for form in case.forms:
        Run(module, holdings, settings(), form=form).equals(loop)


def test_many_clients_of_many_sizes(case: Case) -> None:
    module, holdings = _make(case.make), make_holdings(case.shape, [10, 3, 8, 12, 11, 1, 9], words=case.words)
    loop = Run(module, holdings, settings(momentum=0.5), form="loop")
    for form in case.forms:
        Run(module, holdings, settings(momentum=0.5), form=form).equals(loop)


def test_auto_takes_a_fast_form(case: Case) -> None:
    run = Run(_make(case.make), make_holdings(case.shape, [4, 4], words=case.words), settings())
    assert run.form in ("lanes", "perceptron", "grouped")


SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9},
    "weight decay": {"weight_decay": 0.1},
    "grad clip": {"grad_clip": 0.05},
    "a clip that never acts": {"grad_clip": 1e6},
    "proximal": {"mu": 2.0, "momentum": 0.3},
    "two epochs": {"epochs": 2},
    "batch larger than a client": {"batch_size": 40},
    "batch of one": {"batch_size": 1},
    "all at once": {"momentum": 0.8, "weight_decay": 0.05, "grad_clip": 0.3, "mu": 1.0, "epochs": 2},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("form", ["grouped", "vmap", "auto"])
@pytest.mark.parametrize("name", ["residual", "one layer under two names"])  # smooth, so that longer runs agree
def test_settings(name: str, form: Form, changes: dict[str, Any]) -> None:
    case = CASES[name]
    module, holdings = _make(case.make), make_holdings(case.shape, [6, 2, 5, 6])
    loop = Run(module, holdings, settings(**changes), form="loop")
    Run(module, holdings, settings(**changes), form=form).equals(loop)


@pytest.mark.parametrize("form", ["grouped", "vmap", "auto"])
def test_a_client_that_has_run_out_of_examples_stands_still(form: Form) -> None:
    """Four steps an epoch and three: close enough to share a chunk, where the shorter waits for the second epoch."""
    module, holdings = _make(CASES["one layer under two names"].make), make_holdings((4,), [16, 12, 13, 11])
    chosen = settings(epochs=2, momentum=0.9, weight_decay=0.5, mu=0.5)
    Run(module, holdings, chosen, form=form).equals(Run(module, holdings, chosen, form="loop"))


class Twice(nn.Module):
    """Two parameters whose gradient is one and the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)
        self.one, self.two = nn.Parameter(torch.randn(CLASSES)), nn.Parameter(torch.randn(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x) + (self.one + self.two)
        return output


@pytest.mark.parametrize("changes", [{"weight_decay": 0.5}, {"mu": 2.0}], ids=["weight decay", "proximal"])
def test_what_one_parameter_adds_to_its_gradient_is_not_anothers(changes: dict[str, Any]) -> None:
    module, holdings = _make(Twice), make_holdings((4,), [6, 2, 5, 6])
    loop = Run(module, holdings, settings(**changes), form="loop")
    Run(module, holdings, settings(**changes), form="vmap").equals(loop)


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS.keys())
def test_the_loop_is_plain_torch(changes: dict[str, Any]) -> None:
    """The reference of all forms, against a loop written out here."""
    module, holdings, chosen = _make(CASES["logistic"].make), make_holdings((6,), [7]), settings(**changes)
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = Hooks.for_training()

    def remember(context: Context) -> None:
        assert context.features is not None
        assert context.labels is not None
        seen.append((context.features, context.labels))

    hooks.register("on_batch_start", remember)
    run = Run(module, holdings, chosen, hooks=hooks)
    weight, bias = (p.detach().double() for p in module.parameters())
    at = [weight.clone(), bias.clone()]
    momenta = [torch.zeros_like(p) for p in at]
    losses = []
    for features, labels in seen:
        at = [p.requires_grad_() for p in at]
        loss = F.cross_entropy(features.double() @ at[0].T + at[1], labels)
        losses += [float(loss.detach())] * len(labels)
        gradients = list(torch.autograd.grad(loss, at))
        at = [p.detach() for p in at]
        gradients = [g + chosen.mu * (p - o) for g, p, o in zip(gradients, at, (weight, bias), strict=True)]
        if chosen.grad_clip is not None:
            total = torch.cat([g.flatten() for g in gradients]).norm()
            gradients = [g * min(1.0, chosen.grad_clip / float(total)) for g in gradients]
        gradients = [g + chosen.weight_decay * p for g, p in zip(gradients, at, strict=True)]
        momenta = [chosen.momentum * m + g for m, g in zip(momenta, gradients, strict=True)]
        at = [p - chosen.lr * m for p, m in zip(at, momenta, strict=True)]
    expected = torch.cat([(at[0] - weight).flatten(), at[1] - bias])
    np.testing.assert_allclose(run.updates[0], expected, rtol=1e-3, atol=1e-6)
    assert run.losses[0] == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("name", ["mlp", "handwritten", "embedding"])
@pytest.mark.parametrize("form", ["grouped", "vmap", "auto"])
def test_a_client_does_not_depend_on_the_cohort_or_the_workers(name: str, form: Form) -> None:
    case = CASES[name]
    module = _make(case.make)
    holdings = make_holdings(case.shape, [9, 10, 4, 12, 12, 11, 3], words=case.words)
    together = Run(module, holdings, settings(), form=form)
    for workers, clients in ((1, [3]), (1, [5, 3, 0]), (2, [0, 1, 2, 3, 4, 5, 6]), (2, [6, 3, 2])):
        other = Run(module, holdings, settings(), form=form, clients=clients, workers=workers)
        for client in clients:
            np.testing.assert_allclose(
                other.updates[client], together.updates[client], rtol=1e-4, atol=1e-6, err_msg=f"client {client}"
            )
            assert other.losses[client] == pytest.approx(together.losses[client], rel=1e-5)


@pytest.mark.parametrize("form", ["grouped", "vmap", "auto", "loop"])
def test_a_repeated_run_is_the_same_bit_for_bit(form: Form) -> None:
    module, holdings = _make(CASES["handwritten"].make), make_holdings((1, 10, 10), [9, 10, 4, 12, 12])
    first = Run(module, holdings, settings(), form=form, workers=2)
    Run(module, holdings, settings(), form=form, workers=2).equals(first, exactly=True)


@pytest.mark.parametrize("form", ["grouped", "vmap", "auto", "loop"])
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_torchs_default_type_changes_nothing(form: Form, default: torch.dtype) -> None:
    """Native kernels once wrote float32 into whatever torch.empty() gave: twice its length where that was bfloat16."""
    module, holdings = _make(CASES["handwritten"].make), make_holdings((1, 10, 10), [9, 4])
    usual = Run(module, holdings, settings(), form=form)
    torch.set_default_dtype(default)
    try:
        Run(module, holdings, settings(), form=form).equals(usual, exactly=True)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("form", ["grouped", "vmap", "auto"])
@pytest.mark.parametrize("changes", [{"momentum": 0.9, "mu": 0.5}, {"name": "adam", "weight_decay": 0.1}])
def test_nothing_of_a_client_is_left_for_the_one_that_trains_in_its_place(form: Form, changes: dict[str, Any]) -> None:
    module, holdings, chosen = _make(CASES["mlp"].make), make_holdings((5,), [8, 5]), settings(**changes)
    alone = Run(module, holdings, chosen, form=form, clients=[1])
    holdings.features[torch.from_numpy(holdings.rows[0])] = math.nan
    found: dict[int, Any] = {}
    with closing(
        cohort_trainer(module=module, holdings=holdings, settings=chosen, loss=cross_entropy, form=form, workers=1)
    ) as trainer:
        model = trainer.layout.read(module).numpy()
        for start, client in ((model + np.float32(1.0), 0), (model, 1)):
            keys = np.array([key_of(client)])
            trainer.train(start, [client], keys, 1, lambda own, update, _loss: found.update({own: update}))
    assert not np.isfinite(found[0]).any()
    assert (found[1] == alone.updates[1]).all()


@pytest.mark.parametrize("form", ["grouped", "vmap", "auto", "loop"])
def test_a_client_that_diverges_does_not_touch_its_neighbours(form: Form) -> None:
    module, holdings = _make(CASES["mlp"].make), make_holdings((5,), [8, 8, 8])
    calm = Run(module, holdings, settings(), form=form, clients=[0, 2])
    holdings.features[torch.from_numpy(holdings.rows[1])] *= 1e30
    wild = Run(module, holdings, settings(), form=form)
    assert not np.isfinite(wild.losses[1])
    for client in (0, 2):
        np.testing.assert_allclose(wild.updates[client], calm.updates[client], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["grouped", "auto", "loop"])
@pytest.mark.parametrize("batch_size", [4, 64])
def test_what_a_client_holds_never_reaches_a_smaller_one_as_padding(form: Form, batch_size: int) -> None:
    """Whoever holds the first of all examples once was everybody's padding, and its infinities everybody's NaN."""
    module = _make(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    )
    holdings = make_holdings((1, 8, 8), [7, 9, 23, 5])
    calm = Run(module, holdings, settings(batch_size=batch_size), form=form)
    for bad in range(4):
        features = holdings.features.clone()
        own = torch.from_numpy(holdings.rows[bad])
        features[own] = 3e38 * features[own].sign()
        wild = Run(module, replace(holdings, features=features), settings(batch_size=batch_size), form=form)
        for client in {0, 1, 2, 3} - {bad}:
            np.testing.assert_allclose(wild.updates[client], calm.updates[client], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("row", [0, -1])
def test_no_number_in_the_data_decides_about_the_form(row: int) -> None:
    """The form is told, in private modes too."""
    module, holdings = _make(CASES["mlp"].make), make_holdings((5,), [4, 4])
    usual = Run(module, holdings, settings(), form="vmap")
    holdings.features[row] = 3e38 * holdings.features[row].sign()
    poisoned = Run(module, holdings, settings(), form="vmap")
    assert (poisoned.form, poisoned.reason) == (usual.form, usual.reason)


@pytest.mark.parametrize("form", ["grouped", "vmap", "auto"])
def test_squared_error(form: Form) -> None:
    module = _make(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)))
    holdings = make_holdings((4,), [6, 3, 5])
    loop = Run(module, holdings, settings(), form="loop", loss=squared_error)
    Run(module, holdings, settings(), form=form, loss=squared_error).equals(loop)


@pytest.mark.parametrize(("form", "numbers", "times"), [("grouped", 1 << 26, 1), ("vmap", 1 << 26, 1), ("vmap", 1, 2)])
def test_updates_may_stay_where_they_are(form: Form, numbers: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohort, "_AT_ONCE", numbers)  # how many numbers are handed over at a time
    module, holdings = _make(CASES["residual"].make), make_holdings((1, 8, 8), [6, 2, 5, 6])
    expected = Run(module, holdings, settings(), form=form)
    found: dict[int, Any] = {}
    taken = []
    trainer = cohort_trainer(
        module=module, holdings=holdings, settings=settings(), loss=cross_entropy, form=form, workers=1
    )

    def take(clients: Sequence[int], moved: Moved, losses: NDArray[np.float64]) -> None:
        found.update({client: (moved.row(place), losses[place]) for place, client in enumerate(clients)})
        taken.append(clients)

    with closing(trainer):
        model, keys = trainer.layout.read(module).numpy(), np.array([key_of(client) for client in range(4)])
        trainer.train_rows(model, list(range(4)), keys, 1, take)
    for client, (update, loss) in found.items():
        assert update.tobytes() == expected.updates[client].tobytes()
        assert loss == expected.losses[client]
    assert sorted(found) == [0, 1, 2, 3]
    assert len(taken) == times


def test_the_rate_decays_by_rounds() -> None:
    module, holdings, chosen = _make(CASES["logistic"].make), make_holdings((6,), [4]), settings(decay=0.5)
    first, third = (Run(module, holdings, chosen, form="loop", round_number=n) for n in (1, 3))
    np.testing.assert_allclose(third.updates[0], first.updates[0] / 4, rtol=1e-4, atol=1e-7)


def test_the_users_module_is_left_as_it_was() -> None:
    module = _make(CASES["handwritten"].make).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    names = [name for name, _ in module.named_modules()]
    Run(module, make_holdings((1, 10, 10), [4, 4]), settings())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert [name for name, _ in module.named_modules()] == names
    assert not module.training


@pytest.mark.parametrize(("make", "shape", "reason"), OUTSIDE.values(), ids=OUTSIDE.keys())
def test_models_outside_the_rules_are_not_bent_to_fit(
    make: Callable[[], nn.Module], shape: tuple[int, ...], reason: str
) -> None:
    module, holdings = _make(make), make_holdings(shape, [6, 2, 5, 6])
    run = Run(module, holdings, settings())
    assert run.form == "vmap"
    assert reason in run.reason
    run.equals(Run(module, holdings, settings(), form="loop"))
    with pytest.raises(ConfigError, match=f"train.form=grouped does not fit this model: .*{reason}"):
        Run(module, holdings, settings(), form="grouped")


def test_an_embedding_of_a_table_is_outside_the_rules() -> None:
    module = _make(lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(18, CLASSES)))
    holdings = make_holdings((2, 3), [6, 2, 5], words=5)
    run = Run(module, holdings, settings())
    assert (run.form, run.reason) == ("vmap", "Embedding of a value of shape (2, 3) has no rule")
    run.equals(Run(module, holdings, settings(), form="loop"))


@pytest.mark.parametrize(("make", "reason"), ONLY_LOOP.values(), ids=ONLY_LOOP.keys())
def test_models_only_the_loop_can_train_say_why(make: Callable[[], nn.Module], reason: str) -> None:
    module, holdings = _make(make), make_holdings((4,), [8, 12, 5])
    run = Run(module, holdings, settings(batch_size=5))
    assert run.form == "loop"
    assert reason in run.reason
    assert all(np.abs(update).max() > 1e-4 for update in run.updates.values())
    alone = Run(module, holdings, settings(batch_size=5), clients=[1])
    assert alone.updates[1].tobytes() == run.updates[1].tobytes()  # its noise comes from its own key
    for form in ("grouped", "vmap"):
        with pytest.raises(ConfigError, match=r"Use train.form=auto, or one of: loop"):
            Run(module, holdings, settings(), form=form)


def _slowed(x: Tensor) -> Tensor:
    return 0.1 * x + 0.9 * x.detach()


TORCHS_HOOKS: dict[str, tuple[Callable[[Any], object], Callable[[Any, Tensor], Tensor]]] = {
    "before the model": (
        lambda net: net.register_forward_pre_hook(lambda _net, given: (2 * given[0],)),
        lambda m, x: m.net(2 * x),
    ),
    "behind the model": (
        lambda net: net.register_forward_hook(lambda _net, _given, output: 2 * output),
        lambda m, x: 2 * m.net(x),
    ),
    "of gradients that leave a layer": (
        lambda net: net[1][0].register_full_backward_hook(lambda _part, given, _gradients: (0.1 * given[0],)),
        lambda m, x: m.net[2](m.net[1](_slowed(m.net[0](x)))),
    ),
    "of gradients that enter a layer": (
        lambda net: net[1][0].register_full_backward_pre_hook(lambda _part, gradients: (0.1 * gradients[0],)),
        lambda m, x: m.net[2](_slowed(m.net[1](m.net[0](x)))),
    ),
}


@pytest.mark.parametrize(("register", "written_out"), TORCHS_HOOKS.values(), ids=TORCHS_HOOKS.keys())
def test_torchs_own_hooks_are_called_in_every_form(
    register: Callable[[Any], object], written_out: Callable[[Any, Tensor], Tensor]
) -> None:
    net = _make(lambda: nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.Tanh()), nn.Linear(5, CLASSES)))
    holdings = make_holdings((4,), [10, 3, 8, 8, 9, 8])
    right = Run(Custom(written_out, net=copy.deepcopy(net)), holdings, settings(), form="loop")
    register(net)
    Run(net, holdings, settings(), form="loop").equals(right)
    Run(net, holdings, settings()).equals(right)


def test_clients_of_a_large_model_train_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module, holdings = _make(lambda: nn.Sequential(nn.Linear(4, CLASSES))), make_holdings((4,), [6, 2, 5, 6])
    clipped = settings(grad_clip=1e6)  # which no native call of many steps does
    small = Run(module, holdings, clipped)
    assert small.form != "loop"
    monkeypatch.setattr("tacit.training.forms._LARGE", 14)  # it has 15
    large = Run(module, holdings, clipped)
    assert large.form == "loop"
    assert "copies for many clients at once would cost more" in large.reason
    large.equals(small)
    Run(module, holdings, clipped, form="grouped").equals(small)


def test_no_more_clients_train_side_by_side_than_the_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module, holdings = _make(lambda: nn.Sequential(nn.Linear(4, CLASSES))), make_holdings((4,), [6, 2, 5, 6])
    monkeypatch.setattr("tacit.training.forms.cores", lambda: 4)
    found = []
    for room in (None, 10**9, 2 * 3 * 8 * 60, 1):  # twice what three workers hold of 60 bytes each
        monkeypatch.setattr("tacit.training.forms.memory", lambda room=room: room)
        with closing(cohort_trainer(module=module, holdings=holdings, settings=settings(), loss=cross_entropy)) as made:
            found.append(made.workers)
    assert found == [4, 4, 3, 1]


def test_on_a_gpu_one_chunk_trains_at_a_time() -> None:
    module, holdings = _make(lambda: nn.Sequential(nn.Linear(4, CLASSES))), make_holdings((4,), [6, 2, 5, 6])
    choice = _Choice(
        module=module,
        holdings=holdings,
        settings=settings(),
        loss=cross_entropy,
        asked="grouped",
        hooks=None,
        workers=3,
    )
    assert choice.workers == 3
    choice._device = torch.device("cuda")
    assert choice.workers == 1


def test_batch_norms_statistics_are_part_of_the_update() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))
    run = Run(module, make_holdings((4,), [8]), settings())
    mean = next(slot for slot in run.layout.slots if slot.name == "1.running_mean")
    assert np.abs(run.updates[0][mean.start : mean.start + mean.size]).max() > 1e-3


def test_torchs_threads_and_generator_are_given_back() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(3)
    for form in ("auto", "vmap", "loop"):
        Run(_make(CASES["handwritten"].make), make_holdings((1, 10, 10), [4, 4]), settings(), form=form, workers=2)
    found = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert found == 3
    assert torch.equal(torch.get_rng_state(), state)


class _Skips(nn.Module):
    """A long skip behind a block without a rectifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(2))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        value = F.max_pool2d(self.stem(x), 2)
        wide = self.norms[0](self.convs[0](F.silu(value))) + value + value
        output: Tensor = self.head(F.relu(self.norms[1](self.convs[1](wide))).mean((2, 3)))
        return output


def _stops(model: Any, x: Tensor) -> Tensor:
    values = model.first(x)
    with torch.no_grad():
        gate = torch.sigmoid(values)
    output: Tensor = model.out(F.dropout(torch.relu(values + gate), 0.1, model.training))
    return output


def _drops(model: Any, x: Tensor) -> Tensor:
    output: Tensor = model.out(model.drop(torch.relu(model.drop(model.first(model.drop(x))))))
    return output


def _drops_in_another_order(model: Any, x: Tensor) -> Tensor:
    output: Tensor = model.out(model.early(torch.relu(model.first(model.late(x)))))
    return output


def _leaves_one_out(model: Any, x: Tensor) -> Tensor:
    model.aside(x)
    output: Tensor = model.out(torch.relu(model.first(x)))
    return output


UNTUNED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "long skips": (_Skips, (3, 8, 8)),
    "a group norm first": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(144, CLASSES)),
        (4, 8, 8),
    ),
    "no gradients": (lambda: Custom(_stops, first=nn.Linear(5, 8), out=nn.Linear(8, CLASSES)), (5,)),
    "one dropout, called often": (
        lambda: Custom(_drops, drop=nn.Dropout(0.4), first=nn.Linear(8, 8), out=nn.Linear(8, CLASSES)),
        (8,),
    ),
    "dropouts in another order": (
        lambda: Custom(
            _drops_in_another_order,
            early=nn.Dropout(0.4),
            late=nn.Dropout(0.2),
            first=nn.Linear(8, 8),
            out=nn.Linear(8, CLASSES),
        ),
        (8,),
    ),
    "a result that is left aside": (
        lambda: Custom(_leaves_one_out, aside=nn.Linear(5, 2), first=nn.Linear(5, 8), out=nn.Linear(8, CLASSES)),
        (5,),
    ),
}


@pytest.mark.parametrize(("make", "shape"), UNTUNED.values(), ids=UNTUNED.keys())
def test_models_that_nobody_had_in_mind_train_alike_in_all_forms(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    module, holdings = _make(make), make_holdings(shape, [8, 6, 8])
    plain = Run(module, holdings, settings(), form="loop")
    forms: tuple[Form, ...] = ("auto", "images", "lanes", "grouped", "vmap")
    for form in forms:
        try:
            run = Run(module, holdings, settings(), form=form)
        except ConfigError:
            continue
        run.equals(plain)


def _by_positives(outputs: Tensor, labels: Tensor) -> Tensor:
    return 2.0 * cross_entropy(outputs, labels) / (labels == 0).sum().clamp(min=1)


def _by_the_largest_weight(outputs: Tensor, labels: Tensor) -> Tensor:
    weights = torch.tensor([1.0, 2.0, 3.0])[labels]
    return cross_entropy(outputs, labels) * weights / weights.max()


def _by_classes(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs, labels) / len(torch.unique(labels))


@pytest.mark.parametrize("loss", [_by_positives, _by_the_largest_weight, _by_classes])
def test_no_label_of_a_client_enters_the_loss_of_another(loss: Any) -> None:
    run = Run(_make(lambda: nn.Linear(5, CLASSES)), make_holdings((5,), [8, 6, 8]), settings(), loss=loss)
    assert run.form == "loop"
    assert "depends on the others beside it" in run.reason


@pytest.mark.parametrize(
    "between",
    [
        lambda model, values: values + model.gate * values.mean(0),
        lambda model, values: values * (model.gate + 2.0 if values.shape[0] > 3 else 1.0 - model.gate),
    ],
    ids=["by a gate that begins at zero", "by its size"],
)
def test_a_batch_that_is_mixed_is_noticed_though_it_is_not_at_first(between: Callable[..., Tensor]) -> None:
    def compute(model: Any, x: Tensor) -> Tensor:
        output: Tensor = model.out(torch.relu(between(model, model.first(x))))
        return output

    gate = nn.Parameter(torch.zeros(()))
    module = _make(lambda: Custom(compute, first=nn.Linear(5, 8), out=nn.Linear(8, CLASSES), gate=gate))
    run = Run(module, make_holdings((5,), [8, 6, 8]), settings())
    assert run.form == "loop"
    assert "depends on the batch" in run.reason


def _asks(question: Callable[[Any], bool]) -> nn.Module:
    """Return a model that asks its input what it is, and by the answer leaves a function out."""
    own: Any = Custom(
        lambda m, x: m.out(torch.tanh(m.a(x)) if question(x) else m.a(x)), a=nn.Linear(6, 5), out=nn.Linear(5, CLASSES)
    )
    nn.init.zeros_(own.out.weight)  # nothing would be seen of the answer
    module: nn.Module = own
    return module


@pytest.mark.parametrize("form", ["auto", "vmap"])
@pytest.mark.parametrize(
    "question",
    [
        lambda x: isinstance(x, torch.Tensor),
        torch.is_tensor,
        lambda x: not hasattr(x, "lengths"),
        lambda x: type(x) is torch.Tensor,
    ],
    ids=["isinstance", "is_tensor", "hasattr", "type"],
)
def test_a_model_that_asks_what_its_input_is_is_answered_the_same(question: Callable[[Any], bool], form: Form) -> None:
    module, holdings = _asks(question), make_holdings((6,), [9, 8, 7])
    own = Run(module, holdings, settings(), form=form)
    assert "asks what its input is" in own.reason
    own.equals(Run(module, holdings, settings(), form="loop"))


def test_what_a_pass_leaves_aside_is_in_the_vector_all_the_same() -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, CLASSES)

        def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
            x = self.a(x) if cache is None else self.b(x)
            return self.out(F.dropout(x, 0.1, self.training))  # type: ignore[no-any-return]  # torch gives it no types

    module, holdings = Optional(), make_holdings((6,), [9, 8, 7])
    own, loop = (Run(module, holdings, settings(), form=form) for form in ("auto", "loop"))
    own.equals(loop)
    layout = Parameters.of(module)
    still = dict(zip((slot.name for slot in layout.slots), layout.split(torch.from_numpy(own.updates[0])), strict=True))
    assert not still["b.weight"].any()
    assert still["a.weight"].any()


def test_a_trace_that_hands_back_another_gradient_is_refused() -> None:
    def stops(m: Any, x: Tensor) -> Tensor:
        beside = m.beside(x)
        return m.out(m.a(x) + (beside.detach() if isinstance(x, torch.Tensor) else beside))  # type: ignore[no-any-return]  # torch gives it no types

    module = Custom(stops, a=nn.Linear(6, 5), beside=nn.Linear(6, 5), out=nn.Linear(5, CLASSES))
    holdings = make_holdings((6,), [9, 8])
    own = Run(module, holdings, settings())
    assert "asks what its input is" in own.reason
    own.equals(Run(module, holdings, settings(), form="loop"))


def test_models_of_images_that_return_images_train_alike_in_all_forms() -> None:
    def squares(outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs - labels).square().flatten(1).mean(1)

    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    held = make_holdings((1, 8, 8), [9, 8, 7])
    holdings = Holdings(features=held.features, labels=0.5 * held.features, rows=held.rows)
    own, loop = (Run(module, holdings, settings(), form=form, loss=squares) for form in ("auto", "loop"))
    assert (own.form, "its output is an image" in own.reason) == ("vmap", True)
    own.equals(loop)


def test_tables_whose_gradient_goes_by_a_batch_train_alone() -> None:
    module = nn.Sequential(nn.Embedding(9, 4, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(24, CLASSES))
    holdings = make_holdings((6,), [8, 5, 11], words=9)
    own = Run(module, holdings, settings(batch_size=8))
    assert "how often a row is in a batch" in own.reason
    own.equals(Run(module, holdings, settings(batch_size=8), form="loop"))


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        (give_tensors, "the model returns its logits under a name"),
        (lambda module, _: module.register_forward_hook(lambda *_: None), "the model has torch hooks"),
    ],
)
def test_why_a_model_is_not_traced_is_told_as_it_is(listen: Any, said: str) -> None:
    def compute(m: Any, x: Tensor) -> Any:
        return {"logits": m.a(x)} if "logits" in said else m.a(x)

    holdings, module = make_holdings((4,), [6, 2, 5, 6]), Custom(compute, a=nn.Linear(4, CLASSES))
    listen(module, holdings.features)
    assert said in Run(module, holdings, settings()).reason
