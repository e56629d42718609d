"""An audit of mode dp: what rounds release, on two federations that differ in one client, against what is privacy.

The runner, plan, sampler, mechanism and protocol are the real ones; only the trainer is replaced, by the worst pair:
one client whose update has the norm of the clip, among others that add nothing. An observer sees all that is told of a
round. From how often it sees what, a lower bound on epsilon follows that fails to hold with probability 1%
(Clopper & Pearson 1934; Jagielski et al. 2020). It must not exceed the claim, and does for rounds as they once were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit import wire
from tacit.accounting import accountant
from tacit.accounting.ledger import Ledger
from tacit.config.run_config import RunConfig
from tacit.errors import DropoutError
from tacit.federated.plan import Plan, Poisson
from tacit.federated.round import Finish, LocalClients, Unreliable
from tacit.flow import Frames, InProcessEngine
from tacit.modes.catalogue import plan_of, resolve
from tacit.protocols.clear import ClearSum
from tacit.randomness import Randomness
from tacit.runs.folder import Checkpoint
from tacit.runs.observer import Silent
from tacit.runs.runner import Runner
from tacit.vectors import Vector

ROUNDS = 800
MODEL = np.zeros(1, np.float32)
DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A federation of so many clients, of whom so many take part in the mean, under noise z."""

    clients: int
    per_round: int
    noise: float
    minimum: int = 2  # of the rounds as they once were

    def plan(self) -> Plan:
        federate = {"clients": self.clients, "per_round": self.per_round, "rounds": ROUNDS}
        config = RunConfig(mode="dp", dp={"noise": self.noise, "clip": 1.0}, federate=federate)
        return plan_of(resolve(config), self.clients)

    def claim(self, delta: float) -> float:
        plan = self.plan()
        assert plan.claim is not None
        assert plan.mechanism.event is not None
        ledger = Ledger().charged(plan.claim.event(plan.mechanism.event), round_number=1)
        return accountant.epsilon(ledger, delta).epsilon


SMALL = Setting(clients=3, per_round=2, noise=50.0)
NEARLY_ALL = Setting(clients=10, per_round=9, noise=50.0, minimum=10)
FEW = Setting(clients=20, per_round=2, noise=1.0)
QUIET = Setting(clients=3, per_round=2, noise=1.0)


@dataclass(frozen=True, kw_only=True)
class Planned(Poisson):
    """Poisson cohorts of a federation that may have a client less than its settings say."""

    mean: float

    @property
    def expected(self) -> float:
        return self.mean


@dataclass
class WorstCase:
    """The last client's update is 1, or whatever is said; the others' are zero."""

    who: int
    update: float = 1.0
    workers: int = 1

    def train(
        self, model: Vector, clients: Sequence[int], keys: NDArray[np.int64], round_number: int, finish: Finish
    ) -> None:
        for client in clients:
            finish(client, np.full(len(model), self.update if client == self.who else 0.0, np.float32), 0.0)


class Notes(Silent):
    """Counts what the operator is told."""

    def __init__(self) -> None:
        self.heard = 0

    def note(self, text: str) -> None:
        self.heard += 1

    def progress(self, *, replied: int, asked: int) -> None:
        self.heard += 1


Answer = Callable[[Frames], Frames]
Wrap = Callable[[Answer, Randomness], Answer]


def observe(
    plan: Plan, clients: int, *, seed: int, worst: float = 1.0, wrap: Wrap = lambda answer, _: answer
) -> NDArray[np.float64]:
    """Return a row for each of many rounds, all from one model: every number that is told of it, then what it gave."""
    assert isinstance(plan.sampler, Poisson)
    who = plan.sampler.population - 1  # in a federation without it nobody has this number
    settings = plan.sampler.expected  # which is the same with one client more or less
    plan = replace(plan, sampler=Planned(population=clients, rate=plan.sampler.rate, mean=settings))
    randomness, trainer, notes = Randomness.of(seed=seed), WorstCase(who=who, update=worst), Notes()
    job: Any = SimpleNamespace(
        remarks=(),
        plan=plan,
        config=RunConfig(mode="dp", federate={"rounds": ROUNDS}),
        holdings=SimpleNamespace(sizes=np.ones(clients, np.int64)),
        test=None,
        examples=None,
        trainer=SimpleNamespace(layout=SimpleNamespace(size=1)),
    )
    runner = Runner(
        job=job,
        connection=SimpleNamespace(name="audit"),
        randomness=randomness,
        folder=None,
        observer=notes,
    )
    runner._account = SimpleNamespace(charge=lambda *_, **__: None, epsilon=0.0)  # type: ignore[assignment]
    answer = LocalClients(
        plan=plan,
        trainer=trainer,
        examples=[1] * clients,
        randomness=randomness,
        on_reply=runner._count_reply,
    ).answer
    engine = InProcessEngine(answer=wrap(answer, randomness))
    before = Checkpoint(
        round_number=0, model=MODEL, state={}, mechanism=plan.mechanism.public_state(), seconds={}, record=None
    )
    amplified = plan.claim is not None and plan.claim.amplified
    rows: list[tuple[float, ...]] = []
    for number in range(1, ROUNDS + 1):
        notes.heard = 0
        try:
            after, record = runner._round(engine, number, before, last=False)
        except DropoutError:
            rows.append((0.0, -1.0, -1.0, 0.0, notes.heard, 0.0))
            continue
        told = (record.attempts, record.clients_asked, record.clients_replied, record.bytes_up, notes.heard)
        assert record.wall_seconds is None or not plan.cohorts_hidden or not amplified
        rows.append((*(-1.0 if value is None else float(value) for value in told), float(after.model[0])))
    return np.array(rows)


def lower_bound(with_one: NDArray[np.float64], without: NDArray[np.float64], delta: float) -> float:
    """Return what epsilon is at least, with 99% confidence, from the rounds of two neighbouring federations.

    Of every column each half of the rounds chooses a threshold, and the other half counts: how often each federation is
    beyond it. All intervals hold at once (Bonferroni).
    """
    half, best = ROUNDS // 2, 0.0
    columns = [column for column in range(with_one.shape[1]) if len({*with_one[:, column], *without[:, column]}) > 1]
    for column in columns:
        for sign in (1.0, -1.0):
            for first, second in ((with_one, without), (without, with_one)):
                likely, unlikely = sign * first[:, column], sign * second[:, column]
                marks = np.quantile(np.concatenate([likely[:half], unlikely[:half]]), np.linspace(0.0, 0.999, 60))
                found = [_log_ratio(likely[:half], unlikely[:half], mark, delta, 0.05) for mark in marks]
                mark = marks[int(np.argmax(found))]
                level = 0.01 / (4 * len(columns))
                best = max(best, _log_ratio(likely[half:], unlikely[half:], mark, delta, level))
    return best


def _log_ratio(
    likely: NDArray[np.float64], unlikely: NDArray[np.float64], mark: float, delta: float, level: float
) -> float:
    """Return ln((p - delta) / q), p taken at its lower end and q at its upper, for what is beyond the mark."""
    total, hits, misses = len(likely), int((likely > mark).sum()), int((unlikely > mark).sum())
    low = stats.beta.ppf(level / 2, hits, total - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - level / 2, misses + 1, total - misses) if misses < total else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


def audited(setting: Setting, plan: Plan, delta: float = DELTA, **changes: Any) -> float:
    return lower_bound(
        observe(plan, setting.clients, seed=1, **changes), observe(plan, setting.clients - 1, seed=2, **changes), delta
    )


def _dropping(answer: Answer, randomness: Randomness) -> Answer:
    return Unreliable(answer=answer, rate=0.4, randomness=randomness)


@pytest.mark.parametrize("setting", [SMALL, NEARLY_ALL, FEW, QUIET], ids=["3/2", "10/9", "20/2", "3/2 quiet"])
def test_what_rounds_release_stays_within_the_claim(setting: Setting) -> None:
    assert audited(setting, setting.plan()) <= setting.claim(DELTA)


@pytest.mark.parametrize("setting", [SMALL, QUIET], ids=["3/2", "3/2 quiet"])
def test_drop_outs_change_nothing(setting: Setting) -> None:
    assert audited(setting, setting.plan(), wrap=_dropping) <= setting.claim(DELTA)


@pytest.mark.parametrize("setting", [SMALL, NEARLY_ALL], ids=["3/2", "10/9"])
def test_the_audit_sees_rounds_that_wait_for_enough_clients(setting: Setting) -> None:
    """As rounds once were: fewer replies than a minimum, and the round is tried again, or the run stops."""
    gated = replace(setting.plan(), protocol=ClearSum(minimum_clients=setting.minimum))
    assert audited(setting, gated) > 5 * setting.claim(DELTA)


def test_the_audit_sees_sizes_that_are_told() -> None:
    """As records once were: three of three asked is a client more than the neighbour has."""
    plan = SMALL.plan()
    assert plan.claim is not None
    assert audited(SMALL, replace(plan, claim=replace(plan.claim, cohorts_hidden=False))) > 10 * SMALL.claim(DELTA)


def test_the_audit_comes_close_to_the_claim_where_the_noise_is_small() -> None:
    """A bound that is always 0 would find everything in order: without amplification it is near the truth."""
    everyone = Setting(clients=3, per_round=3, noise=1.0)
    plan = replace(everyone.plan(), sampler=Poisson(population=3, rate=1.0))
    assert 0.3 * everyone.claim(0.01) < audited(everyone, plan, 0.01) <= everyone.claim(0.01)


@cache
def _without_the_last(setting: Setting, seed: int) -> NDArray[np.float64]:
    """Return what is seen where the last client is not there: played once for all that is compared with it."""
    return observe(setting.plan(), setting.clients - 1, seed=seed)


Made = Callable[[wire.Turn], bytes]


def _failing(made: Made) -> Wrap:
    """The last client, if it is asked, answers with a failure, with nonsense, or not at all."""

    def wrap(answer: Answer, randomness: Randomness) -> Answer:
        def change(requests: Frames) -> Frames:
            replies = dict(answer(requests))
            if SMALL.clients - 1 in replies:
                turn = wire.unpack(requests[SMALL.clients - 1]).turn
                replies[SMALL.clients - 1] = made(turn)
            return {client: reply for client, reply in replies.items() if reply}

        return change

    return wrap


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: b"",
        lambda _: b"nonsense",
        lambda turn: wire.pack_failure(turn, wire.Failure.INTERNAL),
        lambda turn: wire.pack_vector(turn, np.zeros(2, np.float32)),
        lambda turn: wire.pack_vector(turn, np.array([np.nan], np.float32)),
        lambda turn: wire.pack_vector(turn, np.array([3e38], np.float32)),
    ],
    ids=["none", "nonsense", "a failure", "another length", "not a number", "beyond the clip"],
)
def test_a_client_that_fails_is_as_hidden_as_one_that_works(reply: Made) -> None:
    """Whether it does may depend on its data: then a failure that can be seen would tell of them."""
    seen = observe(SMALL.plan(), SMALL.clients, seed=3, wrap=_failing(reply))
    usual = _without_the_last(SMALL, 4)
    assert lower_bound(seen, usual, DELTA) <= SMALL.claim(DELTA)
    assert {tuple(row) for row in seen[:, :-1]} == {tuple(row) for row in usual[:, :-1]}


@pytest.mark.parametrize("update", [math.nan, math.inf, 3e38])
def test_an_update_that_is_no_number_or_a_huge_one_is_hidden_too(update: float) -> None:
    seen = observe(QUIET.plan(), QUIET.clients, seed=5, worst=update)
    assert np.isfinite(seen).all()
    assert lower_bound(seen, _without_the_last(QUIET, 6), DELTA) <= QUIET.claim(DELTA)


def test_an_empty_cohort_is_a_round_of_noise() -> None:
    setting = Setting(clients=2, per_round=1, noise=2.0)
    plan = replace(setting.plan(), sampler=Poisson(population=2, rate=1e-9))  # empty but once in a billion
    values = observe(plan, 2, seed=7)[:, -1]
    assert stats.kstest(values, "norm", args=(0.0, 2.0)).pvalue > 0.01  # z C, over an expected cohort of 1
