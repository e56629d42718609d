"""Noisy averages as the source documents have them, as modes of Tacit's. They certify nothing, and say so.

``000_040aa826a603186f.txt`` shows its code: each tensor of an update is clipped by itself, the noise is drawn with
(sigma C)^2 where a standard deviation is expected, and the mean is taken over those who replied.
``003_80a3edf6a6b18d18.txt`` does not show its code: clients are unchanged, the server clips while it adds up, and adds
noise before it divides. Its author's public code does: the first client's update is not clipped, and the noise is one
number for all weights of a tensor. So the server here clips what it reads, and each of that can be chosen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError, WireError
from tacit.federated.plan import Plan
from tacit.flow import ClientId, Flow
from tacit.mechanisms.mechanism import Release
from tacit.mechanisms.weighted import WeightedMean
from tacit.modes import catalogue
from tacit.modes.mode import Mode
from tacit.modes.parts import joined, sampler_of
from tacit.protocols.clear import ClearSum
from tacit.protocols.protocol import Total
from tacit.randomness import Randomness
from tacit.vectors import Vector

_EXTRA = 2  # slots behind the update: its weight and its loss
ALL, BUT_THE_FIRST, ALIKE = "sources-dp", "sources-dp-first-unclipped", "sources-dp-one-number-per-tensor"  # the modes


@dataclass(frozen=True, kw_only=True)
class NoisyMean(WeightedMean):
    r"""Releases :math:`(\sum_i u_i + \mathcal N(0, s^2 I)) / m` for m clients who replied, and their mean loss.

    Nothing is claimed for it: the mean loss and m are released too, and nothing here bounds an update.

    Attributes:
        std: s, of the noise.
        per_tensor: whether tensors are clipped one by one.
        alike: whether all weights of a tensor get the same number, which hides nothing but their sum.
        layers: the sizes of the tensors.
    """

    std: float
    per_tensor: bool
    alike: bool = False
    layers: tuple[int, ...] = ()

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism for a model whose tensors have these sizes."""
        return replace(self, layers=layers)

    def public_state(self) -> bytes:
        """Return where one tensor ends and the next begins."""
        return json.dumps(self.layers if self.per_tensor else [sum(self.layers)]).encode()

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Add the noise and divide by the number of replies."""
        noisy = total.copy()
        noise = randomness.normal(len(self.layers) if self.alike else len(total) - _EXTRA, "updates")
        noisy[:-_EXTRA] += self.std * (np.repeat(noise, self.layers) if self.alike else noise)
        return super().on_server(noisy, randomness, clients=clients)


@dataclass(frozen=True, kw_only=True)
class ServerClippedSum(ClearSum):
    """The sum in the clear of vectors that the server clips as it reads them, as 003 describes it.

    Attributes:
        clip_bound: the largest norm of an update, or of each of its tensors.
        but_the_first: whether the first client's update is the start of the sum as it is. In 000's server code the sum
            begins as a copy of the first client's update, and the loop begins with the second; whoever clips inside
            that loop leaves the first out.
    """

    clip_bound: float
    but_the_first: bool

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, clip and add; a reply that is damaged ends the run."""
        replies: Mapping[ClientId, bytes] = yield dict.fromkeys(cohort, wire.pack_task(task))
        total = np.zeros(length)
        for client in sorted(replies):
            body = wire.expect(wire.Kind.VECTOR, task.turn, client, replies[client])
            vector = wire.unpack_floats(body)
            if len(vector) != length:
                raise WireError(f"Client {client} sent {len(vector)} numbers, expected {length}.")
            unclipped = self.but_the_first and client == min(replies)
            total += vector if unclipped else clipped(vector, self.clip_bound, json.loads(task.extras))
        if len(replies) < self.minimum_clients:
            raise WireError(f"{len(replies)} clients replied, {self.minimum_clients} are needed.")
        return Total(vector=total, clients=tuple(sorted(replies)))


def clipped(vector: Vector, bound: float, sizes: Sequence[int]) -> Vector:
    r"""Return a contribution whose parts of these sizes are divided by :math:`\max(1, \lVert \cdot \rVert / C)`.

    >>> clipped(np.array([3.0, 4.0, 0.1, 1.0, 9.0], np.float32), 1.0, [2, 1]).tolist()[:2] == [
    ...     np.float32(0.6), np.float32(0.8)
    ... ]
    True
    """
    parts = np.split(vector, np.cumsum(sizes))  # the last part is weight and loss
    bounded = [part / max(1.0, float(np.linalg.norm(part)) / bound) for part in parts[:-1]]
    return np.concatenate([*bounded, parts[-1]]).astype(np.float32)


def _plan(config: Resolved, clients: int, *, but_the_first: bool, alike: bool) -> Plan:
    sampler = sampler_of(config, clients)
    bound, noise = config.dp.clip, config.dp.noise
    if not isinstance(bound, float) or noise is None:
        raise ConfigError(f"Mode {config.mode!r} needs dp.clip and dp.noise as numbers; std is their product.")
    mechanism = NoisyMean(weighting="uniform", std=noise * bound, per_tensor=config.dp.per_layer, alike=alike)
    protocol = ServerClippedSum(minimum_clients=1, clip_bound=bound, but_the_first=but_the_first)
    return joined(config, sampler, mechanism, protocol=protocol)


def _mode(name: str, summary: str, *, but_the_first: bool, alike: bool = False) -> Mode:
    return Mode(
        name=name,
        summary=summary,
        plan=lambda config, clients: _plan(config, clients, but_the_first=but_the_first, alike=alike),
        dp=frozenset({"clip", "noise", "per_layer"}),
        adds_noise=True,
        advice="It certifies nothing: it repeats what a source document did.",
    )


@contextmanager
def known() -> Iterator[None]:
    """Make the sources' averages known as modes of this process while the block lasts; nobody else is to use them."""
    modes = (
        _mode(ALL, "a source's noisy average, no guarantee", but_the_first=False),
        _mode(BUT_THE_FIRST, "the same with the first client unclipped, no guarantee", but_the_first=True),
        _mode(ALIKE, "and with one number of noise per tensor, no guarantee", but_the_first=True, alike=True),
    )
    for mode in modes:
        catalogue.register(mode)
    try:
        yield
    finally:
        for mode in modes:
            del catalogue.MODES[mode.name]


def settings(
    *, clip: float, std: float, per_tensor: bool, but_the_first: bool = False, alike: bool = False
) -> dict[str, object]:
    """Return the settings of a run with noise of standard deviation ``std`` on the sum, by dotted keys.

    One number per tensor (``alike``) comes with the first client unclipped, as in 003. Run them inside :func:`known`.
    """
    if alike and not but_the_first:
        raise ConfigError("One number per tensor is there with the first client unclipped only.")
    if not (math.isfinite(std) and std >= 0):
        raise ConfigError(f"Expected a standard deviation of at least 0, got {std}.")
    mode = ALIKE if alike else BUT_THE_FIRST if but_the_first else ALL
    return {"mode": mode, "dp.clip": clip, "dp.noise": std / clip, "dp.per_layer": per_tensor}
