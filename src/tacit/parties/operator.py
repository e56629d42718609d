"""What a node's operator decides, in the node's own settings, and no server can change.

The key to encrypt with: an operator asks a key holder for the fingerprint over another channel and compares it with
what ``tacit keys fingerprint`` prints of the public key file. Then ``tacit-pin`` in the node's config is that file or,
for the key of an authority, the fingerprint itself or a text file that holds it. The fingerprint of a threshold key is
also about what verifies its shares, which clients never see: there it has to be the public key file.

Who the clients are: a server could invent some, and see what is left of a sum without them. Where a client has a
lasting identity (``tacit keys identity``, or ``ssh-keygen -t ed25519``; the private half is named by
``tacit-identity``) and each key holder has a file with the public halves of all clients, one per line
(``tacit-clients``), nobody else is admitted.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import foreign, wire
from tacit.config.sections import Paillier
from tacit.errors import KeysError
from tacit.parties.calls import Value
from tacit.parties.refusals import RefusalError
from tacit.protocols.paillier.binding import Public, encryption_key
from tacit.protocols.paillier.register import FLOOR
from tacit.protocols.signatures import read_identities, read_identity

_FINGERPRINT_BYTES = 32
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def refuse_predictable(seed: int | None) -> None:
    """Refuse a run with a seed, whose noise others can predict, at a node that takes part in real runs only."""
    if seed is not None:
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


def identity_of(node: Mapping[str, Value]) -> Ed25519PrivateKey | None:
    """Return a client's lasting identity, where its operator gave it one."""
    given = str(node.get("tacit-identity", "")).strip()
    if not given:
        return None
    data = _bytes(private_file(Path(given), "tacit-identity"), "tacit-identity")
    return read_identity(data, where=f"tacit-identity={given}")


def clients_of(node: Mapping[str, Value]) -> frozenset[bytes] | None:
    """Return the identities of the clients that a key holder's operator knows, or None where it trusts the server."""
    given = str(node.get("tacit-clients", "")).strip()
    if not given:
        return None
    return read_identities(_read(Path(given), "tacit-clients"), where=f"tacit-clients={given}")


def floor_of(node: Mapping[str, Value]) -> int:
    """Return the fewest clients whose sum a key holder opens, whatever a run's settings say."""
    given = node.get("tacit-minimum", FLOOR)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise KeysError(f"tacit-minimum={given!r}: expected the fewest clients of a sum, a whole number of at least 1")
    return given


def key_of(node: Mapping[str, Value], settings: Paillier) -> Path:
    """Return the file of the key that a node holds, if a run of such settings may use it.

    Where all clients share a key (legacy) nothing binds a ciphertext, and whoever has a copy opens what the server
    likes. A copy is a client's, who pins it too: an authority must not become one by the word of a server.
    """
    if "tacit-key" not in node:
        raise KeysError("This node holds no key: tacit-key is not in its config")
    if settings.keys == "shared" and ("tacit-pin" not in node or "tacit-clients" in node):
        raise KeysError(
            "The run has paillier.keys=shared, where every client opens whatever the server asks for, and this node "
            "holds its key as an authority: it has no tacit-pin, or a list of clients (tacit-clients). Nothing was "
            "opened"
        )
    return Path(str(node["tacit-key"]))


def private_file(path: Path, setting: str = "tacit-key") -> Path:
    """Return the path of a key file that nobody but its owner can read, or say what is wrong with it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise KeysError(
            f"The key file {path} can't be read: {error.strerror}. Check {setting} in the node's config."
        ) from error
    if mode & _OPEN_TO_OTHERS:
        raise KeysError(
            f"Others than its owner may read the key file {path} (mode {mode & 0o777:o}). If anybody could have, make "
            f"a new key; otherwise: chmod 600 {path}"
        )
    return path


def _identity(text: str) -> bytes:
    try:
        found = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        return b""
    return found if len(found) == _FINGERPRINT_BYTES else b""


def _read(path: Path, setting: str = "tacit-pin") -> str:
    try:
        return _bytes(path, setting).decode()
    except UnicodeDecodeError as error:
        raise _unread(path, setting, "it is no text") from error


def _bytes(path: Path, setting: str) -> bytes:
    try:
        return foreign.read_plain(path, largest=foreign.LARGEST)
    except (OSError, ValueError) as error:  # a value that no file can have as its name is one of the latter
        raise _unread(path, setting, getattr(error, "strerror", None) or str(error)) from error


def _unread(path: Path, setting: str, reason: str) -> KeysError:
    return KeysError(
        f"{setting}={path}: expected {'a fingerprint, or ' * (setting == 'tacit-pin')}a file that can be read: "
        f"{reason}. A node's paths start in the folder it was started in"
    )


def _public(path: Path, settings: Paillier) -> Public:
    from tacit.crypto import elgamal, keyfile

    public = keyfile.read(path, insecure_key_size=settings.insecure_key_size).public
    if isinstance(public, elgamal.PublicKey):
        raise KeysError(f"tacit-pin={path} is an ElGamal key, expected a Paillier key")
    return public
