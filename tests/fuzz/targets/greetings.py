"""Greetings and introductions, of Tacit's own apps and of others' Flower apps, and what a node's operator names."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tacit import foreign, wire
from tacit.config.agreement import agreed
from tacit.config.sections import Paillier
from tacit.crypto import keyfile
from tacit.errors import TacitError, WireError
from tacit.flower.strategy import settings
from tacit.modes.catalogue import resolve
from tacit.parties import operator
from tacit.parties.hello import Introduction, Numbers, Terms
from tests.fuzz.fixed import PUBLIC
from tests.fuzz.harness import Target
from tests.fuzz.targets.files import folder, written
from tests.runs.common import digits

_HEADER = 20
_OURS = resolve(digits(mode="dp", dp={"noise": 1.0}))


def greeted(body: bytes) -> bytes:
    """Return a body in a frame: what is changed is the JSON, and now and then the frame."""
    return body if body[:3] == b"TCT" else wire.pack(wire.Kind.HELLO, wire.Turn(round_number=0), body)


def _body(frame: bytes) -> bytes:
    return frame[_HEADER:]


def _record(data: bytes) -> dict[str, Any]:
    """What Flower carries is a mapping of numbers, texts and lists of one kind: other values never arrive."""
    record: dict[str, Any] = foreign.json_object(data)
    if not all(isinstance(value, str | int | float | list) for value in record.values()):
        raise WireError("Flower would not carry it.")
    return record


def _check(data: bytes) -> None:
    terms = Terms.read(_record(data))
    terms.agree(_OURS)
    assert _given(foreign.json_object(terms.settings)) == _given(agreed(_OURS)), "nothing else is agreed to"


def _greetings() -> list[bytes]:
    return [json.dumps(Terms.of(_OURS).to_record()).encode()]


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _introduction() -> list[bytes]:
    return [
        _body(Introduction(parties=(2, -1), examples=60).to_frame()),
        _body(Introduction(parties=(1 << 63,), simulated=True).to_frame()),
        wire.pack_failure(wire.Turn(round_number=0), wire.Failure.REFUSED, "other settings"),
    ]


def _introduced(data: bytes) -> None:
    said = Introduction.read(7, greeted(data))
    assert all(type(party) is int and abs(party) < 1 << 64 for party in said.parties)
    assert Introduction.read(7, said.to_frame()) == said


def _terms() -> list[bytes]:
    config = settings.given(mode="dp", sections={"dp": {"noise": 1.0}, "federate": {"clients": 5, "rounds": 2}})
    numbers = Numbers(clients=5, per_round=5, rounds=2)
    told = (
        Terms(settings=settings.to_text(config), weighted_by="num-examples"),
        Terms(settings=settings.to_text(config), weighted_by="num-examples", numbers=numbers),
    )
    return [json.dumps(terms.to_record()).encode() for terms in told]


def _told(data: bytes) -> None:
    terms = Terms.read(_record(data))
    settings.from_text(terms.settings)
    assert Terms.read(terms.to_record()) == terms


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
    Target(name="greetings", seeds=_greetings, check=_check, form="json", inputs=1500),
    Target(name="introductions", seeds=_introduction, check=_introduced, form="json", inputs=4000),
    Target(name="operators", seeds=_operator_files, check=_operated, inputs=1500),
    Target(name="pairings", seeds=_terms, check=_told, form="json", inputs=1000),
)
