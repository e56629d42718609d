from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tacit.accounting import profile
from tacit.accounting.events import GaussianEvent
from tacit.errors import ConfigError, RunError, SpoiledError
from tacit.grid import Grid, within
from tacit.mechanisms.mechanism import Work
from tacit.mechanisms.nbafl import BroadcastNoise, FederatedScopeBroadcast, FederatedScopeNbAFL, NbAFL, nominal_delta
from tacit.randomness import Randomness
from tacit.vectors import Vector, norm
from tests.mechanisms.laws import is_normal

SEEDED, SYSTEM = Randomness.of(seed=1), Randomness.of(seed=None)


def nbafl(**changes: Any) -> NbAFL:
    settings: dict[str, Any] = {
        "clip_bound": 1.0,
        "epsilon": 10.0,
        "constant": 3.0,
        "rounds": 25,
        "clients": 50,
        "exposures": 10,
        "smallest": 100,
    }
    return NbAFL(**settings | changes)


def work(update: Vector, sent: Vector | None, examples: int = 200) -> Work:
    return Work(update=update, examples=examples, loss=1.0, sent=sent)


@pytest.mark.parametrize(("constant", "delta"), [(1.0, 0.7581633246), (2.0, 0.1691691040), (3.0, 0.01388624567)])
def test_the_documented_deltas(constant: float, delta: float) -> None:
    assert nominal_delta(constant) == pytest.approx(delta, rel=1e-9)
    assert nbafl(constant=constant).nominal == (10.0, nominal_delta(constant))


def test_the_papers_scales() -> None:
    assert nbafl().up == pytest.approx(0.06, rel=1e-12)
    assert nbafl(exposures=1).down == pytest.approx(0.0028774989139876317, rel=1e-12)


@pytest.mark.parametrize(("rounds", "exposures", "clients"), [(25, 25, 50), (10, 2, 25), (7, 1, 50)])
def test_no_noise_down_where_the_way_up_has_enough(rounds: int, exposures: int, clients: int) -> None:
    assert rounds <= exposures * math.sqrt(clients)
    assert nbafl(rounds=rounds, exposures=exposures, clients=clients).down == 0.0
    assert nbafl(rounds=8, exposures=1, clients=50).down > 0.0


def test_it_is_certified_for_any_two_weights_within_the_bound() -> None:
    for mechanism in (nbafl(), nbafl(clip_bound=7.0)):
        assert isinstance(mechanism.event, GaussianEvent)
        assert mechanism.event.noise_multiplier == pytest.approx(0.06)  # relative to C, which cancels


@pytest.mark.parametrize(
    ("epsilon", "constant", "true"),
    [(10.0, 3.0, 0.05749692226904968), (10.0, 2.0, 0.6166237304102125), (10.0, 1.0, 0.9999465977191502)],
)
def test_even_on_its_own_terms_the_claim_fails(epsilon: float, constant: float, true: float) -> None:
    """One exposure with the sensitivity 2C/m that the paper takes."""
    mechanism = nbafl(epsilon=epsilon, constant=constant, exposures=1)
    mu = (2.0 * mechanism.clip_bound / mechanism.smallest) / mechanism.up
    assert profile.delta_at(epsilon, mu) == pytest.approx(true, rel=1e-9)
    assert profile.delta_at(epsilon, mu) > nominal_delta(constant)


def quiet(**changes: Any) -> NbAFL:
    return nbafl(epsilon=1e12, **changes)


def test_the_weights_are_clipped_on_the_client_as_a_whole() -> None:
    """FederatedScope does not clip there at all, and on the server coordinate by coordinate."""
    sent, update = np.full(16, 1.0, np.float32), np.full(16, 0.5, np.float32)
    reply = quiet().on_client(work(update, sent), SEEDED)
    weights = reply[:-1] + sent
    assert norm(weights) == pytest.approx(within(1.0), rel=1e-6)
    np.testing.assert_allclose(weights, within(0.25), rtol=1e-5)
    short = quiet(clip_bound=100.0).on_client(work(update, sent), SEEDED)
    np.testing.assert_allclose(short[:-1], 0.5, rtol=1e-6)  # FedML would have put noise in the weights' place


@pytest.mark.parametrize("randomness", [SEEDED, SYSTEM], ids=["seeded", "system"])
def test_the_noise_up_has_the_papers_scale(randomness: Randomness) -> None:
    sent = np.zeros(100_000, np.float32)
    reply = nbafl().on_client(work(sent.copy(), sent), randomness)
    assert [is_normal(reply[:-1], 0.06 * factor) for factor in (1.0, 0.9, 1.1)] == [True, False, False]


def test_the_noise_down_has_the_papers_scale() -> None:
    inject = BroadcastNoise(deviation=0.02, randomness=SYSTEM)
    model = np.full(100_000, 3.0, np.float32)
    noise = inject(model, 2) - 3.0
    assert [is_normal(noise, 0.02 * factor) for factor in (1.0, 0.9, 1.1)] == [True, False, False]


def test_the_first_broadcast_has_seen_nobody() -> None:
    inject = BroadcastNoise(deviation=0.02, randomness=SEEDED)
    model = np.ones(4, np.float32)
    assert inject(model, 1).tolist() == model.tolist()
    assert inject(model, 2).tolist() == inject(model, 2).tolist() != inject(model, 3).tolist()
    assert inject(model, 2).dtype == np.float32


def test_the_mean_of_the_weights_becomes_the_model() -> None:
    sent = np.array([1.0, 2.0, -1.0], np.float32)
    updates = np.array([[0.5, 0.0, 0.0], [-0.5, 1.0, 0.0], [0.0, 0.5, 3.0]], np.float32)
    mechanism = quiet(clip_bound=100.0)
    total = np.array([mechanism.on_client(work(u, sent), SEEDED) for u in updates]).astype(np.float64).sum(axis=0)
    assert len(total) == mechanism.length(3) == 4
    with pytest.raises(SpoiledError, match="sum of 4 clients counts 3 messages"):
        mechanism.on_server(total, SEEDED, clients=4)
    release = mechanism.on_server(total, SEEDED, clients=3)
    np.testing.assert_allclose(release.update, updates.mean(axis=0), atol=1e-6)
    assert release.train_loss is None
    assert release.mechanism == mechanism
    assert mechanism.with_state(mechanism.public_state()) == mechanism.fitted((3,)) == mechanism


def test_it_needs_the_model_that_was_sent() -> None:
    with pytest.raises(RunError, match="needs the model it was sent"):
        nbafl().on_client(work(np.zeros(2, np.float32), None), SEEDED)


@pytest.mark.parametrize(
    "change",
    [
        {"clip_bound": 0.0},
        {"epsilon": -1.0},
        {"constant": 0.0},
        {"rounds": 0},
        {"clients": 0},
        {"exposures": 26},
        {"exposures": 0},
        {"smallest": 0},
    ],
)
def test_domains(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Expected"):
        nbafl(**change)


def theirs(**changes: Any) -> FederatedScopeNbAFL:
    settings: dict[str, Any] = {
        "clip_bound": 0.1,
        "epsilon": 10.0,
        "constant": 3.0,
        "rounds": 300,
        "clients": 105,
        "per_round": 21,
        "smallest": 4,
    }
    return FederatedScopeNbAFL(**settings | changes)


@pytest.mark.parametrize("examples", [1, 7, 140])
def test_federatedscopes_noise_up_is_its_documentations_formula_to_the_bit(examples: int) -> None:
    w_clip, total_round_num, constant, epsilon = 0.1, 300, 3.0, 10.0
    assert theirs().up(examples) == w_clip * total_round_num * 2 * constant / examples / epsilon


@pytest.mark.parametrize(
    "numbers", [(300, 105, 21, 4), (300, 200, 40, 10), (25, 25, 5, 1), (26, 25, 5, 1), (9, 4, 4, 3)]
)
def test_federatedscopes_noise_down_is_its_formula_to_the_bit(numbers: tuple[int, int, int, int]) -> None:
    rounds, clients, sampled, smallest = numbers
    expected = 0.0
    if rounds > np.sqrt(clients) * sampled:
        expected = (
            2 * 0.1 * 3.0 * np.sqrt(np.power(rounds, 2) - np.power(sampled, 2) * clients) / (smallest * clients * 10.0)
        )
    assert theirs(rounds=rounds, clients=clients, per_round=sampled, smallest=smallest).down == expected


def test_federatedscopes_server_clips_each_coordinate_as_its_documentation_does_to_the_bit() -> None:
    values = np.random.default_rng(1).normal(0, 0.2, 5_000).astype(np.float32)
    values[:4] = 0.0, 0.1, -0.1, 3e38
    data = torch.from_numpy(values.copy())
    expected = data / torch.max(torch.ones(size=data.shape), torch.abs(data) / 0.1)
    clip = FederatedScopeBroadcast(clip_bound=0.1, deviation=0.0, randomness=SEEDED)
    np.testing.assert_array_equal(clip(values, 1), expected.numpy())
    assert float(np.abs(clip(values, 1)).max()) == pytest.approx(0.1)
    assert norm(clip(values, 1)) > 1.0  # by coordinate, not as a whole
    noisy = FederatedScopeBroadcast(clip_bound=0.1, deviation=0.5, randomness=SEEDED)
    drawn = (0.5 * SEEDED.normal(5_000, "broadcast", 1)).astype(np.float32)
    np.testing.assert_array_equal(noisy(values, 1), expected.numpy() + drawn)  # the first broadcast too
    assert noisy(values, 1).tolist() != noisy(values, 2).tolist()


@pytest.mark.parametrize(("weighting", "weights"), [("examples", (10, 30)), ("uniform", (1, 1))])
def test_federatedscopes_clients_add_noise_and_clip_nothing(weighting: Any, weights: tuple[int, int]) -> None:
    mechanism = theirs(weighting=weighting)
    sent = np.array([0.1, -0.1, 0.0], np.float32)
    updates = np.array([[500.0, 0.0, -1.0], [0.0, 2.0, 0.5]], np.float32)
    holds = (10, 30)
    own = [SEEDED.within("client", place) for place in range(2)]
    total = np.zeros(mechanism.length(3))
    expected = np.zeros(3)
    for update, examples, weight, randomness in zip(updates, holds, weights, own, strict=True):
        total += mechanism.on_client(work(update, sent, examples), randomness)
        scale = 0.1 * 300 * 2 * 3.0 / examples / 10.0
        expected += weight * (sent + update + scale * randomness.normal(3, "weights"))
    release = mechanism.on_server(total, SEEDED, clients=2)
    np.testing.assert_allclose(sent + release.update, expected / sum(weights), rtol=1e-5)
    assert release.train_loss is None
    assert release.mechanism == mechanism == mechanism.with_state(mechanism.public_state()) == mechanism.fitted((3,))


def test_no_epsilon_holds_for_federatedscopes() -> None:
    assert theirs().event == GaussianEvent(noise_multiplier=0.0)
    assert theirs().nominal == (10.0, nominal_delta(3.0))
    with pytest.raises(RunError, match="needs the model it was sent"):
        theirs().on_client(work(np.zeros(2, np.float32), None), SEEDED)
    for change in ({"epsilon": 0.0}, {"per_round": 0}, {"smallest": 0}, {"clip_bound": -1.0}):
        with pytest.raises(ConfigError, match="Expected"):
            theirs(**change)


@pytest.mark.parametrize("length", [0.0, 0.5, 3.0])
def test_the_last_bits_of_noisy_weights_do_not_tell_what_the_noise_was_added_to(length: float) -> None:
    size = 4_000
    update = np.full(size, length / math.sqrt(size), np.float32)
    sent = nbafl().on_client(work(update, np.zeros(size, np.float32)), SYSTEM)[:-1]
    steps = sent.astype(np.float64) / Grid.of(bound=1.0, size=size).step
    assert (steps == np.rint(steps)).all()
