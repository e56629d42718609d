r"""Random primes and safe primes, and the test of primality.

**Random primes.** A prime is drawn by rejection: candidates are uniform numbers of the wanted length and residue class
from the operating system, and the first that is prime is taken. So every prime of the class is equally likely.
(Searching upwards from a random start is faster by a little, and prefers primes after long gaps.) Trial division by all
small primes at once, as one greatest common divisor with their product, and one Fermat test in front keep the full test
rare.

**Safe primes**, :math:`p = 2q + 1` with p and q prime, by a joint sieve of q and 2q + 1. About one in
:math:`\ln q \ln p / 1.32` numbers q will do, 1 in 381,000 at 1024 bits, so most of the work is to reject. Candidates
are :math:`q_0 + kM` with M the product of the first primes and :math:`q_0` a random number in a class where neither q
nor 2q + 1 has a divisor in M. A sieve strikes out every k where another small prime divides either; what remains is
tried with one Fermat test of q, one of p, and then in full. Threads share the search: gmpy2 releases the GIL in the
powers, where the time goes. So nothing is left running when the caller is interrupted, and no process is started.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.limits import cores
from tacit.randomness import system_below, system_bytes

Progress = Callable[[int, float], object]

_SMALLEST = 8  # bits
_LARGEST_DIVISOR = 1 << 16
_OWN_ROUNDS = 8  # for candidates nobody could choose; see random_prime
_SMALLEST_SAFE = 16  # bits
_TWIN_CONSTANT = 1.3203236316937391  # 2 C_2 (Hardy, Littlewood 1923)
_FIRST_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
_SECONDS_BETWEEN_LOOKS = 0.1


def is_prime(number: int, *, rounds: int = 40) -> bool:
    r"""Return whether ``number`` is prime, for numbers that an adversary may have chosen.

    The test of Baillie, Pomerance, Selfridge and Wagstaff, for which no composite is known that passes, and
    ``rounds`` Miller-Rabin tests with bases from the operating system: whoever chose a composite without knowing
    them sees it pass with probability at most :math:`4^{-rounds}` (Rabin 1980).

    >>> is_prime(2**127 - 1), is_prime(3825123056546413051)  # the latter fools the bases 2 to 23
    (True, False)
    """
    if number < 4:
        return number in (2, 3)
    candidate = gmpy2.mpz(number)
    if not gmpy2.is_prime(candidate, 24):  # up to 24 means trial division and the test of the four
        return False
    return all(gmpy2.is_strong_prp(candidate, 2 + system_below(number - 3)) for _ in range(rounds))


def random_prime(bits: int, *, congruent: tuple[int, int] | None = None) -> int:
    r"""Return a uniform prime of ``bits`` bits whose two highest bits are one, from the operating system's randomness.

    Two such primes have a product of exactly twice as many bits. ``congruent=(r, m)`` asks for a prime that is r
    modulo m; m may be large, such as twice a prime that is to divide p - 1.

    The candidate is random, so few rounds leave little doubt: a composite of 1024 bits passes these with
    probability below :math:`2^{-150}`, one of 512 bits below :math:`2^{-100}` (Damgård, Landrock, Pomerance 1993).

    >>> prime = random_prime(64, congruent=(3, 4))
    >>> prime.bit_length(), prime >> 62, prime % 4, is_prime(prime)
    (64, 3, 3, True)
    """
    if bits < _SMALLEST:
        raise ConfigError(f"Expected a prime of bits={bits} >= {_SMALLEST} bits. Keys need 1024 and more.")
    residue, modulus = _odd_class(congruent or (1, 2))
    low, high = 3 << (bits - 2), 1 << bits
    start = low + (residue - low) % modulus  # the first of the class
    count = -((start - high) // modulus)
    if count < bits:  # about one in bits * ln(2) / 2 is prime
        raise ConfigError(
            f"Expected congruent={congruent} to leave many numbers of {bits} bits, it leaves {count}. "
            "Take a smaller modulus or a longer prime."
        )
    divisors = product_of_primes(min(_LARGEST_DIVISOR, 1 << (bits // 2)))
    for _ in range(1000 * bits):  # a class without primes must not turn into an endless loop
        candidate = start + modulus * system_below(count)
        if may_be_prime(candidate, divisors) and is_prime(candidate, rounds=_OWN_ROUNDS):
            return candidate
    raise ConfigError(f"No prime of {bits} bits in the class {congruent} was met in {1000 * bits} draws.")


def may_be_prime(candidate: int, divisors: Any) -> bool:
    """Return False for nearly every composite: trial division by the factors of ``divisors``, then Fermat's test."""
    number = gmpy2.mpz(candidate)
    return bool(gmpy2.gcd(divisors, number) == 1 and gmpy2.powmod(2, number - 1, number) == 1)


def small_primes(limit: int) -> NDArray[np.int64]:
    """Return all primes below ``limit`` (the sieve of Eratosthenes over odd numbers).

    >>> small_primes(20).tolist()
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    odd = np.ones(max(limit // 2, 1), np.bool_)  # odd[i] stands for 2i + 1
    for half in range(1, (math.isqrt(max(limit - 1, 0)) + 1) // 2):
        if odd[half]:
            odd[2 * half * (half + 1) :: 2 * half + 1] = False
    odd[0] = False
    primes = np.concatenate([[2], 2 * np.flatnonzero(odd) + 1]).astype(np.int64)
    return primes[primes < limit]


@functools.lru_cache(maxsize=4)
def product_of_primes(limit: int) -> Any:
    """Return the product of all primes below ``limit``, as gmpy2 knows it."""
    return gmpy2.primorial(limit - 1)


def _odd_class(congruent: tuple[int, int]) -> tuple[int, int]:
    """Return the class narrowed to odd numbers."""
    residue, modulus = congruent
    if modulus < 1 or math.gcd(residue, modulus) != 1:
        raise ConfigError(
            f"Expected congruent=(r, m) with m >= 1 and no divisor in common, got {congruent}: "
            "that class holds at most one prime."
        )
    residue %= modulus
    if modulus % 2:
        return (residue if residue % 2 else residue + modulus), 2 * modulus
    return residue, modulus


def safe_prime(bits: int, *, workers: int | None = None, progress: Progress | None = None) -> int:
    r"""Return a random safe prime of ``bits`` bits whose two highest bits are one.

    A stretch that holds about one safe prime is placed at random and tried in random order, then another. So none is
    more than about twice as likely as the average, and the choice has at most a bit less entropy than a uniform one.
    (In order, one that follows a long gap would be much likelier than its neighbours.)

    Args:
        bits: the length of p.
        workers: threads; one per core where it is left out.
        progress: is called ten times a second, and once at the end, with the candidates tested so far and the mean
            number that a search takes. The number tested is geometrically distributed: one search in seven takes more
            than twice the mean.

    >>> p = safe_prime(64)
    >>> p.bit_length(), is_prime(p), is_prime(p // 2)
    (64, True, True)
    """
    if bits < _SMALLEST_SAFE:
        raise ConfigError(f"Expected a safe prime of bits={bits} >= {_SMALLEST_SAFE} bits. Groups need 2048 and more.")
    if workers is not None and workers < 1:
        raise ConfigError(f"Expected workers={workers} >= 1. Leave it out for one per core.")
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
