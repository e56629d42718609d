from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from tacit.crypto.paillier import NoisePool
from tacit.crypto.ring import Rows, from_integers, to_integers
from tacit.errors import ConfigError
from tests.crypto.paillier.common import PRIVATE, PUBLIC, textbook_decrypt


class Counting:
    """Noise that can be told apart: 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self.drawn = 0
        self.lock = threading.Lock()
        self.open = threading.Event()
        self.open.set()

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        assert self.open.wait(30)
        assert aside == (threading.current_thread().name == "tacit-noise")  # the filler holds nobody up
        with self.lock:
            first, self.drawn = self.drawn + 1, self.drawn + count
        return from_integers(range(first, first + count), 8)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
def test_a_filled_pool_holds_what_was_asked_for(count: int) -> None:
    source = Counting()
    pool = NoisePool(source)
    assert len(pool) == 0
    pool.fill(count, wait=True)
    assert len(pool) == source.drawn == count
    pool.fill(count, wait=True)  # it has them already
    assert source.drawn == count


@pytest.mark.parametrize("takes", [[1] * 80, [79], [32, 32, 15], [100, 3], [0, 5, 0, 200]])
def test_no_noise_is_given_twice_and_what_lacks_is_drawn(takes: list[int]) -> None:
    pool = NoisePool(Counting())
    pool.fill(79, wait=True)
    given = [to_integers(pool.take(count)) if count else [] for count in takes]
    assert [len(part) for part in given] == takes
    flat = [value for part in given for value in part]
    assert len(set(flat)) == len(flat)
    assert set(range(1, min(79, len(flat)) + 1)) <= set(flat) or len(flat) < 79
    assert len(pool) == max(0, 79 - sum(takes))


def test_taking_nothing_gives_no_rows() -> None:
    pool = NoisePool(PUBLIC)
    assert len(pool.take(0)) == 0


def test_many_threads_share_a_pool_without_sharing_noise() -> None:
    pool = NoisePool(Counting())
    pool.fill(500)
    given: list[int] = []

    def work() -> None:
        for _ in range(50):
            given.extend(to_integers(pool.take(3)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 900


def test_a_pool_fills_while_others_work() -> None:
    source = Counting()
    source.open.clear()
    pool = NoisePool(source)
    pool.fill(40)
    assert len(pool) == 0  # nothing has to wait for it
    source.open.set()
    pool.fill(40, wait=True)
    assert len(pool) == 40


def test_a_negative_fill_is_refused() -> None:
    with pytest.raises(ConfigError, match="count=-1"):
        NoisePool(PUBLIC).fill(-1)


def test_what_is_used_is_not_filled_up_again() -> None:
    source = Counting()
    pool = NoisePool(source)
    pool.fill(50, wait=True)
    pool.take(20)
    pool.fill(30, wait=True)
    assert source.drawn == 50


@pytest.mark.parametrize("key", [PUBLIC, PRIVATE], ids=["public", "key holder"])
def test_both_keys_encrypt_with_a_pool(key: object) -> None:
    pool = NoisePool(key)  # type: ignore[arg-type]
    pool.fill(10, wait=True)
    values = np.array([0.5, -0.25] * 20)
    for encrypt in (PUBLIC.encrypt, PRIVATE.encrypt):
        vector = encrypt(values, noise=pool)
        assert np.abs(PRIVATE.decrypt(vector) - values).max() < 1e-6
    assert len(pool) == 10 - 2 * len(vector.rows)
    assert textbook_decrypt(to_integers(PUBLIC.encrypt(9, noise=pool).row)[0]) == 9
    again = vector.rerandomised(noise=pool)
    assert np.array_equal(PRIVATE.decrypt(again), PRIVATE.decrypt(vector))


def test_an_empty_pool_is_still_the_one_that_is_asked() -> None:
    source = Counting()
    pool = NoisePool(source)
    PRIVATE.encrypt(1, noise=pool)
    PUBLIC.encrypt(1, noise=pool)
    PUBLIC.encrypt(np.array([0.5])).rerandomised(noise=pool)
    assert source.drawn == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_process_has_none_of_its_parents_noise() -> None:
    source = Counting()
    pool = NoisePool(source)
    pool.fill(20, wait=True)
    reading, writing = os.pipe()
    with pool._lock:  # as a thread of the parent may hold it at that moment
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a lock that is never released must fail the test, not stop it
            held = len(pool)
            os.write(writing, bytes([held, to_integers(pool.take(1))[0]]))
            os._exit(0)
    os.close(writing)
    answer = os.read(reading, 2)
    os.close(reading)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answer == bytes([0, 21])
    assert len(pool) == 20  # the parent keeps its own
