"""Encrypted counts: sums, differences and multiples, and the search for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.crypto import elgamal
from tacit.crypto.backend import backend
from tacit.crypto.elgamal.counts import DiscreteLog, discrete_log, powers
from tacit.crypto.groups import named, own
from tacit.crypto.ring import Rows, from_integers, to_integers
from tacit.errors import CipherError, ConfigError
from tests.crypto.elgamal.conftest import Pair

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BOUND = 1 << 16


@quick
@given(st.lists(st.tuples(st.integers(0, BOUND // 2), st.integers(0, BOUND // 2)), min_size=1, max_size=6))
def test_sums(pair: Pair, counts: list[tuple[int, int]]) -> None:
    public, private = pair
    left, right = (np.array(side) for side in zip(*counts, strict=True))
    a, b = public.encrypt_counts(left), public.encrypt_counts(right)
    for total in (a + b, b + a, a + right, right + a, elgamal.total([a, b]), (a + b).rerandomised()):
        assert private.decrypt_counts(total, bound=BOUND).tolist() == (left + right).tolist()
    for difference in (a - b, a - right):
        signed = private.decrypt_counts(difference, bound=BOUND, signed=True)
        assert signed.tolist() == (left - right).tolist()
    assert private.decrypt_counts(3 * a - a * 2, bound=BOUND).tolist() == left.tolist()


@pytest.mark.parametrize("bound", [1, 2, 3, 100, 4095, 4096, 4097, 70000, 1 << 20])
def test_boundaries(pair: Pair, bound: int) -> None:
    public, private = pair
    inside = [0, 1, bound // 2, bound - 1, bound]
    assert private.decrypt_counts(public.encrypt_counts(inside), bound=bound).tolist() == inside
    both = [-bound, -1, 0, 1, bound]
    assert private.decrypt_counts(public.encrypt_counts(both), bound=bound, signed=True).tolist() == both
    for outside in (bound + 1, -1, 1 << 40):
        with pytest.raises(CipherError, match="ciphertext 1 of 2 is not within the bound"):
            private.decrypt_counts(public.encrypt_counts([0, outside]), bound=bound)
    for outside in (bound + 1, -bound - 1):
        with pytest.raises(CipherError, match="not within the bound"):
            private.decrypt_counts(public.encrypt_counts(outside), bound=bound, signed=True)


def test_known_answers(pair: Pair) -> None:
    public, _ = pair
    p, g = public.group.p, public.group.g
    counts = [0, 1, -1, 77, -(1 << 40), 1 << 40]
    assert to_integers(powers(counts, public.group)) == [pow(g, count, p) for count in counts]
    many = np.arange(-300, 300)
    assert to_integers(powers(many, public.group)) == [pow(g, count, p) for count in many.tolist()]


@pytest.mark.parametrize("counts", [[0.5], [float("nan")], ["1"], [[1, 2]], [True], [(1 << 40) + 1], [-(1 << 40) - 1]])
def test_what_is_no_count_is_refused(pair: Pair, counts: list[object]) -> None:
    public, _ = pair
    with pytest.raises(ConfigError, match=r"Expected a vector of integers|at most 2\^40"):
        public.encrypt_counts(counts)  # type: ignore[arg-type]


def test_unsigned_arrays_are_subtracted_as_numbers(pair: Pair) -> None:
    public, private = pair
    difference = public.encrypt_counts([7, 9]) - np.array([2, 3], np.uint8)
    assert private.decrypt_counts(difference, bound=100).tolist() == [5, 6]
    with pytest.raises(ConfigError, match="at most 2"):
        public.encrypt_counts(np.array([2**64 - 1], np.uint64))
    with pytest.raises(ConfigError, match="one count to add or 2, got 3"):
        public.encrypt_counts([7, 9]) + np.arange(3)


def test_no_counts_at_all(pair: Pair) -> None:
    public, private = pair
    assert len(private.decrypt_counts(public.encrypt_counts([]), bound=10)) == 0
    with pytest.raises(ConfigError, match="at least one"):
        elgamal.total([])


def test_numbers_and_counts_do_not_mix(pair: Pair) -> None:
    public, private = pair
    with pytest.raises(CipherError, match="EncryptedCounts on both sides"):
        public.encrypt_counts(1) + public.encrypt(1)  # type: ignore[operator]
    with pytest.raises(CipherError, match="numbers and counts differ"):
        private.decrypt_counts(public.encrypt(4), bound=10)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        public.encrypt_counts(1) * public.encrypt_counts(1)  # type: ignore[operator]


def test_bounds_that_make_no_sense(pair: Pair) -> None:
    public, private = pair
    for bound in (0, -5, (1 << 44) + 1):
        with pytest.raises(ConfigError, match=r"bound from 1 to 2\^44"):
            private.decrypt_counts(public.encrypt_counts(1), bound=bound)
    with pytest.raises(ConfigError, match="half the order"):
        discrete_log(own(40127, insecure_key_size=True), 15000)


def test_powers_of_two_have_different_keys() -> None:
    """With g = 2 the low bits of the first steps are zero, and Python's hash of them repeats every 61 steps."""
    group = named("ffdhe2048")
    assert group.g == 2
    assert len({hash(2**i) for i in range(2000)}) == 61
    assert len({2**i % 2**64 for i in range(2000)}) == 65
    search = DiscreteLog(group=group, bound=(1 << 20) - 1)
    assert len(np.unique(search._keys)) == search.baby_steps == 2048
    values = np.arange(0, 1 << 20, 9973)
    assert search.find(powers(values, group)).tolist() == values.tolist()


def test_a_false_hit_is_not_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    public, _ = pair
    search = DiscreteLog(group=public.group, bound=5000)
    genuine = DiscreteLog._look_up

    def confused(self: DiscreteLog, rows: Rows) -> object:
        hits, exponents = genuine(self, rows)
        every = np.arange(len(rows))
        return np.concatenate([every, hits]), np.concatenate([np.full(len(rows), 3), exponents])

    monkeypatch.setattr(DiscreteLog, "_look_up", confused)
    values = np.array([0, 3, 4999, 5000])
    assert search.find(powers(values, public.group)).tolist() == values.tolist()


def test_weights_are_drawn_again_where_two_steps_share_a_key(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def poor_at_first(size: int) -> bytes:  # with equal weights 4^i and 4^(i + 16) look the same
        drawn.append(size)
        return bytes(size) if len(drawn) == 1 else np.random.default_rng(3).bytes(size)

    monkeypatch.setattr("tacit.crypto.elgamal.counts.system_bytes", poor_at_first)
    search = DiscreteLog(group=pair[0].group, bound=1000)
    assert drawn == [64, 64]
    assert search.find(powers(np.arange(1001), pair[0].group)).tolist() == list(range(1001))


def test_giant_steps_beyond_one_block(pair: Pair) -> None:
    public, _ = pair
    group, ring = public.group, backend().ring(public.group.p)
    search = DiscreteLog(group=group, bound=(1 << 26) - 3)
    values = [(1 << 26) - 3, 12345678, 0, 1 << 25]
    rows = from_integers([pow(group.g, value, group.p) for value in values], ring.width)
    assert search.find(rows).tolist() == values
    assert search.find(rows[:1]).tolist() == values[:1]
    assert search.find(rows[1:2]).tolist() == values[1:2]
