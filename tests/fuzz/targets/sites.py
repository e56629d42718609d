"""A site's contract and prices, and what whoever carries frames writes to its socket."""

from __future__ import annotations

import functools
import json

from tacit import foreign, wire
from tacit.accounting.events import GaussianEvent, PureEvent, RepeatedEvent, SampledEvent, SkellamEvent
from tacit.errors import WireError
from tacit.service import Header, Message
from tacit.site.contract import Contract, SiteData, made
from tacit.site.costs import Price
from tacit.site.process import Site, Workshop
from tests.fuzz.harness import Target
from tests.fuzz.targets.files import folder

_HEADER = 20
_LARGEST = 1 << 16


def _contracts() -> list[bytes]:
    data = SiteData(name="heart.csv", file="heart.csv", label="outcome", drop=("id",))
    return [Contract(name="st-mary", number=3, data=data).to_yaml().encode()]


def _contract(data: bytes) -> None:
    contract = made(_values(data), where="site.yaml")
    assert made(_values(contract.to_yaml().encode()), where="again") == contract, "what is written is what was read"


def _values(data: bytes) -> dict[str, object]:
    values = foreign.yaml_value(data)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise WireError("Not a contract.")
    return values


def _prices() -> list[bytes]:
    gaussian = GaussianEvent(noise_multiplier=2.0)
    step = RepeatedEvent(event=SampledEvent(event=gaussian, rate=0.1), count=3)
    skellam = SkellamEvent(noise_multiplier=3.0, sensitivity=1e4)
    found = (
        Price(nobody=gaussian, cohort=gaussian, server=gaussian),
        Price(nobody=skellam, cohort=skellam, server=PureEvent(epsilon=0.5), example=step),
    )
    return [json.dumps(price.to_dict()).encode() for price in found]


def _price(data: bytes) -> None:
    try:
        price = Price.from_dict(foreign.json_object(data))
    except TypeError as error:  # fields that a price has not, which the ledger refuses as damage
        raise WireError("Not a price.") from error
    assert Price.from_dict(price.to_dict()) == price


def _messages() -> list[bytes]:
    head = {"run": 7, "party": 0, "said": {"version": "1", "settings": "{}"}, "partition": 2}
    frame = wire.pack(wire.Kind.HELLO, wire.Turn(round_number=0), b"")
    return [b"".join(Message(head=head, body=frame).pieces())]


@functools.cache
def _site() -> Site:
    contract = Contract(name="a", data=SiteData(name="b"))
    return Site(folder=folder(), contract=contract, ledger=None, workshop=Workshop(contract, None))  # type: ignore[arg-type]  # no request of these gets as far as a ledger


def _asked(data: bytes) -> None:
    header = Header.read(data[:_HEADER], largest=_LARGEST)
    head, body = data[_HEADER : _HEADER + header.head], data[_HEADER + header.head :]
    message = header.message(head, body)
    reply = _site().answer(message)
    assert wire.unpack(reply.body).kind is wire.Kind.FAILURE, "these rules allow nothing"
    assert reply.head in ({}, {"seconds": {}})


TARGETS = (
    Target(name="contracts", seeds=_contracts, check=_contract, inputs=100),
    Target(name="prices", seeds=_prices, check=_price, form="json", inputs=1000),
    Target(name="carried", seeds=_messages, check=_asked, inputs=500),
)
