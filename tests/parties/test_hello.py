from __future__ import annotations

from typing import Any

import pytest

import tacit
from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.errors import RunError, WireError
from tacit.modes.catalogue import resolve
from tacit.parties.hello import Introduction, Terms
from tests.runs.common import digits

TURN = wire.Turn(round_number=0)


def _check(theirs: RunConfig, ours: RunConfig, **changes: Any) -> None:
    """Compare what a server says of a run with a node's own settings."""
    Terms.read({**Terms.of(resolve(theirs)).to_record(), **changes}).agree(resolve(ours))


def test_a_node_that_was_set_up_alike_agrees() -> None:
    _check(digits(), digits())


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
    _check(digits(), digits(**own))


def test_settings_that_differ_are_named_on_both_sides() -> None:
    with pytest.raises(RunError) as caught:
        _check(digits(mode="dp", dp={"noise": 1.0}), digits(mode="dp", dp={"noise": 2.0}))
    assert "dp.noise: the server has 1.0, this node 2.0" in str(caught.value)
    assert "Use one configuration on all sides" in str(caught.value)


def test_many_differences_are_counted() -> None:
    other = {"mode": "dp", "dp": {"noise": 1.0, "clip": 2.0}, "optimizer": {"lr": 1.0, "momentum": 0.1}}
    with pytest.raises(RunError, match=r"\(and 2 more\)"):
        _check(digits(), digits(**other))


def test_a_server_of_another_version_is_refused() -> None:
    with pytest.raises(RunError, match=rf"The server runs tacit 9\.9, this node {tacit.__version__}.*same version"):
        _check(digits(), digits(), version="9.9")


def test_a_node_says_who_it_is() -> None:
    said = Introduction(version=tacit.__version__, parties=(2, -1), examples=60)
    assert Introduction.read(7, said.to_frame()) == said


def test_a_node_of_an_older_version_is_refused() -> None:
    said = Introduction(version="0.0.9", parties=(0,)).to_frame()
    with pytest.raises(
        RunError, match=rf"Node 7 runs tacit 0\.0\.9, the server {tacit.__version__}\. Install the same"
    ):
        Introduction.read(7, said)


def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(RunError, match="Node 7 refused: it has other settings"):
        Introduction.read(7, wire.pack_failure(TURN, wire.Failure.REFUSED, "it has other settings"))


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
        Introduction.read(7, wire.pack(wire.Kind.HELLO, TURN, body))


@pytest.mark.parametrize("frame", [b"", b"x" * 19, Introduction(version="1", parties=(0,)).to_frame()[:-1]])
def test_a_truncated_introduction_is_refused(frame: bytes) -> None:
    with pytest.raises(RunError, match="damaged"):
        Introduction.read(7, frame)


def test_nothing_secret_is_in_a_greeting() -> None:
    config = RunConfig(mode="paillier", paillier={"key": "/secret/private.key"}, out="runs/private-place")
    assert "private" not in Terms.of(resolve(config)).settings
