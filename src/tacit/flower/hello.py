"""The greeting before the first round: who is there, which version, and whether all were set up for the same run.

The server sends its version and its settings; a node answers with its own version and who it is, or refuses with a
code. Which settings differ, and what each side has, is in the node's log. Nothing secret is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tacit
from tacit import foreign, wire
from tacit.config.run_config import RunConfig
from tacit.errors import ClientError, RunError, WireError
from tacit.flow import ClientId
from tacit.flower.refusals import RefusalError
from tacit.flower.settings import agreed

TURN = wire.Turn(round_number=0)
_SHOWN = 4  # settings that an error names


@dataclass(frozen=True, kw_only=True)
class Introduction:
    """What a node says of itself."""

    version: str
    parties: tuple[ClientId, ...]  # the client's number, and below zero the key it holds
    examples: int | None = None


def greeting(config: RunConfig) -> bytes:
    """Return the server's greeting."""
    body = {"version": tacit.__version__, "settings": agreed(config)}
    return wire.pack(wire.Kind.HELLO, TURN, json.dumps(body).encode())


def check(frame: bytes, config: RunConfig) -> None:
    """Check a greeting on a node that was set up as ``config`` says."""
    body = _parsed(wire.unpack(frame))
    same_version(f"the server runs tacit {body.get('version')}", str(body.get("version")), "this node")
    theirs, ours = body.get("settings"), agreed(config)
    if not isinstance(theirs, dict):
        raise WireError("Expected settings in the greeting, got none.")
    same_settings(theirs, ours)


def same_settings(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse settings of the server's that differ from this node's, and say which and what each side has."""
    differ = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    if differ:
        named = [f"{key}: the server has {theirs.get(key)!r}, this node {ours.get(key)!r}" for key in differ]
        more = f" (and {len(differ) - _SHOWN} more)" if len(differ) > _SHOWN else ""
        raise RefusalError(
            wire.Failure.SETTINGS,
            f"The server and this node were set up differently. {'; '.join(named[:_SHOWN])}{more}. "
            "Use one configuration on all sides.",
        )


def introduce(introduction: Introduction) -> bytes:
    """Return a node's answer."""
    body = {
        "version": introduction.version,
        "parties": introduction.parties,
        "examples": introduction.examples,
    }
    return wire.pack(wire.Kind.HELLO, TURN, json.dumps(body).encode())


def introduced(node: int, frame: bytes) -> Introduction:
    """Read what a node said of itself, and refuse one of another version."""
    try:
        body = _parsed(wire.unpack(_hello(node, frame)))
        given = Introduction(
            version=str(body["version"]),
            parties=tuple(whole(party) for party in body["parties"]),
            examples=None if body.get("examples") is None else whole(body["examples"]),
        )
    except (WireError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"Node {node} did not say who it is: {error}") from error
    same_version(f"node {node} runs tacit {given.version}", given.version, "the server")
    return given


def whole(value: Any) -> int:
    """Return a number that a peer said, where it is a whole one and no longer than numbers of parties and examples."""
    if type(value) is not int or abs(value) >= 1 << 63:
        raise WireError(f"Expected a whole number below 2^63, got {value!r:.40}.")
    return value


def _hello(node: int, frame: bytes) -> bytes:
    try:
        wire.expect(wire.Kind.HELLO, TURN, node, frame)
    except ClientError as error:
        raise RunError(str(error).replace(f"Client {node} failed in round 0", f"Node {node} refused")) from error
    return frame


def _parsed(frame: wire.Frame) -> Mapping[str, Any]:
    if frame.kind is not wire.Kind.HELLO:
        raise WireError(f"Expected a HELLO frame, got {frame.kind.name}.")
    return foreign.json_object(frame.body)


def same_version(theirs: str, version: str, we: str) -> None:
    """Refuse another side's version of tacit."""
    if version != tacit.__version__:
        raise RefusalError(
            wire.Failure.VERSION,
            f"{theirs[0].upper()}{theirs[1:]}, {we} {tacit.__version__}. Install the same version on all sides.",
        )
