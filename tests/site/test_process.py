"""Every mode through a site: what is answered, and by what it is charged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit import wire
from tacit.parties.hello import GREETING
from tacit.service import Message
from tacit.site.contract import LEDGER, Contract, read
from tacit.site.costs import Price, composed, least_noise
from tacit.site.data import load
from tacit.site.ledger import Ledger
from tacit.site.process import Site, Workshop
from tacit.wire import Failure, Kind
from tests.site.common import Hub, code_of, kind_of, make_site

EVERYONE = {"rules": {"modes": ["plain", "dp", "local-dp", "dp-sgd", "signds", "nbafl", "masks", "paillier"]}}
TELLING = {"rules": {**EVERYONE["rules"], "tell": ["loss", "examples", "seconds"]}}


class Inside:
    """A site in this process, and a hub that speaks to it without a socket."""

    def __init__(self, folder: Path, contract: Contract, ledger: Ledger) -> None:
        self.contract, self.ledger = contract, ledger
        self.site = Site(
            folder=folder, contract=contract, ledger=ledger, workshop=Workshop(contract, load(contract.data))
        )

    def ask(self, hub: Hub, frame: bytes) -> Message:
        head = {"run": hub.run, "party": 0, "said": dict(hub.said), "partition": None}
        return self.site.answer(Message(head=head, body=frame))

    def price(self) -> Price:
        from tacit import foreign

        return Price.from_dict(foreign.json_object(self.ledger.rows()[-1].price))


@pytest.fixture
def inside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Inside]:
    values: dict[str, Any] = {"budget": {"epsilon": None}, **TELLING, **getattr(request, "param", {})}
    folder = make_site(tmp_path, **values)
    contract = read(folder)
    with Ledger.open(folder / LEDGER, contract) as ledger:
        yield Inside(folder, contract, ledger)


NO_NOISE = {"dp__noise": None, "dp__clip": None}
MODES: dict[str, tuple[dict[str, Any], set[str]]] = {  # settings, and for whom a reply has a finite price
    "plain": ({"mode": "plain", **NO_NOISE}, set()),
    "dp": ({"mode": "dp"}, {"server"}),
    "dp, adaptive": ({"mode": "dp", "dp__clip": "adaptive", "dp__noise": 0.2}, {"server"}),
    "local-dp": ({}, {"nobody", "cohort", "server"}),
    "dp-sgd": ({"mode": "dp-sgd", "dpsgd__noise": 2.0, **NO_NOISE}, {"example"}),
    "local-dp with DP-SGD": ({"dpsgd__noise": 2.0}, {"nobody", "cohort", "server", "example"}),
    "signds": ({"mode": "signds", **NO_NOISE, "signds__sign_k": 0.25}, {"nobody", "cohort", "server"}),
    "nbafl": ({"mode": "nbafl", **NO_NOISE, "nbafl__smallest": 30}, {"nobody", "cohort", "server"}),
}


@pytest.mark.parametrize("name", MODES)
def test_a_reply_of_every_mode_is_priced_by_whose_noise_is_in_it(inside: Inside, name: str) -> None:
    changes, finite = MODES[name]
    hub = Hub.of(inside.contract.socket.parent, **changes)
    assert kind_of(inside.ask(hub, GREETING).body) is Kind.HELLO
    reply = inside.ask(hub, hub.task(1))
    assert kind_of(reply.body) is not Kind.FAILURE
    assert set(reply.head["seconds"]) == {"train", "protect"}
    price = inside.price()
    budgets = {
        trust: inside.contract.budget.model_copy(update={"unit": "client", "trust": trust})
        for trust in ("nobody", "cohort", "server")
    }
    found = {trust for trust, budget in budgets.items() if math.isfinite(composed([(price, 1)], budget))}
    assert found | ({"example"} if price.example is not None else set()) == finite
    assert price.example is None or math.isfinite(composed([(price, 1)], inside.contract.budget))


@pytest.mark.parametrize("inside", [{"budget": {"epsilon": 50.0, "unit": "client"}}], indirect=True)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mode": "plain", **NO_NOISE}, Failure.BUDGET),
        ({"mode": "dp"}, Failure.BUDGET),
        ({"mode": "dp", "dp__epsilon": 1e5, "dp__noise": None}, Failure.BUDGET),
        ({"mode": "masks", **NO_NOISE, "masks__signed": False}, Failure.CONTRACT),
        ({"mode": "masks", **NO_NOISE, "masks__signed": True}, Failure.BUDGET),
        ({"mode": "nbafl", **NO_NOISE, "nbafl__smallest": 30, "nbafl__compat": "federatedscope"}, Failure.BUDGET),
    ],
    ids=["plain", "server's noise", "server's promise", "unsigned masks", "masks without noise", "federatedscope"],
)
def test_what_nothing_hides_from_everyone_is_refused_where_there_is_a_budget(
    inside: Inside, changes: dict[str, Any], code: Failure
) -> None:
    hub = Hub.of(
        inside.contract.socket.parent, **{"masks__signed": False, **changes} if "masks" in changes["mode"] else changes
    )
    assert code_of(inside.ask(hub, GREETING).body) is code
    assert code_of(inside.ask(hub, hub.task(1)).body) is code
    assert inside.ledger.rows() == []


@pytest.mark.parametrize("inside", [{"budget": {"epsilon": 50.0, "trust": "cohort"}}], indirect=True)
def test_the_noise_of_others_is_not_counted_on_where_a_server_can_invent_them(inside: Inside) -> None:
    masks: dict[str, Any] = {"mode": "masks", "masks__dp": True, "masks__signed": True, "federate__minimum_clients": 4}
    assert code_of(inside.ask(Hub.of(inside.contract.socket.parent, **masks), GREETING).body) is Failure.CONTRACT
    assert kind_of(inside.ask(Hub.of(inside.contract.socket.parent, run=2), GREETING).body) is Kind.HELLO


@pytest.mark.parametrize("inside", [{"budget": {"epsilon": 5.0, "unit": "client"}}], indirect=True)
def test_dp_sgd_hides_no_site(inside: Inside) -> None:
    hub = Hub.of(inside.contract.socket.parent, **MODES["dp-sgd"][0])
    assert code_of(inside.ask(hub, hub.task(1)).body) is Failure.BUDGET
    assert inside.ledger.rows() == []


def test_dp_sgd_of_steps_without_end_is_refused(inside: Inside) -> None:
    """100 passes are allowed, and a batch is all 30 rows."""
    for steps, code in ((101, Failure.CONTRACT), (100, None)):
        hub = Hub.of(inside.contract.socket.parent, run=steps, **MODES["dp-sgd"][0], dpsgd__steps=steps)
        reply = inside.ask(hub, hub.task(1)).body
        assert (code_of(reply) if kind_of(reply) is Kind.FAILURE else None) is code


def test_the_noise_that_is_charged_is_the_noise_that_is_added(inside: Inside) -> None:
    """Local noise of 40 on updates of norm 1: the reply has it, and the ledger says so."""
    hub = Hub.of(inside.contract.socket.parent, dp__noise=40.0)
    vectors = [wire.unpack_floats(wire.unpack(inside.ask(hub, hub.task(n)).body).body) for n in range(1, 5)]
    flat = [float(value) for vector in vectors for value in vector]
    deviation = math.sqrt(sum(value**2 for value in flat) / len(flat))
    assert least_noise(inside.price().nobody) == 40.0
    assert 20 < deviation < 70  # of 32 numbers; four of its own deviations on either side, or more
