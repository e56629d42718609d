"""What every mechanism has to keep. A new mechanism joins the suite with a line in ``MECHANISMS``."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tacit import mechanisms
from tacit.accounting.events import GaussianEvent, from_dict, to_dict
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.mechanisms.correlated.strategy import Correlation
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism, LocalGaussianMechanism
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.mechanism import Mechanism, Release, Work
from tacit.mechanisms.nbafl import FederatedScopeNbAFL, NbAFL
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.mechanisms.signds import SignDS
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.mechanisms.weighted import WeightedMean
from tacit.randomness import Randomness
from tacit.vectors import Vector

LAYERS = (60, 20)
SIZE = sum(LAYERS)
CLIENTS = 6
_GAUSSIAN = GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=CLIENTS)
_SIGNS = SignDS(
    share=0.25, epsilon=1.0, ratio=0.6, fixed_step=0.1, population=10, expected_clients=CLIENTS, magnitude=None
)
MECHANISMS: dict[str, Mechanism] = {
    "weighted mean": WeightedMean(),
    "bounded mean": BoundedMean(clip=1.0, weight_cap=20),
    "gaussian": _GAUSSIAN,
    "gaussian, adaptive": GaussianMechanism(
        clip_bound=1.0, noise_multiplier=1.0, expected_clients=CLIENTS, adaptive=AdaptiveClip(bit_noise=2.0)
    ),
    "gaussian, layer by layer": GaussianMechanism(
        clip_bound=1.0,
        noise_multiplier=1.0,
        expected_clients=CLIENTS,
        per_layer=True,
        noise_split="variance-minimal",
    ),
    "correlated gaussian": CorrelatedMechanism(
        gaussian=_GAUSSIAN, correlation=Correlation(kind="banded", rounds=9, separation=3, bands=3)
    ),
    "correlated gaussian, BLT": CorrelatedMechanism(
        gaussian=_GAUSSIAN, correlation=Correlation(kind="blt", rounds=9, separation=3)
    ),
    "local gaussian": LocalGaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=CLIENTS),
    "skellam": SkellamMechanism(clip_bound=1.0, noise_multiplier=1.0, smallest_cohort=3, expected_clients=CLIENTS),
    "nbafl": NbAFL(clip_bound=1.0, epsilon=10.0, constant=2.0, rounds=3, clients=10, exposures=2, smallest=10),
    "nbafl, federatedscope's": FederatedScopeNbAFL(
        clip_bound=1.0, epsilon=10.0, constant=2.0, rounds=3, clients=10, per_round=6, smallest=10
    ),
    "signds": _SIGNS,
    "signds, magnitude": SignDS(
        share=0.25,
        epsilon=1.0,
        ratio=0.6,
        fixed_step=0.1,
        population=10,
        expected_clients=CLIENTS,
        magnitude=MagnitudeEstimate(response=RandomizedResponse(epsilon=1.0)),
    ),
}
RANDOMNESS = Randomness.of(seed=5)


@pytest.fixture(params=MECHANISMS.values(), ids=list(MECHANISMS))
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    made: Mechanism = request.param
    return made.fitted(LAYERS)


def _work(client: int, scale: float = 0.1) -> Work:
    generator = np.random.default_rng(client)
    update, sent = generator.normal(size=(2, SIZE)).astype(np.float32)
    return Work(update=np.float32(scale) * update, examples=10 + client, loss=0.7, sent=np.float32(0.1) * sent)


def _contribution(mechanism: Mechanism, work: Work, client: int = 0) -> Vector:
    told = mechanism.with_state(mechanism.public_state())
    return np.asarray(told.on_client(work, RANDOMNESS.within("client", client)))


def _release(mechanism: Mechanism, scale: float = 0.1) -> Release:
    vectors = [_contribution(mechanism, _work(client, scale), client) for client in range(CLIENTS)]
    total = np.stack(vectors).astype(np.float64).sum(axis=0)
    return mechanism.on_server(total, RANDOMNESS.within("server"), clients=CLIENTS)


def test_a_contribution_is_finite_numbers_of_the_length_that_was_said(mechanism: Mechanism) -> None:
    vector = _contribution(mechanism, _work(1))
    assert vector.shape == (mechanism.length(SIZE),)
    assert vector.dtype in (np.float32, np.int64)
    assert np.isfinite(vector).all()


def test_a_release_moves_the_whole_model_by_finite_numbers(mechanism: Mechanism) -> None:
    release = _release(mechanism)
    assert release.update.shape == (SIZE,)
    assert release.update.dtype == np.float32
    assert np.isfinite(release.update).all()


def test_a_round_can_be_repeated_to_the_bit(mechanism: Mechanism) -> None:
    one, other = _release(mechanism), _release(mechanism)
    assert one.update.tobytes() == other.update.tobytes()
    assert one.mechanism == other.mechanism


def test_the_next_round_has_a_mechanism_of_the_same_kind_and_cost(mechanism: Mechanism) -> None:
    following = _release(mechanism).mechanism
    assert type(following) is type(mechanism)
    assert following.event == mechanism.event
    assert following.length(SIZE) == mechanism.length(SIZE)


def test_what_is_told_is_all_that_changes_from_round_to_round(mechanism: Mechanism) -> None:
    following = _release(mechanism).mechanism
    assert mechanism.with_state(following.public_state()) == following
    assert mechanism.with_state(mechanism.public_state()) == mechanism


def test_fitting_twice_is_fitting_once(mechanism: Mechanism) -> None:
    assert mechanism.fitted(LAYERS) == mechanism


def test_the_cost_is_in_the_ledgers_vocabulary(mechanism: Mechanism) -> None:
    if mechanism.event is not None:
        assert from_dict(json.loads(json.dumps(to_dict(mechanism.event)))) == mechanism.event


def test_a_claim_bounds_what_a_client_contributes_however_large_its_update(mechanism: Mechanism) -> None:
    """Without noise it would be the bound itself; with the client's own noise, sizes stay alike.

    A mechanism without a bound claims nothing, or says that its epsilon is infinite.
    """
    if mechanism.event in (None, GaussianEvent(noise_multiplier=0.0)):
        return
    modest, huge = (np.linalg.norm(_contribution(mechanism, _work(2, scale)).astype(float)) for scale in (0.5, 1e6))
    assert huge <= 1.5 * modest


def test_a_mechanism_is_a_frozen_value(mechanism: Mechanism) -> None:
    with pytest.raises(FrozenInstanceError):
        mechanism.event = None  # type: ignore[misc]
    assert hash(mechanism) == hash(mechanism.fitted(LAYERS))


def test_every_mechanism_is_in_the_suite() -> None:
    found_modules = pkgutil.walk_packages(mechanisms.__path__, "tacit.mechanisms.")
    modules = [importlib.import_module(module.name) for module in found_modules]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and {"on_client", "on_server"} <= vars(value).keys() and value is not Mechanism
    }
    assert found == {type(made) for made in MECHANISMS.values()}
