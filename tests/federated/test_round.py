from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import DropoutError
from tacit.federated.plan import Claim, Plan, ServerOptimizer, State
from tacit.federated.round import (
    Finish,
    LocalClients,
    Outcome,
    Parties,
    Timed,
    Unreliable,
    broadcast,
    release,
    sum_flow,
)
from tacit.flow import Frames, Gather, InProcessEngine, Stopwatch, drive
from tacit.mechanisms.gaussian import GaussianMechanism, LocalGaussianMechanism
from tacit.mechanisms.mechanism import Mechanism, Release, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector
from tacit.wire import Turn
from tests.federated.common import FakeTrainer, make_plan

TURN = Turn(round_number=2)
MODEL = np.array([10.0, 20.0], np.float32)
EXAMPLES = range(10, 10_010, 10)  # client c holds 10 (c + 1)


def _round(
    plan: Plan,
    trainer: FakeTrainer,
    *,
    turn: Turn = TURN,
    state: State | None = None,
    drop: float = 0.0,
    seed: int = 1,
) -> Outcome:
    randomness = Randomness.of(seed=seed)
    clients = LocalClients(plan=plan, trainer=trainer, examples=EXAMPLES, randomness=randomness)
    answer = Unreliable(answer=clients.answer, rate=drop, randomness=randomness)
    cohort = plan.sampler.cohort(1, randomness.secret("cohort"))
    task = broadcast(plan, plan.mechanism, MODEL, turn)
    total = drive(sum_flow(plan, plan.mechanism, cohort, task), InProcessEngine(answer=answer))
    return release(plan, plan.mechanism, total, task, state or {}, randomness)


def test_uniform_weights_give_the_mean() -> None:
    outcome = _round(make_plan(), FakeTrainer(losses={0: 1.5}))
    assert outcome.model.tolist() == [12.5, 22.5]
    assert outcome.train_loss == pytest.approx((1.5 + 3 * 0.5) / 4)
    assert outcome.clients == (0, 1, 2, 3)


def test_weights_by_examples() -> None:
    outcome = _round(make_plan(weighting="examples"), FakeTrainer())
    expected = sum(10 * (c + 1) * (c + 1) for c in range(4)) / 100
    np.testing.assert_allclose(outcome.model, MODEL + expected, rtol=1e-6)


def test_an_injector_changes_what_is_broadcast_and_what_is_moved() -> None:
    seen = []

    def double(model: Vector, round_number: int) -> Vector:
        seen.append(round_number)
        return 2 * model

    def add_one(model: Vector, round_number: int) -> Vector:
        return model.astype(np.float64) + 1  # type: ignore[return-value] # whatever comes is made float32

    trainer = FakeTrainer()
    outcome = _round(make_plan(injectors=(double, add_one)), trainer)
    assert seen == [2]
    assert trainer.models[0].tolist() == [21.0, 41.0]
    assert outcome.model.tolist() == [23.5, 43.5]
    assert MODEL.tolist() == [10.0, 20.0]


def test_the_servers_state_goes_in_and_comes_out() -> None:
    plan = make_plan(optimizer=ServerOptimizer(name="fedavgm", momentum=0.5))
    first = _round(plan, FakeTrainer(), state=plan.optimizer.start(2))
    second = _round(plan, FakeTrainer(), state=first.state)
    assert first.state["momentum"].tolist() == [2.5, 2.5]
    assert second.state["momentum"].tolist() == [3.75, 3.75]


@dataclass(frozen=True, kw_only=True)
class Marking:
    """A mechanism that leaves a mark on both sides, from the randomness it is given, and counts its rounds."""

    rounds: int = 0
    event: None = None

    def fitted(self, layers: tuple[int, ...]) -> Marking:
        return self

    def length(self, parameters: int) -> int:
        return parameters

    def public_state(self) -> bytes:
        return bytes([self.rounds])

    def with_state(self, state: bytes) -> Marking:
        return Marking(rounds=state[0])

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        return work.update + np.float32(self.rounds + randomness.stream("mark").random())

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        update = (total / 4 + randomness.stream("mark").random()).astype(np.float32)
        return Release(update=update, train_loss=None, mechanism=Marking(rounds=self.rounds + 1))


def test_the_mechanism_acts_on_both_sides_with_randomness_of_its_own() -> None:
    root = Randomness.of(seed=1)
    own = [root.within("client", 2, 0, client).stream("mark").random() for client in range(4)]
    server = root.within("server", 2, 0).stream("mark").random()
    outcome = _round(make_plan(mechanism=Marking(rounds=7)), FakeTrainer())
    np.testing.assert_allclose(outcome.model, MODEL + 2.5 + 7 + np.mean(own) + server, rtol=1e-6)
    assert len({*own, server}) == 5
    assert outcome.mechanism == Marking(rounds=8)
    assert outcome.train_loss is None


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_client_whose_loss_is_no_number_is_left_out_and_named(loss: float) -> None:
    outcome = _round(make_plan(), FakeTrainer(losses={2: loss}))
    assert outcome.clients == (0, 1, 3)
    assert [note.split(".")[0] for note in outcome.notes] == ["Client 2 failed in round 2: its training diverged"]
    with pytest.raises(DropoutError, match=r"3 of 4 clients .*4 needed.*Client 2 failed in round 2: its training dive"):
        _round(make_plan(minimum=4), FakeTrainer(losses={2: loss}))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "mechanism",
    [
        GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=4.0),
        LocalGaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=4.0),
    ],
)
def test_where_privacy_is_claimed_training_that_diverged_is_an_update_of_zero(bad: float, mechanism: Mechanism) -> None:
    claim = Claim(delta=1e-5, unit="client", neighbours="add-remove", against="everyone")
    plan = replace(make_plan(mechanism=mechanism), claim=claim)
    diverged = _round(plan, FakeTrainer(losses={2: bad}, updates={2: bad}))
    silent = _round(plan, FakeTrainer(updates={2: 0.0}))
    assert diverged.clients == (0, 1, 2, 3)
    np.testing.assert_array_equal(diverged.model, silent.model)


def test_every_client_round_and_attempt_has_a_key_of_its_own() -> None:
    trainer = FakeTrainer()
    for turn in (Turn(round_number=1), Turn(round_number=2), Turn(round_number=2, attempt=1)):
        _round(make_plan(), trainer, turn=turn)
    _round(make_plan(), trainer, turn=Turn(round_number=2))
    assert len({int(key) for keys in trainer.keys[:3] for key in keys}) == 12
    assert trainer.keys[3].tolist() == trainer.keys[1].tolist()
    assert all(0 <= key < 2**62 for keys in trainer.keys for key in keys)


def test_replies_are_counted() -> None:
    count = []
    plan = make_plan()
    clients = LocalClients(
        plan=plan,
        trainer=FakeTrainer(),
        examples=EXAMPLES,
        randomness=Randomness.of(seed=1),
        on_reply=lambda: count.append(1),
    )
    task = broadcast(plan, plan.mechanism, MODEL, TURN)
    drive(sum_flow(plan, plan.mechanism, range(4), task), InProcessEngine(answer=clients.answer))
    assert len(count) == 4


def test_drop_outs_come_at_their_rate_and_stay_away_for_a_round() -> None:
    plan = make_plan(clients=1_000)
    outcome = _round(plan, FakeTrainer(), drop=0.3)
    assert len(outcome.clients) == pytest.approx(700, abs=4 * np.sqrt(1_000 * 0.21))
    assert _round(plan, FakeTrainer(), drop=0.3).clients == outcome.clients
    assert _round(plan, FakeTrainer(), drop=0.3, turn=Turn(round_number=2, attempt=1)).clients != outcome.clients
    assert _round(plan, FakeTrainer(), drop=0.3, turn=Turn(round_number=3)).clients != outcome.clients
    assert len(_round(plan, FakeTrainer(), drop=0.0).clients) == 1_000


def test_drop_outs_do_no_work() -> None:
    trainer = FakeTrainer()
    outcome = _round(make_plan(clients=50), trainer, drop=0.5)
    assert sum(map(len, trainer.keys)) == len(outcome.clients)
    assert len(outcome.clients) < 50


def test_too_many_drop_outs_fail_the_round() -> None:
    with pytest.raises(DropoutError, match="of 6 clients sent a reply that counts in round 2, 6 needed"):
        _round(make_plan(clients=6, minimum=6), FakeTrainer(), drop=0.7)


TURN = wire.Turn(round_number=1)
KEY, OPEN, CIPHER = (wire.pack(kind, TURN, b"") for kind in (wire.Kind.KEY, wire.Kind.OPEN, wire.Kind.CIPHER))


@dataclass
class Holder:
    asked: list[wire.Kind] = field(default_factory=list)

    def answer(self, request: wire.Frame) -> bytes:
        self.asked.append(request.kind)
        return b"held"


@dataclass
class Clients:
    asked: list[Frames] = field(default_factory=list)

    def __call__(self, requests: Frames) -> Frames:
        self.asked.append(requests)
        return dict.fromkeys(requests, b"client")


def test_each_request_goes_to_its_party() -> None:
    holder, clients = Holder(), Clients()
    parties = Parties(clients=clients, holders={-1: holder.answer, 3: holder.answer})
    assert parties({-1: KEY, 3: OPEN, 4: CIPHER}) == {-1: b"held", 3: b"held", 4: b"client"}
    assert holder.asked == [wire.Kind.KEY, wire.Kind.OPEN]
    assert clients.asked == [{4: CIPHER}]
    assert parties({3: CIPHER}) == {3: b"client"}  # a client that holds the key is a client all the same


def test_only_key_holders_are_asked_where_nobody_else_is_meant() -> None:
    clients = Clients()
    parties = Parties(clients=clients, holders={-1: Holder().answer})
    assert parties({-1: OPEN}) == {-1: b"held"}
    assert clients.asked == []


def test_clients_requests_stay_gathered() -> None:
    clients = Clients()
    parties = Parties(clients=clients, holders={-1: Holder().answer})
    parties(Gather({1: CIPHER}, lambda *_: None))
    assert isinstance(clients.asked[0], Gather)


class SlowTrainer(FakeTrainer):
    def train(
        self, model: Vector, clients: Sequence[int], keys: NDArray[np.int64], round_number: int, finish: Finish
    ) -> None:
        time.sleep(0.02)
        super().train(model, clients, keys, round_number, finish)


def test_the_time_of_clients_is_taken_from_outside() -> None:
    """Training, protecting, and the server's work on replies that are gathered; two workers share the last two."""
    plan, watch, trainer = make_plan(), Stopwatch(), SlowTrainer(workers=2)
    timed = Timed(trainer=trainer, stopwatch=watch)
    on_reply = partial(time.sleep, 0.02)  # while the reply is made
    clients = LocalClients(
        plan=plan, trainer=timed, examples=EXAMPLES, randomness=Randomness.of(seed=1), on_reply=on_reply
    )
    request = wire.pack_task(broadcast(plan, plan.mechanism, MODEL, TURN))
    start = time.perf_counter()
    assert timed.answers(clients.answer)(Gather({1: request, 2: request}, lambda *_: time.sleep(0.02))) == {}
    wall = time.perf_counter() - start
    assert sum(watch.seconds.values()) <= wall  # nothing counts twice
    assert watch.seconds["aggregate"] >= 0.02
    assert watch.seconds["protect"] >= 0.02
    assert watch.seconds["train"] >= 0.02
