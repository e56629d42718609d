"""A node whose app brings model and data along, and trains in the node's own process."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.crypto import keyfile
from tacit.flower.node import Own
from tacit.modes.catalogue import resolve
from tacit.parties.calls import Answer, Call
from tacit.parties.hello import GREETING, Introduction, Terms
from tacit.protocols.paillier.client import pack_invitation
from tests.protocols.test_conformance import key_pair, key_shares

SETTINGS: dict[str, Any] = {
    "mode": "plain",
    "engine": "flower",
    "data.name": "digits",
    "data.split_seed": 1,
    "model.name": "logistic",
    "federate.clients": 3,
    "train.workers": 1,
}
ENCRYPTED: dict[str, Any] = {
    **SETTINGS,
    "mode": "paillier",
    "paillier.insecure_key_size": True,
    "paillier.weight_cap": 1000,
}
NODE: dict[str, Any] = {"partition-id": 1}
TURN = wire.Turn(round_number=1)
PARAMETERS = 64 * 10 + 10


def _data(node: Mapping[str, Any]) -> tuple[Any, Any]:
    generator = np.random.Generator(np.random.PCG64(int(node.get("partition-id", 0))))
    return generator.standard_normal((20, 64)).astype(np.float32), np.arange(20) % 10


OWN = Own(model=lambda: nn.Linear(64, 10), data=_data)


def _config(settings: dict[str, Any]) -> RunConfig:
    from tacit.flower.serve import configuration

    return configuration(settings)


def _said(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the server says of a run with these settings."""
    return dict(Terms.of(resolve(_config(settings))).to_record())


def _ask(frame: bytes, *, party: int = 1, node: dict[str, Any] | None = None, **changes: Any) -> Answer:
    said = _said(changes.pop("says", changes.get("run", SETTINGS)))
    call = Call(party=party, frame=frame, said=said, node=NODE if node is None else node, run=SETTINGS, run_id=5)
    return OWN(replace(call, **changes))


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Return what the node's operator reads."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def _failure(answer: Answer) -> wire.Failure:
    """Return the code that leaves a node, and see that nothing else does."""
    frame = wire.unpack(answer.frame)
    assert frame.kind is wire.Kind.FAILURE
    assert len(frame.body) == 1, "a code, and no words"
    return wire.unpack_failure(frame)[0]


def _task(**changes: Any) -> bytes:
    return wire.pack_task(wire.Task(turn=TURN, model=np.zeros(PARAMETERS, np.float32), **changes))


def _invitation() -> bytes:
    return wire.pack(wire.Kind.ENROL, wire.Turn(round_number=0), pack_invitation(bytes(32), key_pair()[0]))


# Who a node is


def test_a_client_says_its_number() -> None:
    assert Introduction.read(7, _ask(GREETING).frame).parties == (1,)


def test_a_node_can_be_a_client_and_hold_a_share(tmp_path: Path) -> None:
    keyfile.save(tmp_path / "share.key", key_shares()[1])
    settings = ENCRYPTED | {"paillier.keys": "threshold"}
    keyfile.save(tmp_path / "public.key", key_shares()[1].public)
    node = NODE | {"tacit-key": str(tmp_path / "share.key"), "tacit-pin": str(tmp_path / "public.key")}
    assert Introduction.read(7, _ask(GREETING, node=node, run=settings).frame).parties == (1, -2)


@pytest.mark.parametrize(
    ("node", "what"),
    [
        ({}, "neither a client .* nor a key holder"),
        ({"partition-id": 3}, r"partition-id=3 in the node's config: expected 0 to 2"),
        ({"partition-id": -1}, "expected 0 to 2"),
        ({"partition-id": "one"}, "partition-id='one'"),
    ],
)
def test_a_node_that_is_nobody_says_so(node: dict[str, Any], what: str, log: pytest.LogCaptureFixture) -> None:
    assert _failure(_ask(GREETING, node=node)) is wire.Failure.SETTINGS
    assert re.search(what, log.text)


def test_other_settings_are_refused_on_the_first_message(log: pytest.LogCaptureFixture) -> None:
    assert _failure(_ask(GREETING, says=SETTINGS | {"optimizer.lr": 0.7})) is wire.Failure.SETTINGS
    assert "optimizer.lr: the server has 0.7, this node 0.05" in log.text


def test_an_unknown_setting_is_refused(log: pytest.LogCaptureFixture) -> None:
    assert _failure(_ask(GREETING, says=SETTINGS, run=SETTINGS | {"federate.runds": 3})) is wire.Failure.SETTINGS
    assert "Did you mean 'federate.rounds'" in log.text


# A client's work


def test_a_client_trains_on_its_data_and_tells_its_seconds() -> None:
    answers = [_ask(_task(), party=number, node={"partition-id": number}) for number in (0, 1)]
    frames = [wire.unpack(answer.frame) for answer in answers]
    assert [frame.kind for frame in frames] == [wire.Kind.VECTOR] * 2
    assert frames[0].body != frames[1].body  # other data, other updates
    assert answers[0].seconds["train"] > 0


def test_a_node_trains_with_the_defaults_of_its_mode() -> None:
    settings = SETTINGS | {"mode": "dp-sgd", "dp.noise": 1.0}
    call = Call(party=1, frame=_task(), node=NODE, run=settings, run_id=5)
    config = OWN._config(call, Terms.of(resolve(_config(settings))))
    assert config.optimizer.lr == resolve(_config(settings)).optimizer.lr == 0.5
    assert resolve(RunConfig()).optimizer.lr == 0.05  # which other modes have


def test_a_seed_is_refused_at_a_node_that_takes_part_in_real_runs(log: pytest.LogCaptureFixture) -> None:
    settings = SETTINGS | {"seed": 3}
    assert _failure(_ask(_task(), run=settings)) is wire.Failure.PREDICTABLE
    assert "seed=3" in log.text
    assert "tacit-simulation=true" in log.text
    frame = _ask(_task(), run=settings, node=NODE | {"tacit-simulation": True}).frame
    assert wire.unpack(frame).kind is wire.Kind.VECTOR


def test_a_client_brings_its_own_model_and_data() -> None:
    def data(node: Any) -> tuple[Any, Any]:
        assert node["partition-id"] == 1
        return np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])

    own = Own(model=lambda: nn.Linear(4, 2), data=data)
    task = wire.pack_task(wire.Task(turn=TURN, model=np.zeros(10, np.float32)))
    run: dict[str, Any] = {"mode": "plain", "federate.clients": 3}
    answer = own(Call(party=1, frame=task, said=_said(run), node=NODE, run=run, run_id=5))
    assert wire.unpack(answer.frame).kind is wire.Kind.VECTOR
    said = own(Call(party=1, frame=GREETING, said=_said(run), node=NODE, run=run, run_id=5))
    introduced = Introduction.read(7, said.frame)
    assert introduced.examples is None  # how many it holds is its own affair
    assert introduced.in_app  # that the app which the server sends can reach them is not
    private = run | {"mode": "dp-sgd", "dpsgd.noise": 1.0}
    call = Call(party=1, frame=GREETING, said=_said(private), node=NODE, run=private, run_id=6)
    said = own(call)
    assert Introduction.read(7, said.frame).examples == 4  # but where it sets the sampling rate


# Keys


def test_an_unpinned_key_stops_the_client(log: pytest.LogCaptureFixture) -> None:
    assert _failure(_ask(_invitation(), run=ENCRYPTED)) is wire.Failure.KEY
    assert "No key is pinned at this node" in log.text
    assert "tacit keys fingerprint" in log.text


@pytest.mark.parametrize("in_a_file", [True, False])
def test_a_pinned_key_is_encrypted_with_and_remembered(in_a_file: bool, tmp_path: Path) -> None:
    pin = key_pair()[0].fingerprint
    if in_a_file:
        (tmp_path / "pin").write_text(f"# from the key authority, by telephone\n{pin}\n")
        pin = str(tmp_path / "pin")
    node = NODE | {"tacit-pin": pin}
    assert _failure(_ask(_task(), run=ENCRYPTED, node=node)) is wire.Failure.NOT_ENROLLED
    assert wire.unpack(_ask(_invitation(), run=ENCRYPTED, node=node).frame).kind is wire.Kind.ENROL
    turn, model = wire.Turn(round_number=2), np.zeros(PARAMETERS, np.float32)
    again = wire.pack_task(wire.Task(turn=turn, model=model, told=bytes(32)))
    answer = _ask(again, run=ENCRYPTED, node=node)
    assert wire.unpack(answer.frame).kind is wire.Kind.CIPHER
    assert answer.memory == b""  # it is a file of the node's own, and Flower gets none of it
    assert answer.seconds["protect"] > 0


def test_a_node_enrols_as_the_client_that_its_own_settings_say() -> None:
    """One node that enrolled as two clients would count twice in a sum."""
    node = NODE | {"tacit-pin": key_pair()[0].fingerprint}
    assert _failure(_ask(_invitation(), party=2, run=ENCRYPTED, node=node)) is wire.Failure.PARTY


def test_another_key_than_the_pinned_one_stops_the_client(log: pytest.LogCaptureFixture) -> None:
    other = ("00:" * 32)[:-1]
    answer = _ask(_invitation(), run=ENCRYPTED, node=NODE | {"tacit-pin": other})
    assert _failure(answer) is wire.Failure.KEY
    assert "is pinned. Nothing was encrypted" in log.text


@pytest.mark.parametrize("pin", ["zz:zz", "ab:cd", "/no/such/file"])
def test_a_pin_that_is_none_is_refused(pin: str, log: pytest.LogCaptureFixture) -> None:
    answer = _ask(_invitation(), run=ENCRYPTED, node=NODE | {"tacit-pin": pin})
    assert _failure(answer) is wire.Failure.KEY
    assert "tacit-pin" in log.text


def test_a_key_holder_tells_its_key_and_nothing_it_has_not(tmp_path: Path) -> None:
    keyfile.save(tmp_path / "private.key", key_pair()[1])
    node = {"tacit-key": str(tmp_path / "private.key")}
    request = wire.pack(wire.Kind.KEY, wire.Turn(round_number=0), b"")
    answer = _ask(request, party=-1, node=node, run=ENCRYPTED)
    assert wire.unpack(answer.frame).kind is wire.Kind.KEY
    assert f"{key_pair()[1].p:x}".encode() not in answer.frame
    assert answer.memory == b""  # nothing of the key goes to Flower's records
    assert _failure(_ask(request, party=-1, node={}, run=ENCRYPTED)) is wire.Failure.KEY
    assert _failure(_ask(request, party=-1, node=node, run=SETTINGS, run_id=6)) is wire.Failure.REQUEST


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "private.key"
    keyfile.save(path, key_pair()[1])
    path.chmod(0o644)
    request = wire.pack(wire.Kind.KEY, wire.Turn(round_number=0), b"")
    assert _failure(_ask(request, party=-1, node={"tacit-key": str(path)}, run=ENCRYPTED)) is wire.Failure.KEY
    assert "mode 644" in log.text
    assert f"chmod 600 {path}" in log.text


@pytest.mark.parametrize("own", [{}, {"tacit-pin": "x", "tacit-clients": "y"}])
def test_an_authority_does_not_become_a_copy_of_the_key_that_opens_anything(
    tmp_path: Path, own: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    """A server announces a run of keys that clients share, where nothing binds a ciphertext, and asks an authority."""
    path = tmp_path / "private.key"
    keyfile.save(path, key_pair()[1])
    run = ENCRYPTED | {"paillier.keys": "shared"}
    for kind in (wire.Kind.KEY, wire.Kind.OPEN):
        request = wire.pack(kind, TURN, b"")
        answer = _ask(request, party=-1, node={"tacit-key": str(path), **own}, run=run)
        assert _failure(answer) is wire.Failure.KEY
    assert "holds its key as an authority" in log.text
    assert not list(tmp_path.glob("private.key.opened-*"))
