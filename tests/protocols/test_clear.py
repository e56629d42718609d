"""What is particular to the clear sum; what it shares with every protocol is in test_conformance.py."""

from __future__ import annotations

import sys
from itertools import permutations

import numpy as np
import pytest

from tacit import wire
from tacit.errors import ConfigError, WireError
from tacit.flow import Gather
from tacit.protocols.clear import ClearSum
from tacit.protocols.protocol import Total
from tacit.wire import Task, Turn

TASK = Task(turn=Turn(round_number=3, attempt=1), model=np.arange(4, dtype=np.float32))


def test_the_clear_sum_hides_nothing_and_says_so() -> None:
    assert "in the clear" in ClearSum(minimum_clients=1).guarantee.server


def test_the_clear_client_knows_tasks_only() -> None:
    with pytest.raises(WireError, match="TASK"):
        ClearSum(minimum_clients=1).client(b"", wire.unpack(wire.pack_task(TASK)), None)


def test_whole_numbers_travel_where_they_stay_exact() -> None:
    protocol, request = ClearSum(minimum_clients=1), wire.pack_task(TASK)
    _, reply = protocol.client(b"", wire.unpack(request), np.array([-(2**24), 3], np.int64))
    assert wire.unpack_floats(wire.unpack(reply).body).tolist() == [-(2.0**24), 3.0]
    with pytest.raises(ConfigError, match=r"beyond 2\^24"):
        protocol.client(b"", wire.unpack(request), np.array([2**24 + 1], np.int64))


def _summed(replies: list[tuple[int, bytes]]) -> Total:
    """Hand replies over in this order, and return what comes of them."""
    flow = ClearSum(minimum_clients=1).server([1, 2, 3], TASK, 2)
    requests = next(flow)
    assert isinstance(requests, Gather)
    for client, sent in replies:
        reply = bytes(bytearray(sent))  # its own copy: what an earlier round left to the collector holds none of it
        before = sys.getrefcount(reply)
        requests.receive(client, reply)
        assert sys.getrefcount(reply) == before  # added, and not kept
    with pytest.raises(StopIteration) as end:
        flow.send({})
    total: Total = end.value.value
    return total


def test_replies_are_added_as_they_arrive_in_any_order_to_the_same_bits() -> None:
    numbers = [[1e20, 1.0], [3.0, 1e-8], [-1e20, 3e-8]]  # a plain loop in float64 loses the three in some orders
    sent = [
        (client, wire.pack_vector(TASK.turn, np.array(own, np.float32)))
        for client, own in zip((1, 2, 3), numbers, strict=True)
    ]
    results = [_summed(list(order)) for order in permutations(sent)]
    assert {total.vector.tobytes() for total in results} == {results[0].vector.tobytes()}
    assert results[0].vector[0] == 3.0
    assert {total.clients for total in results} == {(1, 2, 3)}


def test_of_two_replies_of_a_client_the_first_counts_and_no_reply_after_a_refused_one() -> None:
    good, other = (wire.pack_vector(TASK.turn, np.full(2, number, np.float32)) for number in (1.0, 5.0))
    bad = wire.pack_vector(TASK.turn, np.array([1.0, np.nan], np.float32))
    total = _summed([(1, good), (1, other), (1, bad), (2, bad), (2, good), (3, good[:-1])])
    assert (total.vector.tolist(), total.clients) == ([1.0, 1.0], (1,))
    assert len(total.notes) == 2
    assert "Client 2 failed in round 3: its update is not finite" in total.notes[0]
    assert "Client 3 sent a damaged reply" in total.notes[1]
