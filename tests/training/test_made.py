"""What a client's passes leave in a model reaches no other client, and what is frozen stays as it is, in every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.made import AsMade, Frozen
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

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
