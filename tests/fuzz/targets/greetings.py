"""Greetings and introductions, of Tacit's own apps and of others' Flower apps, and what a node's operator names."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import tacit
from tacit import foreign, wire
from tacit.config.sections import Paillier
from tacit.crypto import keyfile
from tacit.errors import TacitError, WireError
from tacit.flower import hello, operator
from tacit.flower.settings import agreed
from tacit.flower.strategy import pairing, settings
from tests.fuzz.fixed import PUBLIC
from tests.fuzz.harness import Target
from tests.fuzz.targets.files import folder, written
from tests.runs.common import digits

_HEADER = 20
_OURS = digits(mode="dp", dp={"noise": 1.0})


def greeted(body: bytes) -> bytes:
    """Return a body in a frame: what is changed is the JSON, and now and then the frame."""
    return body if body[:3] == b"TCT" else wire.pack(wire.Kind.HELLO, hello.TURN, body)


def _body(frame: bytes) -> bytes:
    return frame[_HEADER:]


def _check(data: bytes) -> None:
    frame = greeted(data)
    hello.check(frame, _OURS)
    theirs = foreign.json_object(_body(frame))["settings"]
    assert _given(theirs) == _given(agreed(_OURS)), "nothing else is agreed to"


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _introduction() -> list[bytes]:
    return [
        _body(hello.introduce(hello.Introduction(version=tacit.__version__, parties=(2, -1), examples=60))),
        _body(hello.introduce(hello.Introduction(version=tacit.__version__, parties=(0,)))),
        wire.pack_failure(hello.TURN, wire.Failure.REFUSED, "other settings"),
    ]


def _introduced(data: bytes) -> None:
    said = hello.introduced(7, greeted(data))
    assert all(type(party) is int and abs(party) < 1 << 63 for party in said.parties)
    assert hello.introduced(7, hello.introduce(said)) == said


def _guests() -> list[bytes]:
    return [
        _body(pairing.Introduction(client=True, holder=None, simulated=False).to_frame()),
        _body(pairing.Introduction(client=False, holder=-1, simulated=True).to_frame()),
        wire.pack_failure(hello.TURN, wire.Failure.REFUSED, "no mod"),
    ]


def _guest(data: bytes) -> None:
    said = pairing.Introduction.read(7, greeted(data))
    assert said.holder is None or abs(said.holder) < 1 << 63
    assert pairing.Introduction.read(7, said.to_frame()) == said


def _terms() -> list[bytes]:
    config = settings.given(mode="dp", sections={"dp": {"noise": 1.0}, "federate": {"clients": 5, "rounds": 2}})
    numbers = settings.Numbers(clients=5, per_round=5, rounds=2)
    told = (
        pairing.Terms(settings=settings.to_text(config), weighted_by="num-examples"),
        pairing.Terms(settings=settings.to_text(config), weighted_by="num-examples", numbers=numbers),
    )
    return [json.dumps(terms.to_record()).encode() for terms in told]


def _told(data: bytes) -> None:
    """What Flower carries is a mapping of numbers, texts and lists of one kind: other values never arrive."""
    record: dict[str, Any] = foreign.json_object(data)
    if not all(isinstance(value, str | int | float | list) for value in record.values()):
        raise WireError("Flower would not carry it.")
    terms, config = pairing.Terms.read(record, {})
    assert settings.from_text(terms.settings) == config
    assert pairing.Terms.read(terms.to_record(), {})[0] == terms


@functools.cache
def _operator_files() -> tuple[bytes, ...]:
    own = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = own.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    secret = own.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    path = folder() / "pin.key"
    keyfile.save(path, PUBLIC)
    return secret, path.read_bytes(), PUBLIC.fingerprint.encode(), public + b" a comment\n# another\n" + public


def _operated(data: bytes) -> None:
    """What an operator names in a node's config: the pinned key, the clients, the client's own identity."""
    path = str(written("operator", data))
    with contextlib.suppress(TacitError):
        assert len(operator.pin_of({"tacit-pin": path}, Paillier(insecure_key_size=True))) == 32
    with contextlib.suppress(TacitError):
        found = operator.clients_of({"tacit-clients": path})
        assert found is not None
        assert all(len(one) == 32 for one in found)
    operator.identity_of({"tacit-identity": path})


TARGETS = (
    Target(name="greetings", seeds=lambda: [_body(hello.greeting(_OURS))], check=_check, form="json", inputs=1500),
    Target(name="introductions", seeds=_introduction, check=_introduced, form="json", inputs=4000),
    Target(name="guests", seeds=_guests, check=_guest, form="json", inputs=4000),
    Target(name="operators", seeds=_operator_files, check=_operated, inputs=1500),
    Target(name="pairings", seeds=_terms, check=_told, form="json", inputs=1000),
)
