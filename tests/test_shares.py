from __future__ import annotations

import numpy as np
import pytest

from tacit.shares import Shares, joined, sizes_of


def test_shares_are_the_lists_that_they_stand_for() -> None:
    owners = np.random.default_rng(1).integers(-1, 7, 50)
    owners[owners == 3] = 2  # client 3 has nothing
    shares = Shares.of_owners(owners, clients=8)
    expected = [np.flatnonzero(owners == client).tolist() for client in range(8)]
    assert [rows.tolist() for rows in shares] == expected
    assert [rows.tolist() for rows in shares[2:5]] == expected[2:5]
    assert shares[-1].tolist() == expected[-1]
    assert shares.sizes.tolist() == sizes_of(list(shares)).tolist() == [len(rows) for rows in expected]
    assert joined(shares).tolist() == joined(list(shares)).tolist() == [row for rows in expected for row in rows]
    for beyond in (8, -9):
        with pytest.raises(IndexError):
            shares[beyond]


def test_shares_of_sizes_lie_one_after_another() -> None:
    assert [rows.tolist() for rows in Shares.of_sizes([2, 0, 1])] == [[0, 1], [], [2]]
    assert len(Shares.of_sizes([])) == 0


def test_a_share_is_a_view_and_no_copy() -> None:
    shares = Shares.of_sizes(np.ones(10, np.int64))
    assert shares[4].base is shares.rows
