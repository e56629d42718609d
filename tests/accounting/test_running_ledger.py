from __future__ import annotations

import itertools
import random

import pytest

from tacit.accounting import accountant
from tacit.accounting.events import ComposedEvent, Event, GaussianEvent, PureEvent, RepeatedEvent
from tacit.accounting.ledger import Ledger, RunningLedger, Tally, front
from tests.accounting.common import gaussian, ledger, pure, running_ledger, sampled

ONE, TWO = GaussianEvent(noise_multiplier=1.0), GaussianEvent(noise_multiplier=2.0)


def test_equal_releases_are_one_charge_of_the_same_cost() -> None:
    made = ledger(ONE, ONE, RepeatedEvent(event=ONE, count=3), TWO, ONE, neighbours="zero-out")
    short = running_ledger(made).short()
    assert [charge.event for charge in short.charges] == [RepeatedEvent(event=ONE, count=6), TWO]
    assert Tally.of(short) == Tally.of(made)
    assert (short.unit, short.neighbours) == (made.unit, made.neighbours)
    assert running_ledger(made).charges == 5
    assert running_ledger(Ledger()).short() == Ledger()


def test_shuffled_passes_keep_their_order() -> None:
    quick, slow = (sampled(noise, rate, 1, "shuffle") for noise, rate in ((1.0, 0.5), (2.0, 0.25)))
    both = ComposedEvent(events=(quick, TWO))
    for order in itertools.permutations([quick, quick, slow, ONE, both, slow]):
        assert Tally.of(running_ledger(ledger(*order)).short()) == Tally.of(ledger(*order))


def test_the_short_ledger_costs_what_the_long_one_does() -> None:
    chance = random.Random(1)
    events: list[Event] = [sampled(1.0, 0.1), gaussian(3.0), pure(0.2), PureEvent(epsilon=0.1)]
    for _ in range(20):
        made = Ledger(neighbours="replace-one")
        for number in range(12):
            whose = chance.choice([None, chance.sample(range(5), 2)])
            made = made.charged(chance.choice(events), round_number=number, clients=whose)
        running = running_ledger(made)
        costs = [accountant.estimate(each, 1e-5, accountant="renyi").epsilon for each in (made, running.short())]
        assert costs[0] == pytest.approx(costs[1], rel=1e-9)
        after = made.charged(pure(0.3), round_number=13, clients=(1, 4))
        costs = [
            accountant.estimate(each, 1e-5, accountant="renyi").epsilon
            for each in (after, running.short(pure(0.3), clients=(1, 4)))
        ]
        assert costs[0] == pytest.approx(costs[1], rel=1e-9)
        everyone = made.charged(ONE, round_number=13)
        assert accountant.estimate(everyone, 1e-5, accountant="renyi").epsilon == pytest.approx(
            accountant.estimate(running.short(ONE), 1e-5, accountant="renyi").epsilon, rel=1e-9
        )
        assert accountant.estimate(running.short(), 1e-5, accountant="renyi").epsilon == pytest.approx(
            accountant.estimate(made, 1e-5, accountant="renyi").epsilon, rel=1e-9
        )  # a look ahead is not a charge


def test_the_front_is_what_no_other_history_exceeds() -> None:
    chance = random.Random(2)
    for _ in range(200):
        histories = {tuple(chance.randrange(4) for _ in range(3)) for _ in range(12)}
        kept = {
            mine
            for mine in histories
            if not any(other != mine and all(a >= b for a, b in zip(other, mine, strict=True)) for other in histories)
        }
        assert set(front(histories)) == kept


@pytest.mark.parametrize("by_client", [False, True])
def test_a_charge_more_costs_the_same_however_many_there_were(by_client: bool) -> None:
    """A hundred thousand rounds: what is accounted stays a handful of charges, and no charge is looked at twice."""
    looked = 0

    class Counted(PureEvent):
        def __hash__(self) -> int:
            nonlocal looked
            looked += 1
            return hash(self.epsilon)

    event = Counted(epsilon=0.001)
    running = RunningLedger(neighbours="replace-one")
    work = []
    for number in range(100_000):
        running.add(event, clients=(number % 7, 7 + number % 11) if by_client else None)
        if number + 1 in (10_000, 100_000):
            work.append(looked)
    assert work[1] <= 10.5 * work[0]
    short = running.short()
    assert len(short.charges) == 1
    (charge,) = short.charges
    assert isinstance(charge.event, RepeatedEvent)
    assert charge.event.count == (14_286 if by_client else 100_000)


def test_the_clients_charged_before_are_not_gone_through() -> None:
    """A client's number is looked up where it is charged, and nowhere else: not for the ledger's cost, nor a check."""
    looked = 0

    class Client(int):
        def __hash__(self) -> int:
            nonlocal looked
            looked += 1
            return int(self)

    running = RunningLedger(neighbours="replace-one")
    for number in range(1_000):
        running.add(ONE if number % 2 else TWO, clients=[Client(place) for place in range(number, number + 10)])
    before = looked
    short = running.short()
    assert running.most_charges == 10
    assert looked == before
    assert {charge.event for charge in short.charges} == {RepeatedEvent(event=one, count=5) for one in (ONE, TWO)}
    running.short(ONE, clients=[Client(3), Client(4)])
    assert looked == before + 2
