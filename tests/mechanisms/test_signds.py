from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.accounting.events import ComposedEvent, PureEvent, ShuffledEvent
from tacit.errors import ConfigError, WireError
from tacit.flow import Frames, InProcessEngine, drive
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.mechanism import Work
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.mechanisms.signds import SignDS
from tacit.mechanisms.weighted import WeightedMean
from tacit.protocols.signs import SignSum
from tacit.randomness import Randomness
from tacit.vectors import Vector
from tacit.wire import Task, Turn, unpack

ROOT = Randomness.of(seed=2)
ESTIMATE = MagnitudeEstimate(response=RandomizedResponse(epsilon=5.0))
TABLE = np.array(  # the source's three clients with eight coordinates each
    [
        [0.4, 0.1, -0.2, 0.3, 0.5, 0.1, -0.2, -0.3],
        [0.5, 0.2, 0.0, 0.1, 0.3, 0.2, -0.1, -0.2],
        [0.3, 0.1, -0.1, 0.5, 0.2, 0.3, 0.0, 0.1],
    ],
    np.float32,
)


def signds(**changes: Any) -> SignDS:
    settings: dict[str, Any] = {
        "share": 0.2,
        "epsilon": 10.0,
        "ratio": 0.6,
        "fixed_step": 4.0,
        "population": 10,
        "expected_clients": 10.0,
        "magnitude": ESTIMATE,
    }
    return SignDS(**settings | changes)


def work(update: Vector) -> Work:
    return Work(update=update, examples=10, loss=1.0)


def normal(size: int, seed: int = 1, scale: float = 1.0) -> Vector:
    return (np.random.default_rng(seed).normal(size=size) * scale).astype(np.float32)


def test_the_sources_worked_example_number_for_number() -> None:
    """Sets {1,5,8}, {2,3,4}, {3,6,7} under +, -, + with 2 r N = 1, through the wire and the server."""
    mechanism = signds(population=3, expected_clients=3.0, magnitude=replace(ESTIMATE, estimate=1.0 / 6.0))
    named = ([1, 5, 8], 1), ([2, 3, 4], -1), ([3, 6, 7], 1)
    contributions = []
    for indices, sign in named:
        vector = np.zeros(mechanism.length(8), np.float32)
        vector[np.array(indices) - 1] = sign
        vector[-1] = 1.0
        contributions.append(vector)
    protocol = SignSum(minimum_clients=3, named=lambda _: 3)

    def answer(requests: Frames) -> Frames:
        return {
            client: protocol.client(b"", unpack(request), contributions[client])[1]
            for client, request in requests.items()
        }

    task = Task(turn=Turn(round_number=1), model=np.zeros(8, np.float32), extras=mechanism.public_state())
    total = drive(protocol.server(range(3), task, 10), InProcessEngine(answer=answer))
    assert total.vector[:8].tolist() == [1, -1, 0, -1, 1, 1, 1, 1]
    update = mechanism.on_server(total.vector, ROOT, clients=8).update
    third = 1.0 / 3.0
    expected = [third, -third, 0.0, -third, third, third, third, third]
    np.testing.assert_allclose(update, expected, rtol=1e-6)
    # Of the three named coordinates so many are among the client's own three largest (smallest for the minus).
    tops = [set(np.argsort(-sign * row)[:3] + 1) for row, (_, sign) in zip(TABLE, named, strict=True)]
    assert [len(top & set(indices)) for top, (indices, _) in zip(tops, named, strict=True)] == [2, 1, 1]


def test_the_sources_average_without_protection() -> None:
    mean = WeightedMean(weighting="uniform")
    total = np.array([mean.on_client(work(row), ROOT) for row in TABLE]).astype(np.float64).sum(axis=0)
    average = mean.on_server(total, ROOT, clients=3).update
    np.testing.assert_allclose(average, [0.4, 0.1333, -0.1, 0.3, 0.3333, 0.2, -0.1, -0.1333], atol=5e-5)


def test_a_client_tells_signs_a_bit_and_nothing_else() -> None:
    mechanism = signds().fitted((1_000, 1_000))
    sent = mechanism.on_client(work(normal(2_000)), ROOT)
    assert len(sent) == mechanism.length(2_000) == 2_002
    assert sent.dtype == np.float32
    named = np.flatnonzero(sent[:-2])
    assert len(named) == mechanism.named(2_000) == 14
    assert len(set(sent[named].tolist())) == 1
    assert abs(sent[named[0]]) == 1.0
    assert sent[-2] in (0.0, 1.0)
    assert sent[-1] == 1.0


def test_the_sign_is_a_fair_coin_whatever_the_data() -> None:
    mechanism = signds(epsilon=100.0).fitted((400,))
    for update in (normal(400), np.abs(normal(400)), -np.abs(normal(400))):
        signs = [mechanism.on_client(work(update), ROOT.within(n))[:-2].sum() > 0 for n in range(400)]
        assert 150 < sum(signs) < 250


@pytest.mark.parametrize("sign", [1, -1])
def test_mostly_the_largest_are_named_under_plus_and_the_smallest_under_minus(sign: int) -> None:
    mechanism = signds(epsilon=100.0).fitted((2_000,))
    update = normal(2_000)
    top = np.argsort(-sign * update)[:400]
    hits, named = 0, 0
    for number in range(40):
        sent = mechanism.on_client(work(update), ROOT.within(number))[:-2]
        if sent.sum() * sign > 0:
            where = np.flatnonzero(sent)
            hits, named = hits + len(set(where) & set(top)), named + len(where)
    assert 0.6 < hits / named < 0.72


def test_no_index_is_lost() -> None:
    """MindSpore's merge sort loses one: there a report names h - 1 coordinates now and then."""
    mechanism = signds(epsilon=30.0).fitted((300,))
    for number in range(200):
        sent = mechanism.on_client(work(normal(300)), ROOT.within(number))
        assert np.count_nonzero(sent[:-2]) == mechanism.chosen


@pytest.mark.parametrize(("scale", "share_of_ones"), [(1e-6, 1.0), (10.0, 0.0)])
def test_the_bit_says_whether_the_magnitude_is_within_the_bound(scale: float, share_of_ones: float) -> None:
    mechanism = signds(magnitude=MagnitudeEstimate(response=RandomizedResponse(epsilon=40.0))).fitted((500,))
    bits = [mechanism.on_client(work(normal(500, scale=scale)), ROOT.within(n))[-2] for n in range(20)]
    assert np.mean(bits) == share_of_ones


def test_the_bit_is_flipped_with_the_responses_probability() -> None:
    mechanism = signds(magnitude=MagnitudeEstimate(response=RandomizedResponse(epsilon=math.log(3)))).fitted((60,))
    bits = [mechanism.on_client(work(normal(60, scale=1e-6)), ROOT.within(n))[-2] for n in range(2_000)]
    assert abs(np.mean(bits) - 0.75) < 0.04


def test_the_magnitude_is_the_mean_of_the_largest_not_of_all() -> None:
    update = np.full(100, 0.0, np.float32)
    update[:20], update[20:40] = 1.0, -1.0
    for estimate, bit in ((0.51, 1.0), (0.49, 0.0)):  # compared with twice the estimate
        magnitude = MagnitudeEstimate(response=RandomizedResponse(epsilon=50.0), estimate=estimate)
        mechanism = signds(magnitude=magnitude).fitted((100,))
        assert [mechanism.on_client(work(update), ROOT.within(n))[-2] for n in range(6)] == [bit] * 6


def votes(reports: int, ones: int) -> Any:
    return np.array([3.0, 0.0, -2.0, float(ones), float(reports)])


def test_the_step_is_twice_the_estimate_a_vote() -> None:
    mechanism = signds()
    release = mechanism.on_server(votes(8, 1), ROOT, clients=8)
    np.testing.assert_allclose(release.update, [6.0 * ESTIMATE.estimate, 0.0, -4.0 * ESTIMATE.estimate], rtol=1e-6)
    assert release.train_loss is None
    following = release.mechanism
    assert isinstance(following, SignDS)
    assert following.magnitude is not None
    assert following.magnitude.estimate == ESTIMATE.estimate * 5.0  # the next round's; this one used what clients saw


def test_with_few_clients_the_step_is_the_fixed_one_and_the_bit_is_free() -> None:
    few = signds(population=1_000, expected_clients=40.0).fitted((500,))
    assert not few.estimates
    assert few.event == PureEvent(epsilon=10.0)
    assert few.epsilon_per_report == 10.0
    bits = [few.on_client(work(normal(500, scale=scale)), ROOT.within(n))[-2] for n in range(30) for scale in (1e-6, 9)]
    assert set(bits) == {0.0}
    release = few.on_server(votes(8, 0), ROOT, clients=8)
    np.testing.assert_allclose(release.update, [1.5, 0.0, -1.0])  # 4 / 8 a vote
    assert release.mechanism == few


def test_a_round_that_few_answer_falls_back_to_the_fixed_step() -> None:
    mechanism = signds(population=100, expected_clients=50.0)
    assert mechanism.estimates
    release = mechanism.on_server(votes(4, 4), ROOT, clients=8)
    np.testing.assert_allclose(release.update, [3.0, 0.0, -2.0])
    assert release.mechanism == mechanism
    assert mechanism.on_server(votes(5, 5), ROOT, clients=8).mechanism != mechanism


def test_what_a_report_costs() -> None:
    both = ComposedEvent(events=(PureEvent(epsilon=10.0), PureEvent(epsilon=5.0)))
    assert signds().event == both
    assert signds().epsilon_per_report == 15.0
    assert signds(magnitude=None).event == PureEvent(epsilon=10.0)
    assert signds(shuffled=50).event == ShuffledEvent(epsilon=15.0, reports=50)


def test_the_plan_and_the_estimate_travel() -> None:
    server = signds(magnitude=replace(ESTIMATE, estimate=0.3, settled=4)).fitted((66_404,))
    assert (server.chosen, server.threshold) == (14, 9)
    client = signds().with_state(server.public_state())
    assert client == server
    assert client.selection(66_404).chosen == 14
    fixed = signds(magnitude=None).fitted((66_404,))
    assert signds(magnitude=None).with_state(fixed.public_state()) == fixed
    assert (
        signds().with_state(signds().public_state()).selection(2_000).chosen == 14
    )  # not told: it finds out by itself
    for bad in (b"", b"1234567"):
        with pytest.raises(WireError, match="at least 8 bytes"):
            signds().with_state(bad)
    with pytest.raises(WireError, match="Expected no estimate"):
        signds(magnitude=None).with_state(server.public_state())
    with pytest.raises(WireError, match="13 bytes"):
        signds().with_state(fixed.public_state())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_ranked_as_zeros(bad: float) -> None:
    update = normal(100)
    update[7] = bad
    first, second = (signds().on_client(work(given), ROOT) for given in (update, np.zeros(100, np.float32)))
    np.testing.assert_array_equal(first, second)


def test_reports_repeat_in_a_simulation_only() -> None:
    mechanism, update = signds().fitted((500,)), normal(500)
    for randomness, same in ((ROOT, True), (Randomness.of(seed=None), False)):
        first, second = (mechanism.on_client(work(update), randomness).tolist() for _ in range(2))
        assert (first == second) is same


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fixed_step": 0.0}, r"sign_global_lr=0.0 is outside its domain: expected a number in \(0, ...\)"),
        ({"fixed_step": math.inf}, "sign_global_lr=inf is outside its domain"),
        ({"least_share": 1.5}, "least_share=1.5"),
        ({"expected_clients": 0.0}, "expected_clients=0.0"),
        ({"expected_clients": 11.0}, "expected_clients=11.0"),
    ],
)
def test_domains(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        signds(**change)
