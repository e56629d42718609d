"""Who opens encrypted sums of a protected app: nodes that hold keys, or in a simulation the server's own process."""

from __future__ import annotations

import time
from collections.abc import Callable

from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.errors import RunError
from tacit.flow import Frames
from tacit.flower.engine import FlowerEngine
from tacit.flower.strategy.guests import Guests
from tacit.modes.keys import key_parties
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.protocol import KeyHolder, SumProtocol

_PAUSE = 0.5


def exchange_for(
    protocol: SumProtocol,
    config: RunConfig,
    *,
    guests: Guests,
    engine: FlowerEngine,
    note: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> Callable[[Frames], Frames]:
    """Return what carries the requests of a protocol that are no tasks."""
    if not isinstance(protocol, PaillierSum):
        return engine.exchange
    if guests.simulated and not guests.holders:
        note(
            "All nodes are simulated: the server's process plays the key holders. In a real run they are SuperNodes "
            "of their own (tacit-key in --node-config)."
        )
        return _local(protocol, config, engine)
    end = time.monotonic() + config.flower.patience
    while missing := set(protocol.holders) - guests.holders.keys():
        if time.monotonic() > end:
            names = ", ".join(str(-number) for number in sorted(missing, reverse=True))
            raise RunError(
                f"Key holder {names} is not there: no node has said that it holds that key. Start a SuperNode with "
                "--node-config 'tacit-key=\"FILE\"', and without partition-id where it has no data to train on."
            )
        pause(_PAUSE)
        guests.get_node_ids()
    return engine.exchange


def _local(protocol: PaillierSum, config: RunConfig, engine: FlowerEngine) -> Callable[[Frames], Frames]:
    holders = key_parties(config.paillier, protocol, clients=1).holders
    shared: KeyHolder | None = holders.get(0)  # where all clients have the key, one answers for all

    def exchange(requests: Frames) -> Frames:
        if wire.unpack(next(iter(requests.values()))).kind not in wire.FOR_HOLDERS:
            return engine.exchange(requests)  # clients enrol; tasks travel with the strategy's messages
        return {party: (shared or holders[party]).answer(request) for party, request in requests.items()}

    return exchange
