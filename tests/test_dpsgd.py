from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tacit
from tacit.accounting import accountant
from tacit.accounting.uniform_run import uniform_run
from tacit.dpsgd import PrivateTraining, make_private, without_batch_norm
from tacit.errors import ConfigError, DataError

FEATURES = np.random.default_rng(1).standard_normal((200, 5)).astype(np.float32)
LABELS = (FEATURES[:, 0] > 0).astype(np.int64)


def private(model: nn.Module | None = None, data: Any = (FEATURES, LABELS), **settings: Any) -> PrivateTraining:
    if model is None:
        torch.manual_seed(0)
        model = nn.Linear(5, 2)
    settings = {"noise_multiplier": 1.1, "clip": 1.0, "batch_size": 20, "seed": 1} | settings
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.5), data, **settings)


def test_it_learns_and_says_what_it_cost() -> None:
    model = nn.Linear(5, 2)
    training = private(model)
    losses = training.fit(epochs=8)
    assert len(losses) == training.steps_taken == 80
    right = model(torch.from_numpy(FEATURES)).argmax(1).numpy() == LABELS
    assert right.mean() > 0.85
    expected = accountant.epsilon(uniform_run(noise_multiplier=1.1, rounds=80, rate=0.1), 1e-5)
    spent = training.spent(1e-5)
    assert spent.epsilon == training.epsilon(1e-5) == pytest.approx(expected.epsilon, rel=1e-9)
    assert (spent.unit, spent.neighbours, spent.sampling) == ("example", "add-remove", "poisson")
    assert training.form == "book-keeping"


def test_any_optimiser_and_the_name_under_tacit() -> None:
    model = nn.Linear(5, 2)
    training = tacit.dpsgd.make_private(
        model, torch.optim.Adam(model.parameters(), lr=0.05), (FEATURES, LABELS), epsilon=4.0, epochs=3, batch_size=20
    )
    training.fit(epochs=3)
    assert 3.99 < training.epsilon() <= 4.0


def test_batches_are_poissons_and_belong_to_one_step() -> None:
    training = private(batch_size=3)
    sizes = []
    for batch in training.batches(steps=60):
        sizes.append(len(batch))
        loss = training.step(batch)
        assert (loss is None) == (len(batch) == 0)
    assert 0 in sizes  # e^-3 is 5%
    assert len(set(sizes)) > 4
    assert training.steps_taken == 60  # an empty batch is charged like any other
    with pytest.raises(ConfigError, match="Expected the batch that batches"):
        training.step(batch)


def test_nothing_was_spent_before_the_first_step_and_no_noise_is_no_privacy() -> None:
    assert private().epsilon(1e-5) == 0.0
    training = private(noise_multiplier=0.0)
    training.fit(steps=1)
    assert training.epsilon(1e-5) == math.inf


def test_a_charge_stays_where_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    training = private()
    monkeypatch.setattr(training._steps, "release", lambda step: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training.fit(steps=1)
    assert training.steps_taken == 1


def test_micro_batches_and_forms_agree() -> None:
    weights = []
    for settings in ({}, {"micro_batch": 3}, {"form": "functional"}):
        torch.manual_seed(0)
        model = nn.Linear(5, 2)
        private(model, **settings).fit(steps=5)
        weights.append(model.weight.detach())
    for other in weights[1:]:
        torch.testing.assert_close(weights[0], other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clipping", ["per-layer", "automatic"])
def test_other_clippings(clipping: str) -> None:
    assert all(loss is None or math.isfinite(loss) for loss in private(clipping=clipping).fit(steps=5))


def test_gradient_norms_are_for_choosing_a_bound() -> None:
    norms = private().gradient_norms(FEATURES[:10], LABELS[:10])
    assert norms.shape == (10,)
    assert float(norms.min()) > 0


@pytest.mark.parametrize("delta", [1.0, 2.0, 0.0, -0.1])
def test_a_delta_out_of_its_domain(delta: float) -> None:
    training = private()
    training.fit(steps=1)
    with pytest.raises(ConfigError, match="delta"):
        training.epsilon(delta)
    with pytest.raises(ConfigError, match="delta"):
        private(noise_multiplier=None, epsilon=1.0, epochs=1, delta=delta)


def test_batch_norm_is_refused_and_the_converter_helps() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"BatchNorm1d at '1'.*tacit.fix"):
        private(model)
    converted = without_batch_norm(model)
    private(converted).fit(steps=2)


def test_a_layer_that_mixes_examples() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Softmax(dim=0), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"'1' \(Softmax\) mixes the examples"):
        private(model)


@pytest.mark.parametrize(
    ("data", "settings", "error", "words"),
    [
        ((FEATURES, LABELS), {"batch_size": 201}, ConfigError, "larger than the data, which have 200"),
        ((np.where(FEATURES > 2, np.nan, FEATURES), LABELS), {}, DataError, "NaN or infinity"),
        ((FEATURES, LABELS + 1), {}, ConfigError, "2 outputs, but labels run from 1 to 2"),
        ((FEATURES, LABELS - 1), {}, ConfigError, "labels run from -1 to 0"),
        ((FEATURES[:, :4], LABELS), {}, ConfigError, "can't take examples of shape"),
        ((FEATURES, LABELS[:9]), {}, DataError, "as many labels as examples"),
        ((FEATURES, LABELS), {"noise_multiplier": None}, ConfigError, "noise_multiplier, or epsilon"),
        ((FEATURES, LABELS), {"epsilon": 1.0}, ConfigError, "noise_multiplier, or epsilon"),
        ((FEATURES, LABELS), {"noise_multiplier": None, "epsilon": 1.0}, ConfigError, "needs epochs"),
        ((FEATURES, LABELS), {"noise_multiplier": -1.0}, ConfigError, "0 or more, got -1"),
        ((FEATURES, LABELS), {"clip": 0.0}, ConfigError, "clip bound above 0"),
        ((FEATURES, LABELS), {"clipping": "hard"}, ConfigError, "Unknown clipping 'hard'"),
        ((FEATURES, LABELS), {"loss": "hinge"}, ConfigError, "Unknown loss 'hinge'"),
        ((FEATURES, LABELS), {"micro_batch": 0}, ConfigError, "micro-batch"),
    ],
)
def test_mistakes_are_sentences(data: Any, settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        private(data=data, **settings)


def test_an_optimiser_of_another_model() -> None:
    model, other = nn.Linear(5, 2), nn.Linear(5, 2)
    with pytest.raises(ConfigError, match="Expected the optimiser to hold the model's 2 trained parameters"):
        make_private(model, torch.optim.SGD(other.parameters(), lr=0.1), (FEATURES, LABELS), noise_multiplier=1.0)


def test_epochs_or_steps() -> None:
    with pytest.raises(ConfigError, match="epochs or steps"):
        private().fit()


def test_one_poisoned_example_never_makes_the_model_nan() -> None:
    """A finite example of 3e38 in the data, 60 trainings at a claim of 0.17."""
    features = FEATURES.copy()
    features[7] = 3e38
    features[8, 0] = -3e38
    claimed = private(noise_multiplier=None, epsilon=0.17, epochs=0.5)
    claimed.fit(epochs=0.5)
    assert claimed.epsilon(1e-5) == pytest.approx(0.17, rel=0.01)
    for seed in range(60):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)) if seed % 2 else nn.Linear(5, 2)
        form = "functional" if seed % 3 == 0 else "auto"
        noise = claimed.noise_multiplier
        losses = private(model, (features, LABELS), noise_multiplier=noise, seed=seed, form=form).fit(epochs=0.5)
        assert all(bool(p.isfinite().all()) for p in model.parameters())
        assert all(loss is None or math.isfinite(loss) for loss in losses)


def test_a_step_that_fails_in_the_middle_is_charged_and_leaves_nothing() -> None:
    broken: list[int] = []

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if broken:
            broken.append(1)
            if len(broken) == 3:
                raise MemoryError("out of memory, which the user catches")
        return nn.functional.cross_entropy(outputs, labels, reduction="none")

    settings: dict[str, Any] = {"noise_multiplier": 0.0, "batch_size": 200, "micro_batch": 80, "loss": loss}
    moves = []
    for fails in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(5, 2)
        training = private(model, **settings)
        before = model.weight.detach().clone()
        if fails:
            broken.append(0)
            with pytest.raises(MemoryError):
                training.fit(steps=1)
            broken.clear()
            assert torch.equal(model.weight, before)
        training.fit(steps=1)
        assert training.steps_taken == 1 + fails
        moves.append(model.weight.detach() - before)
    assert torch.equal(*moves)


def test_a_seed_marks_a_simulation_wherever_the_cost_is_told() -> None:
    seeded, real = private(seed=1), private(seed=None)
    for training in (seeded, real):
        training.fit(steps=2)
    assert (seeded.simulation, real.simulation) == (True, False)
    assert seeded.spent().simulation
    assert not real.spent().simulation
    assert seeded.spent().to_dict()["simulation"] is True
    assert seeded.spent().epsilon == real.spent().epsilon == seeded.epsilon()
    assert all("simulation" in charge.note for charge in seeded.ledger.charges)
    assert all(charge.note == "" for charge in real.ledger.charges)
    for text in (repr(seeded), seeded.statement(), str(seeded.ledger.to_dict())):
        assert "simulation" in text
    for text in (repr(real), real.statement(), str(real.ledger.to_dict())):
        assert "simulation" not in text
    for word in ("epsilon", "delta 1e-05", "example", "add-remove", "whoever sees the model"):
        assert word in real.statement()
    assert "No step" in private().statement()
    assert "infinite" in _unprotected().statement()


def _unprotected() -> PrivateTraining:
    training = private(noise_multiplier=0.0, seed=None)
    training.fit(steps=1)
    return training


def test_scattering_features_of_images_are_what_the_model_is_trained_on() -> None:
    images = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(81 * 2 * 2, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(
        model, optimizer, (images, torch.arange(12) % 3), noise_multiplier=1.0, features="scatter", seed=1
    )
    for batch in private.batches(steps=2):
        private.step(batch)
    assert model(private.features(images)).shape == (12, 3)
    assert torch.equal(private.features(images[:1]), private.features(images)[:1])  # of each image alone
    with pytest.raises(ConfigError, match="Unknown features 'x'"):
        make_private(model, optimizer, (images, torch.arange(12) % 3), noise_multiplier=1.0, features="x")  # type: ignore[arg-type]


class Drifting(nn.Module):
    """A frozen weight that passes write to while it trains; nothing of torch's says so."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.out = nn.Linear(5, 5).requires_grad_(False), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.base.weight.data.mul_(1.0 - 1e-6)
        return self.out(torch.tanh(self.base(x)))  # type: ignore[no-any-return]  # torch gives it no types


def test_a_frozen_weight_that_passes_write_to_ends_the_training() -> None:
    training = private(Drifting())
    with pytest.raises(ConfigError, match=r"'base\.weight' is frozen, and training changed it"):
        training.fit(steps=3)
    assert training.steps_taken == 1


@pytest.mark.parametrize("casts", [False, True], ids=["parameters", "autocast"])
def test_models_in_half_precision(casts: bool) -> None:
    """They cast what they are given, and so they do where the trial computes them in double precision."""

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
            if not casts:
                self.layers.bfloat16()

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=casts):
                output: Tensor = self.layers(x if casts else x.to(torch.bfloat16))
            return output

    torch.manual_seed(0)
    model, data = Half(), (torch.randn(32, 4), torch.arange(32) % 2)
    kinds = [own.dtype for own in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(model, optimizer, data, noise_multiplier=1.0, batch_size=8)
    private.fit(steps=2)
    assert private.form == "book-keeping"
    assert [own.dtype for own in model.parameters()] == kinds
