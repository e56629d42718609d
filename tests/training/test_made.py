"""What a client's passes leave in a model reaches no other client, and what is frozen stays as it is, in every form."""

from __future__ import annotations

import copy
import random
from array import array
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.batches import schedule
from tacit.training.made import AsMade, Frozen
from tacit.training.settings import cross_entropy
from tests.training.common import CLASSES, Custom, Run, key_of, make_holdings, settings

FROZEN = r"is frozen, and training changed it"


def _adapted(forward: Any, **parts: Any) -> nn.Module:
    """Return a model of which only the last layer trains."""
    own = Custom(forward, base=nn.Linear(6, 8), out=nn.Linear(8, CLASSES), **parts)
    own.base.requires_grad_(False)
    return own


def _shrinks(m: Any, x: Tensor) -> Tensor:
    m.base.weight.data.mul_(1.0 - 1e-5)  # neither autograd nor a version says so
    return m.out(torch.tanh(m.base(x)))  # type: ignore[no-any-return]  # torch gives it no types


@pytest.mark.parametrize("form", ["auto", "vmap", "loop"])
def test_a_frozen_weight_that_a_pass_writes_to_is_noticed(form: Any) -> None:
    with pytest.raises(ConfigError, match=f"'base.weight' {FROZEN}"):
        Run(_adapted(_shrinks), make_holdings((6,), [9, 8, 7]), settings(), form=form)


def test_a_frozen_number_that_is_whole_is_noticed() -> None:
    def counts(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            m.levels += 1
        return m.out(torch.tanh(m.base(x)))  # type: ignore[no-any-return]  # as above

    levels = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ConfigError, match=f"'levels' {FROZEN}"):
        Run(_adapted(counts, levels=levels), make_holdings((6,), [9, 8]), settings(), form="loop")


@pytest.mark.parametrize("name", ["base", "out"])
def test_a_parameter_in_the_place_of_another_is_noticed(name: str) -> None:
    def exchanges(m: Any, x: Tensor) -> Tensor:
        layer = getattr(m, name)
        layer.weight = nn.Parameter(layer.weight.detach().clone(), requires_grad=layer.weight.requires_grad)
        return m.out(torch.tanh(m.base(x)))  # type: ignore[no-any-return]  # as above

    with pytest.raises(ConfigError, match=rf"another tensor in the place of the parameter '{name}\.weight'"):
        Run(_adapted(exchanges), make_holdings((6,), [9, 8]), settings(), form="loop")


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_that_leave_out_zeros_are_looked_at_too() -> None:
    module: Any = nn.Linear(2, 2)
    for name, layout in (("coo", torch.sparse_coo), ("csr", torch.sparse_csr)):
        module.register_buffer(name, torch.eye(3).to_sparse(layout=layout))
    own = Frozen(module, list(module.parameters()))
    own.check()
    module.csr.values()[1] = 2.0
    with pytest.raises(ConfigError, match=f"'csr' {FROZEN}"):
        own.check()


def test_what_passes_leave_is_put_back() -> None:
    module: Any = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
    made = AsMade(module, [*module.parameters(), *module[1].buffers()])
    module.seen += 3
    module.note, module[0].training = "more", False
    module[1].num_batches_tracked += 5
    made.begin()
    assert not module.seen.any()
    assert not hasattr(module, "note")
    assert module[0].training
    assert module[1].num_batches_tracked == 0
    np.testing.assert_array_equal(module.seen.numpy(), [0, 0])
    made.check()


class _Locked:
    """Something that can't be copied."""

    def __init__(self) -> None:
        self.lock = Lock()


class _Copies(Custom):
    """Knows how it is copied, and not what it holds."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: own for name, own in vars(self).items() if name != "held"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, held=_Locked())


HELD: dict[str, Callable[[], Any]] = {
    "a column": lambda: torch.rand(6, 2)[:, 0],
    "steps": lambda: torch.rand(12)[::2],
    "one number in many places": lambda: torch.zeros(1).expand(6),
    "quantised": lambda: [torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)],
    "without memory": lambda: [torch.ones(3, device="meta")],
    "conjugated": lambda: [torch.ones(2, dtype=torch.complex64).conj()],
    "without zeros": lambda: [torch.eye(3).to_sparse()],
    "lazy": lambda: [nn.LazyLinear(3)],
    "a generator": lambda: random.Random(0),
    "bytes": lambda: [bytearray(b"abc"), array("d", [1.0])],
    "many words": lambda: {f"word {number}": number for number in range(70_000)},
}


@pytest.mark.parametrize("form", ["auto", "loop"])
@pytest.mark.parametrize("make", HELD.values(), ids=HELD.keys())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_module_may_hold_anything(make: Callable[[], Any], form: Any) -> None:
    module = Custom(lambda m, x: m.out(torch.tanh(m.a(x))), a=nn.Linear(6, 8), out=nn.Linear(8, CLASSES))
    module.held = make()
    Run(module, make_holdings((6,), [9, 8, 7]), settings(), form=form)


def test_a_module_may_know_how_it_is_copied() -> None:
    module = _Copies(lambda m, x: m.out(x), out=nn.Linear(6, CLASSES))
    module.held = _Locked()  # type: ignore[assignment]  # as above
    Run(module, make_holdings((6,), [9, 8, 7]), settings(), form="loop")

    def counts(m: Any, x: Tensor) -> Tensor:
        m.held.calls = getattr(m.held, "calls", 0) + 1
        return m.out(x)  # type: ignore[no-any-return]  # torch gives it no types

    module = _Copies(counts, out=nn.Linear(6, CLASSES))
    module.held = _Locked()  # type: ignore[assignment]  # as above
    with pytest.raises(ConfigError, match=r"'held' can't be copied for every client"):
        Run(module, make_holdings((6,), [9, 8, 7]), settings(), form="loop")


@pytest.mark.parametrize("table", [False, True])
def test_what_is_too_large_to_be_put_back_has_to_stay_as_it_is(table: bool) -> None:
    def notes(m: Any, x: Tensor) -> Tensor:
        if float(x.detach().abs().max()) > 50.0:
            if table:
                m.held[len(m.held)] = 0
            else:
                m.held[0] = 1.0
        return m.out(x)  # type: ignore[no-any-return]  # as above

    module = Custom(notes, out=nn.Linear(6, CLASSES))
    module.held = dict.fromkeys(range(70_000), 0) if table else torch.zeros(70_000)  # type: ignore[assignment]  # it may
    holdings = make_holdings((6,), [9, 8, 7])
    Run(module, holdings, settings(), form="loop")
    holdings.features[max(holdings.rows[0])] = 100.0  # not the first example, by which it would be noticed before
    with pytest.raises(ConfigError, match="too large to be copied for every client"):
        Run(module, holdings, settings(), form="loop")


def test_a_view_of_a_buffer_stays_one() -> None:
    def moves(m: Any, x: Tensor) -> Tensor:
        if float(x.detach().abs().max()) > 50.0:
            m.seen[0] += 1
        with torch.no_grad():
            m.stats[0] = 0.9 * m.stats[0] + 0.1 * x.mean(0)
        return m.out(x - m.mean)  # type: ignore[no-any-return]  # as above

    module = Custom(moves, out=nn.Linear(6, CLASSES))
    module.register_buffer("stats", torch.zeros(2, 6))
    module.mean, module.seen = module.stats[0], [0]  # type: ignore[assignment,index]  # as above
    holdings = make_holdings((6,), [9, 8, 7])
    holdings.features[max(holdings.rows[0])] = 100.0
    run = Run(module, holdings, settings(), form="loop")
    alone = Run(module, holdings, settings(), form="loop", clients=[2])
    assert run.updates[2].tobytes() == alone.updates[2].tobytes()


def test_what_is_large_is_looked_at_on_when_what_is_small_has_changed() -> None:
    def notes(m: Any, x: Tensor) -> Tensor:
        most = float(x.detach().abs().max())
        if most > 50.0:
            m.seen[0] = most
        if most > 500.0:
            m.bank[0] = most
        return m.out(x)  # type: ignore[no-any-return]  # torch gives it no types

    module = Custom(notes, out=nn.Linear(6, CLASSES))
    module.seen, module.bank = [0.0], torch.zeros(70_000)  # type: ignore[assignment]  # it may
    holdings = make_holdings((6,), [9, 8, 7, 8])
    holdings.features[max(holdings.rows[0])] = 100.0
    Run(module, holdings, settings(), form="loop")
    holdings.features[max(holdings.rows[1])] = 900.0
    with pytest.raises(ConfigError, match="too large to be copied for every client"):
        Run(module, holdings, settings(), form="loop")


def test_a_trace_leaves_nothing_in_the_module() -> None:
    def keeps(m: Any, x: Tensor) -> Tensor:
        hidden = torch.tanh(m.a(x))
        m.recent.append(hidden.detach().mean(0))
        m.nested["of"]["calls"] += 1
        m.steps += 1
        return m.out(hidden + sum(m.recent) * 0.01 * m.steps)  # type: ignore[no-any-return]  # as above

    module = Custom(keeps, a=nn.Linear(6, 8), out=nn.Linear(8, CLASSES))
    module.recent, module.nested = deque(maxlen=4), {"of": {"calls": 0}}  # type: ignore[assignment]  # as above
    module.steps = torch.zeros(())
    holdings = make_holdings((6,), [9, 8, 7])
    run = Run(module, holdings, settings())
    run.equals(Run(module, holdings, settings(), form="loop"), exactly=True)
    own = copy.deepcopy(module).train()
    descent = torch.optim.SGD(own.parameters(), lr=0.05)
    plan = schedule(holdings, [1], np.array([key_of(1)], np.int64), epochs=1, batch_size=4)
    for rows, count in zip(plan.rows[:, 0], plan.counts[:, 0].tolist(), strict=True):
        descent.zero_grad()
        cross_entropy(own(holdings.features[rows[:count]]), holdings.labels[rows[:count]]).mean().backward()  # type: ignore[no-untyped-call]  # as above
        descent.step()
    update = run.layout.read(own) - run.layout.read(module)
    np.testing.assert_allclose(run.updates[1], update, rtol=1e-4, atol=1e-6)
