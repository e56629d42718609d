"""On an NVIDIA GPU: the captured graph gives what the CPU gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.tasks.models import build
from tacit.training import cost, habits
from tacit.training.batches import Holdings
from tacit.training.captured import CapturedTrainer, _streams, capture_stream
from tacit.training.cohort import Moved
from tacit.training.evaluation import Evaluator
from tacit.training.forms import Form, cohort_trainer
from tacit.training.private.captured import _Graphs
from tacit.training.private.clients import PrivateClients
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.steps import PoissonBatches, _copying
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tacit_labs.bench.documented.models.zoo import ZOO

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
]

SMOOTH = LocalTraining(epochs=2, batch_size=8, lr=0.05, momentum=0.9, weight_decay=1e-3, grad_clip=1.0, mu=0.1)
ONE_EPOCH = LocalTraining(epochs=1, batch_size=10, lr=0.05)


@pytest.fixture(autouse=True)
def _as_on_a_cpu() -> Iterator[None]:
    """In full precision, and without leftovers."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before
    torch.cuda.empty_cache()


def smooth_cnn() -> nn.Module:
    """A model without rectifiers and max-pools, on which rounding errors stay small."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.GroupNorm(2, 8),
        nn.Tanh(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 6 * 6, 10),
    )  # fmt: skip


def train(
    module: nn.Module, device: str, settings: LocalTraining, sizes: list[int], *, form: Form = "auto", rounds: int = 1
) -> NDArray[np.float32]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(sum(sizes), 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (sum(sizes),), generator=generator)
    ends = np.cumsum(sizes)
    holdings = Holdings(
        features=features.to(device), labels=labels.to(device), rows=np.split(np.arange(ends[-1]), ends[:-1])
    )
    trainer = cohort_trainer(module=module, holdings=holdings, settings=settings, loss=cross_entropy, form=form)
    model = trainer.layout.read(module).numpy()
    updates = np.zeros((len(sizes), len(model)), np.float32)

    def finish(client: int, update: NDArray[np.float32], loss: float) -> None:
        assert np.isfinite(loss)
        updates[client] = update

    for number in range(1, rounds + 1):  # later rounds replay the captured graph
        keys = np.arange(len(sizes), dtype=np.int64) + 100 * number
        trainer.train(model, list(range(len(sizes))), keys, number, finish)
        model = model + updates.mean(0)
    trainer.close()
    return updates


@pytest.mark.parametrize("form", ["grouped", "vmap", "loop"])
@pytest.mark.parametrize("sizes", [[16, 16, 16], [21, 9, 3], [2, 90, 8, 1, 40, 9]], ids=["even", "ragged", "skewed"])
def test_same_updates_as_on_the_cpu(form: Form, sizes: list[int]) -> None:
    module = smooth_cnn()
    expected = train(module, "cpu", SMOOTH, sizes, form="loop", rounds=2)
    found = train(module, "cuda", SMOOTH, sizes, form=form, rounds=2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)


def test_attention_trains_in_the_form_that_the_rules_choose() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(28, 2, 16, 0.0, batch_first=True)
    module = nn.Sequential(nn.Flatten(1, 2), layer, nn.Flatten(), nn.Linear(28 * 28, 10))
    expected = train(module, "cpu", ONE_EPOCH, [20, 20, 12], form="loop")
    np.testing.assert_allclose(train(module, "cuda", ONE_EPOCH, [20, 20, 12]), expected, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("form", ["grouped", "vmap"])
def test_updates_that_stay_on_the_gpu_are_the_same(form: Form) -> None:
    module, features, labels = smooth_cnn(), torch.randn(40, 1, 28, 28), torch.randint(0, 10, (40,))
    rows = np.split(np.arange(40), [16, 32])
    holdings = Holdings(features=features.cuda(), labels=labels.cuda(), rows=rows)
    trainer = cohort_trainer(module=module, holdings=holdings, settings=ONE_EPOCH, loss=cross_entropy, form=form)
    assert trainer.adds
    model, keys = trainer.layout.read(module).numpy(), np.arange(3)
    expected: dict[int, NDArray[np.float32]] = {}
    trainer.train(model, [0, 1, 2], keys, 1, lambda client, update, _: expected.__setitem__(client, update.copy()))
    found: dict[int, NDArray[np.float32]] = {}

    def take(clients: Sequence[int], moved: Moved, losses: NDArray[np.float64]) -> None:
        found.update({client: moved.row(place) for place, client in enumerate(clients)})
        stacked = np.stack([moved.row(place) for place in range(len(clients))]).astype(np.float64)
        np.testing.assert_allclose(moved.norms(), np.linalg.norm(stacked, axis=1))
        factors = np.linspace(0.5, 1.5, len(clients))
        np.testing.assert_allclose(moved.weighted_sum(factors), factors @ stacked, rtol=1e-5, atol=1e-7)

    trainer.train_rows(model, [0, 1, 2], keys, 1, take)
    trainer.close()
    for client, update in expected.items():
        np.testing.assert_allclose(found[client], update, rtol=1e-5, atol=1e-8)


def test_the_lab_cnn_on_a_cohort() -> None:
    module = build("cnn", shape=(1, 28, 28), classes=10, seed=1)
    expected = train(module, "cpu", ONE_EPOCH, [60] * 20)
    found = train(module, "cuda", ONE_EPOCH, [60] * 20)
    # Rectifiers and max-pools: a rounding error may flip a unit of one client, so norms are compared.
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 5e-3


def test_the_learning_rate_of_a_captured_graph_can_change() -> None:
    module = smooth_cnn()
    settings = LocalTraining(epochs=1, batch_size=8, lr=0.1, decay=0.5)
    expected = train(module, "cpu", settings, [16, 16], form="loop", rounds=3)
    np.testing.assert_allclose(train(module, "cuda", settings, [16, 16], rounds=3), expected, rtol=1e-3, atol=2e-6)


def test_evaluation() -> None:
    module = smooth_cnn()
    features, labels = torch.randn(700, 1, 28, 28), torch.randint(0, 10, (700,))
    scores = []
    for device in ("cpu", "cuda"):
        evaluator = Evaluator(module=module, loss=cross_entropy, device=torch.device(device), workers=2)
        vector = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()
        scores.append(evaluator.score(vector, features.to(device), labels.to(device)))
        evaluator.close()
    assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-4)
    assert scores[0].accuracy == pytest.approx(scores[1].accuracy, abs=0.005)


class Counting(nn.Module):
    """Counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out, self.passes = nn.Linear(784, 8), nn.Linear(8, 10), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        scores: Tensor = self.out(torch.tanh(self.first(x.flatten(1))).cumsum(1))
        return scores


def test_a_pass_that_counts_is_not_repeated_by_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, found in (("keeps", False), ("why_unmapped", "")):  # which see it sooner
        monkeypatch.setattr(habits, name, lambda *_, found=found: found)
    module = Counting()
    rows = np.split(np.arange(40), 2)
    holdings = Holdings(
        features=torch.randn(40, 1, 28, 28).cuda(), labels=torch.randint(0, 10, (40,)).cuda(), rows=rows
    )
    trainer = cohort_trainer(module=module, holdings=holdings, settings=ONE_EPOCH, loss=cross_entropy, form="vmap")
    model = trainer.layout.read(module).numpy()
    trainer.train(model, [0, 1], np.arange(2), 1, lambda *_: None)
    captured = trainer._idle.get()
    trainer._idle.put(captured)
    trainer.close()
    assert isinstance(captured, CapturedTrainer)
    assert captured._fails
    assert not captured._captures
    assert bool(torch.randn(3, device="cuda").any())  # nobody takes the capture to go on


class Asking(nn.Module):
    """Asks what it computes something, which no graph can repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.out = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        values = self.norm(self.layer(x))
        scores: Tensor = self.out(values if bool(values.detach().abs().amax() > 0.0) else -values)
        return scores


def summed(model: nn.Module, steps: int = 5) -> int:
    """Sum gradients of the same examples so many times, and return how many graphs there are then."""
    features, labels = torch.randn(16, 6).cuda(), torch.arange(16).cuda() % 3
    own = PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=0.3), example=(features, labels))
    assert own.form == "book-keeping"
    for _ in range(steps):
        found, plain = own.sums(features, labels)[0], own._form.sums(features, labels)[0]
        for one, other in zip(found, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert own._repeated is not None
    return sum(len(state._captures) for state in own._repeated._states.values() if isinstance(state, _Graphs))


def test_a_graph_that_can_not_be_is_no_burden_to_others() -> None:
    torch.manual_seed(0)
    assert summed(Asking().cuda()) == 0
    assert bool(torch.randn(3, device="cuda").any())  # nobody takes the capture to go on
    assert summed(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Dropout(0.0), nn.Linear(8, 3)).cuda()) == 1


def test_losses_that_somebody_keeps_are_no_burden_to_graphs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)).cuda()
    kept = model(torch.randn(4, 6).cuda()).sum()
    assert summed(model) == 1
    kept.backward()
    assert bool(torch.randn(3, device="cuda").any())


@pytest.mark.parametrize("form", ["auto", "functional"])
def test_deep_networks_are_compared_beyond_what_rounding_decides(form: Any) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        features, labels = ZOO["resnet18"].data(6)
        gradient = PrivateGradient(
            model=ZOO["resnet18"].build().cuda(),
            loss=cross_entropy,
            clipping=Clipping(bound=1.0),
            example=(features.cuda(), labels.cuda()),
            form=form,
        )
        assert gradient.form == ("book-keeping" if form == "auto" else form)


def test_a_model_that_fills_the_gpu_trains_by_client_in_one_graph() -> None:
    def wide() -> nn.Module:
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 1024, 3, padding=1), nn.Tanh(), nn.Conv2d(1024, 512, 3, padding=1, stride=2), nn.Tanh()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 14 * 14, 10))

    module, rows = wide(), np.split(np.arange(48), 3)
    holdings = Holdings(
        features=torch.randn(48, 1, 28, 28).cuda(), labels=torch.randint(0, 10, (48,)).cuda(), rows=rows
    )
    settings = LocalTraining(epochs=1, batch_size=16, lr=0.01)
    found: list[dict[int, NDArray[np.float32]]] = []
    forms: tuple[Form, ...] = ("auto", "loop")
    for form in forms:
        trainer = cohort_trainer(module=module, holdings=holdings, settings=settings, loss=cross_entropy, form=form)
        if form == "auto":
            assert (trainer.form, "side by side" in trainer.reason) == ("grouped", True)
        own: dict[int, NDArray[np.float32]] = {}
        model = trainer.layout.read(module).numpy()
        trainer.train(model, [0, 1, 2], np.arange(3), 1, lambda c, u, _, own=own: own.__setitem__(c, u.copy()))  # type: ignore[misc]  # bound now
        trainer.close()
        found.append(own)
    for client, update in found[0].items():
        expected = found[1][client]
        assert np.linalg.norm(update - expected) < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("settings", [SMOOTH, ONE_EPOCH], ids=["smooth", "plain"])
@pytest.mark.parametrize("sizes", [[16] * 4, [7, 90, 16, 33, 1, 40]], ids=["even", "skewed"])
def test_clients_side_by_side_train_as_one_by_one(
    settings: LocalTraining, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_FILLS_BY_PRODUCTS", 0.0)
    module = smooth_cnn()
    expected = train(module, "cpu", settings, sizes, form="loop", rounds=2)
    found = train(module, "cuda", settings, sizes, rounds=2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)
    np.testing.assert_array_equal(train(module, "cuda", settings, sizes, rounds=2), found)


def test_clients_side_by_side_whose_pass_counts_train_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Counting()
    expected = train(module, "cpu", ONE_EPOCH, [20, 20, 12], form="loop")
    monkeypatch.setattr(cost, "_FILLS_A_GPU", 0.0)
    np.testing.assert_allclose(train(module, "cuda", ONE_EPOCH, [20, 20, 12]), expected, rtol=1e-3, atol=2e-6)


class Reader(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.layer, self.out = kind(3, 5, batch_first=True), nn.Linear(5, 10)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(self.layer(x)[0][:, -1])
        return outputs


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_clipped_by_book_keeping(kind: type[nn.LSTM | nn.GRU]) -> None:
    model, features, labels = Reader(kind).cuda().eval(), torch.randn(8, 6, 3).cuda(), torch.arange(8).cuda() % 10
    gradient = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=1.0), example=(features, labels)
    )
    assert (gradient.form, gradient.reason) == ("book-keeping", "")


def test_wide_convolutions_in_tf32_are_not_taken_for_a_mixture() -> None:
    torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 256, 3, padding=1)]
    for _ in range(6):
        layers += [nn.GroupNorm(8, 256), nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1, bias=False)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).cuda()
    example = (torch.randn(6, 3, 16, 16).cuda(), torch.arange(6).cuda())
    gradient = PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=1.0), example=example)
    assert gradient.form == "book-keeping"
    mixing = nn.Sequential(*layers, nn.Softmax(0), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).cuda()
    with pytest.raises(ConfigError, match="mixes the examples"):
        PrivateGradient(model=mixing, loss=cross_entropy, clipping=Clipping(bound=1.0), example=example)


def test_noise_never_goes_to_the_gpu_on_a_stream_that_graphs_are_captured_on() -> None:
    device = torch.device("cuda", 0)
    captured = {stream.cuda_stream for stream in (capture_stream(device), *_streams(device))}
    for _ in range(64):  # torch lends each of 32 streams out in turn
        assert _copying.__wrapped__(device).cuda_stream not in captured


def focal(outputs: Tensor, labels: Tensor) -> Tensor:
    each = cross_entropy(outputs, labels)
    return each * (1.0 - torch.exp(-each)) ** 2


def mixing(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss that would mix clients, were it shown several at once."""
    return cross_entropy(outputs - outputs.mean(0), labels)


def of_zoo(name: str, device: str, loss: Loss, *, form: Form = "auto") -> tuple[str, NDArray[np.float32]]:
    """Train clients of unequal size for three rounds and return the form and the last updates."""
    torch.manual_seed(3)
    features, labels = ZOO[name].data(90)
    module = ZOO[name].build()
    holdings = Holdings(
        features=features.to(device), labels=labels.to(device), rows=np.split(np.arange(90), [30, 60, 75])
    )
    trainer = cohort_trainer(module=module, holdings=holdings, settings=ONE_EPOCH, loss=loss, form=form)
    model = trainer.layout.read(module).numpy()
    updates = np.zeros((4, len(model)), np.float32)
    for number in range(1, 4):
        trainer.train(
            model, [0, 1, 2, 3], np.arange(4) + 10 * number, number, lambda c, u, _: updates.__setitem__(c, u)
        )
    trainer.close()
    return trainer.form, updates


@pytest.mark.parametrize("loss", [cross_entropy, focal, mixing])
@pytest.mark.parametrize("name", [name for name in ZOO if name != "resnet18"])
def test_models_nobody_tuned_for_and_losses_of_ones_own(name: str, loss: Loss) -> None:
    form, found = of_zoo(name, "cuda", loss)
    assert form == ("loop" if loss is mixing else "grouped" if name == "resnet8" else "vmap")
    expected = of_zoo(name, "cpu", loss, form="loop")[1]
    away = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert away.max() < 3e-2  # a rounding error may flip a rectifier


class Remembering(nn.Module):
    """Keeps something of a client's examples, where nobody who sends numbers would look."""

    most: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 2), {"most": torch.zeros(())}
        self.register_buffer("most", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, moved by what was seen before."""
        self.seen["most"] = self.seen["most"].to(x.device) + x.detach().abs().amax()
        self.most = self.most + 1
        output: Tensor = self.layer(x) + self.seen["most"] + self.most
        return output


def of_three(clients: list[int], *, private: bool) -> NDArray[np.float32]:
    """Train some of three clients, privately a model that keeps nothing, and return the update of the last."""
    torch.manual_seed(0)
    features, labels = torch.randn(30, 4), torch.randint(0, 2, (30,))
    held = Holdings(features=features.cuda(), labels=labels.cuda(), rows=np.split(np.arange(30), [10, 20]))
    settings = LocalTraining(epochs=1, batch_size=5, lr=0.1)
    trainer: Any
    if private:
        trainer = PrivateClients(
            module=nn.Linear(4, 2),
            holdings=held,
            settings=settings,
            loss=focal,
            clipping=Clipping(bound=1.0),
            noise_multiplier=1.0,
            batches=[PoissonBatches(examples=10, expected=5)] * 3,
            steps=[2] * 3,
            randomness=Randomness.of(seed=1),
        )
    else:
        trainer = cohort_trainer(module=Remembering(), holdings=held, settings=settings, loss=focal)
    found: dict[int, NDArray[np.float32]] = {}
    model, keys = np.zeros(10, np.float32), np.array(clients, np.int64)
    trainer.train(model, clients, keys, 1, lambda client, update, _: found.__setitem__(client, update.copy()))
    trainer.close()
    return found[clients[-1]]


@pytest.mark.parametrize("private", [False, True])
def test_a_clients_update_is_the_same_whoever_trains_before_it(private: bool) -> None:
    alone = of_three([2], private=private)
    assert np.abs(alone).max() > 0
    assert np.array_equal(of_three([0, 1, 2], private=private), alone)
