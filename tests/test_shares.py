from __future__ import annotations

import numpy as np
import pytest

from tacit.shares import Shares


def test_shares_are_the_lists_that_they_stand_for() -> None:
    owners = np.random.default_rng(1).integers(-1, 7, 50)
    owners[owners == 3] = 2  # client 3 has nothing
    shares = Shares.of_owners(owners, clients=8)
    expected = [np.flatnonzero(owners == client).tolist() for client in range(8)]
    assert [rows.tolist() for rows in shares] == expected
    assert [rows.tolist() for rows in shares[2:5]] == expected[2:5]
    assert shares[-1].tolist() == expected[-1]
    assert shares.sizes.tolist() == [len(rows) for rows in expected]
    assert shares.order.tolist() == [row for rows in expected for row in rows]
    again = Shares.of(list(shares))
    assert [rows.tolist() for rows in again] == expected
    assert again.sizes.tolist() == shares.sizes.tolist()
    assert Shares.of(shares) is shares
    for beyond in (8, -9):
        with pytest.raises(IndexError):
            shares[beyond]


def test_shares_of_sizes_lie_one_after_another() -> None:
    assert [rows.tolist() for rows in Shares.of_sizes([2, 0, 1])] == [[0, 1], [], [2]]
    assert len(Shares.of_sizes([])) == len(Shares.of([])) == 0
    assert [rows.tolist() for rows in Shares.alike(2, clients=3)] == [[0, 1]] * 3


def test_a_share_is_a_view_and_no_copy() -> None:
    shares = Shares.of_sizes(np.ones(10, np.int64))
    assert shares[4].base is shares.order
