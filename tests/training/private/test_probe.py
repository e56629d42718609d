from __future__ import annotations

import copy
import random
import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tacit.errors import ConfigError
from tacit.training.private.book_keeping import BookKeeping
from tacit.training.private.clipping import Clipping
from tacit.training.private.normalisation import check_normalisation, without_batch_norm
from tacit.training.private.probe import check_examples_apart
from tacit.training.settings import Loss, cross_entropy, squared_error


def probe(model: nn.Module, features: Tensor | None = None, loss: Loss = cross_entropy) -> None:
    torch.manual_seed(7)
    if features is None:
        features = torch.randn(5, 4)
    check_examples_apart(model, loss, features, torch.arange(len(features)) % 2)


class Centre(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, value: Tensor) -> Tensor:
        return value - value.mean(0)


class Counting(nn.Module):
    """Keeps a running mean of its inputs."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, value: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(value.detach().mean(0), alpha=0.1)
        return value


class OwnDropout(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return nn.functional.dropout(value, training=self.training)


class AcrossBatch(nn.Module):
    """Attention that takes the batch for the sequence: a common mistake with batch_first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1)
        self.out = nn.Linear(4, 2)

    def forward(self, value: Tensor) -> Tensor:
        mixed, _ = self.attention(value, value, value)
        output: Tensor = self.out(mixed)
        return output


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Sequential(nn.Linear(4, 4), Centre(), nn.Linear(4, 2)), r"The layer '1' \(Centre\)"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=0), nn.Linear(4, 2)), r"The layer '1' \(Softmax\)"),
        (AcrossBatch(), "mixes the examples of a batch"),
    ],
)
def test_layers_that_mix_examples_are_named(model: nn.Module, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        probe(model)


def test_a_statistic_that_is_kept_is_refused_and_left_as_it_was() -> None:
    model = nn.Sequential(Counting(), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"The buffer '0\.mean' changes with the data"):
        probe(model)
    assert dict(model.named_buffers())["0.mean"].tolist() == [0.0] * 4


class Spreading(nn.Module):
    """Mixes features by a table that leaves out zeros, and may count how often it did."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.keeps = keeps
        self.register_buffer("graph", torch.eye(4).to_sparse(), persistent=False)

    def forward(self, value: Tensor) -> Tensor:
        graph = dict(self.named_buffers())["graph"]
        if self.keeps:
            self.graph = graph + value.detach().mean() * graph
        return (graph @ value.T).T


def test_a_sparse_table_is_looked_at_as_any_other() -> None:
    probe(nn.Sequential(Spreading(keeps=False), nn.Linear(4, 2)))
    with pytest.raises(ConfigError, match=r"The buffer '0\.graph' changes with the data"):
        probe(nn.Sequential(Spreading(keeps=True), nn.Linear(4, 2)))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 4), OwnDropout(), nn.Linear(4, 2)),
    ],
)
def test_what_keeps_examples_apart_passes(model: nn.Sequential) -> None:
    model.eval()
    model[0].train()
    probe(model)
    assert [m.training for m in model.modules()][:2] == [False, True]  # its modes are as they were
    probe(model, torch.randn(1, 4))


def test_it_computes_in_full_precision_and_gives_torchs_switches_back() -> None:
    seen = []

    class Watching(nn.Linear):
        def forward(self, value: Tensor) -> Tensor:
            seen.append((torch.backends.cudnn.enabled, torch.get_float32_matmul_precision()))
            return super().forward(value)

    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ConfigError, match="mixes"):
            probe(nn.Sequential(Watching(4, 4), Centre()))
        assert (torch.backends.cudnn.enabled, torch.get_float32_matmul_precision()) == (True, "high")
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {(False, "highest")}


class Mixup(nn.Module):
    """Mixes every example with another while it trains, by one of three generators (Zhang et al. 2018)."""

    def __init__(self, generator: str, chance: float = 1.0) -> None:
        super().__init__()
        self.generator, self.chance = generator, chance
        self.out = nn.Linear(4, 2)

    def forward(self, value: Tensor) -> Tensor:
        if self.training:
            draw, order = self._drawn(len(value))
            if draw[0] < self.chance:
                value = draw[1] * value + (1.0 - draw[1]) * value[torch.as_tensor(order)]
        output: Tensor = self.out(value)
        return output

    def _drawn(self, examples: int) -> tuple[list[float], list[int]]:
        if self.generator == "torch":
            return torch.rand(2).tolist(), torch.randperm(examples).tolist()
        if self.generator == "numpy":
            return np.random.rand(2).tolist(), np.random.permutation(examples).tolist()  # noqa: NPY002
        return [random.random(), random.random()], random.sample(range(examples), examples)


class Remembering(nn.Module):
    """Keeps a running mean in a plain attribute, of one kind or another."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.kind = kind
        self.seen: object = {"tensor": torch.zeros(4), "float": 0.0, "list": [], "array": np.zeros(4)}[kind]

    def forward(self, value: Tensor) -> Tensor:
        mean = value.detach().mean(0)
        if self.kind == "tensor":
            assert isinstance(self.seen, Tensor)
            self.seen = 0.9 * self.seen + 0.1 * mean
        elif self.kind == "float":
            self.seen = float(mean.mean())
        elif self.kind == "list":
            assert isinstance(self.seen, list)
            self.seen.append(mean)
        else:
            self.seen = mean.numpy()
        output: Tensor = self.out(value)
        return output


class Hidden(nn.Module):
    """Keeps a running mean where no walk over attributes finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)
        memory = [torch.zeros(4)]

        def centred(value: Tensor) -> Tensor:
            before = memory[0]
            memory[0] = 0.5 * before + 0.5 * value.detach().mean(0)
            return value - before

        self.centred = centred

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(self.centred(value))
        return output


class Scheduled(nn.Module):
    """Counts its passes, which tells nothing of the data."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.passes = 0
        self.register_buffer("count", torch.zeros(()))

    def forward(self, value: Tensor) -> Tensor:
        self.passes += 1
        self.count += 1
        output: Tensor = self.out(value) / self.passes
        return output


class _Backwards(torch.autograd.Function):
    """Says nothing on the way there; on the way back every example's gradient is divided by the batch's largest."""

    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient / gradient.abs().max()


class Backwards(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(_Backwards.apply(self.inner(value)))  # type: ignore[no-untyped-call]
        return output


class Unseedable(nn.Module):
    """Draws from a generator of the system's."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.out(value * float(np.random.default_rng().random()))
        return output


@pytest.mark.parametrize("generator", ["torch", "numpy", "python"])
@pytest.mark.parametrize("chance", [1.0, 0.5])
def test_mixup_inside_the_model_is_refused(generator: str, chance: float) -> None:
    for mode in (True, False):  # whatever mode it is in now: it will train
        with pytest.raises(ConfigError, match="mixes the examples of a batch"):
            probe(Mixup(generator, chance).train(mode))


def test_mixup_that_is_refused_would_have_moved_the_sum_by_more_than_two_bounds() -> None:
    """The attack: one example is exchanged, and with it the gradients of those it was mixed into."""
    torch.manual_seed(0)
    model = Mixup("torch")
    features, labels = torch.full((6, 4), 0.1), torch.full((6, 2), 1e6)
    form = BookKeeping(model, squared_error, Clipping(bound=1.0))
    moved = []
    for seed in range(20):
        sums = []
        for value in (-100.0, 100.0):
            features[0] = value
            torch.manual_seed(seed)
            sums.append(torch.cat([own.reshape(-1) for own in form.sums(features, labels)[0]]))
        moved.append(float((sums[0] - sums[1]).norm()))
    assert max(moved) > 3.0  # 2 is the most that two clipped gradients can differ by


@pytest.mark.parametrize("kind", ["tensor", "float", "list", "array"])
def test_what_is_kept_in_a_plain_attribute_is_refused_and_left_as_it_was(kind: str) -> None:
    model = Remembering(kind)
    before = copy.deepcopy(model.seen)
    with pytest.raises(ConfigError, match=r"The attribute 'seen.*' changes with the data"):
        probe(model)
    assert str(model.seen) == str(before)


def test_a_parameter_that_the_forward_pass_changes_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(9, 4, max_norm=0.1), nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(ConfigError, match=r"The parameter '0\.weight' changes with the data"):
        probe(model, torch.randint(0, 9, (5, 3)))


def test_what_is_kept_out_of_sight_is_refused_where_it_changes_a_later_pass() -> None:
    with pytest.raises(ConfigError, match="keeps something of earlier passes out of sight"):
        probe(Hidden())


def test_a_count_of_passes_is_no_data() -> None:
    probe(Scheduled())


def test_a_backward_pass_that_mixes_is_refused() -> None:
    with pytest.raises(ConfigError, match="The backward pass of the model"):
        probe(Backwards())


def test_a_loss_that_mixes_is_refused() -> None:
    def relative(outputs: Tensor, labels: Tensor) -> Tensor:
        losses = cross_entropy(outputs, labels)
        return losses / losses.mean()

    with pytest.raises(ConfigError, match="or its loss mixes the examples"):
        probe(nn.Linear(4, 2), loss=relative)
    with pytest.raises(ConfigError, match="one number per example"):
        probe(nn.Linear(4, 2), loss=lambda outputs, labels: cross_entropy(outputs, labels).mean())


def test_a_division_by_the_size_of_the_batch_is_refused() -> None:
    class Divided(nn.Linear):
        def forward(self, value: Tensor) -> Tensor:
            return super().forward(value) / len(value)

    with pytest.raises(ConfigError, match="mixes the examples"):
        probe(Divided(4, 2))


def test_randomness_that_no_seed_fixes_is_refused() -> None:
    with pytest.raises(ConfigError, match="random numbers that no seed of torch, NumPy or Python"):
        probe(Unseedable())


def test_a_model_that_has_no_copy_is_refused_with_the_reason() -> None:
    model = nn.Linear(4, 2)
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="can't be copied"):
        probe(model)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_that_know_no_examples_are_refused_with_a_way_out(reentrant: bool) -> None:
    class Forgetful(nn.Sequential):
        def forward(self, value: Tensor) -> Tensor:
            states = checkpoint(self[1], self[0](value), use_reentrant=reentrant)
            return torch.tanh(states)

    model = Forgetful(nn.Linear(4, 4), nn.Linear(4, 2))
    if not reentrant:
        probe(model)
        return
    with pytest.raises(ConfigError, match="use_reentrant=False"):
        probe(model)


def test_the_generators_of_others_are_left_as_they_were() -> None:
    model = Mixup("numpy")
    states = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # type: ignore[index]  # noqa: NPY002
    with pytest.raises(ConfigError):
        check_examples_apart(model, cross_entropy, torch.ones(3, 4) * torch.arange(3)[:, None], torch.tensor([0, 1, 0]))
    assert states == [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # type: ignore[index]  # noqa: NPY002


def test_words_and_computed_attributes_pass() -> None:
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(), nn.Linear(12, 2))
    probe(words, torch.randint(0, 9, (5, 3)))
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    probe(normed)


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.InstanceNorm2d(4, track_running_stats=True)],
)
def test_batch_norm_is_refused_with_a_way_out(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), layer)
    with pytest.raises(ConfigError, match=rf"{type(layer).__name__} at '1'.*tacit.fix"):
        check_normalisation(model)
    check_normalisation(without_batch_norm(model))


def test_instance_norm_without_statistics_is_one_examples_own() -> None:
    check_normalisation(nn.Sequential(nn.InstanceNorm2d(4)))


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (2, 1), (4, 2), (32, 16), (48, 24), (64, 32), (7, 1)])
def test_the_converter_keeps_scale_and_shift(channels: int, groups: int) -> None:
    model = nn.Sequential(nn.Sequential(nn.BatchNorm2d(channels)))
    nn.init.constant_(model[0][0].weight, 3.0)  # type: ignore[index]
    converted = without_batch_norm(model)
    norm = converted[0][0]  # type: ignore[index]
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == groups
    assert norm.weight.tolist() == [3.0] * channels
    assert isinstance(model[0][0], nn.BatchNorm2d)  # type: ignore[index]  # the model itself stays


class Rounding(nn.Module):
    """Two layers in half precision, in which a share of the batch's mean may be mixed."""

    def __init__(self, kind: torch.dtype, share: float, *, casts: bool) -> None:
        super().__init__()
        self.first, self.out, self.share = nn.Linear(4, 32), nn.Linear(32, 2), share
        self.kind, self.casts = kind, casts
        if not casts:
            self.to(kind)

    def forward(self, value: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.kind, enabled=self.casts):
            hidden = torch.relu(self.first(value if self.casts else value.to(self.first.weight.dtype)))
            output: Tensor = self.out(hidden + self.share * hidden.mean(0))
        return output


@pytest.mark.parametrize("casts", [False, True], ids=["parameters", "autocast"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_rounding_in_half_precision_is_no_mixture(kind: torch.dtype, casts: bool) -> None:
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs.float(), labels)

    torch.manual_seed(0)
    probe(Rounding(kind, 0.0, casts=casts), loss=loss)
    for share in (1.0, 0.01):
        with pytest.raises(ConfigError, match="mixes the examples"):
            probe(Rounding(kind, share, casts=casts), loss=loss)


def test_rounding_that_can_not_be_told_from_a_mixture_is_taken_for_one() -> None:
    class Single(Rounding):
        def forward(self, value: Tensor) -> Tensor:
            assert self.first.weight.dtype == self.kind  # so that nothing can be computed in double precision
            return super().forward(value)

    torch.manual_seed(0)
    with pytest.raises(ConfigError, match="mixes the examples"):
        probe(Single(torch.bfloat16, 0.0, casts=False))


@pytest.mark.parametrize("casts", [False, True], ids=["parameters", "autocast"])
def test_a_mixture_that_half_precision_alone_has_is_seen_in_what_stays(casts: bool) -> None:
    class Quantised(Rounding):
        def forward(self, value: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=self.kind, enabled=self.casts):
                hidden = self.first(value if self.casts else value.to(self.first.weight.dtype)).tanh()
                if hidden.dtype == self.kind:  # by the largest of the batch
                    step = hidden.detach().abs().amax() / 127
                    hidden = hidden + ((hidden / step).round() * step - hidden).detach()
                output: Tensor = self.out(hidden)
            return output

    torch.manual_seed(0)
    with pytest.raises(ConfigError, match="mixes the examples"):
        probe(Quantised(torch.bfloat16, 0.0, casts=casts), loss=lambda out, labels: cross_entropy(out.float(), labels))
