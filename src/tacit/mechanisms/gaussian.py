"""Central differential privacy: clip on the client, Gaussian noise on the sum."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import ComposedEvent, Event, GaussianEvent
from tacit.errors import ConfigError, WireError
from tacit.grid import Grid, within
from tacit.mechanisms.denoising import james_stein, soft_threshold
from tacit.mechanisms.heterogeneous import variance_minimal
from tacit.mechanisms.mechanism import Release, Rows, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector, blocks, clip_factors, clipped, scaled

Denoise = Literal["none", "james-stein", "soft-threshold"]
NoiseSplit = Literal["even", "variance-minimal"]
_PUBLIC = struct.Struct(">d")
_BITS = Grid(step=2.0**-20)  # sums of halves lie on it


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    r"""Moves the clip bound towards a quantile of the update norms (Andrew et al. 2021).

    Each client adds the bit :math:`b_i = 1[\lVert u_i \rVert \le C]`, less one half. With m the expected cohort,
    :math:`\tilde b = (\sum_i (b_i - \frac12) + \mathcal{N}(0, \sigma_b^2)) / m + \frac12` and
    :math:`C \leftarrow C e^{-\eta (\tilde b - \gamma)}`: a bound that most updates exceed grows. One client moves
    the sum of bits by one half, so their noise multiplier is :math:`2 \sigma_b`.
    """

    quantile: float = 0.5  # gamma
    rate: float = 0.2  # eta
    bit_noise: float  # sigma_b; m/20 in the paper

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise ConfigError(f"Expected 0 < quantile={self.quantile} < 1.")
        if not 0.0 < self.rate <= 1.0:
            raise ConfigError(f"Expected 0 < rate={self.rate} <= 1.")
        if not 0.0 < self.bit_noise < math.inf:
            raise ConfigError(f"Expected bit_noise={self.bit_noise} > 0.")

    def moved(self, clip_bound: float, share: float) -> float:
        """Return the next bound, ``share`` being the noisy share of updates within the present one."""
        return clip_bound * math.exp(-self.rate * (share - self.quantile))


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
    r"""Clips each update on the client and adds noise to the sum on the server.

    With :math:`\lVert u_i \rVert_2 \le C`, releases :math:`(\sum_i u_i + \mathcal{N}(0, (zC)^2 I)) / m`, m the
    *expected* cohort, never the realised one; the sum's sensitivity to adding or removing one client is C (McMahan et
    al. 2018). Neither losses nor counts leave a client.

    Sum and noise are rounded to one grid before they are added (:mod:`tacit.grid`), for which updates are clipped by a
    65,536th part more.

    With ``weight_cap`` n, a clipped update is weighted by :math:`\min(n_i / n, 1)`: its norm is still at most C.

    With ``adaptive``, the total cost stays that of z: the updates' noise is raised to
    :math:`z_u = (z^{-2} - (2 \sigma_b)^{-2})^{-1/2}`. The noise of a round uses the C its updates were clipped with.
    """

    clip_bound: float  # C
    noise_multiplier: float  # z, of the whole release
    expected_clients: float  # m = qN
    weight_cap: int | None = None
    adaptive: AdaptiveClip | None = None
    denoise: Denoise = "none"
    per_layer: bool = False
    noise_split: NoiseSplit = "even"
    layers: tuple[int, ...] = ()  # sizes of the model's tensors, where clipping or noise goes by them

    def __post_init__(self) -> None:
        _check(self.clip_bound, self.noise_multiplier, self.expected_clients)
        if self.noise_split != "even" and (not self.per_layer or self.denoise != "none"):
            raise ConfigError(
                f"noise_split={self.noise_split} needs per_layer clipping (with one bound for the whole update, every "
                "layer's noise has to be as large as an even one) and no denoising (it knows one standard deviation)."
            )
        if self.adaptive is not None and 2.0 * self.adaptive.bit_noise <= self.noise_multiplier:
            raise ConfigError(
                f"Expected 2 * bit_noise = {2 * self.adaptive.bit_noise} > noise_multiplier={self.noise_multiplier}: "
                "the clipping bits alone would cost more than the whole release may. Raise the cohort, or fix the clip."
            )

    @property
    def update_noise(self) -> float:
        """The noise multiplier of the updates' sum alone."""
        z = self.noise_multiplier
        if self.adaptive is None or z == 0.0:
            return z
        return math.sqrt(1.0 / (z**-2 - (2.0 * self.adaptive.bit_noise) ** -2))

    @property
    def event(self) -> Event:
        """What the release costs a client that is in it."""
        updates = GaussianEvent(noise_multiplier=self.update_noise)
        if self.adaptive is None:
            return updates
        return ComposedEvent(events=(updates, GaussianEvent(noise_multiplier=2.0 * self.adaptive.bit_noise)))

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism for a model whose tensors have these sizes."""
        return replace(self, layers=layers) if self.per_layer else self

    def length(self, parameters: int) -> int:
        """Return the model's length, and one more for the clipping bit."""
        return parameters + (self.adaptive is not None)

    def public_state(self) -> bytes:
        """Return the clip bound of the round."""
        return _PUBLIC.pack(self.clip_bound)

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism with the clip bound of the round."""
        if len(state) != _PUBLIC.size:
            raise WireError(f"Expected {_PUBLIC.size} bytes with the clip bound, got {len(state)}.")
        return replace(self, clip_bound=_PUBLIC.unpack(state)[0])

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Return the clipped update, weighted where a cap is set, and the clipping bit."""
        update, within = self._clipped(work.update)
        if self.weight_cap is not None:
            update *= np.float32(min(work.examples / self.weight_cap, 1.0))
        if self.adaptive is None:
            return update
        return np.append(update, np.float32(within - 0.5))

    def on_cohort(
        self, rows: Rows, examples: NDArray[np.int64], losses: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        """Return the sum of all clients' clipped updates, and of their clipping bits; see :meth:`on_client`."""
        if self.per_layer:
            return None
        factors, within_bound = clip_factors(rows.norms(), within(self.clip_bound))
        if self.weight_cap is not None:
            factors = factors * np.minimum(examples / self.weight_cap, 1.0)
        total = rows.weighted_sum(factors)
        if self.adaptive is not None:
            total = np.append(total, np.sum(within_bound - 0.5))
        return np.ones(len(examples), np.bool_), total

    def accepted(self, state: bytes, vector: Vector) -> Vector:
        """Return what the server adds of a client's vector in a round with this public state.

        What honest clients send is within these bounds and stays as it is. One that does not clip counts no more than
        one that does: it can neither stop a run nor take the model or the clip bound out of the floats' range.
        """
        parameters = len(vector) - (self.adaptive is not None)
        update, _ = clipped(vector[:parameters], self.with_state(state).clip_bound)
        return update if self.adaptive is None else np.append(update, np.clip(vector[parameters:], -0.5, 0.5))

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Add the noise and divide by the expected cohort."""
        parameters = len(total) - (self.adaptive is not None)
        standard = randomness.normal(parameters, "updates") if self.noise_multiplier else np.zeros(parameters)
        update = self.noised(total[:parameters], standard)
        std = self.update_noise * self.clip_bound / self.expected_clients
        if self.denoise == "james-stein":
            update = james_stein(update, std)
        elif self.denoise == "soft-threshold":
            update = soft_threshold(update, std)
        return Release(update=update, train_loss=None, mechanism=self._next(total, randomness))

    def noised(self, total: NDArray[np.float64], standard: NDArray[np.float64]) -> Vector:
        """Return the sum with standard normal numbers as its noise, each times its deviation, over the cohort."""
        if not self.noise_multiplier:
            return scaled(total, 1.0, self.expected_clients)
        grid = Grid.of(bound=self._layer_bound if self.per_layer else self.clip_bound, size=len(total))
        stds = np.broadcast_to(self._stds(), len(total))
        found = np.empty(len(total), np.float32)
        for part in blocks(len(total)):
            found[part] = (grid.rounded(total[part]) + grid.noise(standard[part], stds[part])) / self.expected_clients
        return found

    @property
    def _layer_bound(self) -> float:
        return self.clip_bound / math.sqrt(len(self.layers))

    def _clipped(self, update: Vector) -> tuple[Vector, bool]:
        """Return the update within its bounds, and whether it was so already."""
        if not self.per_layer:
            return clipped(update, within(self.clip_bound))
        parts = [clipped(part, within(self._layer_bound)) for part in np.split(update, np.cumsum(self.layers)[:-1])]
        return np.concatenate([part for part, _ in parts]), all(within for _, within in parts)

    def _stds(self) -> float | NDArray[np.float64]:
        """Return the noise's standard deviation, one for all coordinates or one for each."""
        if self.noise_split == "even":
            return self.update_noise * self.clip_bound
        bounds = [self._layer_bound] * len(self.layers)
        shared = variance_minimal(self.layers, bounds)
        stds = shared.stds(self.update_noise * shared.whitened_sensitivity(bounds))
        return np.repeat(np.array(stds), self.layers)

    def _next(self, total: NDArray[np.float64], randomness: Randomness) -> Self:
        if self.adaptive is None:
            return self
        noise = _BITS.noise(randomness.normal(1, "bits"), self.adaptive.bit_noise)
        bits = float(_BITS.rounded(total[-1:])[0] + noise[0])
        share = bits / self.expected_clients + 0.5
        return replace(self, clip_bound=self.adaptive.moved(self.clip_bound, share))


@dataclass(frozen=True, kw_only=True)
class LocalGaussianMechanism:
    r"""Each client clips its own update and adds its own noise; the server is not trusted.

    A client sends :math:`u_i + \mathcal{N}(0, (zC)^2 I)` with :math:`\lVert u_i \rVert_2 \le C`. Against the server,
    which knows who sent it, the neighbours are two data sets of the same client: they move the vector by up to 2C.
    Update and noise are rounded to one grid before they are added (:mod:`tacit.grid`).
    """

    clip_bound: float  # C
    noise_multiplier: float  # z, relative to C
    expected_clients: float  # m

    def __post_init__(self) -> None:
        _check(self.clip_bound, self.noise_multiplier, self.expected_clients)

    @property
    def event(self) -> Event:
        """What a message costs its client."""
        return GaussianEvent(noise_multiplier=self.noise_multiplier)

    @property
    def alone(self) -> Event:
        """What a message costs against whoever sees it: the same, as all of its noise is the client's."""
        return self.event

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism: the whole update is clipped."""
        return self

    def length(self, parameters: int) -> int:
        """Return the model's length."""
        return parameters

    def public_state(self) -> bytes:
        """Return nothing: the clip bound is fixed."""
        return b""

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Clip, and add the noise."""
        update, _ = clipped(work.update, within(self.clip_bound))
        if self.noise_multiplier == 0.0:
            return update
        grid = Grid.of(bound=self.clip_bound, size=len(update))
        standard, std = randomness.normal(len(update), "updates"), self.noise_multiplier * self.clip_bound
        for part in blocks(len(update)):
            update[part] = grid.rounded(update[part].astype(np.float64)) + grid.noise(standard[part], std)
        return update

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Divide by the expected cohort."""
        update = scaled(total, 1.0, self.expected_clients)
        return Release(update=update, train_loss=None, mechanism=self)


def _check(clip_bound: float, noise_multiplier: float, expected_clients: float) -> None:
    if not 0.0 < clip_bound < math.inf:
        raise ConfigError(
            f"Expected clip_bound={clip_bound} > 0. Start from a public guess of the typical update norm, such as 1.0."
        )
    if not 0.0 <= noise_multiplier < math.inf:
        raise ConfigError(f"Expected noise_multiplier={noise_multiplier} >= 0.")
    if not expected_clients > 0.0:
        raise ConfigError(f"Expected expected_clients={expected_clients} > 0.")
