"""Differential privacy without a trusted adder: every client adds a share of integer noise before it encrypts."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import Event, SkellamEvent
from tacit.errors import ConfigError, RunError, SpoiledError
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness
from tacit.vectors import Integers, Vector, blocks, clipped, scaled

Array = NDArray[np.float64]

_BEYOND = 80.0  # a vector holds a number that is clipped with probability below 2^-80
_LEAST_NORM = 2.0**14  # sC; rounding then adds 1/(2 sC) = 3e-5 to the norm
_LEAST_RATIO = 64.0  # sC over sqrt(d); rounding then adds at most 1/(8 * 64^2) = 3e-5 to the norm
_LARGEST_NORM = 2.0**30  # squared norms stay below 2^63
_TRIES = 100
_LARGEST_RATE = 2.0**50  # numbers around it are whole in float64, with room for the tails
_LEAST_RATE = 10.0  # transformed rejection is proved for rates from here on
_CHUNK = 1 << 16  # numbers made at a time: their intermediate values stay in the cache
_TERMS = 9  # of the series of D; the tenth is below 2^-53 of the first


@dataclass(frozen=True, kw_only=True)
class SkellamMechanism:
    r"""Each client rounds its clipped update to integers and adds Poisson(l) - Poisson(l); only the sum is ever opened.

    With D the norm of a rounded update (:class:`ConditionalRounding`) and k clients whose
    noise the adversary does not know, each client's noise has variance :math:`2l = (zD)^2 / k`. A sum of independent
    Skellam numbers is one again, so the noise on the sum is Skellam with variance :math:`m = (zD)^2` or more (Agarwal,
    Kairouz & Liu, "The Skellam mechanism for differentially private federated learning", 2021).

    k is the smallest cohort whose sum may be opened, less the clients that may tell the adversary their noise. A larger
    cohort has more noise than was promised; a smaller one must fail closed, and that is the protocol's part.

    The protocol adds integers exactly. So nothing is wrapped around a modulus, and the rotation that spreads an update
    over its coordinates before it is wrapped has no use here. All clients count the same; neither losses nor counts
    leave them.
    """

    clip_bound: float  # C
    noise_multiplier: float  # z, relative to D
    smallest_cohort: int
    expected_clients: float  # what the sum is divided by
    colluding: int = 0  # clients whose noise the adversary may know
    scale: float | None = None  # s; by default one with which rounding costs nothing
    parameters: int = 0  # d, known once the mechanism is fitted to a model

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise_multiplier < math.inf:
            raise ConfigError(f"Expected noise_multiplier={self.noise_multiplier} >= 0.")
        if not 0.0 < self.expected_clients < math.inf:
            raise ConfigError(f"Expected expected_clients={self.expected_clients} > 0.")
        for name in ("smallest_cohort", "colluding"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"Expected {name}={value!r} to be a whole number of clients.")
        if not 0 <= self.colluding < self.smallest_cohort:
            raise ConfigError(
                f"Expected 0 <= colluding={self.colluding} < smallest_cohort={self.smallest_cohort}: noise that the "
                "adversary knows hides nothing, so somebody else has to add all of it. Raise the smallest cohort."
            )
        if self.rate > _LARGEST_RATE:  # also builds the rounding, which checks C, d and s
            raise ConfigError(
                f"A client's noise would have a variance of {2.0 * self.rate:.3g} units, expected at most 2^51. "
                f"Lower scale={self.rounding.factor:g} or noise_multiplier={self.noise_multiplier}, or raise "
                f"smallest_cohort={self.smallest_cohort}."
            )

    @functools.cached_property
    def rounding(self) -> ConditionalRounding:
        """How an update becomes integers."""
        return ConditionalRounding(clip_bound=self.clip_bound, parameters=self.parameters, scale=self.scale)

    @property
    def rate(self) -> float:
        """The rate l of a client's two Poisson numbers: half the variance of its share."""
        variance = self.noise_multiplier**2 * self.rounding.squared_sensitivity
        return variance / (self.smallest_cohort - self.colluding) / 2.0

    @functools.cached_property
    def bound(self) -> int:
        r"""The largest magnitude of a number that a client sends, for the layout of the encrypted vector.

        What a rounded number can be, and t for the noise. By Chernoff's bound a Skellam number X of variance v has
        :math:`P(X \ge t) \le \exp(-(t\,\mathrm{arsinh}(t/v) - \sqrt{v^2 + t^2} + v))`; t makes this at most
        :math:`2^{-80} / (2d)`, so that a vector holds a number beyond with probability at most :math:`2^{-80}`.

        Such a number is clipped. That moves the law of a sum of n vectors by at most :math:`n 2^{-80}`, and delta by
        :math:`(1 + e^\varepsilon) n 2^{-80}` per round: 3e-15 in all for 1,000 clients, 1,000 rounds and epsilon 8.
        """
        return self.rounding.largest + _tail(2.0 * self.rate, math.log(2.0) * _BEYOND + math.log(2 * self._fitted))

    @property
    def event(self) -> Event:
        """What a release costs a client that is in it, known before the model is: see :class:`SkellamEvent`."""
        return SkellamEvent(noise_multiplier=self.noise_multiplier, sensitivity=self.rounding.norm)

    @property
    def alone(self) -> Event:
        r"""What a client's message costs it where nobody else's noise hides it: its own share, :math:`z / \sqrt k`.

        So it is where all others collude, and where a server and key holders who break their rules open a single
        client's ciphertext. Encryption is what makes :attr:`event` the cost; this is what is left without it.
        """
        shares = self.smallest_cohort - self.colluding
        return SkellamEvent(noise_multiplier=self.noise_multiplier / math.sqrt(shares), sensitivity=self.rounding.norm)

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism for a model whose tensors have these sizes."""
        return replace(self, parameters=sum(layers))

    def length(self, parameters: int) -> int:
        """Return the model's length."""
        return parameters

    def public_state(self) -> bytes:
        """Return nothing: all is fixed before the first round."""
        return b""

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Integers:
        """Clip, round and add this client's share of the noise; an update that is not finite is clipped to zero."""
        if len(work.update) != self._fitted:
            raise ConfigError(
                f"Expected an update of {self.parameters} numbers, got {len(work.update)}. Fit the mechanism to the "
                "model that is trained."
            )
        integers = self.rounding.rounded(work.update, randomness)
        integers += poisson(self.rate, len(integers), randomness, "noise", "plus")
        integers -= poisson(self.rate, len(integers), randomness, "noise", "minus")
        return np.clip(integers, -self.bound, self.bound, out=integers)

    def largest_norm(self, clients: int) -> float:
        r"""Return what the norm of k honest clients' sum exceeds with probability at most :math:`(k + 2) 2^{-80}`.

        The rounded updates add up to a norm of kD at most. The noise on a coordinate, :math:`N_j`, is Skellam with
        variance :math:`v = 2lk`. As in :attr:`bound` no :math:`N_j` is beyond t but with probability :math:`2^{-80}`,
        and :math:`\min(N_j^2, t^2)` has a mean of at most v and a second moment of at most :math:`3v^2 + v`. So by
        Bernstein's inequality, with :math:`a = 80 \ln 2`,

        .. math:: \lVert N \rVert^2 \le \min\bigl(d t^2,\; dv + s\bigr), \qquad
            s = \tfrac{a t^2}{3} + \sqrt{\bigl(\tfrac{a t^2}{3}\bigr)^2 + 2 a d (3 v^2 + v)},

        but with probability :math:`2^{-80}` more. (Numbers that a client clips are the last k.)
        """
        d, v, a = self._fitted, 2.0 * self.rate * clients, math.log(2.0) * _BEYOND
        t = _tail(v, a + math.log(2 * d))
        third = a * t * t / 3.0
        noise = min(d * t * t, d * v + third + math.sqrt(third**2 + 2.0 * a * d * (3.0 * v * v + v)))
        return clients * math.sqrt(self.rounding.squared_sensitivity) + math.sqrt(noise)

    def on_server(
        self,
        total: NDArray[np.float64] | Integers,
        randomness: Randomness,
        *,
        clients: int,
    ) -> Release:
        """Bring the sum back to floats and divide by the expected cohort; the noise is in it already.

        A client that lies can put any number of the layout's range into any coordinate. A sum whose norm is beyond
        :meth:`largest_norm` is refused: that tells nothing of honest clients that the sum does not.
        """
        if not all(np.array_equal(total[part], np.rint(total[part])) for part in blocks(len(total))):
            raise RunError(
                "Expected a sum of whole numbers, got fractions: the noise is private only where it was added to "
                "integers that were summed exactly. Use a protocol that sums integers."
            )
        norm, largest = float(np.linalg.norm(total)), self.largest_norm(clients)
        if not norm <= largest:
            raise SpoiledError(
                f"The opened sum of {clients} clients has a norm of {norm:.6g} units, expected at most {largest:.6g} "
                "with the noise: honest clients can't have given it, so at least one of them lied. Nothing was "
                "released. Which one it was, encryption hides: look at the clients."
            )
        update = scaled(total, 1.0, self.rounding.factor * self.expected_clients)
        return Release(update=update, train_loss=None, mechanism=self)

    @property
    def _fitted(self) -> int:
        if self.parameters == 0:
            raise ConfigError("Expected a mechanism that knows its model, got parameters=0. Call fitted() first.")
        return self.parameters


def _tail(variance: float, exponent: float) -> int:
    """Return the least t at which Chernoff's exponent of a Skellam number reaches ``exponent``."""
    if variance == 0.0:
        return 0

    def reached(t: int) -> bool:
        # sqrt(v^2 + t^2) - v, without the cancellation
        rise = t * (t / (math.hypot(variance, t) + variance))
        return t * math.asinh(t / variance) - rise >= exponent

    high = 1
    while not reached(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True)
class ConditionalRounding:
    r"""Clips to norm C, multiplies by s and rounds each number up or down at random, until the norm is within D.

    Rounding x up with probability :math:`x - \lfloor x \rfloor` leaves the mean as it is, and adds at most d/4 to the
    mean of the squared norm. It is drawn anew until the squared norm is within

    .. math:: D^2 = \min(C^2 s^2 + \tfrac d4 + \sqrt{2 \ln(1/b)}\,(C s + \tfrac12 \sqrt d),\; (C s + \sqrt d)^2),
        \qquad b = e^{-1/2},

    which a draw exceeds with probability at most b (Kairouz, Liu & Steinke, "The distributed discrete Gaussian
    mechanism", 2021). The norm is that of the integers themselves, so it does not depend on how floats are rounded.

    Of 100 draws all exceed D with probability at most :math:`e^{-50}`. Then every number is rounded towards zero,
    which never makes a norm larger: the bound holds always, and the mean is moved by nothing that could be measured.

    Without a ``scale``, s is the smallest power of two (a product with it is exact) for which :math:`C s` is at least
    :math:`2^{14}` and :math:`64 \sqrt d`. Then D exceeds :math:`C s` by at most a part in 15,000, at every d up to ten
    million and beyond: 4e-5 at d = 21,840. More would only make the integers, and their ciphertexts, longer.
    """

    clip_bound: float  # C
    parameters: int  # d
    scale: float | None = None  # s

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_bound < math.inf:
            raise ConfigError(f"Expected clip_bound={self.clip_bound} > 0. Start from the typical norm of an update.")
        if self.parameters < 0:
            raise ConfigError(f"Expected parameters={self.parameters} >= 0: the numbers of the model.")
        if not 1.0 <= self.norm <= _LARGEST_NORM:
            raise ConfigError(
                f"Expected a scale s with 1 <= s * clip_bound <= 2^30, got scale={self.factor:g} with "
                f"clip_bound={self.clip_bound}. Leave the scale out: it is then chosen so that rounding costs nothing."
            )

    @property
    def factor(self) -> float:
        """What a number is multiplied by: s."""
        if self.scale is not None:
            return self.scale
        least = max(_LEAST_NORM, _LEAST_RATIO * math.sqrt(self.parameters))
        fraction, exponent = math.frexp(least / self.clip_bound)  # = fraction * 2^exponent, 1/2 <= fraction < 1
        return math.ldexp(1.0, exponent - (fraction == 0.5))

    @property
    def norm(self) -> float:
        """The largest norm before rounding, sC."""
        return self.factor * self.clip_bound

    @property
    def squared_sensitivity(self) -> float:
        """The largest squared norm after rounding, D^2."""
        root = math.sqrt(self.parameters)
        likely = self.norm**2 + self.parameters / 4.0 + self.norm + root / 2.0  # sqrt(2 ln(1/b)) = 1
        return min(likely, (self.norm + root) ** 2)

    @property
    def largest(self) -> int:
        """The largest magnitude a rounded number can have."""
        return min(math.ceil(self.norm), math.isqrt(math.floor(self.squared_sensitivity)))

    def rounded(self, update: Vector, randomness: Randomness) -> Integers:
        """Return integers of norm at most D that are s times the clipped update in the mean."""
        short = clipped(update, self.clip_bound)[0]
        limit = math.floor(self.squared_sensitivity)
        integers = np.empty(len(short), np.int64)
        for turn in range(_TRIES):
            start = square = 0
            for drawn in randomness.uniforms(len(short), "rounding", turn):
                own = slice(start, start + len(drawn))
                exact = short[own].astype(np.float64) * self.factor
                below = np.floor(exact)
                integers[own] = below.astype(np.int64) + (drawn < exact - below)
                square += int(np.dot(integers[own], integers[own]))
                start = own.stop
            if square <= limit:
                return integers
        for own in blocks(len(short)):
            integers[own] = np.trunc(short[own].astype(np.float64) * self.factor)
        return integers


def poisson(rate: float, count: int, randomness: Randomness, *purpose: str | int) -> Integers:
    r"""Return ``count`` independent Poisson numbers that nobody can predict, or reproducible ones in a simulation.

    Every bit of chance comes from one source of uniform numbers. From a rate of 10 on: transformed rejection (Hörmann,
    "The transformed rejection method for generating Poisson random variables", 1993). A uniform :math:`U \in
    (-\frac12, \frac12)` proposes

    .. math:: k = \lfloor (2a / (\tfrac12 - |U|) + b)\, U + \lambda + 0.43 \rfloor

    and a second one decides by the law itself, so that what is accepted is Poisson however the proposal was made. Below
    10: of Poisson(10) points each is kept by a coin of its own with probability :math:`\lambda/10` (thinning). Neither
    way cuts the tails.

    Args:
        rate: the mean and the variance, from 0 to 2^50.
        count: how many.
        randomness: where every uniform number comes from: the operating system, unless it is a simulation's.
        *purpose: the name of the draw.
    """
    if not 0.0 <= rate <= _LARGEST_RATE:
        raise ConfigError(f"Expected a rate from 0 to 2^50, got {rate}. Use a smaller scale, or more clients.")
    numbers = np.zeros(count, np.int64)
    if rate == 0.0:
        return numbers
    for first in range(0, count, _CHUNK):
        size = min(_CHUNK, count - first)
        own = (*purpose, first)
        made = _by_rejection(max(rate, _LEAST_RATE), size, randomness, own)
        numbers[first : first + size] = (
            made if rate >= _LEAST_RATE else _thinned(made, rate / _LEAST_RATE, randomness, own)
        )
    return numbers


def _by_rejection(rate: float, count: int, randomness: Randomness, purpose: tuple[str | int, ...]) -> Integers:
    """Return ``count`` numbers by transformed rejection; the constants are Hörmann's."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    log_height = math.log(1.1239 + 1.1328 / (b - 3.4))
    inner = 0.9277 - 3.6224 / (b - 2.0)
    found: list[Integers] = []
    missing, turn = count, 0
    while missing:
        proposals = missing + missing // 6 + 32
        drawn = randomness.uniform(2 * proposals, *purpose, "try", turn)
        u, v = drawn[:proposals] - 0.5, drawn[proposals:]
        edge = 0.5 - np.abs(u)
        numbers = np.floor((2.0 * a / edge + b) * u + (rate + 0.43))
        accepted = (edge >= 0.07) & (v <= inner)  # the law need not be looked at: these lie under it
        open_ = np.flatnonzero(~accepted & (numbers >= 0.0) & ((edge >= 0.013) | (v <= edge)))
        near = edge[open_]
        asked = np.log(v[open_]) + log_height - np.log(a / (near * near) + b)
        accepted[open_[asked <= _log_law(numbers[open_], rate)]] = True
        found.append(numbers[accepted][:missing].astype(np.int64))
        missing -= len(found[-1])
        turn += 1
    return np.concatenate(found)


def _thinned(numbers: Integers, share: float, randomness: Randomness, purpose: tuple[str | int, ...]) -> Integers:
    """Keep each of the points that ``numbers`` count with probability ``share``."""
    kept = randomness.uniform(int(numbers.sum()), *purpose, "kept") < share
    owners = np.repeat(np.arange(len(numbers)), numbers)
    return np.bincount(owners[kept], minlength=len(numbers)).astype(np.int64)


def _log_law(numbers: Array, rate: float) -> Array:
    r"""Return the logarithm of the probability of each number, to about 1e-13 at every rate.

    It is :math:`-D(k, \lambda) - \rho(k) - \frac12 \log 2 \pi k`, with :math:`D = k \log(k/\lambda) + \lambda - k` and
    :math:`\rho` what Stirling's formula leaves (Loader, "Fast and accurate computation of binomial probabilities",
    2000). The textbook's :math:`k \log\lambda - \lambda - \log k!` loses the digits that matter at large rates: it is
    off by 0.004 at :math:`2^{40}`.
    """
    k = np.maximum(numbers, 1.0)
    logs = -_deviance(k, rate) - _stirling_rest(k) - 0.5 * np.log(2.0 * np.pi * k)
    return np.where(numbers == 0.0, -rate, logs)


def _deviance(k: Array, rate: float) -> Array:
    r"""Return :math:`k \log(k/\lambda) + \lambda - k`, by its series where the terms would cancel.

    With :math:`v = (k-\lambda)/(k+\lambda)` it is :math:`(k-\lambda) v + 2k \sum_{j \ge 1} v^{2j+1}/(2j+1)`.
    """
    gap = k - rate
    v = gap / (k + rate)
    square = v * v
    series = np.full_like(v, 1.0 / (2 * _TERMS + 1))
    for j in range(_TERMS - 1, 0, -1):
        series = series * square + 1.0 / (2 * j + 1)
    close = gap * v + 2.0 * k * v * square * series
    return np.where(np.abs(v) < 0.1, close, k * np.log(k / rate) - gap)


def _stirling_rest(k: Array) -> Array:
    """Return ``log k! - (k log k - k + log(2 pi k)/2)``: a table for small k, an asymptotic series above."""
    inverse = 1.0 / (k * k)
    above = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / k
    return np.where(k < len(_REST), _REST[np.minimum(k, len(_REST) - 1).astype(np.int64)], above)


_REST = np.array(
    [0.0] + [math.lgamma(k + 1.0) - (k * math.log(k) - k + 0.5 * math.log(2.0 * math.pi * k)) for k in range(1, 32)]
)
