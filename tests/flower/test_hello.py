from __future__ import annotations

import json
from typing import Any

import pytest

import tacit
from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.errors import RunError, WireError
from tacit.flower import hello
from tests.runs.common import digits


def _tampered(frame: bytes, **changes: Any) -> bytes:
    body = json.loads(bytes(wire.unpack(frame).body)) | changes
    return wire.pack(wire.Kind.HELLO, hello.TURN, json.dumps(body).encode())


def test_a_node_that_was_set_up_alike_agrees() -> None:
    hello.check(hello.greeting(digits()), digits())


@pytest.mark.parametrize(
    "own",
    [
        {"out": "elsewhere"},
        {"gpu": 0},
        {"data": {"folder": "/data"}},
        {"train": {"workers": 3}},
        {"flower": {"cpus": 2}},
    ],
)
def test_what_each_party_may_choose_is_not_compared(own: dict[str, Any]) -> None:
    hello.check(hello.greeting(digits()), digits(**own))


def test_settings_that_differ_are_named_on_both_sides() -> None:
    with pytest.raises(RunError) as caught:
        hello.check(hello.greeting(digits(mode="dp", dp={"noise": 1.0})), digits(mode="dp", dp={"noise": 2.0}))
    assert "dp.noise: the server has 1.0, this node 2.0" in str(caught.value)
    assert "Use one configuration on all sides" in str(caught.value)


def test_many_differences_are_counted() -> None:
    other = {"mode": "dp", "dp": {"noise": 1.0, "clip": 2.0}, "optimizer": {"lr": 1.0, "momentum": 0.1}}
    with pytest.raises(RunError, match=r"\(and 1 more\)"):
        hello.check(hello.greeting(digits()), digits(**other))


def test_a_server_of_another_version_is_refused() -> None:
    with pytest.raises(RunError, match=rf"The server runs tacit 9\.9, this node {tacit.__version__}.*same version"):
        hello.check(_tampered(hello.greeting(digits()), version="9.9"), digits())


def test_a_node_says_who_it_is() -> None:
    said = hello.Introduction(version=tacit.__version__, parties=(2, -1), examples=60)
    assert hello.introduced(7, hello.introduce(said)) == said


def test_a_node_of_an_older_version_is_refused() -> None:
    said = hello.introduce(hello.Introduction(version="0.0.9", parties=(0,)))
    with pytest.raises(
        RunError, match=rf"Node 7 runs tacit 0\.0\.9, the server {tacit.__version__}\. Install the same"
    ):
        hello.introduced(7, said)


def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(RunError, match="Node 7 refused: it has other settings"):
        hello.introduced(7, wire.pack_failure(hello.TURN, wire.Failure.REFUSED, "it has other settings"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[1]",
        b'{"version": "1"}',
        b'{"version": "1", "parties": 3}',
        b'{"version":"1","parties":["x"]}',
    ],
)
def test_a_forged_introduction_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="Node 7 did not say who it is"):
        hello.introduced(7, wire.pack(wire.Kind.HELLO, hello.TURN, body))


@pytest.mark.parametrize("frame", [b"", b"x" * 19, hello.introduce(hello.Introduction(version="1", parties=(0,)))[:-1]])
def test_a_truncated_introduction_is_refused(frame: bytes) -> None:
    with pytest.raises(RunError, match="damaged"):
        hello.introduced(7, frame)


def test_nothing_secret_is_in_a_greeting() -> None:
    config = RunConfig(mode="paillier", paillier={"key": "/secret/private.key"}, out="runs/private-place")
    assert b"private" not in hello.greeting(config)
