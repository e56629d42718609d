"""What is particular to the clear sum; what it shares with every protocol is in test_conformance.py."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import wire
from tacit.errors import ConfigError, WireError
from tacit.protocols.clear import ClearSum
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
