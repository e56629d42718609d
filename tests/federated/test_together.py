"""Updates that are added up where they are (on a GPU) give what clients one by one give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import WireError
from tacit.federated.plan import Plan
from tacit.federated.round import LocalClients, Timed
from tacit.flow import Addable, InProcessEngine, Joint, Stopwatch, Traffic, drive
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.weighted import WeightedMean
from tacit.protocols.clear import ClearSum
from tacit.randomness import Randomness
from tacit.training.cohort import Moved
from tacit.vectors import Vector

SIZE, COHORT = 7, [4, 0, 2, 5]
EXAMPLES = [3, 9, 1, 1, 6, 2]


class Fixed:
    """A trainer whose clients' updates and losses are given; ``adds`` says whether it leaves updates in their place."""

    workers = 1

    def __init__(self, updates: NDArray[np.float32], losses: NDArray[np.float64], *, adds: bool) -> None:
        self._updates, self._losses, self.adds = updates, losses, adds

    def train(self, model: Vector, clients: Sequence[int], keys: Any, round_number: int, finish: Any) -> None:
        for client in clients:
            finish(client, self._updates[client], float(self._losses[client]))

    def train_rows(self, model: Vector, clients: Sequence[int], keys: Any, round_number: int, take: Any) -> None:
        for own in (clients[:3], clients[3:]):  # two chunks
            losses = self._losses[own]
            take(own, Moved(updates=torch.from_numpy(self._updates[own]), losses=losses), losses)


def _round(mechanism: Any, updates: NDArray[np.float32], losses: NDArray[np.float64], *, adds: bool) -> Any:
    accepted = getattr(mechanism, "accepted", None)
    protocol = ClearSum(minimum_clients=0, accepted=accepted)
    plan: Any = _Plan(mechanism=mechanism, protocol=protocol, private=accepted is not None)
    replies = []
    clients = LocalClients(
        plan=plan,
        trainer=Timed(trainer=Fixed(updates, losses, adds=adds), stopwatch=Stopwatch()),
        examples=EXAMPLES,
        randomness=Randomness.of(seed=1),
        on_reply=lambda: replies.append(1),
    )
    task = wire.Task(turn=wire.Turn(round_number=1), model=np.zeros(SIZE, np.float32), extras=mechanism.public_state())
    traffic = Traffic()
    flow = protocol.server(COHORT, task, mechanism.length(SIZE))
    total = drive(flow, InProcessEngine(answer=clients.answer), traffic)
    assert len(replies) == len(COHORT)
    return total, traffic.bytes_up


class _Plan:
    def __init__(self, *, mechanism: Mechanism, protocol: ClearSum, private: bool) -> None:
        self.mechanism, self.protocol, self.private = mechanism, protocol, private


MECHANISMS: dict[str, Any] = {
    "dp": GaussianMechanism(clip_bound=0.7, noise_multiplier=1.0, expected_clients=4.0),
    "dp, weighted": GaussianMechanism(clip_bound=0.7, noise_multiplier=1.0, expected_clients=4.0, weight_cap=4),
    "dp, adaptive": GaussianMechanism(
        clip_bound=0.7, noise_multiplier=0.5, expected_clients=4.0, adaptive=AdaptiveClip(bit_noise=2.0)
    ),
    "dp, by layers": GaussianMechanism(
        clip_bound=0.7, noise_multiplier=1.0, expected_clients=4.0, per_layer=True, layers=(3, 4)
    ),
    "plain": WeightedMean(),
    "plain, uniform": WeightedMean(weighting="uniform", losses=False),
}
FAULTS = ["none", "infinite", "nan", "huge", "loss"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_a_sum_that_is_made_at_once_is_that_of_single_replies(mechanism: Any, fault: str) -> None:
    draw = np.random.RandomState(3)
    updates = draw.normal(size=(6, SIZE)).astype(np.float32) * draw.choice([0.05, 1.0], size=(6, 1)).astype(np.float32)
    losses = draw.uniform(size=6)
    if fault == "loss":
        losses[2] = np.nan
    elif fault != "none":
        updates[2, 3] = {"infinite": np.inf, "nan": np.nan, "huge": 3e38}[fault]
    one, up = _round(mechanism, updates, losses, adds=False)
    together, same = _round(mechanism, updates, losses, adds=True)
    assert (sorted(together.clients), together.notes) == (sorted(one.clients), one.notes)
    np.testing.assert_allclose(together.vector, one.vector, rtol=1e-6, atol=1e-7)
    bounded = mechanism.length(SIZE) == SIZE and fault != "none"
    assert same == up
    if bounded:
        assert np.linalg.norm(together.vector) <= len(COHORT) * 0.7


def test_no_update_in_a_sum_is_longer_than_the_bound() -> None:
    mechanism = MECHANISMS["dp"]
    for scale in (0.1, 0.7, 1.0, 1e20):
        updates = np.full((1, SIZE), scale, np.float32)
        rows = Moved(updates=torch.from_numpy(updates), losses=np.zeros(1))
        found = mechanism.on_cohort(rows, np.array([1]), np.zeros(1))
        assert found is not None
        assert np.linalg.norm(found[1]) <= 0.7


@pytest.mark.parametrize("wrong", ["twice", "stranger", "length", "not finite"])
def test_sums_that_can_not_be_are_refused(wrong: str) -> None:
    def answer(requests: Any) -> Any:
        assert isinstance(requests, Addable)
        vector = np.full(SIZE + (wrong == "length"), np.nan if wrong == "not finite" else 1.0)
        clients = (0, 9) if wrong == "stranger" else (0, 2)
        requests.joint.append(Joint(clients=clients, vector=vector, reply_bytes=1))
        reply = wire.pack_vector(wire.Turn(round_number=1), np.zeros(SIZE, np.float32))
        return {2: reply} if wrong == "twice" else {}

    task = wire.Task(turn=wire.Turn(round_number=1), model=np.zeros(SIZE, np.float32), extras=b"")
    with pytest.raises(WireError, match="Expected"):
        drive(ClearSum(minimum_clients=0).server(COHORT, task, SIZE), InProcessEngine(answer=answer))


def test_a_plan_is_what_it_is_taken_for() -> None:
    assert {"mechanism", "protocol", "private"} <= set(dir(Plan)) | set(Plan.__dataclass_fields__)
