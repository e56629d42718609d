"""Safe primes: the sieve strikes what it should, and the search can be watched and stopped."""

from __future__ import annotations

import itertools
import math
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.crypto import primes as module
from tacit.crypto.primes import is_prime, safe_prime, small_primes
from tacit.errors import ConfigError


@pytest.mark.parametrize("bits", [16, 17, 18, 20, 24, 31, 32, 33, 40, 64, 65, 100, 128, 256, 384])
def test_both_are_prime_and_the_length_is_right(bits: int) -> None:
    for workers in (1, 2):
        p = safe_prime(bits, workers=workers)
        assert is_prime(p)
        assert is_prime(p // 2)
        assert p >> (bits - 2) == 3


def test_every_safe_prime_of_a_length_can_come() -> None:
    wanted = {p for p in range(3 << 14, 1 << 16) if is_prime(p, rounds=1) and is_prime(p // 2, rounds=1)}
    sieve = module._sieve(16)
    edge = sieve.step * sieve.window
    found = {module._Search(sieve=sieve).run(threading.Event()) for _ in range(25 * len(wanted))}
    assert found <= wanted
    assert found >= {
        p for p in wanted if (3 << 14) + 2 * edge < p < (1 << 16) - 2 * edge
    }  # few stretches reach the ends


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([24, 32, 48, 64, 96]))
def test_sieve_strikes_exactly_what_small_primes_divide(bits: int) -> None:
    sieve = module._sieve(bits)
    start = sieve.start()
    divisors = small_primes(min(1 << 17, 1 << (bits // 2))).tolist()
    product = math.prod(divisors)
    survivors = set(sieve.survivors(start).tolist())
    for place in range(sieve.window):
        q = start + place * sieve.step
        assert (math.gcd(q * (2 * q + 1), product) == 1) == (place in survivors)
        assert q >> (bits - 3) == 3


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 1 << 300))
def test_residues_and_inverses(number: int) -> None:
    primes = small_primes(2000)
    assert module._residues(number, primes).tolist() == [number % prime for prime in primes.tolist()]
    others = primes[[number % prime != 0 for prime in primes.tolist()]]
    small = number % (1 << 40) or 1
    others = others[small % others != 0]
    assert module._inverses(small, others).tolist() == [pow(small, -1, prime) for prime in others.tolist()]


def test_strike_reaches_small_and_large_primes_alike() -> None:
    primes = np.array([5, 7, 101, 499, 997, 5003], np.int64)
    first = np.array([4, 0, 100, 1, 999, 1000], np.int64)
    alive = np.ones(1000, np.bool_)
    module._strike(alive, first, primes)
    dead = {
        place
        for start, prime in zip(first.tolist(), primes.tolist(), strict=True)
        for place in range(start, 1000, prime)
    }
    assert set(np.flatnonzero(~alive).tolist()) == dead


def test_candidates_are_tried_in_random_order() -> None:
    """In order, safe primes after long gaps would be preferred."""
    candidates = [int(q) for q in itertools.islice(module._Search(sieve=module._sieve(256))._candidates(), 50)]
    assert candidates != sorted(candidates)
    assert max(candidates) - min(candidates) < module._sieve(256).step * module._sieve(256).window


def test_what_passes_the_quick_tests_is_tested_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def careful(number: int, *, rounds: int) -> bool:
        asked.append((number, rounds))
        return len(asked) > 2 and is_prime(number)

    monkeypatch.setattr(module, "is_prime", careful)
    p = safe_prime(64, workers=1)
    assert asked[-2:] == [(p // 2, 8), (p, 8)]
    assert len(asked) >= 4


def test_expected_number_is_what_searches_take() -> None:
    tested, expected = [], 0.0
    for _ in range(80):
        calls: list[tuple[int, float]] = []
        safe_prime(128, workers=1, progress=lambda done, mean, calls=calls: calls.append((done, mean)))  # type: ignore[misc]
        tested.append(calls[-1][0])
        expected = calls[-1][1]
    assert 0.5 * expected < np.mean(tested) < 1.7 * expected  # five standard errors


def test_progress_grows() -> None:
    calls: list[int] = []
    safe_prime(900, progress=lambda done, _: calls.append(done))
    assert calls
    assert calls == sorted(calls)
    assert calls[-1] > 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_callback_that_raises_ends_the_search(error: type[BaseException]) -> None:
    before = threading.active_count()

    def stop(_: int, __: float) -> None:
        raise error

    with pytest.raises(error):
        safe_prime(2048, progress=stop)
    assert threading.active_count() == before


def test_interrupt_ends_a_script_that_has_no_main_guard() -> None:
    script = "from tacit.crypto.primes import safe_prime\nsafe_prime(3072, progress=lambda *_: print(1, flush=True))"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # background jobs are born deaf
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"KeyboardInterrupt" in errors


def test_bad_requests() -> None:
    with pytest.raises(ConfigError, match="bits=15 >= 16"):
        safe_prime(15)
    with pytest.raises(ConfigError, match="workers=0"):
        safe_prime(64, workers=0)
