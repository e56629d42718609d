from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.tasks import tumours
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.logistic import Setting, accuracies, train
from tacit_labs.lab_004.dpsgd.sweeps import SWEEPS, Lab, Point, noisy_statistics, run, table


def test_the_tight_accounting_is_twenty_points_above_the_lab_at_epsilon_a_tenth() -> None:
    points = run(Lab(sweeps={"epsilon": (0.1,)}))
    by_way = {point.way: point for point in points}
    assert by_way["tight"].mean - by_way["lab"].mean > 0.20
    assert by_way["normal"].mean > by_way["tight"].mean > 0.85
    assert by_way["lab"].noise_multiplier == pytest.approx(8840.5, rel=1e-3)
    assert by_way["tight"].noise_multiplier == pytest.approx(550.4, rel=1e-3)
    assert all(len(point.each) == 10 for point in points)


def test_the_known_accuracies_come_out_with_the_data_s_own_statistics() -> None:
    points = run(Lab(normalise="own", sweeps={"epsilon": (0.1, 1.0)}, iterations=1000))
    by = {(point.way, point.value): point.mean for point in points}
    assert by["normal", 1.0] == pytest.approx(0.971, abs=0.02)
    assert by["tight", 1.0] == pytest.approx(0.949, abs=0.02)
    assert by["tight", 0.1] == pytest.approx(0.942, abs=0.04)
    assert by["lab", 1.0] == pytest.approx(0.928, abs=0.05)


def test_the_sweeps_span_what_they_should() -> None:
    assert (SWEEPS["epsilon"][0], SWEEPS["epsilon"][-1]) == (0.1, 10.0)
    assert (SWEEPS["delta"][0], SWEEPS["delta"][-1]) == (1e-7, 1e-1)
    assert (SWEEPS["iterations"][0], SWEEPS["iterations"][-1]) == (10, 10_000)


def small(**changes: object) -> tuple[Point, ...]:
    settings = {"seeds": 2, "iterations": 20, "sweeps": {"delta": (1e-5, 1e-3), "iterations": (10, 30)}} | changes
    return run(Lab(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("normalise", ["public", "private", "own"])
def test_every_normalisation_runs_and_repeats(normalise: str) -> None:
    points = small(normalise=normalise)
    assert points == small(normalise=normalise)
    assert len(points) == 12
    assert all(0.0 <= point.mean <= 1.0 for point in points)
    lines = table(points).splitlines()
    assert len(lines) == 13
    assert lines[0].startswith("sweep,value,way,epsilon,delta,iterations,noise_multiplier,mean,spread,seed 0,seed 1")


def test_a_private_normalisation_leaves_less_for_training() -> None:
    private = {(p.way, p.value): p.noise_multiplier or 0.0 for p in small(normalise="private")}
    public = {(p.way, p.value): p.noise_multiplier or 0.0 for p in small()}
    assert private["tight", 1e-5] > 1.1 * public["tight", 1e-5]


def test_noisy_statistics_have_noise_of_the_right_scale() -> None:
    values = np.zeros((100, 3000))
    mean, _ = noisy_statistics(values, epsilon=20.0, delta=0.1, randomness=Randomness.of(seed=1))
    from tacit.mechanisms.calibration import analytic

    std = analytic(20.0, 0.1, math.sqrt(6000.0)) / 100
    inside = mean[np.abs(mean) < 1.0]
    assert std > 0.05
    assert len(inside) == len(mean)
    assert 0.95 * std < mean.std() < 1.05 * std
    far, deviation = noisy_statistics(values[:, :5] + 0.5, epsilon=1e6, delta=0.1, randomness=Randomness.of(seed=1))
    assert far == pytest.approx(np.full(5, 0.5), abs=0.01)
    assert (deviation >= 0.05).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"normalise": "mine"}, "Unknown normalisation 'mine'"),
        ({"sweeps": {"rounds": (1,)}}, "Unknown sweep 'rounds'"),
        ({"seeds": 0}, "1 seed or more"),
        ({"lr": 0.0}, "above 0"),
        ({"delta": 1.0, "sweeps": {"epsilon": (1.0,)}}, "delta"),
        ({"epsilon": 0.0, "sweeps": {"delta": (0.1,)}}, "epsilon"),
        ({"iterations": 0, "sweeps": {"epsilon": (1.0,)}}, "1 step|count of 1|1 round"),
    ],
)
def test_mistakes_are_sentences(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(Lab(**changes))  # type: ignore[arg-type]


def test_public_bounds_hold_the_data_and_depend_on_nothing_else() -> None:
    features, labels = tumours.load_table()
    places = tumours.within_bounds(features)
    assert (places > 0).mean() > 0.97
    assert places.max() < 1.0
    assert len(labels) == 569
    one = tumours.scaled(features[:1])
    assert np.array_equal(one, tumours.scaled(features)[:1])  # a row's values don't depend on the others
    wild = features[:1] * 1e9
    assert np.abs(tumours.scaled(wild)).max() < 5.0


def test_the_batched_program_is_dp_sgd_of_the_same_model() -> None:
    generator = np.random.default_rng(1)
    features, labels = generator.standard_normal((2, 30, 4)), generator.integers(0, 2, (2, 30))
    settings = [
        Setting(steps=3, lr=0.5, clip_bound=0.3),
        Setting(steps=5, lr=0.5),
        Setting(steps=1, lr=0.1, clip_bound=0.1),
    ]
    found = train(features, labels, settings, np.zeros)

    def loss(outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], wanted.float(), reduction="none")

    for number, setting in enumerate(settings):
        for seed in range(2):
            model = torch.nn.Linear(4, 1)
            torch.nn.init.zeros_(model.weight)
            torch.nn.init.zeros_(model.bias)
            x, y = torch.from_numpy(features[seed]).float(), torch.from_numpy(labels[seed])
            clipping = Clipping(bound=setting.clip_bound or 1e9)
            gradient = PrivateGradient(model=model, loss=loss, clipping=clipping, example=(x, y))
            for _ in range(setting.steps):
                for p, total in zip(gradient.parameters, gradient.sums(x, y)[0], strict=True):
                    p.data -= setting.lr * total / 30
            weights = torch.cat([model.weight.detach()[0], model.bias.detach()]).numpy()
            assert found[number, seed] == pytest.approx(weights, abs=1e-5)
    right = accuracies(found, features, labels)
    assert right.shape == (3, 2)
    logits = features[1] @ found[0, 1, :4] + found[0, 1, 4]
    assert right[0, 1] == ((logits > 0) == labels[1]).mean()


@pytest.mark.parametrize("value", [3e38, 1e300, math.inf, math.nan, 1e-40, 1e4])
def test_one_wild_row_moves_a_step_by_no_more_than_the_bound(value: float) -> None:
    generator = np.random.default_rng(1)
    features, labels = generator.standard_normal((1, 30, 4)), generator.integers(0, 2, (1, 30))
    settings = [Setting(steps=steps, lr=30.0, clip_bound=0.3) for steps in (1, 2, 40)]
    without = np.delete(features, 7, axis=1), np.delete(labels, 7, axis=1)
    features[0, 7] = value
    features[0, 7, 0] = -1.0
    wild = train(features, labels, settings, np.zeros)
    assert np.isfinite(wild).all()
    tame = train(*without, [Setting(steps=1, lr=29.0, clip_bound=0.3)], np.zeros)  # the rate is divided by the rows
    assert np.linalg.norm(wild[0, 0].astype(np.float64) - tame[0, 0]) <= 0.3
    assert np.isfinite(accuracies(wild, np.nan_to_num(features[:, :7]), labels[:, :7])).all()


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (0.9, False), (1.1, False)])
def test_noise_enters_with_its_standard_deviation(factor: float, accepted: bool) -> None:
    from scipy import stats

    draws = np.random.default_rng(2)
    features = np.zeros((1, 10, 20_000))
    setting = Setting(steps=1, lr=1.0, clip_bound=0.5, noise_multiplier=3.0)
    weights = train(features, np.zeros((1, 10), np.int64), [setting], draws.standard_normal)[0, 0, :-1]
    p_value = stats.kstest(weights, "norm", args=(0.0, factor * 3.0 * 0.5 / 10)).pvalue
    assert (p_value > 1e-4) == accepted


def test_noise_needs_a_bound() -> None:
    with pytest.raises(ConfigError, match="protects nothing"):
        Setting(steps=1, lr=1.0, noise_multiplier=1.0)
