"""Who masks with whom, and whether the numbers keep their promises."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, WireError
from tacit.protocols.masks.graph import (
    Circle,
    Neighbourhood,
    pack_clients,
    pack_members,
    place_of,
    unpack_clients,
    unpack_members,
)
from tacit.wire import Turn


def _tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """Return the probability that a draw has at least so many marked ones."""
    ways = sum(
        math.comb(marked, i) * math.comb(population - marked, drawn - i) for i in range(least, min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(population, drawn))


@pytest.mark.parametrize(
    ("clients", "minimum", "corrupted"),
    [(100, 70, 5), (100, 90, 5), (1000, 700, 50), (10_000, 9000, 500), (100_000, 90_000, 5000)],
)
def test_the_promises_hold_with_probability_two_to_the_minus_forty(clients: int, minimum: int, corrupted: int) -> None:
    hood = Neighbourhood.of(clients=clients, minimum=minimum, corrupted=corrupted)
    k, t, gone = hood.neighbours, hood.threshold, clients - minimum
    assert 0 < k < clients - 1
    assert k == 2 * hood.stretch
    failures = [
        _tail(clients - 1, corrupted, k, t),  # a coalition opens a secret
        _tail(clients - 1, gone, k, k - t + 1),  # drop-outs make one unopenable
        _tail(clients, corrupted, hood.stretch, hood.least),  # a stretch may be counted that has no honest client
        _tail(clients, gone, hood.stretch, hood.stretch - hood.least + 1),  # drop-outs leave one that is too thin
    ]
    assert clients * sum(failures) <= Fraction(1, 2**40)
    assert Neighbourhood._sparse(hood.stretch - 1, clients, minimum, corrupted) is None


def test_small_cohorts_are_complete_and_leave_nothing_to_chance() -> None:
    hood = Neighbourhood.of(clients=12, minimum=6, corrupted=2)
    assert (hood.neighbours, hood.threshold, hood.stretch) == (11, 5, 0)


@pytest.mark.parametrize(("minimum", "corrupted"), [(1, 0), (11, 0), (5, 4)])
def test_a_sum_that_is_one_clients_is_refused(minimum: int, corrupted: int) -> None:
    with pytest.raises(ConfigError):
        Neighbourhood.of(clients=10, minimum=minimum, corrupted=corrupted)


_WRAPS = b"\x00\x00\x00\x02\x08" + b"\xff" * 16


def _circle(clients: int, minimum: int, corrupted: int, turn: int = 1) -> Circle:
    hood = Neighbourhood.of(clients=clients, minimum=minimum, corrupted=corrupted)
    listed = pack_clients(np.arange(clients, dtype=np.uint64))
    return Circle.of(bytes(32), Turn(round_number=turn), listed, bytes(32), hood)


@pytest.mark.parametrize(("clients", "minimum"), [(7, 4), (60, 50)])
def test_neighbours_know_each_other_by_mirrored_points(clients: int, minimum: int) -> None:
    circle = _circle(clients, minimum, 2)
    k = circle.hood.neighbours
    for place in range(clients):
        near = circle.neighbours(place).tolist()
        assert place not in near
        assert len(set(near)) == k
        for point, other in enumerate(near):
            assert circle.neighbours(other)[k - 1 - point] == place


def test_the_order_is_of_one_turn() -> None:
    one, same, other = _circle(60, 50, 2), _circle(60, 50, 2), _circle(60, 50, 2, turn=2)
    assert one.order.tolist() == same.order.tolist() != other.order.tolist()


def test_a_list_that_would_split_the_circle_is_thin() -> None:
    circle = _circle(60, 50, 2)
    members = np.ones(60, np.bool_)
    assert not circle.thin(members)
    stretch = circle.hood.stretch
    members[circle.order[np.arange(58, 58 + stretch) % 60]] = False  # across the end of the circle
    assert circle.thin(members)
    members[circle.order[np.arange(58, 58 + circle.hood.least) % 60]] = True
    assert not circle.thin(members)


@settings(deadline=None)
@given(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=50), st.binary(max_size=5))
def test_lists_of_clients_travel(numbers: set[int], behind: bytes) -> None:
    clients = np.array(sorted(numbers), np.uint64)
    data = pack_clients(clients)
    found, own, rest = unpack_clients(data + behind)
    assert (found.tolist(), own, rest) == (clients.tolist(), data, behind)
    assert all(place_of(found, int(client)) == place for place, client in enumerate(clients))
    assert place_of(found, next(n for n in range(100) if n not in numbers)) == -1


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\x00\x00\x02\x01\x05", b"\x00\x00\x00\x02\x01\x05\x00", b"\x00\x00\x00\x01\x09" + bytes(9), _WRAPS],
)
def test_a_list_with_a_client_twice_or_too_few_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack_clients(data)


def test_members_travel_as_bits_and_nothing_else_does() -> None:
    members = np.array([True, False, True] * 3)
    assert unpack_members(pack_members(members), 9).tolist() == members.tolist()
    for wrong in (b"", bytes(1), bytes(3), b"\x00\x7f"):
        with pytest.raises(WireError):
            unpack_members(wrong, 9)
