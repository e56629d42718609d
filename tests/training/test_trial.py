"""What is said of a model and its loss before training begins, on copies of the model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.outputs import as_tensors
from tacit.training.settings import Loss, cross_entropy
from tacit.training.trial import check_fit, check_trains, lone_norms

FEATURES = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
LABELS = (FEATURES[:, 0] > 0).long()


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 2, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, value: Tensor) -> Tensor:
        return self.base(value) + self.up(self.down(value))  # type: ignore[no-any-return]  # torch gives it no types


class Trained(Adapted):
    """Its adapters are there in training only."""

    def forward(self, value: Tensor) -> Tensor:
        return super().forward(value) if self.training else self.base(value)


class Writes(nn.Module):
    """Changes what it holds whenever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.asked = nn.Linear(4, 2), 0
        self.frozen = nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, value: Tensor) -> Tensor:
        self.asked += 1
        with torch.no_grad():
            self.layer.bias.add_(1.0)
            if not self.training:
                self.frozen.mul_(0.5)
        return self.frozen * self.layer(value)  # type: ignore[no-any-return]  # torch gives it no types


class Unfollowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, value: Tensor) -> Tensor:
        with torch.no_grad():
            return self.layer(value)  # type: ignore[no-any-return]  # torch gives it no types


def half() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    return module


def nan(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs, labels) * float("nan")


def root_of_zero(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss of numbers, whose gradient is NaN."""
    return cross_entropy(outputs, labels) + (0.0 * outputs).abs().sqrt().sum(1)


def test_a_pass_that_writes_to_what_is_frozen_is_refused_and_the_model_is_as_it_was() -> None:
    module = Writes()
    before = {name: own.clone() for name, own in module.state_dict().items()}
    with as_tensors(module, FEATURES), pytest.raises(ConfigError, match="'frozen' is frozen, and a pass in evaluation"):
        check_fit(module, cross_entropy, FEATURES, LABELS)
    assert all(torch.equal(own, before[name]) for name, own in module.state_dict().items())
    assert (module.asked, module.training) == (0, True)


@pytest.mark.parametrize("blank", [8, 90])
def test_adapters_whose_first_examples_are_blank_train(blank: int) -> None:
    features = FEATURES.clone()
    features[:blank] = 0.0
    check_trains(Adapted(), cross_entropy, features, LABELS)


def test_adapters_train_on_labels_in_order_of_which_some_are_ignored() -> None:
    def ignoring(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels, ignore_index=0, reduction="none")

    check_trains(Adapted(), ignoring, FEATURES, (torch.arange(96) > 92).long())


def test_adapters_that_are_there_in_training_only_train() -> None:
    module = Trained()
    check_trains(module, cross_entropy, FEATURES, LABELS)
    assert not module.up.weight.any()


def test_one_example_is_enough() -> None:
    norm = nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.BatchNorm1d(3), nn.Linear(3, 2))
    check_trains(norm, cross_entropy, FEATURES[:1], LABELS[:1])


@pytest.mark.parametrize(
    ("build", "loss", "said"),
    [
        (Unfollowed, cross_entropy, r"reaches the 10 numbers of Unfollowed .* torch.no_grad\(\), .detach\(\)"),
        (half, nan, "loss of Sequential or its gradient is NaN for all of the 96 examples"),
        (half, root_of_zero, "loss of Sequential or its gradient is NaN"),
        (lambda: nn.Linear(4, 2), nan, "loss of Linear or its gradient is NaN"),
    ],
)
def test_what_nothing_can_be_learnt_from_is_refused(build: Callable[[], nn.Module], loss: Loss, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_trains(build(), loss, FEATURES, LABELS)


def test_a_model_that_has_nothing_left_to_learn_is_no_mistake() -> None:
    module = nn.Linear(4, 2)
    nn.init.zeros_(module.weight)
    check_trains(module, cross_entropy, torch.zeros(9, 4), LABELS[:9])


@pytest.mark.parametrize("build", [lambda: nn.LazyLinear(2), lambda: nn.utils.weight_norm(nn.Linear(4, 2))])
@pytest.mark.filterwarnings("ignore")
def test_lazy_layers_learn_their_sizes_and_computed_weights_are_copied(build: Callable[[], nn.Module]) -> None:
    module = build()
    if not isinstance(module, nn.LazyLinear):
        module(FEATURES)
    check_fit(module, cross_entropy, FEATURES, LABELS)
    check_trains(module, cross_entropy, FEATURES, LABELS)
    assert sum(own.numel() for own in module.parameters()) >= 10


def test_a_model_that_has_no_copy_is_refused() -> None:
    module = nn.Linear(4, 2)
    module.generator = (number for number in range(3))  # type: ignore[assignment]  # nobody can copy it
    with pytest.raises(ConfigError, match=r"The model \(Linear\) can't be copied \(cannot pickle 'generator' object\)"):
        check_fit(module, cross_entropy, FEATURES, LABELS)


@pytest.mark.parametrize("wrong", [10, -1])
@pytest.mark.parametrize("columns", [3, 200])
def test_a_number_for_which_a_table_has_no_row_is_told_before_training(wrong: int, columns: int) -> None:
    words = torch.randint(0, 10, (500, columns), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(4 * columns, 3))
    labels = torch.zeros(500, dtype=torch.int64)
    check_fit(model, cross_entropy, words, labels)
    words[1, 1] = wrong  # among the first, which are tried with the loss
    with pytest.raises(ConfigError, match=r"index out of range in self \(IndexError\). An nn.Embedding needs a row"):
        check_fit(model, cross_entropy, words, labels)
    words[1, 1], words[377, 1] = 0, wrong
    with pytest.raises(ConfigError, match=rf"numbers run from {min(wrong, 0)} to {max(wrong, 9)}: index out of range"):
        check_fit(model, cross_entropy, words, labels)


@pytest.mark.parametrize("kind", [torch.uint8, torch.uint16, torch.bool, torch.int32, torch.float32])
def test_models_that_take_no_example_alone_are_not_blamed_for_it(kind: torch.dtype) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm = nn.Embedding(10, 4), nn.BatchNorm1d(4, track_running_stats=False)
            self.out = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.norm(self.table(x.long()).mean(1)))  # type: ignore[no-any-return]  # torch gives no types

    for count in (2, 48):
        words = torch.randint(0, 2, (count, 5), generator=torch.Generator().manual_seed(count)).to(kind)
        check_fit(Normed(), cross_entropy, words, torch.zeros(count, dtype=torch.int64))


@pytest.mark.parametrize("kind", [torch.uint8, torch.uint16, torch.int32])
def test_numbers_of_any_kind_are_told(kind: torch.dtype) -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.table(x.long()).mean(1)  # type: ignore[no-any-return]  # torch gives it no types

    words = torch.zeros(48, 5, dtype=torch.int64)
    words[31, 2] = 200
    with pytest.raises(ConfigError, match="numbers run from 0 to 200"):
        check_fit(Looks(), cross_entropy, words.to(kind), torch.zeros(48, dtype=torch.int64))


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), IndexError("index 7 is out of bounds")])
def test_a_model_that_bears_smaller_batches_only_is_not_told_of_rows(error: Exception) -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 3)

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 4:
                raise error
            return self.table(x).mean(1)  # type: ignore[no-any-return]  # as above

    words = torch.randint(0, 10, (48, 5), generator=torch.Generator().manual_seed(0))
    check_fit(Small(), cross_entropy, words, torch.zeros(48, dtype=torch.int64))


def test_trials_leave_features_and_labels_as_they_are() -> None:
    def writes(outputs: Tensor, labels: Tensor) -> Tensor:
        labels[labels < 0] = 0
        return cross_entropy(outputs, labels)

    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.norm(x.mul_(2.0)))  # type: ignore[no-any-return]  # as above

    features, labels = torch.randn(48, 4), torch.full((48,), -100)
    before = features.clone(), labels.clone()
    model = Doubles()
    check_fit(model, writes, features, labels)
    check_trains(model, writes, features, labels)
    lone_norms(model, features)
    assert torch.equal(features, before[0])
    assert torch.equal(labels, before[1])


def test_each_column_of_a_table_has_its_own_largest_number() -> None:
    class Columns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(rows, 2) for rows in (3, 50)])
            self.out = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            found = [table(x[:, number].long()) for number, table in enumerate(self.tables)]
            return self.out(torch.cat(found, 1))  # type: ignore[no-any-return]  # torch gives it no types

    draw = torch.Generator().manual_seed(0)
    columns = torch.stack([torch.randint(0, rows, (500,), generator=draw) for rows in (3, 50)], 1).float()
    labels = torch.zeros(500, dtype=torch.int64)
    check_fit(Columns(), cross_entropy, columns, labels)
    columns[123, 0] = 3.0  # the second has room for it
    with pytest.raises(ConfigError, match=r"can't take all examples of the training data"):
        check_fit(Columns(), cross_entropy, columns, labels)
