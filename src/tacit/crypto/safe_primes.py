r"""Safe primes: :math:`p = 2q + 1` with p and q prime, by a joint sieve of q and 2q + 1.

About one in :math:`\ln q \ln p / 1.32` numbers q will do, 1 in 381,000 at 1024 bits, so most of the work is to reject.
Candidates are :math:`q_0 + kM` with M the product of the first primes and :math:`q_0` a random number in a class where
neither q nor 2q + 1 has a divisor in M. A sieve strikes out every k where another small prime divides either; what
remains is tried with one Fermat test of q, one of p, and then in full.

Threads share the search: gmpy2 releases the GIL in the powers, where the time goes. So nothing is left
running when the caller is interrupted, and no process is started.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.crypto.gmp import cores
from tacit.crypto.primes import is_prime, small_primes
from tacit.errors import ConfigError
from tacit.randomness import system_below, system_bytes

Progress = Callable[[int, float], object]

_SMALLEST = 16  # bits
_TWIN_CONSTANT = 1.3203236316937391  # 2 C_2 (Hardy, Littlewood 1923)
_FIRST_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
_OWN_ROUNDS = 8  # as in primes.random_prime
_SECONDS_BETWEEN_LOOKS = 0.1


def safe_prime(bits: int, *, workers: int | None = None, progress: Progress | None = None) -> int:
    r"""Return a random safe prime of ``bits`` bits whose two highest bits are one.

    A stretch that holds about one safe prime is placed at random and tried in random order, then another. So none is
    more than about twice as likely as the average, and the choice has at most a bit less entropy than a uniform one.
    (In order, one that follows a long gap would be much likelier than its neighbours.)

    Args:
        bits: the length of p.
        workers: threads; one a core where it is left out.
        progress: is called ten times a second, and once at the end, with the candidates tested so far and the mean
            number that a search takes. The number tested is geometrically distributed: one search in seven takes more
            than twice the mean.

    >>> p = safe_prime(64)
    >>> p.bit_length(), is_prime(p), is_prime(p // 2)
    (64, True, True)
    """
    if bits < _SMALLEST:
        raise ConfigError(f"Expected a safe prime of bits={bits} >= {_SMALLEST} bits. Groups need 2048 and more.")
    if workers is not None and workers < 1:
        raise ConfigError(f"Expected workers={workers} >= 1. Leave it out for one a core.")
    sieve = _sieve(bits)
    searches = [_Search(sieve=sieve) for _ in range(workers or cores())]
    stop = threading.Event()
    with ThreadPoolExecutor(len(searches)) as pool:
        try:
            running: list[Future[int | None]] = [pool.submit(search.run, stop) for search in searches]
            while not (done := wait(running, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED).done):
                if progress is not None:
                    progress(sum(search.tested for search in searches), sieve.expected)
            found = next(iter(done)).result()
        finally:
            stop.set()  # also where Ctrl-C or the callback raised: every thread ends after its present test
    if progress is not None:
        progress(sum(search.tested for search in searches), sieve.expected)
    assert found is not None, "only a search that was stopped ends with nothing"
    return found


@dataclass(frozen=True, kw_only=True)
class _Sieve:
    """What every search of one length needs: the primes to strike with and the inverses of the step modulo them."""

    bits: int
    step: int  # M
    window: int  # how many k are sieved at once
    primes: NDArray[np.int64]
    inverses: NDArray[np.int64]
    expected: float  # candidates that the sieve leaves for one safe prime

    def start(self) -> int:
        """Return a uniform q0 of the right length such that q0 and 2 q0 + 1 have no divisor in the step."""
        low, high = 3 << (self.bits - 3), (1 << (self.bits - 1)) - self.step * self.window
        while True:
            start = low + system_below(high - low)
            if math.gcd(start * (2 * start + 1), self.step) == 1:
                return start

    def survivors(self, start: int) -> NDArray[np.intp]:
        """Return the k below the window for which no small prime divides q = start + k step or 2q + 1."""
        alive = np.ones(self.window, np.bool_)
        residues = _residues(start, self.primes)
        half = self.primes >> 1  # (r - 1) / 2: 2q + 1 is divisible by r where q is this modulo r
        _strike(alive, (self.primes - residues) * self.inverses % self.primes, self.primes)
        _strike(alive, (self.primes + half - residues) * self.inverses % self.primes, self.primes)
        return np.flatnonzero(alive)


@dataclass(kw_only=True)
class _Search:
    """One thread's search."""

    sieve: _Sieve
    tested: int = field(default=0, init=False)

    def run(self, stop: threading.Event) -> int | None:
        """Return a safe prime, or None where the search was stopped."""
        for q in self._candidates():
            if stop.is_set():
                break
            self.tested += 1
            p = 2 * q + 1
            if _passes_fermat(q) and _passes_fermat(p) and all(is_prime(int(x), rounds=_OWN_ROUNDS) for x in (q, p)):
                return int(p)
        return None

    def _candidates(self) -> Iterator[gmpy2.mpz]:
        while True:
            start = gmpy2.mpz(self.sieve.start())
            places = self.sieve.survivors(int(start))
            for place in places[np.argsort(np.frombuffer(system_bytes(8 * len(places)), np.uint64))].tolist():
                yield start + self.sieve.step * place


@functools.lru_cache(maxsize=2)
def _sieve(bits: int) -> _Sieve:
    # measured: a larger limit costs more than the tests it saves
    limit = min(1 << (bits // 2), {0: 1 << 17, 1: 1 << 20, 2: 1 << 21}.get(bits // 768, 1 << 23))
    window = max(16, bits * bits // 64)  # holds one safe prime or so
    step = 2 * 3
    for prime in _FIRST_PRIMES[2:]:
        if step * prime * window < 1 << (bits - 6) and prime < limit:
            step *= prime
    primes = small_primes(limit)
    odd = primes[primes > 2]
    allowed = np.where(odd == 3, 1 / 3, 1 - 2 / odd)
    expected = 0.5 * float(np.prod(allowed)) * (bits - 1) * bits * math.log(2) ** 2 / _TWIN_CONSTANT
    others = np.array([prime for prime in odd.tolist() if step % prime], np.int64)
    inverses = _inverses(step, others)
    return _Sieve(bits=bits, step=step, window=window, primes=others, inverses=inverses, expected=max(expected, 1.0))


def _passes_fermat(number: gmpy2.mpz) -> bool:
    return bool(gmpy2.powmod_base_list([2], number - 1, number)[0] == 1)  # a list of one: this form releases the GIL


def _strike(alive: NDArray[np.bool_], first: NDArray[np.int64], primes: NDArray[np.int64]) -> None:
    """Mark each place first[i] + j primes[i] as dead."""
    few = int(np.searchsorted(primes, len(alive) // 16))
    for place, prime in zip(first[:few].tolist(), primes[:few].tolist(), strict=True):
        alive[place::prime] = False
    places, strides = first[few:], primes[few:]
    while len(places):  # larger primes have few places each: all primes at once
        inside = places < len(alive)
        places, strides = places[inside], strides[inside]
        alive[places] = False
        places = places + strides


def _residues(number: int, primes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number modulo every prime below 2^31, by Horner's scheme over its 32-bit words."""
    words = np.frombuffer(number.to_bytes(-(-number.bit_length() // 32) * 4, "big"), ">u4").astype(np.uint64)
    divisors = primes.astype(np.uint64)
    residues = np.zeros(len(primes), np.uint64)
    for word in words:
        residues = ((residues << np.uint64(32)) + word) % divisors
    return residues.astype(np.int64)


def _inverses(number: int, primes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the inverse of a number modulo every prime r, as its power r - 2 (Fermat)."""
    power, exponents = np.ones_like(primes), primes - 2
    square = number % primes
    while exponents.any():
        power = np.where(exponents & 1, power * square % primes, power)
        square = square * square % primes
        exponents = exponents >> 1
    return power
