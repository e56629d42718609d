"""One conformance suite for the backends: bit for bit what Python's own integers give."""

from __future__ import annotations

import functools
import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import gmpy2
import numpy as np
import pytest

from tacit.crypto import backend as choice
from tacit.crypto import native
from tacit.crypto.gmp import GmpBackend
from tacit.crypto.native import NativeBackend
from tacit.crypto.ring import Backend, Ring, Rows, from_integers, to_integers, width_of
from tacit.errors import CipherError, ConfigError, DeviceError

OBSTACLE = native.why_not()
BACKENDS = [
    pytest.param(GmpBackend(), id="gmpy2"),
    pytest.param(
        NativeBackend(),
        id="native",
        marks=pytest.mark.skipif(
            OBSTACLE is not None and os.environ.get(choice.VARIABLE) != "native",  # forced: fail rather than skip
            reason=f"the native backend can't run: {OBSTACLE}",
        ),
    ),
]
over_backends = pytest.mark.parametrize("backend", BACKENDS)

LIMB = 52
SIZES = [1024, 1536, 2048, 3072, 4096, 6144]


@pytest.fixture(autouse=True)
def _threads_for_the_smallest_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_THREADS_FROM", 0)


def _random_odd(source: random.Random, bits: int) -> int:
    return source.getrandbits(bits) | 1 | 1 << (bits - 1)


def _moduli() -> list[tuple[str, int]]:
    source = random.Random(7)
    named = [(f"random-{bits}", _random_odd(source, bits)) for bits in SIZES]
    named += [(f"square-of-{bits}", _random_odd(source, bits) ** 2) for bits in (512, 768, 1024, 1536, 2048, 3072)]
    for bits in (1024, 1036, 2076, 4096):  # 1036 and 2076: with the guard bits exactly 20 and 40 limbs
        named.append((f"all-ones-{bits}", (1 << bits) - 1))
        named.append((f"just-above-{bits}", (1 << bits) + 1))
        named.append((f"top-limb-{bits}", (1 << bits) - (1 << (bits - 60)) + 1))  # ones and then zeros
    named += [(f"square-all-ones-{bits}", ((1 << bits) - 1) ** 2) for bits in (1036, 1040, 1088, 2048)]
    named += [(f"square-just-above-{bits}", ((1 << bits) + 1) ** 2) for bits in (1036, 1040, 2048)]
    for limbs in (1, 2, 3, 20):  # at the limits of limbs, and of the spare bits above them
        named += [(f"limbs-{limbs}{spare:+}", (1 << (LIMB * limbs + spare)) + 1) for spare in (-5, -4, 1)]
    named += [(f"small-{m}", m) for m in (3, 5, 9, 15, 25, 255, 257, 2**52 - 1, 2**104 - 1)]
    return named


MODULI = _moduli()
over_moduli = pytest.mark.parametrize("modulus", [pytest.param(m, id=name) for name, m in MODULI])


def _edges(modulus: int) -> list[int]:
    """Values where carries and borrows run far: ends of the range, limbs of all ones, single bits."""
    bits = modulus.bit_length()
    ones = [(1 << length) - 1 for length in (1, 51, 52, 53, 104, bits // 2, bits - 1)]
    stripes = [sum(((1 << LIMB) - 1) << (2 * LIMB * j) for j in range(bits // (2 * LIMB) + 1))]
    root = math.isqrt(modulus)
    corners = [modulus - 1, modulus - 2, modulus // 2, modulus // 2 + 1, root, root - 1, root + 1, modulus - root]
    powers = [1 << shift for shift in (0, 1, 51, 52, bits - 1)]
    return sorted({x % modulus for x in [0, 2, 3, *ones, *stripes, *corners, *powers]})


def _numbers(modulus: int, count: int, seed: int = 1) -> list[int]:
    """Return edge values first, and random ones after them."""
    source = random.Random(seed)
    edges = _edges(modulus)
    source.shuffle(edges)
    return (edges + [source.randrange(modulus) for _ in range(count)])[:count]


@functools.cache
def _power(base: int, exponent: int, modulus: int) -> int:
    """Return what Python says; once for both backends, since that takes longer than either of them."""
    return pow(base, exponent, modulus)


def _rows(numbers: Sequence[int], modulus: int) -> Rows:
    return from_integers(numbers, width_of(modulus))


def _ring(backend: Backend, modulus: int) -> Ring:
    ring = backend.ring(modulus)
    assert (ring.modulus, ring.width) == (modulus, width_of(modulus))
    return ring


def _same(rows: Rows, expected: Sequence[int], ring: Ring) -> None:
    assert rows.dtype == np.uint8
    assert rows.shape == (len(expected), ring.width)
    assert to_integers(rows) == list(expected)


@over_backends
@over_moduli
def test_products_of_every_kind(backend: Backend, modulus: int) -> None:
    ring = _ring(backend, modulus)
    a, b, c = (_numbers(modulus, 21, seed) for seed in (1, 2, 3))
    left, right, third = (_rows(x, modulus) for x in (a, b, c))
    _same(ring.multiply(left, right), [x * y % modulus for x, y in zip(a, b, strict=True)], ring)
    _same(ring.multiply(left, left), [x * x % modulus for x in a], ring)
    _same(ring.multiply(left, right[4:5]), [x * b[4] % modulus for x in a], ring)
    _same(ring.multiply(right[4:5], left), [x * b[4] % modulus for x in a], ring)
    _same(ring.multiply(left[:1], right[:1]), [a[0] * b[0] % modulus], ring)
    _same(
        ring.product([left, right, third, left]),
        [x * y * z * x % modulus for x, y, z in zip(a, b, c, strict=True)],
        ring,
    )
    _same(ring.product([left]), a, ring)
    assert ring.fold(left) == functools.reduce(lambda x, y: x * y % modulus, a, 1)
    assert ring.fold(left[1:9]) == functools.reduce(lambda x, y: x * y % modulus, a[1:9], 1)


@over_backends
@over_moduli
def test_powers_of_one_exponent(backend: Backend, modulus: int) -> None:
    ring = _ring(backend, modulus)
    source = random.Random(5)
    numbers = _numbers(modulus, 25)
    for exponent in (0, 1, 2, 3, 16, 65537, (1 << 67) - 1, source.getrandbits(64) << 8):
        expected = [_power(x, exponent, modulus) for x in numbers]
        for secret in (True, False):
            _same(ring.power(_rows(numbers, modulus), exponent, secret=secret), expected, ring)


@over_backends
@pytest.mark.parametrize("bits", [512, 768, 1024, 1536])
def test_long_exponents_modulo_a_number_and_its_square(backend: Backend, bits: int) -> None:
    source = random.Random(bits)
    for modulus in ((m := _random_odd(source, bits)), m * m):
        ring = _ring(backend, modulus)
        numbers = _numbers(modulus, 9)
        for exponent in (m - 1, (1 << bits) - 1):
            expected = [int(gmpy2.powmod(x, exponent, modulus)) for x in numbers]  # Python's takes seconds here
            for secret in (True, False):
                _same(ring.power(_rows(numbers, modulus), exponent, secret=secret, workers=1), expected, ring)


@over_backends
@over_moduli
def test_powers_of_one_base(backend: Backend, modulus: int) -> None:
    ring = _ring(backend, modulus)
    source = random.Random(6)
    for base, bits in ((_numbers(modulus, 40)[-1], 61), (modulus - 1, 8), (modulus + 2, 1), (0, 9), (1, 17)):
        exponents = [0, 1, (1 << bits) - 1, 1 << (bits - 1), *(source.getrandbits(bits) for _ in range(13))]
        table = ring.table(base, bits=bits)
        assert table.bits == bits
        expected = [_power(base, exponent, modulus) for exponent in exponents]
        for width in (-(-bits // 8), 9):  # rows may be wider than the exponents
            _same(table.powers(from_integers(exponents, width)), expected, ring)


@over_backends
@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 255, 256, 257, 530])
def test_a_table_for_many_exponents(backend: Backend, count: int) -> None:
    source = random.Random(count)
    modulus = _random_odd(source, 256) ** 2
    ring = _ring(backend, modulus)
    exponents = [source.getrandbits(128) for _ in range(count)]
    expected, table = [pow(3, exponent, modulus) for exponent in exponents], ring.table(3, bits=128)
    for workers in (1, 2, 3):
        _same(table.powers(from_integers(exponents, 16), workers=workers), expected, ring)


@over_backends
@over_moduli
def test_affine_combinations(backend: Backend, modulus: int) -> None:
    ring = _ring(backend, modulus)
    source = random.Random(8)
    times, width = _numbers(modulus, 11, 4), width_of(modulus)
    for widths in ((1,), (width,), (2 * width + 3,), (width + 1, 40), tuple([5] * 17), (9 * width, 3)):
        columns = [[(1 << 8 * w) - 1, 0, *(source.getrandbits(8 * w) for _ in range(9))] for w in widths]
        factors = [source.getrandbits(modulus.bit_length()) - (modulus if j % 2 else 0) for j in range(len(widths))]
        constant = source.getrandbits(70) - (1 << 69)
        terms = [(from_integers(x, w), k) for x, w, k in zip(columns, widths, factors, strict=True)]
        sums = [sum(x * k for x, k in zip(row, factors, strict=True)) + constant for row in zip(*columns, strict=True)]
        _same(ring.affine(terms, constant), [s % modulus for s in sums], ring)
        multiplied = ring.affine(terms, constant, times=_rows(times, modulus))
        _same(multiplied, [s * t % modulus for s, t in zip(sums, times, strict=True)], ring)


@over_backends
@over_moduli
def test_affine_reduces_and_keeps_edges(backend: Backend, modulus: int) -> None:
    ring = _ring(backend, modulus)
    numbers = [0, 1, modulus - 1, modulus, modulus + 1, 2 * modulus - 1, 2 * modulus, modulus * modulus]
    rows = from_integers(numbers, 2 * width_of(modulus) + 1)
    _same(ring.affine([(rows, 1)], 0), [x % modulus for x in numbers], ring)
    _same(ring.affine([(rows, 0)], -1), [modulus - 1] * len(numbers), ring)


@over_backends
@over_moduli
def test_inverses(backend: Backend, modulus: int) -> None:
    ring = _ring(backend, modulus)
    units = [x for x in _numbers(modulus, 60) if math.gcd(x, modulus) == 1]
    for count in {1, min(8, len(units)), len(units)}:
        _same(ring.inverse(_rows(units[:count], modulus)), [pow(x, -1, modulus) for x in units[:count]], ring)
    with pytest.raises(CipherError, match=rf"Number {len(units)} of {len(units) + 1} "):
        ring.inverse(_rows([*units, 0], modulus))


@over_backends
@over_moduli
def test_exact_quotients(backend: Backend, modulus: int) -> None:
    numbers = _numbers(modulus, 19)
    for width in (2 * width_of(modulus), 2 * width_of(modulus) + 5):
        rows = from_integers([x * modulus for x in numbers], width)
        quotients = backend.quotient(rows, modulus)
        assert quotients.shape == (19, width_of(modulus))
        assert to_integers(quotients) == numbers


@over_backends
@pytest.mark.parametrize("seed", range(25))
def test_random_sizes_and_counts(backend: Backend, seed: int) -> None:
    source = random.Random(seed)
    bits = source.choice([source.randint(2, 300), source.randint(300, 2500)])
    modulus = _random_odd(source, bits)
    if source.random() < 0.5 and modulus > 1:
        modulus **= 2
    modulus = max(modulus, 3)
    count = source.choice([1, 2, 7, 8, 9, 16, 17, 64, 65, 130])
    ring, a, b = _ring(backend, modulus), _numbers(modulus, count, seed), _numbers(modulus, count, seed + 99)
    left, right = _rows(a, modulus), _rows(b, modulus)
    exponent = source.getrandbits(source.randint(1, 80))
    _same(ring.product([left, right]), [x * y % modulus for x, y in zip(a, b, strict=True)], ring)
    for workers in (1, 2, None):
        powers = ring.power(left, exponent, secret=bool(seed % 2), workers=workers)
        _same(powers, [pow(x, exponent, modulus) for x in a], ring)
    shorter = ring.table(b[0], bits=80).powers(from_integers([x >> max(0, bits - 80) & 7 for x in a], 2))
    _same(shorter, [pow(b[0], x >> max(0, bits - 80) & 7, modulus) for x in a], ring)
    assert ring.fold(left) == functools.reduce(lambda x, y: x * y % modulus, a, 1)


@over_backends
def test_long_moduli(backend: Backend) -> None:
    source = random.Random(4)
    for modulus in (_random_odd(source, 12288), _random_odd(source, 6144) ** 2, (1 << 13000) - 1, (1 << 14000) + 1):
        ring, numbers = _ring(backend, modulus), _numbers(modulus, 9)
        rows = _rows(numbers, modulus)
        _same(ring.multiply(rows, rows), [x * x % modulus for x in numbers], ring)
        _same(ring.power(rows, 70_001, secret=True), [pow(x, 70_001, modulus) for x in numbers], ring)
        terms = [(rows, modulus - 1)] * 9  # the fullest columns there are
        _same(ring.affine(terms, modulus - 1), [-(9 * x + 1) % modulus for x in numbers], ring)


@over_backends
@pytest.mark.parametrize("modulus", [15, _random_odd(random.Random(2), 1024), (2**1024 + 1) ** 2])
def test_no_rows_at_all(backend: Backend, modulus: int) -> None:
    ring, none = _ring(backend, modulus), np.empty((0, width_of(modulus)), np.uint8)
    for empty in (
        ring.multiply(none, none),
        ring.product([none, none]),
        ring.power(none, 5, secret=True),
        ring.affine([(none, 3)], 4),
        ring.inverse(none),
        ring.table(2, bits=20).powers(none[:, :1]),
    ):
        assert empty.shape == (0, ring.width)
    assert backend.quotient(none, modulus).shape == (0, ring.width)
    assert ring.fold(none) == 1


@over_backends
def test_rows_need_not_be_contiguous_or_as_wide_as_the_modulus(backend: Backend) -> None:
    modulus = (1 << 521) - 1  # a prime
    ring, numbers = _ring(backend, modulus), [3, 5, 250, 17, 9]
    narrow, wide = from_integers(numbers, 1), from_integers(numbers, 99)
    for rows in (narrow, wide, np.asfortranarray(wide), np.repeat(wide, 2, axis=0)[::2]):
        _same(ring.multiply(rows, narrow), [x * x for x in numbers], ring)
        _same(ring.power(rows, 2, secret=False), [x * x for x in numbers], ring)
        _same(ring.affine([(rows, 2)], 1, times=narrow), [(2 * x + 1) * x for x in numbers], ring)
        _same(ring.table(2, bits=8).powers(rows), [pow(2, x, modulus) for x in numbers], ring)
        assert ring.fold(rows) == math.prod(numbers) % modulus
        assert to_integers(ring.multiply(ring.inverse(rows), rows)) == [1] * 5


@over_backends
@pytest.mark.parametrize("modulus", [-3, 0, 1, 2, 4, 1 << 2048])
def test_a_modulus_is_odd_and_at_least_three(backend: Backend, modulus: int) -> None:
    with pytest.raises(ValueError, match="expected an odd number of at least 3"):
        backend.ring(modulus)


def _refusals(backend: Backend) -> list[tuple[str, Callable[[], object]]]:
    modulus = (1 << 127) - 1
    ring = backend.ring(modulus)
    rows = _rows([1, 2, 3], modulus)
    large = _rows([1, modulus, 3], modulus)
    return [
        ("expected the same number in each", lambda: ring.multiply(rows, rows[:2])),
        ("expected the same number in each", lambda: ring.product([rows, rows[:2]])),
        ("expected the same number in each", lambda: ring.affine([(rows, 1), (rows[:2], 1)], 0)),
        ("expected the same number in each", lambda: ring.affine([(rows, 1)], 0, times=rows[:2])),
        ("expected at least one", lambda: ring.product([])),
        ("expected at least one", lambda: ring.affine([], 1)),
        ("1 of 3 rows are not below the modulus", lambda: ring.multiply(large, rows)),
        ("1 of 3 rows are not below the modulus", lambda: ring.multiply(rows, large)),
        ("1 of 3 rows are not below the modulus", lambda: ring.multiply(large, rows[:1])),
        ("1 of 1 rows are not below the modulus", lambda: ring.multiply(rows, large[1:2])),
        ("1 of 3 rows are not below the modulus", lambda: ring.product([rows, large])),
        ("1 of 3 rows are not below the modulus", lambda: ring.fold(large)),
        ("1 of 3 rows are not below the modulus", lambda: ring.inverse(large)),
        ("1 of 3 rows are not below the modulus", lambda: ring.power(large, 3, secret=True)),
        ("1 of 3 rows are not below the modulus", lambda: ring.affine([(rows, 1)], 0, times=large)),
        ("the first is row 1", lambda: ring.fold(large)),
        ("the exponent is negative", lambda: ring.power(rows, -1, secret=False)),
        ("more than 9 bits", lambda: ring.table(2, bits=9).powers(from_integers([511, 512], 2))),
        ("expected at least 1", lambda: ring.table(2, bits=0)),
        ("expected an odd number", lambda: backend.quotient(rows, 6)),
    ]


@over_backends
@pytest.mark.parametrize("place", range(20))
def test_wrong_arguments_are_refused_in_words(backend: Backend, place: int) -> None:
    refusals = _refusals(backend)
    assert len(refusals) == 20
    words, call = refusals[place]
    with pytest.raises(ValueError, match=f"(?i){words}"):
        call()


@pytest.mark.skipif(native.why_not() is not None, reason="the native core can't run here")
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("quotient", (bytes(8), 8, b"", bytearray(8), 8), "inverse is empty"),
        ("quotient", (b"", 8, b"1", bytearray(), 1 << 62), "whole number of rows"),
        ("quotient", (b"", 1 << 62, b"1", bytearray(), 8), "whole number of rows"),
        ("power", (b"\7\1\1", 0, 1, b"\2", b"\3", 1 << 58, 1, 1, bytearray(1)), "more than the exponent has"),
    ],
)
def test_hostile_sizes_are_refused_by_the_core_itself(name: str, arguments: tuple[Any, ...], words: str) -> None:
    """An empty inverse was refused without an exception, so that Python reported a fault of its own."""
    with pytest.raises(ValueError, match=words):
        getattr(native._native, name)(*arguments)


@over_backends
def test_squares_are_refused_too_where_a_row_is_too_large(backend: Backend) -> None:
    modulus = _random_odd(random.Random(1), 512) ** 2
    rows = _rows([modulus - 1, modulus, 0], modulus)
    with pytest.raises(ValueError, match="1 of 3 rows are not below the modulus"):
        backend.ring(modulus).power(rows, 3, secret=True)


def test_the_faster_backend_is_chosen() -> None:
    chosen = choice.choose({}, obstacle=None)
    assert (chosen.backend.name, chosen.reason) == ("native", "this CPU has AVX-512 IFMA")
    assert choice.choose({choice.VARIABLE: " "}, obstacle=None).backend.name == "native"


def test_gmpy2_is_chosen_where_the_native_backend_cannot_run() -> None:
    chosen = choice.choose({}, obstacle="no such CPU")
    assert chosen.backend.name == "gmpy2"
    assert chosen.reason == "the native backend can't run: no such CPU"


@pytest.mark.parametrize("name", ["gmpy2", "native"])
def test_the_environment_forces_a_backend(name: str) -> None:
    chosen = choice.choose({choice.VARIABLE: name}, obstacle=None)
    assert (chosen.backend.name, chosen.reason) == (name, "TACIT_CRYPTO_BACKEND asks for it")


def test_forcing_what_cannot_run_or_is_unknown_is_refused() -> None:
    with pytest.raises(ConfigError, match="TACIT_CRYPTO_BACKEND=native can't run: no such CPU"):
        choice.choose({choice.VARIABLE: "native"}, obstacle="no such CPU")
    with pytest.raises(ConfigError, match="is 'gmp', expected gmpy2 or native"):
        choice.choose({choice.VARIABLE: "gmp"}, obstacle=None)


def test_why_the_native_backend_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldCpu:
        @staticmethod
        def supported() -> bool:
            return False

    monkeypatch.setattr(native, "_native", OldCpu)
    assert "no AVX-512 IFMA" in (native.why_not() or "")
    monkeypatch.setattr(native, "_native", None)
    assert "was not built" in (native.why_not() or "")


@over_backends
def test_a_backend_is_compared_with_python(backend: Backend) -> None:
    assert choice.verify(backend) == 4 * 2 * 6 * 19


class Wrong(GmpBackend):
    """Divides wrongly, by one."""

    def quotient(self, rows: Rows, divisor: int, *, workers: int | None = None) -> Rows:
        right = super().quotient(rows, divisor, workers=workers)
        return from_integers([number ^ 1 for number in to_integers(right)], right.shape[1])


def test_a_backend_that_computes_wrongly_is_told() -> None:
    with pytest.raises(DeviceError, match=r"gmpy2 backend computes wrongly here \(quotients modulo 64 bits\)"):
        choice.verify(Wrong())
