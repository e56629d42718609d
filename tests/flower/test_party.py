"""Tacit's own app and the mod around somebody else's answer alike: one suite over both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from torch import nn

import tacit
from tacit import wire
from tacit.crypto import keyfile
from tacit.flower import client_app, envelope, private_mod
from tacit.flower.serve import configuration
from tacit.modes.catalogue import resolve
from tacit.parties.hello import GREETING, Introduction, Numbers, Terms
from tests.flower.common import app
from tests.protocols.test_conformance import key_pair

RUN: dict[str, Any] = {"mode": "local-dp", "dp.noise": 1.0, "federate.clients": 3, "federate.rounds": 2}
RUN |= {"federate.retries": 0}
ENCRYPTED: dict[str, Any] = {"mode": "paillier", "paillier.weight_cap": 40, "paillier.insecure_key_size": True}
ENCRYPTED |= {"paillier.bits": 512, "federate.clients": 3, "federate.rounds": 2, "federate.retries": 0}
SIZE = 10
NODE_ID = 101


class Tacits:
    """A node with Tacit's own app: the settings come with it, and the server says them too."""

    party = 1
    message_type = envelope.MESSAGE_TYPE

    def __init__(self) -> None:
        features, labels = np.eye(4, dtype=np.float32), np.arange(4) % 2
        self.app = client_app(model=lambda: nn.Linear(4, 2), data=lambda _: (features, labels))

    def says(self, settings: dict[str, Any]) -> Terms:
        return Terms.of(resolve(configuration(settings)))

    def run(self, settings: dict[str, Any]) -> dict[str, Any]:
        return settings


class Others:
    """A node with somebody else's app and the mod: the settings come with every message."""

    party = NODE_ID
    message_type = MessageType.TRAIN

    def __init__(self) -> None:
        self.app = app(private_mod, change=lambda _: _model())

    def says(self, settings: dict[str, Any]) -> Terms:
        numbers = Numbers(clients=3, per_round=3, rounds=2)
        return Terms(settings=json.dumps(settings, sort_keys=True), weighted_by="num-examples", numbers=numbers)

    def run(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {}


Kind = Tacits | Others


def _model() -> ArrayRecord:
    return ArrayRecord({"a": Array(np.zeros(SIZE, np.float32))})


def _task(number: int = 1, attempt: int = 0) -> bytes:
    turn = wire.Turn(round_number=number, attempt=attempt)
    return wire.pack_task(wire.Task(turn=turn, model=np.zeros(SIZE, np.float32)))


@pytest.fixture(params=[Tacits, Others], ids=["app", "mod"])
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param()
    return made


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Return what the node's operator reads."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def _asked(
    kind: Kind,
    frame: bytes,
    settings: dict[str, Any] = RUN,
    *,
    node: dict[str, Any] | None = None,
    change: Callable[[dict[str, Any]], Any] = lambda _: None,
) -> wire.Frame:
    """Ask a node that has just been started, as Flower starts a process for each message."""
    said: dict[str, Any] = {"party": kind.party, **kind.says(settings).to_record()}
    change(said)
    content = RecordDict({envelope.FRAME: envelope.record_of(frame), envelope.CALL: ConfigRecord(said)})
    if isinstance(kind, Others):
        content["arrays"] = _model()
        content["config"] = ConfigRecord({"server-round": 1})
    context = Context(5, NODE_ID, {"partition-id": 1} if node is None else node, RecordDict(), kind.run(settings))
    reply: Message = kind.app(Message(content, NODE_ID, kind.message_type), context)
    return wire.unpack(envelope.frame_of(reply))


def _code(frame: wire.Frame) -> wire.Failure:
    assert frame.kind is wire.Kind.FAILURE, frame.kind
    assert len(frame.body) == 1, "a code, and no words"
    return wire.unpack_failure(frame)[0]


def test_a_node_introduces_itself(kind: Kind) -> None:
    frame = _asked(kind, GREETING)
    assert frame.kind is wire.Kind.HELLO
    packed = wire.pack(frame.kind, frame.turn, bytes(frame.body))
    assert Introduction.read(7, packed) == Introduction(parties=(kind.party,), in_app=True)


def test_another_version_is_refused_in_the_same_words(kind: Kind, log: pytest.LogCaptureFixture) -> None:
    assert _code(_asked(kind, GREETING, change=lambda said: said.update(version="9.9"))) is wire.Failure.VERSION
    assert f"The server runs tacit 9.9, this node {tacit.__version__}. Install the same version" in log.text
    assert _code(_asked(kind, GREETING, change=lambda said: said.pop("version"))) is wire.Failure.VERSION


@pytest.mark.parametrize("frame", [GREETING, _task()], ids=["greeting", "task"])
def test_nothing_is_answered_without_terms(kind: Kind, frame: bytes) -> None:
    assert _code(_asked(kind, frame, change=lambda said: said.pop("settings"))) is wire.Failure.REQUEST


@pytest.mark.parametrize("settings", ["no JSON", "[1]", "[" * 5_000, '{"dp.noise": 1e999}'])
def test_terms_that_can_not_be_read(kind: Kind, settings: str) -> None:
    answer = _asked(kind, GREETING, change=lambda said: said.update(settings=settings))
    assert _code(answer) in (wire.Failure.REQUEST, wire.Failure.SETTINGS)


def test_a_seed_is_refused_where_the_operator_does_not_play(kind: Kind) -> None:
    seeded = RUN | {"seed": 3}
    assert _code(_asked(kind, _task(), seeded)) is wire.Failure.PREDICTABLE
    playing = _asked(kind, _task(), seeded, node={"partition-id": 1, "tacit-simulation": True})
    assert playing.kind is wire.Kind.VECTOR


def test_what_was_said_first_holds_and_a_turn_is_answered_once(kind: Kind, log: pytest.LogCaptureFixture) -> None:
    assert _asked(kind, GREETING).kind is wire.Kind.HELLO
    assert "tacit: this run was announced as mode local-dp, noise multiplier 1, 2 rounds" in log.text
    assert _asked(kind, _task()).kind is wire.Kind.VECTOR
    assert _code(_asked(kind, _task())) is wire.Failure.REPEATED
    assert _code(_asked(kind, _task(1, 1))) is wire.Failure.BEYOND
    assert _code(_asked(kind, _task(3))) is wire.Failure.BEYOND
    assert _code(_asked(kind, _task(2), RUN | {"dp.noise": 0.5})) is wire.Failure.CHANGED
    assert _asked(kind, _task(2)).kind is wire.Kind.VECTOR


@pytest.mark.parametrize("what", [wire.Kind.KEY, wire.Kind.OPEN, wire.Kind.ENROL, wire.Kind.VECTOR, wire.Kind.OPENED])
def test_what_is_no_request_of_the_run_is_refused(kind: Kind, what: wire.Kind) -> None:
    frame = wire.pack(what, wire.Turn(round_number=1), b"")
    assert _code(_asked(kind, frame)) in (wire.Failure.REQUEST, wire.Failure.KEY)


def test_a_real_client_encrypts_to_its_pinned_key_alone(kind: Kind, log: pytest.LogCaptureFixture) -> None:
    assert _code(_asked(kind, GREETING, ENCRYPTED)) is wire.Failure.KEY
    assert "No key is pinned at this node" in log.text
    pinned = {"partition-id": 1, "tacit-pin": key_pair()[0].fingerprint}
    assert _asked(kind, GREETING, ENCRYPTED, node=pinned).kind is wire.Kind.HELLO


def test_who_only_holds_a_key_trains_for_nobody(kind: Kind, tmp_path: Path) -> None:
    keyfile.save(tmp_path / "private.key", key_pair()[1])
    node = {"tacit-key": str(tmp_path / "private.key")}
    packed = _asked(kind, GREETING, ENCRYPTED, node=node)
    said = Introduction.read(7, wire.pack(packed.kind, packed.turn, bytes(packed.body)))
    assert said.parties == (-1,)
    assert _code(_asked(kind, _task(), ENCRYPTED, node=node)) is wire.Failure.PARTY


@pytest.mark.parametrize("change", [{"paillier.kind": "subgroup"}, {"paillier.exponents": "short"}])
def test_a_holder_s_key_is_of_the_kind_that_was_asked_for(
    kind: Kind, change: dict[str, Any], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """A note in the report says what the keys rest on, by the settings: they have to be true of the file."""
    keyfile.save(tmp_path / "private.key", key_pair()[1])
    frame = wire.pack(wire.Kind.KEY, wire.Turn(round_number=0), b"")
    asked = ENCRYPTED | {"paillier.bits": 1024} | change
    answer = _asked(kind, frame, asked, node={"tacit-key": str(tmp_path / "private.key")})
    assert _code(answer) is wire.Failure.SETTINGS
    assert "is of kind standard with half exponents, and" in log.text
