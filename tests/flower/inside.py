"""The parties of a trial at their sockets, in threads of this process: all but the start of their processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict

from tacit.config.resolved import Resolved
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.relay import relay
from tacit.flower.simulation import Simulation
from tacit.flower.trial import prepare
from tacit.holder.process import KeyHolder
from tacit.parties.trial import folder_of, socket_of
from tacit.service import Service
from tacit.site.contract import LEDGER
from tacit.site.ledger import Ledger
from tacit.site.process import Site, Workshop
from tacit.site.trial import Trial
from tests.flower.grid import grid


@dataclass(frozen=True, kw_only=True)
class Inside:
    """What greets and carries frames knows of parties."""

    folder: Path
    numbers: tuple[ClientId, ...]

    def said(self) -> str:
        return "nothing"


@contextmanager
def answering(config: Resolved, folder: Path) -> Iterator[Inside]:
    """Let the sites and key holders of a run answer until the context ends."""
    numbers = prepare(config, folder, processes=1)
    told = Trial.read(folder)
    services, workshop = [], None
    with ExitStack() as stack:
        for party in numbers:
            path = socket_of(folder, party)
            if party < 0:
                holder = KeyHolder(folder_of(folder, party))
                stack.callback(holder.close)
                services.append(Service(path=path, answer=holder.message))
                continue
            contract = told.site(folder, config, party)
            workshop = workshop or Workshop(contract, None, workers=1)
            place = folder_of(folder, party)
            ledger = stack.enter_context(Ledger.open(place / LEDGER, contract))
            site = Site(folder=place, contract=contract, ledger=ledger, workshop=workshop)
            services.append(Service(path=path, answer=site.answer))
        for service in services:
            stack.enter_context(service)
        thread = threading.Thread(target=services[0].run, args=services[1:])
        thread.start()
        try:
            yield Inside(folder=folder, numbers=numbers)
        finally:
            services[0].stop()
            thread.join()


def carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a simulation have one node, which is called in this process: all is as it is but for Ray."""
    monkeypatch.setattr(envelope, "in_simulation", lambda: True)
    app = envelope.client_app(relay)

    def respond(message: Message) -> list[Message]:
        return [app(message, Context(5, 100, {}, RecordDict(), {}))]

    monkeypatch.setattr(Simulation, "_nodes", lambda *_: nullcontext(grid({100: respond})))
