"""What a node's operator decides, in the node's own settings, and no server can change.

The key to encrypt with: an operator asks a key holder for the fingerprint over another channel and compares it with
what ``tacit keys fingerprint`` prints of the public key file. Then ``tacit-pin`` in the node's config is that file or,
for the key of an authority, the fingerprint itself or a text file that holds it. The fingerprint of a threshold key is
also about what verifies its shares, which clients never see: there it has to be the public key file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tacit import wire
from tacit.engines.flower.app import Value
from tacit.errors import KeysError
from tacit.protocols.paillier.terms import Public, encryption_key
from tacit.runs.flower.refusals import RefusalError
from tacit.runs.sections import Paillier

_FINGERPRINT_BYTES = 32


def refuse_predictable(seed: int | None, node: Mapping[str, Value]) -> None:
    """Refuse a run with a seed, whose noise others can predict, unless the operator takes part in simulations."""
    if seed is not None and node.get("tacit-simulation") is not True:
        raise RefusalError(
            wire.Failure.PREDICTABLE,
            f"The run has seed={seed}, so that its noise can be predicted, and this node takes part in real "
            "runs only. Leave the seed out, or start the node with --node-config 'tacit-simulation=true'",
        )


def pin_of(node: Mapping[str, Value], settings: Paillier) -> bytes:
    """Return the identity of the key that the operator trusts."""
    given = str(node.get("tacit-pin", "")).strip()
    if not given:
        raise KeysError(
            "No key is pinned at this node, and the server could hand out one of its own. Get the public key, compare "
            "its fingerprint with a key holder over another channel (`tacit keys fingerprint`), and start the node "
            "with --node-config 'tacit-pin=\"public.key\"'"
        )
    text = given if _identity(given) else _read(Path(given))
    if text.lstrip().startswith("{"):
        return encryption_key(_public(Path(given), settings)).identity
    if settings.keys == "threshold":
        raise KeysError(
            f"tacit-pin={given}: with paillier.keys=threshold expected the public key file, whose fingerprint you "
            "compared with a key holder (`tacit keys fingerprint public.key`)"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    identity = _identity(lines[0]) if len(lines) == 1 else b""
    if not identity:
        raise KeysError(
            f"tacit-pin={given}: expected a public key file, or one fingerprint of {_FINGERPRINT_BYTES} groups of two "
            f"digits, got {lines[0] if lines else 'nothing'!r}"
        )
    return identity


def _identity(text: str) -> bytes:
    try:
        found = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        return b""
    return found if len(found) == _FINGERPRINT_BYTES else b""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise KeysError(
            f"tacit-pin={path}: expected a fingerprint, or a file that can be read: {reason}. A node's paths start in "
            "the folder it was started in"
        ) from error


def _public(path: Path, settings: Paillier) -> Public:
    from tacit.crypto import elgamal, keyfile

    public = keyfile.read(path, insecure_key_size=settings.insecure_key_size).public
    if isinstance(public, elgamal.PublicKey):
        raise KeysError(f"tacit-pin={path} is an ElGamal key, expected a Paillier key")
    return public
