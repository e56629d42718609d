"""Everyone a server can ask, in one process: its clients, and the holders of the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tacit import wire
from tacit.federated.stopwatch import Stopwatch
from tacit.flow import ClientId, Frames, only
from tacit.protocols.protocol import KeyHolder


@dataclass(frozen=True, kw_only=True)
class Parties:
    """Passes each request to its party: to a key holder what only those answer, the rest to clients.

    A client that holds the key as well is two parties under one number.
    """

    clients: Callable[[Frames], Frames]
    holders: Mapping[ClientId, KeyHolder]
    stopwatch: Stopwatch

    def __call__(self, requests: Frames) -> Frames:
        """Answer for everyone."""
        for_holders = [
            party
            for party, request in requests.items()
            if party in self.holders and wire.unpack(request).kind in wire.FOR_HOLDERS
        ]
        if not for_holders:
            return self.clients(requests)
        with self.stopwatch.measure("recover"):
            opened = {party: self.holders[party].answer(requests[party]) for party in for_holders}
        others = requests.keys() - opened.keys()
        return opened | (dict(self.clients(only(requests, sorted(others)))) if others else {})
