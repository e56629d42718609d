"""All layers of a tiny model by one native call, beside the rules of the layers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tacit.training.private import double, joint
from tacit.training.private.clipping import RULES, Clipping, Rule
from tacit.training.private.gradient import Form, PrivateGradient
from tacit.training.private.joint import Block, Joint, Joints
from tacit.training.settings import cross_entropy

pytestmark = pytest.mark.skipif(double.native is None, reason="no native rows here")
COUNT, CLASSES = 21, 3


class Columns(nn.Module):
    """Two tables, a norm and linear layers, one of them without a bias and one with a frozen weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(4, 3), nn.Embedding(9, 1)])
        self.norm, self.first = nn.LayerNorm(3), nn.Linear(7, 5, bias=False)
        self.second, self.out = nn.Linear(5, 6), nn.Linear(6, CLASSES)
        self.second.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        words = [table(x[:, place].long()) for place, table in enumerate(self.tables)]
        value = torch.cat([*words, self.norm(x[:, 2:])], 1)
        output: Tensor = self.out(torch.relu(self.second(torch.tanh(self.first(value)))))
        return output


def drawn() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    words = [torch.randint(0, count, (COUNT, 1)).float() for count in (4, 9)]
    return Columns(), torch.cat([*words, torch.randn(COUNT, 3)], 1), torch.randint(0, CLASSES, (COUNT,))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", ["book-keeping", "functional"])
def test_the_sums_are_those_of_the_rules(form: Form, rule: Rule, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, features, labels = drawn()
    features[3, 2:] = float("nan")  # takes no part
    features[4, 2:] *= 1e30
    monkeypatch.setattr(joint, "_WORTH_THREADS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    clipping = Clipping(bound=0.3, rule=rule)
    asked = PrivateGradient(model=model, loss=cross_entropy, clipping=clipping, example=(features, labels), form=form)
    sums = asked.sums(features, labels)[0]
    assert any(own is not None for own in asked._form._joints._known.values())
    monkeypatch.setattr(double, "native", None)
    for a, b in zip(sums, asked._form.sums(features, labels)[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)
    assert all(bool(own.isfinite().all()) for own in sums)


def test_a_layer_of_several_positions_has_its_own_rule() -> None:
    model, labels = nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(8, CLASSES)), torch.arange(6) % CLASSES
    features = torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(1))
    clipping = Clipping(bound=0.3)
    asked = PrivateGradient(model=model, loss=cross_entropy, clipping=clipping, example=(features, labels))
    asked.sums(features, labels)
    assert set(asked._form._joints._known.values()) == {None}


def test_tensors_of_another_shape_are_read_anew() -> None:
    known = Joints()
    found = []
    for width in (3, 4, 3):
        blocks = [Block(0, "formed", 0, 0, width, width, 0)]
        found.append(known.of([torch.ones(2, width)], None, partial(list, blocks)))
    assert found[0] is found[2]
    assert found[0] is not found[1]
    for own, width in zip(found, (3, 4, 3), strict=True):
        assert own is not None
        assert own.clipped([torch.ones(2, width)], torch.ones_like).tolist() == [2.0] * width


def test_what_a_kernel_would_read_past_the_end_of_is_refused() -> None:
    rows, own = torch.tensor([0, 4]), torch.ones(2, 3)
    for blocks, like in (
        ([Block(0, "formed", 0, 0, 4, 4, 0)], [own]),
        ([Block(0, "table", 0, 1, 5, 3, 0)], [rows.int(), own]),
        ([Block(0, "table", 0, 1, 5, 3, 0)], [rows[:1].expand(2, 2), own]),
        ([Block(0, "outer", 0, 1, 3, 3, 0)], [own, own.double()]),
        ([Block(0, "outer", 0, 1, 2, 3, 0)], [torch.ones(2, 4)[:, ::2], own]),
    ):
        with pytest.raises(ValueError, match="expected 2 rows of"):
            Joint(blocks, like)
    with pytest.raises(ValueError, match="one block for each parameter"):
        Joint([Block(0, "formed", 0, 0, 3, 3, 1)], [own])
    table = Joint([Block(0, "table", 0, 1, 5, 3, 0)], [rows, own])
    assert table.clipped([rows, own], torch.ones_like).view(5, 3).sum(1).tolist() == [3.0, 0.0, 0.0, 0.0, 3.0]
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"row {wrong} of a table of 5"):
            table.clipped([torch.tensor([0, wrong]), own], torch.ones_like)
    for factors in (torch.ones(1, 3).double(), torch.ones(1, 2)):
        with pytest.raises(ValueError, match="expected factors"):
            table.clipped([rows, own], lambda _squares, own=factors: own)  # type: ignore[misc]  # bound now


def test_parts_of_a_vector_have_the_shapes_of_tensors() -> None:
    like = [torch.ones(2, 3), torch.ones(()), torch.ones(0, 4), torch.ones(5)]
    parts = joint.unflattened(torch.arange(12.0), like)
    assert [part.shape for part in parts] == [own.shape for own in like]
    assert torch.cat([part.reshape(-1) for part in parts]).tolist() == list(range(12))
