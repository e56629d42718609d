from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import randomness
from tacit.errors import ConfigError
from tacit.randomness import Randomness

_SPECIAL = [0, 2**64 - 1, 1 << 11, 2**63, 2**62, 3 << 62, (1 << 53) - 1, 2**63 - 1]  # ends, halves and quarters
built = pytest.mark.skipif(randomness._native is None, reason="this installation has no native noise")


def _first(generator: np.random.Generator) -> list[int]:
    return [int(n) for n in generator.integers(0, 2**62, size=4)]


def test_a_stream_does_not_depend_on_what_was_drawn_before() -> None:
    one, other = Randomness.of(seed=3), Randomness.of(seed=3)
    other.stream("weights").normal(size=1000)
    other.secret("cohort", 1).normal(size=10)
    assert _first(one.stream("split")) == _first(other.stream("split"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("a",), ("b",)),
        (("a", 1), ("a", 2)),
        (("a", 1, 23), ("a", 12, 3)),
        (("a", 1), ("a", "1")),
        (("ab",), ("a", "b")),
    ],
)
def test_streams_of_different_purposes_differ(a: tuple[str | int, ...], b: tuple[str | int, ...]) -> None:
    randomness = Randomness.of(seed=3)
    assert _first(randomness.stream(*a)) != _first(randomness.stream(*b))
    assert randomness.number(*a) != randomness.number(*b)
    assert randomness.within(*a) != randomness.within(*b)


def test_seeds_differ_and_repeat() -> None:
    assert Randomness.of(seed=3) == Randomness.of(seed=3)
    assert Randomness.of(seed=3).key != Randomness.of(seed=30).key
    assert Randomness.of(seed=0).simulation


def test_secrets_repeat_with_a_seed_and_never_without() -> None:
    seeded, real = Randomness.of(seed=3), Randomness.of(seed=None)
    assert _first(seeded.secret("cohort", 1)) == _first(seeded.secret("cohort", 1))
    assert _first(seeded.secret("cohort", 1)) != _first(seeded.stream("cohort", 1))
    assert _first(real.secret("cohort", 1)) != _first(real.secret("cohort", 1))
    assert _first(real.stream("split")) == _first(real.stream("split"))


def test_a_secret_can_not_be_had_from_the_key_of_a_real_run() -> None:
    real = Randomness.of(seed=None)
    copy = Randomness(key=real.key, simulation=True)
    assert _first(real.secret("noise")) != _first(copy.secret("noise"))


def test_the_part_of_a_run_has_its_own_streams() -> None:
    randomness = Randomness.of(seed=3)
    part = randomness.within("client", 1, 2)
    assert part == randomness.within("client", 1, 2)
    assert part.simulation
    assert _first(part.stream("noise")) != _first(randomness.stream("noise"))
    assert not Randomness.of(seed=None).within("client").simulation


def test_numbers_have_63_bits() -> None:
    randomness = Randomness.of(seed=3)
    numbers = [randomness.number("n", i) for i in range(200)]
    assert all(0 <= n < 2**63 for n in numbers)
    assert max(numbers) > 2**62
    assert len(set(numbers)) == 200


def test_systems_randomness_differs_between_runs() -> None:
    assert Randomness.of(seed=None).key != Randomness.of(seed=None).key


def test_bad_keys_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed=-1"):
        Randomness.of(seed=-1)
    with pytest.raises(ConfigError, match="16 bytes, got 3"):
        Randomness(key=b"abc", simulation=True)


@pytest.mark.parametrize("seed", [1, None])
def test_uniform_numbers_are_odd_multiples_of_a_power_of_two(seed: int | None) -> None:
    randomness = Randomness.of(seed=seed)
    numbers = randomness.uniform(40_000, "uniform")
    odd = numbers * 2.0**53
    assert (odd % 2.0 == 1.0).all()  # exact, and neither 0 nor 1
    assert numbers.min() > 0.0
    assert numbers.max() < 1.0
    counts = np.histogram(numbers, 20, (0.0, 1.0))[0]
    assert ((counts - 2000) ** 2).sum() / 2000 < 82.0  # chi-square with 19 degrees of freedom: once in 10^9
    assert (randomness.uniform(3, "a").tolist() == randomness.uniform(3, "a").tolist()) is (seed is not None)
    assert randomness.uniform(3, "a").tolist() != randomness.uniform(3, "b").tolist()
    assert randomness.uniform(0, "a").tolist() == []


@pytest.mark.parametrize("root", [Randomness.of(seed=4), Randomness.of(seed=None)], ids=["seeded", "system"])
@pytest.mark.parametrize("below", [1, 2, 7, 1_000, 2**61])
def test_integers_are_uniform(root: Randomness, below: int) -> None:
    drawn = root.integers(below, 20_000, "cards")
    assert drawn.dtype == np.int64
    assert len(drawn) == 20_000
    assert 0 <= drawn.min() <= drawn.max() < below
    assert abs(drawn.mean() / below - 0.5) < 0.02 + 0.5 * (below == 1) + 0.5 / below


def test_uniform_numbers_in_blocks_are_the_same_numbers() -> None:
    count = (1 << 20) + 5
    root = Randomness.of(seed=3)
    bits = root.stream("secret", "noise").integers(2**64, size=count, dtype=np.uint64)
    whole = ((bits >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53
    assert np.array_equal(root.uniform(count, "noise"), whole)
    assert [len(part) for part in root.uniforms(count, "noise")] == [1 << 20, 5]
    real = Randomness.of(seed=None)
    assert len(np.unique(np.concatenate(list(real.uniforms(count, "noise"))))) > count - 10


def test_integers_repeat_in_a_simulation_only() -> None:
    seeded, system = Randomness.of(seed=4), Randomness.of(seed=None)
    assert seeded.integers(100, 20, "a").tolist() == seeded.integers(100, 20, "a").tolist()
    assert seeded.integers(100, 20, "a").tolist() != seeded.integers(100, 20, "b").tolist()
    assert system.integers(100, 20, "a").tolist() != system.integers(100, 20, "a").tolist()
    for below in (0, -1, 2**62):
        with pytest.raises(ConfigError, match="below"):
            seeded.integers(below, 1)


@pytest.mark.parametrize("simulation", [True, False])
def test_chances(simulation: bool) -> None:
    root = Randomness.of(seed=4 if simulation else None)
    assert [root.chance(p, n) for p in (0.0, 1.0) for n in range(20)] == [False] * 20 + [True] * 20
    hits = sum(root.chance(0.3, number) for number in range(4_000))
    assert 1_000 < hits < 1_400  # once in 10^11
    assert not any(root.chance(1e-50, number) for number in range(100))
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="probability"):
            root.chance(bad)


def test_a_chance_that_is_tiny_is_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """1e-43 is far below what a uniform double can be, and a coin of 192 bits still has a side for it."""
    monkeypatch.setattr("tacit.randomness.secrets.randbits", lambda bits: int(1e-43 * 2**bits))
    assert Randomness.of(seed=None).chance(1.1e-43)
    assert not Randomness.of(seed=None).chance(0.9e-43)


def _native() -> Any:
    return randomness._native


def _left_over(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words of which the upper 55 bits are the lower eleven of five each: those that no number takes."""
    parts = (words & np.uint64(2047)).reshape(5, -1).tolist()
    return np.array(
        [sum(part << (9 + 11 * place) for place, part in enumerate(own)) for own in zip(*parts, strict=True)], np.uint64
    )


@built
def test_no_bit_of_the_system_s_generator_moves_two_numbers() -> None:
    """Six numbers of five words: each bit moves both numbers of the pair it is drawn for, and no other pair."""
    drawn = np.random.default_rng(0).integers(2**64, size=10, dtype=np.uint64)
    before, after = np.empty(12), np.empty(12)
    _native().of_bits(drawn, before)
    owner = {}
    for word in range(10):
        for bit in range(64):
            flipped = drawn.copy()
            flipped[word] ^= np.uint64(1 << bit)
            _native().of_bits(flipped, after)
            owner[word, bit] = {int(place) % 6 for place in np.flatnonzero(before != after)}
    assert all(len(pairs) <= 1 for pairs in owner.values())
    untouched = [place for place, pairs in owner.items() if not pairs]
    assert untouched
    assert all(bit < 11 for _, bit in untouched)
    taken = [sum(pairs == {pair} for pairs in owner.values()) for pair in range(6)]
    assert max(taken) <= 2 * 53
    assert min(taken) > 2 * 50  # the lowest bits of a number may be lost to rounding


@built
@pytest.mark.parametrize("count", [1, 2, 3, 99, 2047, 2048])
def test_native_numbers_are_those_that_the_same_bits_make(count: int) -> None:
    pairs = (count + 1) // 2
    drawn = np.random.default_rng(count).integers(2**64, size=5 * -(-2 * pairs // 6), dtype=np.uint64)
    for place, special in enumerate(_SPECIAL[:pairs]):
        drawn[place] = special
        drawn[pairs + (place + 3) % min(pairs, len(_SPECIAL))] = special
    bits = np.concatenate([drawn, _left_over(drawn)])[: 2 * pairs].reshape(2, pairs)
    found = np.empty(count)
    _native().of_bits(drawn, found)
    np.testing.assert_allclose(found, randomness._of_bits(bits)[:count], rtol=0.0, atol=2.0**-48)
    truth = [
        math.sqrt(-2.0 * math.log(((int(u) >> 11) + 0.5) / 2**53)) * math.cos(math.tau * ((int(v) >> 11) + 0.5) / 2**53)
        for u, v in bits.T.tolist()
    ]
    np.testing.assert_allclose(found[:pairs], truth, rtol=0.0, atol=2.0**-48)


@pytest.mark.parametrize("native", [pytest.param(True, marks=built), False])
def test_the_systems_noise_is_normal_in_all_its_parts(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    if not native:
        monkeypatch.setattr(randomness, "_native", None)
    count = (1 << 19) + 3  # several shares, and an odd rest
    noise = Randomness.of(seed=None).normal(count, "noise")
    assert len(np.unique(noise)) > count - 10  # no part is drawn twice or left as it was
    for part in (noise, noise[: 1 << 14], noise[-((1 << 14) + 3) :], noise[1::2]):
        few = 6.0 / math.sqrt(len(part))
        assert abs(part.mean()) < few
        assert abs(part.var() - 1.0) < 1.5 * few
        assert abs((np.abs(part) < 0.6744897501960817).mean() - 0.5) < few  # half lie within the quartiles
    neighbours = noise[:-1] @ noise[1:] / count
    halves = noise[: 1 << 13] @ noise[1 << 13 : 1 << 14] / (1 << 13)  # cosines and sines of the same pairs
    assert abs(neighbours) < 6.0 / math.sqrt(count)
    assert abs(halves) < 6.0 / math.sqrt(1 << 13)
    assert Randomness.of(seed=None).normal(0, "noise").tolist() == []


def test_a_simulations_noise_is_the_same_in_parts() -> None:
    root, count = Randomness.of(seed=3), (1 << 20) + 5
    blocks = [root.stream("secret", "noise", 1, "block", number) for number in (0, 1)]
    whole = np.concatenate([blocks[0].standard_normal(1 << 20), blocks[1].standard_normal(5)])
    assert np.array_equal(root.normal(count, "noise", 1), whole)
    assert np.array_equal(root.normal(7, "a"), root.stream("secret", "a").standard_normal(7))


@pytest.mark.parametrize("seed", [3, None])
def test_parts_of_noise_cover_the_vector_once(seed: int | None) -> None:
    count = (1 << 20) + 77
    seen = np.zeros(count, np.int64)

    def use(start: int, part: NDArray[np.float64]) -> None:
        seen[start : start + len(part)] += 1

    Randomness.of(seed=seed).normals(count, "noise", use=use)
    assert (seen == 1).all()


@pytest.mark.parametrize("native", [pytest.param(True, marks=built), False])
@pytest.mark.parametrize("count", [1, 2049, (1 << 18) + 3])
def test_noise_on_a_grid_is_whole_and_of_the_right_size(
    monkeypatch: pytest.MonkeyPatch, native: bool, count: int
) -> None:
    if not native:
        monkeypatch.setattr(randomness, "_native", None)
    step, std, root = 2.0**-10, 3.0, Randomness.of(seed=None)
    before = np.linspace(-5.0, 5.0, count) + 2.0**-12
    noisy, divided = before.copy(), np.full(count, np.nan, np.float32)
    root.on_grid(noisy, "noise", std=std, step=step, over=7.0, into=divided)
    assert np.array_equal(divided, (noisy / 7.0).astype(np.float32))
    alone = np.full(count, np.nan)
    root.on_grid(alone, "noise", std=std, step=step, alone=True)
    for noise in (noisy - np.rint(before / step) * step, alone):
        assert (noise / step == np.rint(noise / step)).all()
        assert np.abs(noise).max() < 9.0 * std
        if count > 1:
            few = 6.0 / math.sqrt(count)
            assert abs(noise.mean()) < std * few
            assert abs(noise.var() / std**2 - 1.0) < 1.5 * few


@built
@pytest.mark.parametrize("threads", [-3, 0, 1, 2, 5, 1000])
def test_threads_take_every_number_once(threads: int) -> None:
    """Rounding a second time would change nothing, but noise a second time would: its size tells."""
    count = 9 * (1 << 16) + 5
    numbers, divided = np.full(count, 1e6), np.zeros(count, np.float32)
    _native().on_grid(numbers, 2.0, 2.0**-20, False, 2.0, divided, threads)
    noise = numbers - 1e6
    assert np.array_equal(divided, (numbers / 2.0).astype(np.float32))
    assert len(np.unique(noise)) > 0.9 * count
    for part in np.array_split(noise, 36):
        assert abs(part.std() / 2.0 - 1.0) < 0.06
    _native().on_grid(np.empty(0), 2.0, 1.0, True, 1.0, None, threads)


def test_a_simulations_noise_on_a_grid_is_that_of_its_numbers() -> None:
    root, count, step = Randomness.of(seed=5), (1 << 20) + 9, 2.0**-7
    before = np.linspace(-1.0, 1.0, count)
    noise = np.rint(root.normal(count, "noise", 3) * 1.7 / step) * step
    found = before.copy()
    divided = np.empty(count, np.float32)
    root.on_grid(found, "noise", 3, std=1.7, step=step, over=3.0, into=divided)
    assert np.array_equal(found, np.rint(before / step) * step + noise)
    assert np.array_equal(divided, (found / 3.0).astype(np.float32))
    root.on_grid(found, "noise", 3, std=1.7, step=step, alone=True)
    assert np.array_equal(found, noise)


@built
def test_a_forked_process_draws_its_own_bits() -> None:
    """The state of the kernel's generator in a process is emptied for the child, which would draw the same else."""
    _native().random(bytearray(64))
    reads, writes = os.pipe()
    child = os.fork()
    drawn = bytearray(32)
    _native().random(drawn)
    if child == 0:
        os.write(writes, drawn)
        os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(reads, "rb") as pipe:
        os.close(writes)
        assert pipe.read() != bytes(drawn)


_FORBIDDEN = """
import ctypes, struct, sys
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 318), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7FFF0000)]  # 318: ENOSYS; others pass
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, program, 0, 0):  # no new privileges, and the filter
    sys.exit("no filter here")
from tacit import randomness
print(randomness._native, len(randomness.Randomness.of(seed=None).normal(9, "noise")))
"""


@built
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the call into the kernel has another number here")
def test_where_the_call_into_the_kernel_is_forbidden_python_finds_another_way() -> None:
    """As in a container whose filter is older than the call."""
    told = subprocess.run([sys.executable, "-c", _FORBIDDEN], capture_output=True, text=True, check=False)
    if "no filter" in told.stderr:
        pytest.skip(told.stderr)
    assert told.stdout.split() == ["None", "9"], told.stderr


@built
def test_native_noise_refuses_what_it_can_not_fill() -> None:
    with pytest.raises(ValueError, match="multiple of 8 bytes, got 9"):
        _native().normal(bytearray(9))
    with pytest.raises(BufferError):
        _native().random(b"read only")
    with pytest.raises(ValueError, match="multiple of 8 bytes, got 9"):
        _native().on_grid(bytearray(9), 1.0, 1.0, False, 1.0, None, 1)
    with pytest.raises(ValueError, match="room for as many numbers, half of 24 bytes"):
        _native().on_grid(np.empty(3), 1.0, 1.0, False, 1.0, np.empty(4, np.float32), 1)
    with pytest.raises(ValueError, match="contiguous"):
        _native().normal(np.empty((4, 4))[:, :2])
    with pytest.raises(ValueError, match="kind d, got f"):
        _native().normal(np.empty(4, np.float32))
    with pytest.raises(ValueError, match="kind d, got l"):
        _native().on_grid(np.empty(4, np.int64), 1.0, 1.0, False, 1.0, None, 1)
    with pytest.raises(ValueError, match="kind f, got d"):
        _native().on_grid(np.empty(4), 1.0, 1.0, False, 1.0, np.empty(2), 1)
    for bits, numbers in ((4, 3), (6, 2), (1710, 2050)):
        with pytest.raises(ValueError, match="five words for six"):
            _native().of_bits(np.zeros(bits, np.uint64), np.empty(numbers))
