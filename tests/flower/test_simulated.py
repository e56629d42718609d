"""Nodes of Flower's own simulation (``flwr run``) whose app has data of its own: they have a number and no operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit import wire
from tacit.flower.node import Own
from tacit.flower.serve import configuration
from tacit.modes.catalogue import resolve
from tacit.parties.calls import Answer, Call
from tacit.parties.hello import GREETING, Introduction, Terms

SETTINGS: dict[str, Any] = {"federate.clients": 5}
DATA = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])


def _greet(number: int, count: int, simulated: bool = True, **more: Any) -> Answer:
    run = {**SETTINGS, **more}
    node: dict[str, Any] = {"partition-id": number, "num-partitions": count}
    call = Call(
        party=0,
        frame=GREETING,
        said=Terms.of(resolve(configuration(run))).to_record(),
        node=node,
        run=run,
        run_id=1,
        simulated=simulated,
    )
    return Own(model=lambda: nn.Linear(4, 2), data=lambda _: DATA)(call)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_clients_share_the_nodes_evenly_however_many_there_are(count: int) -> None:
    parties = [Introduction.read(number, _greet(number, count).frame).parties for number in range(count)]
    assert sorted(party for some in parties for party in some) == [0, 1, 2, 3, 4]
    assert max(map(len, parties)) - min(map(len, parties)) <= 1


def test_a_seed_is_no_danger_where_nobody_is_real() -> None:
    assert Introduction.read(0, _greet(0, 2, seed=3).frame).parties == (0, 2, 4)


def test_a_real_node_does_not_become_a_simulated_one_by_its_settings() -> None:
    frame = wire.unpack(_greet(0, 2, simulated=False, seed=3).frame)
    assert wire.unpack_failure(frame)[0] is wire.Failure.PREDICTABLE
    assert Introduction.read(1, _greet(1, 2, simulated=False).frame).parties == (1,)


def test_encryption_needs_somebody_to_hold_keys() -> None:
    frame = wire.unpack(_greet(0, 2, mode="paillier").frame)
    assert wire.unpack_failure(frame)[0] is wire.Failure.SETTINGS
