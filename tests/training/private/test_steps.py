from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.errors import ConfigError
from tacit.grid import Grid
from tacit.randomness import Randomness
from tacit.training.optimizers import Sgd
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.steps import Batch, PoissonBatches, PrivateSteps, StepNoise
from tacit.training.settings import cross_entropy
from tests.mechanisms.laws import is_normal

SEEDED, SYSTEM = Randomness.of(seed=3), Randomness.of(seed=None)


def steps(
    model: nn.Module,
    *,
    noise: float = 0.0,
    clip: float = 0.5,
    examples: int = 40,
    batch: int = 8,
    lr: float = 1.0,
    micro_batch: int | None = None,
    randomness: Randomness = SEEDED,
    pull: float = 0.0,
    before_part: Callable[[int, int], None] = lambda _step, _part: None,
) -> PrivateSteps:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(examples, 6, generator=generator)
    labels = torch.randint(0, 2, (examples,), generator=generator)
    gradient = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=clip), example=(features, labels)
    )
    return PrivateSteps(
        gradient=gradient,
        optimizer=Sgd(gradient.parameters, lr=lr),
        features=features,
        labels=labels,
        batches=PoissonBatches(examples=examples, expected=batch),
        noise_multiplier=noise,
        clip_bound=clip,
        randomness=randomness,
        micro_batch=micro_batch,
        pull=pull,
        before_part=before_part,
    )


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 2)


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("randomness", [SEEDED, SYSTEM], ids=["seeded", "system"])
def test_a_step_on_an_empty_batch_is_noise_of_the_right_scale(randomness: Randomness) -> None:
    torch.manual_seed(0)
    wide = nn.Linear(6, 16_667, bias=False)
    taking = steps(wide, noise=1.5, clip=0.2, batch=8, lr=1.0, randomness=randomness)
    before = flat(wide)
    empty = Batch(step=0, rows=np.zeros(0, np.int64))
    assert len(taking.accumulate(empty)) == 0
    taking.release(0)
    moved = (flat(wide) - before).numpy()[:100_000]
    assert [is_normal(moved, factor * 1.5 * 0.2 / 8) for factor in (1.0, 0.9, 1.1)] == [True, False, False]


def test_noise_is_new_in_every_step_and_the_same_again_with_a_seed() -> None:
    first, again = model(), model()
    paths = []
    for module in (first, again):
        taking = steps(module, noise=1.0)
        path = [flat(module)]
        for step in range(3):
            taking.take(step)
            path.append(flat(module))
        paths.append(path)
    for a, b in zip(*paths, strict=True):
        assert torch.equal(a, b)
    moves = [b - a for a, b in zip(paths[0], paths[0][1:], strict=False)]
    assert not torch.allclose(moves[0], moves[1], atol=1e-3)


def test_without_a_seed_nothing_repeats() -> None:
    one, other = model(), model()
    for module in (one, other):
        steps(module, noise=1.0, randomness=SYSTEM).take(0)
    assert not torch.allclose(flat(one), flat(other))


def test_the_divisor_is_the_expected_batch() -> None:
    rows = np.arange(20)
    small, large = model(), model()
    for module, batch in ((small, 8), (large, 16)):
        taking = steps(module, batch=batch)
        taking.accumulate(Batch(step=0, rows=rows))  # twenty examples came in both
        taking.release(0)
    start = flat(model())
    torch.testing.assert_close(flat(small) - start, 2.0 * (flat(large) - start))


@pytest.mark.parametrize("micro_batch", [1, 3, 7, 100])
def test_micro_batches_change_nothing(micro_batch: int) -> None:
    whole, parts = model(), model()
    for module, size in ((whole, None), (parts, micro_batch)):
        taking = steps(module, noise=1.0, batch=20, micro_batch=size)
        for step in range(3):
            taking.take(step)
    torch.testing.assert_close(flat(whole), flat(parts), rtol=1e-5, atol=1e-6)


def test_batches_accumulate_until_the_release() -> None:
    together, apart = model(), model()
    taking = steps(together, noise=1.0)
    taking.accumulate(Batch(step=0, rows=np.arange(12)))
    taking.release(0)
    taking = steps(apart, noise=1.0)
    for rows in np.split(np.arange(12), 3):
        taking.accumulate(Batch(step=0, rows=rows))
    taking.release(0)  # and noise is added once
    torch.testing.assert_close(flat(together), flat(apart))


def test_nothing_is_left_over_after_a_release() -> None:
    module = model()
    taking = steps(module)
    taking.accumulate(Batch(step=0, rows=np.arange(12)))
    taking.release(0)
    after = flat(module)
    taking.release(1)
    assert torch.equal(flat(module), after)


def test_the_proximal_term_pulls_back() -> None:
    module = model()
    taking = steps(module, clip=1e-9, lr=0.5, pull=1.0)
    start = flat(module)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(1.0)
    taking.take(0)
    torch.testing.assert_close(flat(module), start + 0.5, rtol=1e-4, atol=1e-5)


def test_poisson_batches_have_the_right_law() -> None:
    batches = PoissonBatches(examples=50, expected=5)
    generator = SEEDED.stream("test")
    drawn = [batches.draw(generator) for _ in range(4000)]
    sizes = np.array([len(rows) for rows in drawn])
    expected = stats.binom(50, 0.1)
    assert abs(sizes.mean() - 5.0) < 0.15
    assert abs(sizes.var() - expected.var()) < 0.5
    assert (sizes == 0).mean() == pytest.approx(expected.pmf(0), abs=0.005)  # 0.5%: empty batches do come
    counts = np.bincount(np.concatenate(drawn), minlength=50)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert all((np.diff(rows) > 0).all() for rows in drawn)
    together = np.mean([(0 in rows) and (1 in rows) for rows in drawn])
    assert together == pytest.approx(0.01, abs=0.006)  # coins are independent


def test_a_batch_of_everything_is_everything() -> None:
    batches = PoissonBatches(examples=6, expected=6)
    assert batches.draw(SEEDED.stream("test")).tolist() == [0, 1, 2, 3, 4, 5]
    assert PoissonBatches(examples=1000, expected=300).steps(1) == 4


def test_a_batch_larger_than_the_data() -> None:
    with pytest.raises(ConfigError, match="A batch size of 41 is larger than the data, which have 40 examples"):
        PoissonBatches(examples=40, expected=41)
    with pytest.raises(ConfigError, match="batch size of 1 or more, got 0"):
        PoissonBatches(examples=40, expected=0)


@pytest.mark.parametrize("noise", [-1.0, float("nan"), float("inf")])
def test_noise_that_is_none(noise: float) -> None:
    with pytest.raises(ConfigError, match="noise multiplier"):
        steps(model(), noise=noise)
    with pytest.raises(ConfigError, match="micro-batch"):
        steps(model(), micro_batch=0)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01)])
def test_sgd_is_torchs(momentum: float, decay: float) -> None:
    ours, theirs = model(), model()
    one = Sgd(list(ours.parameters()), lr=0.1, momentum=momentum, weight_decay=decay)
    other = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum, weight_decay=decay)
    for step in range(4):
        for module in (ours, theirs):
            for p in module.parameters():
                p.grad = torch.full_like(p, 1.0 + step)
        one.step()
        other.step()
    torch.testing.assert_close(flat(ours), flat(theirs))
    one.zero_grad()
    assert all(p.grad is None for p in ours.parameters())


def test_a_failed_accumulate_leaves_nothing_behind() -> None:
    """An error between two micro-batches, caught by the caller, who takes the next step."""
    told: list[int] = []

    def fails_once(_step: int, part: int) -> None:
        told.append(part)
        if part == 2 and told.count(2) == 1:
            raise MemoryError("caught by the caller")

    struck, spared = model(), model()
    taking = steps(struck, batch=12, micro_batch=3, before_part=fails_once)
    with pytest.raises(MemoryError):
        taking.accumulate(Batch(step=0, rows=np.arange(12)))
    taking.accumulate(Batch(step=1, rows=np.arange(12, 24)))
    taking.release(1)
    fresh = steps(spared, batch=12, micro_batch=3)
    fresh.accumulate(Batch(step=1, rows=np.arange(12, 24)))
    fresh.release(1)
    assert torch.equal(flat(struck), flat(spared))
    moved = float((flat(struck) - flat(model())).norm())
    assert moved <= 0.5  # twelve examples of at most 0.5 each, over the expected twelve


def test_batches_of_one_step_add_up_and_one_that_fails_takes_nothing_away() -> None:
    failing: list[int] = []

    def fails(_step: int, part: int) -> None:
        if part in failing:
            raise MemoryError("caught by the caller")

    parted, whole = model(), model()
    taking = steps(parted, batch=12, micro_batch=3, before_part=fails)
    at_once = steps(whole, batch=12)
    for step in range(3):  # memory is used again from the second step on
        taking.accumulate(Batch(step=step, rows=np.arange(5)))
        failing.append(1)
        with pytest.raises(MemoryError):
            taking.accumulate(Batch(step=step, rows=np.arange(20, 28)))
        failing.clear()
        taking.accumulate(Batch(step=step, rows=np.arange(5, 12)))
        taking.release(step)
        at_once.accumulate(Batch(step=step, rows=np.arange(12)))
        at_once.release(step)
        torch.testing.assert_close(flat(parted), flat(whole))


def test_what_was_accumulated_and_never_released_is_forgotten() -> None:
    struck, spared = model(), model()
    taking = steps(struck)
    taking.accumulate(Batch(step=0, rows=np.arange(12)))  # the caller is interrupted here
    taking.accumulate(Batch(step=1, rows=np.arange(12, 24)))
    taking.release(1)
    fresh = steps(spared)
    fresh.accumulate(Batch(step=1, rows=np.arange(12, 24)))
    fresh.release(1)
    assert torch.equal(flat(struck), flat(spared))
    taking.accumulate(Batch(step=2, rows=np.arange(12)))
    before = flat(struck)
    taking.release(3)  # a release holds its own step's sum, or nothing
    assert torch.equal(flat(struck), before)


WIDE = 4000


def released(examples: int, randomness: Randomness, *, noise: float = 1.0) -> torch.Tensor:
    """Return what one step releases of a wide model's gradient, times the expected batch: sum and noise."""
    torch.manual_seed(0)
    wide = nn.Linear(6, WIDE, bias=False)
    taking = steps(wide, noise=noise, clip=1.0, batch=1, lr=1.0, randomness=randomness)
    found: list[torch.Tensor] = []
    taking._optimizer.step = lambda: found.append(  # type: ignore[method-assign]
        torch.cat([p.grad.reshape(-1) for p in wide.parameters() if p.grad is not None])
    )
    taking.accumulate(Batch(step=0, rows=np.arange(examples)))
    taking.release(0)
    return found[0]


def test_the_last_bits_of_a_release_do_not_tell_whether_an_example_was_in_it() -> None:
    """The attack on floating-point noise: which numbers can be reached depends on what the noise was added to."""
    generator = np.random.default_rng(1)
    drawn = torch.from_numpy(generator.standard_normal(50_000)).float()

    def naive(total: float) -> torch.Tensor:  # as it was: float32 noise on a float32 sum
        return torch.tensor(total) + drawn

    def off_grid(values: torch.Tensor, step: float) -> int:
        """Count numbers that are no multiple of ``step``: what 0.7 plus noise can't be near zero."""
        near = values[values.abs() < 0.1].double() / step
        return int((near != near.round()).sum())

    assert off_grid(naive(0.7), 2.0**-25) == 0
    assert off_grid(naive(0.0), 2.0**-25) > 100  # each of them says for certain: the example was not there

    grid = Grid.of(bound=1.0, size=6 * WIDE)
    for randomness in (SEEDED, SYSTEM):
        for examples in (0, 1, 7):
            values = released(examples, randomness).double() / grid.step
            # Rounded to float32 by PyTorch: whole multiples of the step, whatever was in the batch.
            assert bool((values == values.round()).all())
    values = released(1, SYSTEM).double() / grid.step
    values = values[values.abs() < 2.0**23]  # where float32 has room for every step
    assert float((values % 2).mean()) == pytest.approx(0.5, abs=0.05)  # and no coarser grid


def test_noise_on_the_grid_is_the_same_noise() -> None:
    sums, noisy = released(5, SEEDED, noise=0.0).double(), released(5, SEEDED).double()
    standard = torch.from_numpy(SEEDED.normal(6 * WIDE, "noise", 0))
    torch.testing.assert_close(noisy - sums, standard, rtol=0.0, atol=1e-6)


def test_noise_too_wide_for_its_grid_is_refused() -> None:
    with pytest.raises(ConfigError, match="gaps that would give the sum away"):
        steps(model(), noise=1e12, clip=1.0).take(0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize(("copied", "sent"), [(4000, 8000), (256, 1000), (256, 5000)], ids=["late", "both", "early"])
def test_noise_is_the_same_however_it_gets_to_a_gpu(monkeypatch: pytest.MonkeyPatch, copied: int, sent: int) -> None:
    monkeypatch.setattr("tacit.training.private.steps._COPIED", copied)
    monkeypatch.setattr("tacit.training.private.steps._SENT", sent)
    sums = torch.randn(3000, dtype=torch.float64)
    here, there = (
        StepNoise(size=3000, std=1.5, grid=Grid(step=2.0**-20), randomness=SEEDED, device=torch.device(name))
        for name in ("cpu", "cuda:0")
    )
    for step in (1, 2, 3, 7):  # drawn ahead, and not
        expected, found = sums.clone(), sums.cuda()
        here.add(expected, step)
        there.add(found, step)
        assert torch.equal(found.cpu(), expected)
