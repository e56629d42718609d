from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.accounting.events import ComposedEvent, GaussianEvent, gaussian_precision
from tacit.errors import ConfigError, WireError
from tacit.grid import Grid, within
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism, LocalGaussianMechanism, NoiseSplit
from tacit.mechanisms.mechanism import Mechanism, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector, norm
from tests.mechanisms.laws import is_normal

SEEDED, SYSTEM = Randomness.of(seed=1), Randomness.of(seed=None)
CENTRAL = GaussianMechanism(clip_bound=0.5, noise_multiplier=2.0, expected_clients=4.0)
LOCAL = LocalGaussianMechanism(clip_bound=0.5, noise_multiplier=2.0, expected_clients=4.0)


def work(update: Vector, examples: int = 10) -> Work:
    return Work(update=update, examples=examples, loss=1.0)


SPLITS: tuple[NoiseSplit, NoiseSplit] = ("even", "variance-minimal")


def vector(length: float, size: int = 20) -> Vector:
    return np.full(size, length / math.sqrt(size), np.float32)


def test_the_whole_update_is_clipped_and_nothing_else_leaves_the_client() -> None:
    sent = CENTRAL.on_client(work(vector(3.0)), SEEDED)
    assert len(sent) == CENTRAL.length(20) == 20
    assert norm(sent) <= 0.5
    assert norm(sent) == pytest.approx(within(0.5), rel=1e-6)
    short = vector(0.3)
    assert CENTRAL.on_client(work(short), SEEDED).tolist() == short.tolist()
    assert CENTRAL.on_client(work(np.zeros(20, np.float32)), SEEDED).tolist() == [0.0] * 20  # Flower divides by zero


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e20])
def test_no_rounding_error_exceeds_the_bound(scale: float) -> None:
    generator = np.random.default_rng(3)
    for size in (1, 7, 1_000):
        update = (generator.normal(size=size) * scale).astype(np.float32)
        mechanism = GaussianMechanism(clip_bound=0.1, noise_multiplier=1.0, expected_clients=1.0)
        assert norm(mechanism.on_client(work(update), SEEDED)) <= 0.1


def test_the_sum_is_divided_by_the_expected_cohort_never_the_realised_one() -> None:
    quiet = GaussianMechanism(clip_bound=0.5, noise_multiplier=0.0, expected_clients=4.0)
    release = quiet.on_server(np.full(3, 2.0), SEEDED, clients=4)  # whoever contributed
    assert release.update.tolist() == [0.5, 0.5, 0.5]
    assert release.train_loss is None
    assert release.mechanism == quiet


@pytest.mark.parametrize("randomness", [SEEDED, SYSTEM], ids=["seeded", "system"])
def test_the_noise_has_standard_deviation_z_c_on_the_sum(randomness: Randomness) -> None:
    released = CENTRAL.on_server(np.zeros(100_000), randomness, clients=4).update * 4.0  # back to the sum
    assert [is_normal(released, 2.0 * 0.5 * factor) for factor in (1.0, 0.9, 1.1)] == [True, False, False]


def test_local_noise_has_standard_deviation_z_c_on_each_client() -> None:
    sent = LOCAL.on_client(work(np.zeros(100_000, np.float32)), SYSTEM)
    assert [is_normal(sent, 2.0 * 0.5 * factor) for factor in (1.0, 0.9, 1.1)] == [True, False, False]
    assert LOCAL.on_server(np.full(2, 2.0), SEEDED, clients=4).update.tolist() == [0.5, 0.5]


def test_noise_repeats_in_a_simulation_only() -> None:
    for randomness, same in ((SEEDED, True), (SYSTEM, False)):
        first, second = (CENTRAL.on_server(np.zeros(3), randomness, clients=4).update.tolist() for _ in range(2))
        assert (first == second) is same


def test_weights_are_capped_after_clipping() -> None:
    capped = GaussianMechanism(clip_bound=0.5, noise_multiplier=1.0, expected_clients=4.0, weight_cap=100)
    assert norm(capped.on_client(work(vector(3.0), examples=50), SEEDED)) == pytest.approx(within(0.25), rel=1e-6)
    assert norm(capped.on_client(work(vector(3.0), examples=5_000), SEEDED)) <= 0.5


def adaptive(clip: float, clients: float = 100.0, noise: float = 1.0) -> GaussianMechanism:
    return GaussianMechanism(
        clip_bound=clip,
        noise_multiplier=noise,
        expected_clients=clients,
        adaptive=AdaptiveClip(bit_noise=clients / 20),
    )


@pytest.mark.parametrize(("clients", "expected"), [(100.0, 1.005038), (20.0, 1.154701)])
def test_the_adaptive_split_leaves_the_total_at_z(clients: float, expected: float) -> None:
    mechanism = adaptive(0.1, clients)
    assert mechanism.update_noise == pytest.approx(expected, rel=1e-5)
    assert isinstance(mechanism.event, ComposedEvent)
    assert gaussian_precision(mechanism.event) == pytest.approx(1.0, rel=1e-12)


def test_the_bit_costs_half_its_sensitivity() -> None:
    event = adaptive(0.1).event
    assert isinstance(event, ComposedEvent)
    assert event.events[1] == GaussianEvent(noise_multiplier=10.0)  # 2 * 100 / 20
    sent = [adaptive(0.1).on_client(work(vector(length)), SEEDED)[-1] for length in (0.05, 0.2)]
    assert sent == [0.5, -0.5]


def test_a_small_bound_grows_as_the_paper_says() -> None:
    """Norms spread over .5-1.5 from C = .1; Flower's own rule has the sign reversed and shrinks."""
    norms = np.linspace(0.5, 1.5, 100)
    mechanism = GaussianMechanism(
        clip_bound=0.1, noise_multiplier=0.0, expected_clients=100.0, adaptive=AdaptiveClip(bit_noise=1e-9)
    )
    bounds = {}
    for number in range(1, 41):
        total = np.zeros(mechanism.length(4))
        for length in norms:
            total += mechanism.on_client(work(vector(length, 4)), SEEDED)
        following = mechanism.on_server(total, SEEDED, clients=4).mechanism
        assert isinstance(following, GaussianMechanism)
        mechanism = following
        bounds[number] = mechanism.clip_bound
    assert [round(bounds[n], 4) for n in (1, 10, 20)] == [0.1105, 0.2718, 0.6959]
    assert 0.95 < bounds[40] < 1.0  # and on to the median


def test_the_noise_uses_the_bound_the_updates_were_clipped_with() -> None:
    mechanism = adaptive(0.1)
    told = mechanism.with_state(mechanism.public_state())
    assert told == mechanism
    release = mechanism.on_server(
        np.append(np.zeros(20_000), -50.0), SEEDED, clients=4
    )  # all were clipped: the next bound grows
    assert isinstance(release.mechanism, GaussianMechanism)
    assert release.mechanism.clip_bound > 0.1
    assert float(np.std(release.update)) * 100 == pytest.approx(mechanism.update_noise * 0.1, rel=0.02)


@pytest.mark.parametrize("denoise", ["james-stein", "soft-threshold"])
def test_denoising_pulls_pure_noise_towards_zero(denoise: str) -> None:
    raw = CENTRAL.on_server(np.zeros(2_000), SEEDED, clients=4).update
    cleaned = GaussianMechanism(
        clip_bound=0.5,
        noise_multiplier=2.0,
        expected_clients=4.0,
        denoise=denoise,  # type: ignore[arg-type]
    ).on_server(np.zeros(2_000), SEEDED, clients=4)
    assert norm(cleaned.update) < 0.3 * norm(raw)


@pytest.mark.parametrize("mechanism", [CENTRAL, LOCAL, adaptive(0.3)], ids=["central", "local", "adaptive"])
def test_what_clients_are_told_is_enough(mechanism: Mechanism) -> None:
    assert mechanism.with_state(mechanism.public_state()) == mechanism


def test_a_damaged_clip_bound_is_refused() -> None:
    with pytest.raises(WireError, match="Expected 8 bytes"):
        CENTRAL.with_state(b"123")
    with pytest.raises(ConfigError, match="clip_bound=nan"):
        CENTRAL.with_state(b"\x7f\xf8" + bytes(6))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip_bound": 0.0}, "clip_bound=0.0 > 0"),
        ({"clip_bound": math.nan}, "clip_bound=nan"),
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0 >= 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
        ({"expected_clients": 0.0}, "expected_clients=0.0"),
        ({"adaptive": AdaptiveClip(bit_noise=0.4)}, "the clipping bits alone would cost more"),
    ],
)
def test_bad_settings(changes: dict[str, float], words: str) -> None:
    settings = {"clip_bound": 1.0, "noise_multiplier": 1.0, "expected_clients": 10.0} | changes
    with pytest.raises(ConfigError, match=words):
        GaussianMechanism(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"quantile": 1.0}, {"rate": 0.0}, {"bit_noise": 0.0}, {"bit_noise": math.nan}])
def test_bad_adaptive_settings(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        AdaptiveClip(**{"bit_noise": 1.0} | changes)


def test_clipping_by_layer_keeps_the_whole_within_the_bound() -> None:
    mechanism = GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=1.0, per_layer=True).fitted(
        (15, 5)
    )
    update = np.concatenate([vector(10.0, 15), vector(0.1, 5)])
    sent = mechanism.on_client(work(update), SEEDED)
    assert norm(sent[:15]) == pytest.approx(within(1 / math.sqrt(2)), rel=1e-6)
    assert sent[15:].tolist() == update[15:].tolist()
    both = mechanism.on_client(work(np.concatenate([vector(10.0, 15), vector(10.0, 5)])), SEEDED)
    assert norm(both) <= 1.0


def test_a_variance_minimal_split_costs_the_same_and_adds_less_noise() -> None:
    layers = (16_000, 50, 500, 10)
    even, shared = (
        GaussianMechanism(
            clip_bound=1.0,
            noise_multiplier=1.0,
            expected_clients=1.0,
            per_layer=True,
            noise_split=split,
        ).fitted(layers)
        for split in SPLITS
    )
    assert even.event == shared.event
    parameters = sum(layers)
    noises = [m.on_server(np.zeros(parameters), SEEDED, clients=4).update.astype(np.float64) for m in (even, shared)]
    assert norm(noises[1].astype(np.float32)) < 0.9 * norm(noises[0].astype(np.float32))
    stds = [float(np.std(part)) for part in np.split(noises[1], np.cumsum(layers)[:-1])]
    whitened = math.sqrt(sum((0.5 / std) ** 2 for std in stds))  # each layer's bound is 1 / sqrt(4)
    assert whitened == pytest.approx(1.0, rel=0.25)  # the sensitivity in units of the noise is 1 / z


def test_a_split_of_the_noise_needs_bounds_by_layer() -> None:
    with pytest.raises(ConfigError, match="needs per_layer"):
        GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=1.0, noise_split="variance-minimal")


def _reached(values: np.ndarray, size: int, bound: float = 0.5) -> np.ndarray:
    """Return the steps of the grid that were released, where float32 has room for every step."""
    steps = values.astype(np.float64) / Grid.of(bound=bound, size=size).step
    return steps[np.abs(steps) < 2.0**23]


@pytest.mark.parametrize("randomness", [SEEDED, SYSTEM], ids=["seeded", "system"])
def test_the_last_bits_do_not_tell_what_the_noise_was_added_to(randomness: Randomness) -> None:
    """The attack on floating-point noise: a number that this sum plus noise can't be rules this sum out."""
    size = 40_000
    zero, other = np.zeros(size), np.full(size, 0.5 / math.sqrt(size))
    # As it was: noisy doubles near zero have more digits where the sum was zero than where it was one half.
    noisy = [total + 2.0 * randomness.normal(400_000, "updates") for total in (0.0, 0.5)]
    fine = [int((near[np.abs(near) < 0.01] * 2.0**54 % 1 != 0).sum()) for near in noisy]
    assert fine[0] > 100
    assert fine[1] == 0  # each of the hundred says for certain: the client was not there
    for total in (zero, other):
        central = _reached(CENTRAL.on_server(total, randomness, clients=4).update * 4.0, size)
        local = _reached(LOCAL.on_client(work(total.astype(np.float32)), randomness), size)
        for steps in (central, local):
            assert len(steps) > 1000
            assert (steps == np.rint(steps)).all()
            assert abs((steps % 2).mean() - 0.5) < 0.1  # and on no coarser grid


def test_the_next_clip_bound_tells_nothing_but_the_noisy_count() -> None:
    adaptive = AdaptiveClip(bit_noise=3.0)
    mechanism = GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=10.0, adaptive=adaptive)
    for bits in (-2.5, 0.0, 3.0):
        moved = mechanism.on_server(np.array([0.0, bits]), SYSTEM, clients=4).mechanism
        assert isinstance(moved, GaussianMechanism)
        share = adaptive.quantile - math.log(moved.clip_bound) / adaptive.rate
        steps = (share - 0.5) * 10.0 * 2.0**20
        assert steps == pytest.approx(round(steps), abs=1e-3)


@pytest.mark.parametrize("per_layer", [False, True])
def test_two_sums_that_one_client_tells_apart_are_within_the_bound_on_the_grid(per_layer: bool) -> None:
    """The worst case: every number lies half a step from the grid, and an update of any length is added."""
    size, bound = 4_000, 0.7
    layers = (3_000, 1_000)
    mechanism = GaussianMechanism(
        clip_bound=bound, noise_multiplier=1.0, expected_clients=1.0, per_layer=per_layer
    ).fitted(layers)
    least = bound / math.sqrt(2) if per_layer else bound
    grid = Grid.of(bound=least, size=size)
    generator = np.random.default_rng(1)
    for _ in range(20):
        others = grid.rounded(generator.standard_normal(size)) + 0.499 * grid.step
        own = mechanism.on_client(work(generator.standard_normal(size).astype(np.float32) * 1e9), SEEDED)
        apart = grid.rounded(others + own) - grid.rounded(others)
        assert np.linalg.norm(apart) <= bound
        if per_layer:
            assert all(np.linalg.norm(part) <= least for part in np.split(apart, [3_000]))
