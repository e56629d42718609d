"""What models and losses do that a form may not bear: it is found by trying, or does no harm where it is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from tacit.errors import ConfigError
from tacit.training import habits
from tacit.training.batches import Holdings
from tacit.training.settings import Loss, cross_entropy
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

SIZES = [10, 7, 5, 9, 3] * 3


def _perceptron(between: Callable[[Tensor], Tensor] = torch.tanh) -> nn.Module:
    torch.manual_seed(0)
    return Custom(lambda m, x: m.b(between(m.a(x))), a=nn.Linear(6, 5), b=nn.Linear(5, CLASSES))


def _per_token(outputs: Tensor, labels: Tensor) -> Tensor:
    """The mean over the tokens of a batch that are no padding, as a sum over examples."""
    each = F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
    return each.view(labels.shape).sum(1) * len(labels) / (labels != -100).sum().clamp(min=1)


def _by_its_gradient(outputs: Tensor, labels: Tensor) -> Tensor:
    balance = outputs.mean(0).square().sum()
    return cross_entropy(outputs, labels) + (balance - balance.detach())


def _by_a_rare_label(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs, labels) / (1.0 + (labels < 0).sum())


def _words(masked: bool) -> Holdings:
    draw = torch.Generator().manual_seed(0)
    count = sum(SIZES)
    features = torch.randint(0, 11, (count, 6), generator=draw)
    labels = torch.randint(0, CLASSES, (count, 6), generator=draw)
    rows = np.split(np.arange(count), np.cumsum(SIZES)[:-1])
    if masked:
        labels[rows[10], 1:] = -100
    return Holdings(features=features, labels=labels, rows=rows)


def test_labels_that_few_clients_have_reach_nobody_else() -> None:
    module = Custom(
        lambda m, x: m.b(torch.tanh(m.a(m.e(x)))),
        e=nn.Embedding(11, 8),
        a=nn.Linear(8, 8),
        b=nn.Linear(8, CLASSES),
    )
    plain, masked = (Run(module, _words(own), settings(), loss=_per_token) for own in (False, True))
    assert (plain.form, masked.form) == ("grouped", "loop")
    masked.equals(Run(module, _words(True), settings(), form="loop", loss=_per_token))
    for client in set(range(len(SIZES))) - {10}:
        np.testing.assert_allclose(masked.updates[client], plain.updates[client], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", [_by_its_gradient, _by_a_rare_label])
def test_a_loss_that_mixes_examples_seldom_or_in_its_gradient_alone_trains_in_a_loop(loss: Loss) -> None:
    holdings = make_holdings((6,), [60] * 9)
    holdings.labels[137] = -100
    run = Run(_perceptron(), holdings, settings(), loss=loss)
    assert (run.form, "depends on the others beside it" in run.reason) == ("loop", True)


def test_a_loss_sees_one_client_at_a_time_though_nobody_noticed_that_it_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(habits, "of_loss", lambda *_: habits.OfLoss())
    module, holdings = _perceptron(), make_holdings((6,), [8, 8, 8])
    before = Run(module, holdings, settings(), loss=_by_its_gradient, form="grouped")
    holdings.features[holdings.rows[1]] *= 100.0
    after = Run(module, holdings, settings(), loss=_by_its_gradient, form="grouped")
    for client in (0, 2):
        np.testing.assert_allclose(after.updates[client], before.updates[client], rtol=1e-4, atol=1e-6)
    assert np.abs(after.updates[1] - before.updates[1]).max() > 1e-3


def test_a_loss_that_can_not_be_mapped_trains_in_a_loop() -> None:
    def branches(outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs, labels) * (2.0 if float(outputs.detach()[0, 0]) > 1e9 else 1.0)

    run = Run(_perceptron(), make_holdings((6,), [8] * 9), settings(), loss=branches)
    assert run.form == "loop"
    assert "vmap can't map its loss" in run.reason


def _listens(outputs: Tensor, labels: Tensor) -> Tensor:
    if outputs.requires_grad:
        outputs.register_hook(lambda own: 3.0 * own)  # type: ignore[no-untyped-call]  # torch gives it no types
    return cross_entropy(outputs, labels)


def _computes_again(outputs: Tensor, labels: Tensor) -> Tensor:
    return checkpoint(cross_entropy, outputs, labels, use_reentrant=False)  # type: ignore[no-any-return]  # as torch says


def _squeezes(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs, labels).squeeze()


def _beyond(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs, labels) * (1.0 + (outputs.detach() > 1.0).float().mean())


@pytest.mark.parametrize(
    ("loss", "form"), [(_listens, "loop"), (_computes_again, "loop"), (_beyond, "loop"), (_squeezes, "grouped")]
)
def test_losses_of_all_kinds_train_as_in_a_loop(loss: Loss, form: str) -> None:
    holdings = make_holdings((6,), [9] * 8)
    run = Run(_perceptron(), holdings, settings(), loss=loss)
    assert run.form == form
    run.equals(Run(_perceptron(), holdings, settings(), loss=loss, form="loop"))


def test_labels_are_looked_through_a_few_at_a_time_and_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(habits, "_AT_A_TIME", 64)
    for kind in (torch.uint8, torch.bool, torch.int64, torch.float32, torch.bfloat16):
        labels = torch.ones(5000, 7)
        labels[4321, 3] = 0.0
        assert 4321 in habits._unlike(labels.to(kind))
    assert habits._unlike(torch.zeros(3, 0)) == [0, 0]


def test_set_up_leaves_the_clients_data_as_they_are() -> None:
    def writes(m: Any, x: Tensor) -> Tensor:
        return m.out(m.table(x.clamp_(max=5)).flatten(1))  # type: ignore[no-any-return]  # torch gives it no types

    module = Custom(writes, table=nn.Embedding(6, 4), out=nn.Linear(16, CLASSES))
    holdings = make_holdings((4,), [8, 6, 9], words=9)
    before = holdings.features.clone()
    Run(module, holdings, settings())
    assert torch.equal(holdings.features, before)


def test_losses_that_are_nan_for_some_are_no_reason_to_end() -> None:
    holdings = make_holdings((6,), [8, 6, 9], scale=300.0)
    run = Run(_perceptron(lambda own: own), holdings, settings(lr=1e-6), loss=_by_logarithms)
    assert run.form


def _by_logarithms(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.nll_loss(outputs.softmax(1).log(), labels, reduction="none")


def test_rounding_of_half_precision_is_no_reason_not_to_map() -> None:
    def half(m: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.b(torch.tanh(m.a(x))).float()  # type: ignore[no-any-return]  # as above

    module = Custom(half, a=nn.Linear(16, 32), b=nn.Linear(32, CLASSES))
    assert Run(module, make_holdings((16,), [9] * 8), settings(), form="vmap").form == "vmap"


class _ByCount(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (own,) = gradients
        return float(len(own)) * own


def _balanced(values: Tensor) -> Tensor:
    """What balances experts: a term that is nothing but its gradient, of the whole batch."""
    share = values.softmax(1).mean(0).square().sum()
    return values + (share - share.detach())


@pytest.mark.parametrize("between", [_balanced, _ByCount.apply])
def test_a_gradient_that_depends_on_the_batch_is_not_mapped(between: Any) -> None:
    module, holdings = _perceptron(lambda own: torch.tanh(between(own))), make_holdings((6,), [10, 7, 5, 9])
    run = Run(module, holdings, settings())
    assert (run.form, "depends on the batch" in run.reason) == ("loop", True)
    run.equals(Run(module, holdings, settings(), form="loop"))


def test_what_vmap_maps_to_something_else_is_not_mapped() -> None:
    module = Custom(
        lambda m, x: m.out(torch.relu(m.c(x)).as_strided((x.shape[0], 512), (512, 1))),
        c=nn.Conv2d(3, 8, 3, padding=1),
        out=nn.Linear(512, CLASSES),
    )
    holdings = make_holdings((3, 8, 8), [10, 8, 6, 10, 2, 4, 8, 8])
    Run(module, holdings, settings()).equals(Run(module, holdings, settings(), form="loop"))
    with pytest.raises(ConfigError, match="vmap maps it to something else"):
        Run(module, holdings, settings(), form="vmap")


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_loss_may_ask_for_a_view_of_outputs_that_are_no_images() -> None:
    module = Custom(
        lambda m, x: m.b(F.relu(m.n(m.a(x)))).flatten(2),
        a=nn.Conv2d(3, 32, 3, padding=1),
        n=nn.BatchNorm2d(32),
        b=nn.Conv2d(32, 2, 3, padding=1),
    )
    drawn = make_holdings((3, 16, 16), [20, 12])
    wanted = (drawn.features[:, :2].flatten(2) > 0).float()
    holdings = Holdings(features=drawn.features, labels=wanted, rows=list(drawn.rows))

    def viewed(outputs: Tensor, labels: Tensor) -> Tensor:
        wanted = labels.view(len(labels), -1)
        return F.binary_cross_entropy_with_logits(outputs.view(len(labels), -1), wanted, reduction="none").mean(1)

    Run(module, holdings, settings(), loss=viewed).equals(Run(module, holdings, settings(), loss=viewed, form="loop"))


def _packed(rnn: Any, values: Tensor) -> Tensor:
    lengths = torch.full((len(values),), values.shape[1])
    return rnn(pack_padded_sequence(values, lengths, batch_first=True))[1][-1]  # type: ignore[no-any-return]


RECURRING: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "packed": _packed,
    "by name": lambda rnn, x: rnn(input=x, hx=torch.zeros(2, len(x), 8))[0][:, -1],
    "one at a time": lambda rnn, x: torch.stack([rnn(own)[0][-1] for own in x]),
    "all weights": lambda rnn, x: rnn(x)[0][:, -1] + 0.0 * rnn.all_weights[0][0].sum(),
}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("called", RECURRING.values(), ids=RECURRING.keys())
def test_recurrent_layers_may_be_called_in_any_way_that_torch_knows(called: Any, dropout: float) -> None:
    torch.manual_seed(0)
    module = Custom(
        lambda m, x: m.out(called(m.rnn, x)),
        rnn=nn.GRU(4, 8, num_layers=2, dropout=dropout, batch_first=True),
        out=nn.Linear(8, CLASSES),
    )
    holdings = make_holdings((5, 4), [8, 6, 9])
    Run(module, holdings, settings()).equals(Run(module, holdings, settings(), form="loop"))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("how", ["one at a time", "its weight"])
def test_attention_may_be_called_in_any_way_that_torch_knows(how: str, dropout: float) -> None:
    def called(m: Any, x: Tensor) -> Tensor:
        if how == "its weight":
            return m.att(x, x, x)[0].mean(1) + 0.0 * m.att.in_proj_weight.sum()  # type: ignore[no-any-return]
        return torch.stack([m.att(own, own, own)[0].mean(0) for own in x])

    torch.manual_seed(0)
    module = Custom(
        lambda m, x: m.out(called(m, x)),
        att=nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True),
        out=nn.Linear(8, CLASSES),
    )
    holdings = make_holdings((5, 8), [8, 6, 9])
    Run(module, holdings, settings()).equals(Run(module, holdings, settings(), form="loop"))


INPLACE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "function": lambda m, h: (F.dropout(h, 0.999999, m.training, True), h)[1],
    "layer": lambda m, h: (m.drop(h), h)[1],
    "residual": lambda m, h: m.drop(h) + h,
    "by name": lambda m, h: m.drop(input=h),
}


@pytest.mark.parametrize("form", ["auto", "loop"])
@pytest.mark.parametrize("dropped", INPLACE.values(), ids=INPLACE.keys())
def test_dropout_in_place_drops_what_others_see_too(dropped: Any, form: Any) -> None:
    torch.manual_seed(0)
    module = Custom(
        lambda m, x: m.b(dropped(m, 2.0 * m.a(x))),
        a=nn.Linear(6, 5),
        drop=nn.Dropout(0.999999, inplace=True),
        b=nn.Linear(5, CLASSES),
    )
    run = Run(module, make_holdings((6,), [8, 6, 9]), settings(), form=form)
    first = 6 * 5 + 5
    for update in run.updates.values():
        assert not update[:first].any()
        assert update[first:].any()


def test_a_loss_of_ones_own_that_can_not_be_tried_trains_in_a_loop() -> None:
    calls = []

    def stumbles(outputs: Tensor, labels: Tensor) -> Tensor:
        calls.append(0)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        return cross_entropy(outputs, labels)

    run = Run(_perceptron(), make_holdings((6,), [9] * 8), settings(), loss=stumbles)
    assert (run.form, run.reason) == ("loop", "its loss can't be tried (not yet)")
