from __future__ import annotations

import time
from dataclasses import dataclass, field

from tacit import wire
from tacit.federated.parties import Parties
from tacit.federated.stopwatch import Stopwatch
from tacit.flow import Frames, Gather

TURN = wire.Turn(round_number=1)
KEY, OPEN, CIPHER = (wire.pack(kind, TURN, b"") for kind in (wire.Kind.KEY, wire.Kind.OPEN, wire.Kind.CIPHER))


@dataclass
class Holder:
    asked: list[bytes] = field(default_factory=list)
    memory: bytes = b""

    def answer(self, request: bytes) -> bytes:
        time.sleep(0.01)
        self.asked.append(request)
        return b"held"


@dataclass
class Clients:
    asked: list[Frames] = field(default_factory=list)

    def __call__(self, requests: Frames) -> Frames:
        self.asked.append(requests)
        return dict.fromkeys(requests, b"client")


def test_each_request_goes_to_its_party() -> None:
    holder, clients, watch = Holder(), Clients(), Stopwatch()
    parties = Parties(clients=clients, holders={-1: holder, 3: holder}, stopwatch=watch)
    assert parties({-1: KEY, 3: OPEN, 4: CIPHER}) == {-1: b"held", 3: b"held", 4: b"client"}
    assert holder.asked == [KEY, OPEN]
    assert clients.asked == [{4: CIPHER}]
    assert watch.seconds["recover"] >= 0.02
    assert parties({3: CIPHER}) == {3: b"client"}  # a client that holds the key is a client all the same


def test_only_key_holders_are_asked_where_nobody_else_is_meant() -> None:
    clients = Clients()
    parties = Parties(clients=clients, holders={-1: Holder()}, stopwatch=Stopwatch())
    assert parties({-1: OPEN}) == {-1: b"held"}
    assert clients.asked == []


def test_clients_requests_stay_gathered() -> None:
    clients = Clients()
    parties = Parties(clients=clients, holders={-1: Holder()}, stopwatch=Stopwatch())
    parties(Gather({1: CIPHER}, lambda *_: None))
    assert isinstance(clients.asked[0], Gather)
