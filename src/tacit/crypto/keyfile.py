"""Keys at rest: text files that say what they are, and are whole or refused.

A file is one JSON object: its kind and version, the public half with its fingerprint, for private keys and shares the
secret (in hexadecimal, or sealed with a passphrase), and a checksum, which tells a damaged file from one of the wrong
kind. The checksum protects against accidents only; what protects against people is the fingerprint, compared over
another channel, and the passphrase, which also authenticates everything else in the file.

>>> import tempfile
>>> from pathlib import Path
>>> from tacit.crypto import keyfile, paillier
>>> folder = Path(tempfile.mkdtemp())
>>> public, private = paillier.generate(bits=512, insecure_key_size=True)
>>> keyfile.save(folder / "public.key", public)
>>> keyfile.save(folder / "private.key", private)  # readable by its owner only; see passphrase=
>>> keyfile.load_private(folder / "private.key", insecure_key_size=True) == private
True
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tacit import foreign
from tacit.crypto import elgamal, paillier, sealing, threshold
from tacit.crypto.paillier.public import SECURITY
from tacit.errors import ConfigError, KeysError, WireError
from tacit.storage import write_atomically

Role = Literal["public", "private", "share"]
Public = paillier.PublicKey | threshold.ThresholdPublic | elgamal.PublicKey
Private = paillier.PrivateKey | elgamal.PrivateKey
Share = threshold.KeyShare
AnyKey = Public | Private | Share
Passphrase = str | Callable[[Path], str]

FORMAT = "tacit key"
VERSION = 1

_LARGEST = 1 << 20  # bytes of a file; a key of 16384 bits takes a few percent of this
_READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, kw_only=True)
class KeyKind:
    """One kind of key.

    Attributes:
        name: as key files write it.
        title: as people read it.
        role: public, private, or a share of a private key.
        key: the class of such keys.
        public: the class of their public halves; the same for public keys.
    """

    name: str
    title: str
    role: Role
    key: type[Any]
    public: type[Any]

    def public_from_dict(self, plain: Mapping[str, Any]) -> Public:
        """Read the public half."""
        public: Public = self.public.from_dict(plain)
        return public

    def secret_from_dict(self, plain: Mapping[str, Any]) -> Private | Share:
        """Read a private key or share together with its public half."""
        secret: Private | Share = self.key.from_dict(plain)
        return secret


def _kind(name: str, title: str, role: Role, key: type[Any], public: type[Any]) -> KeyKind:
    return KeyKind(name=name, title=title, role=role, key=key, public=public)


KINDS = {
    kind.name: kind
    for kind in (
        _kind("paillier public", "Paillier public key", "public", paillier.PublicKey, paillier.PublicKey),
        _kind("paillier private", "Paillier private key", "private", paillier.PrivateKey, paillier.PublicKey),
        _kind(
            "threshold public",
            "threshold Paillier public key",
            "public",
            threshold.ThresholdPublic,
            threshold.ThresholdPublic,
        ),
        _kind("threshold share", "threshold Paillier share", "share", threshold.KeyShare, threshold.ThresholdPublic),
        _kind("elgamal public", "ElGamal public key", "public", elgamal.PublicKey, elgamal.PublicKey),
        _kind("elgamal private", "ElGamal private key", "private", elgamal.PrivateKey, elgamal.PublicKey),
    )
}


def kind_of(key: AnyKey) -> KeyKind:
    """Return the kind of a key."""
    for kind in KINDS.values():
        if type(key) is kind.key:
            return kind
    raise ConfigError(f"Expected a key, got {type(key).__name__}. The kinds are: {', '.join(KINDS)}.")


def public_of(key: AnyKey) -> Public:
    """Return the public half of a key, which a public key is itself."""
    if isinstance(key, Private | Share):
        return key.public
    return key


def paillier_key(public: Public) -> paillier.PublicKey:
    """Return the key that encrypts vectors; ElGamal keys have none."""
    if isinstance(public, elgamal.PublicKey):
        raise KeysError(
            "The key is of ElGamal, which has no packing for vectors: expected a Paillier key, from `tacit keys new "
            "paillier`. Counts and short messages are encrypted with ElGamal from Python: tacit.crypto.elgamal."
        )
    return public.key if isinstance(public, threshold.ThresholdPublic) else public


def length_of(public: Public) -> int:
    """Return the bits of a key's modulus."""
    return public.group.bits if isinstance(public, elgamal.PublicKey) else public.bits


def security_of(public: Public) -> int | None:
    """Return the bits of security of a key's modulus, rounded down to the lengths that NIST lists; None below all."""
    return max((level for length, level in SECURITY.items() if length <= length_of(public)), default=None)


def with_article(title: str) -> str:
    """Return the title of a key as it stands in a sentence.

    >>> with_article("ElGamal public key")
    'an ElGamal public key'
    """
    return f"{'an' if title[0] in 'AEIOU' else 'a'} {title}"


class KeyFileWarning(UserWarning):
    """A private key lies where others can read it."""


@dataclass(frozen=True, kw_only=True)
class KeyFile:
    """A key file that was read and checked; its secret is still closed.

    Attributes:
        path: where it lies.
        kind: what it holds.
        public: the public half.
        share: the number of a share of a threshold key, None for other keys.
        sealed: whether the secret is under a passphrase.
    """

    path: Path
    kind: KeyKind
    public: Public
    share: int | None
    sealed: bool
    _plain: Mapping[str, Any] = field(repr=False)

    @property
    def title(self) -> str:
        """What the file holds, for people."""
        return self.kind.title if self.share is None else f"{self.kind.title} {self.share}"

    def unlock(self, passphrase: Passphrase | None = None) -> Private | Share:
        """Return the private key or share; ``passphrase`` is used, or asked for, only where the file is sealed."""
        if self.kind.role == "public":
            raise wrong_role(self, "private")
        if not self.sealed:
            secret = self._plain["secret"]
        elif passphrase is None:
            raise KeysError(f"{self.path} is sealed with a passphrase. Give it.")
        else:
            words = passphrase if isinstance(passphrase, str) else passphrase(self.path)
            secret = self._unsealed(words)
        if not isinstance(secret, dict):
            raise KeysError(f"The secret in {self.path} is damaged: expected named values. Use a copy of the file.")
        try:
            key = self.kind.secret_from_dict({**secret, "public": self._plain["public"]})
        except KeysError as error:
            raise KeysError(f"{self.path}: {error}") from error
        if key.public != self.public or getattr(key, "index", None) != self.share:
            raise KeysError(f"The secret in {self.path} belongs to another key than the file says. Don't use it.")
        return key

    def _unsealed(self, passphrase: str) -> Any:
        try:
            opened = sealing.unseal(self._plain["sealed"], passphrase, context=_context(self._plain))
            return foreign.json_value(opened)
        except KeysError as error:
            raise KeysError(f"Can't open {self.path}: {error}") from error
        except WireError:
            raise KeysError(f"The sealed part of {self.path} holds no key. Use a copy of the file.") from None


def save(
    path: str | Path,
    key: AnyKey,
    *,
    passphrase: str | None = None,
    cost: sealing.Cost | None = None,
    replace: bool = False,
) -> None:
    """Write a key to a new file, whole or not at all; a file that is there already is not replaced.

    Args:
        path: the file; its folder is made where it is missing.
        key: a public key (readable by all), or a private key or share (by its owner only, from the first byte on).
        passphrase: seals a private key or share, with at least 8 characters.
        cost: of guessing the passphrase; more than the default makes every opening slower.
        replace: put it in the place of a file that is there, such as the same key under other words.
    """
    kind = kind_of(key)
    public = public_of(key)
    plain: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind.name,
        "fingerprint": public.fingerprint,
    }
    if isinstance(key, Share):
        plain["share"] = key.index
    plain["public"] = public.to_dict()
    if kind.role != "public":
        secret = {name: value for name, value in key.to_dict().items() if name != "public"}
        if passphrase is None:
            plain["secret"] = secret
        else:
            hidden = json.dumps(secret).encode()
            plain["sealed"] = sealing.seal(hidden, passphrase, context=_context(plain), cost=cost)
    write_atomically(
        Path(path),
        to_bytes(plain),
        advice="No key was written there. Choose another folder, or move what is there: a lost private key can't be "
        "made again.",
        mode=0o644 if kind.role == "public" else 0o600,
        replace=replace,
    )


def load_public(path: str | Path, *, insecure_key_size: bool = False) -> Public:
    """Return the public key in a file; compare its fingerprint with its owner's before you rely on it."""
    file = read(path, insecure_key_size=insecure_key_size)
    if file.kind.role != "public":
        raise wrong_role(file, "public")
    return file.public


def load_private(path: str | Path, *, passphrase: Passphrase | None = None, insecure_key_size: bool = False) -> Private:
    """Return the private key in a file; ``passphrase`` may be a function that asks for it, given the path."""
    file = read(path, insecure_key_size=insecure_key_size)
    key = file.unlock(passphrase) if file.kind.role == "private" else None
    if key is None or isinstance(key, Share):
        raise wrong_role(file, "private")
    return key


def load_share(path: str | Path, *, passphrase: Passphrase | None = None, insecure_key_size: bool = False) -> Share:
    """Return one holder's share of a threshold key."""
    file = read(path, insecure_key_size=insecure_key_size)
    key = file.unlock(passphrase) if file.kind.role == "share" else None
    if not isinstance(key, Share):
        raise wrong_role(file, "share")
    return key


def read(path: str | Path, *, insecure_key_size: bool = False) -> KeyFile:
    """Read a key file of any kind, check everything but the secret, and warn where a secret is open to others.

    Args:
        path: the file.
        insecure_key_size: accept keys of less than 2048 bits, for experiments.
    """
    path = Path(path)
    raw, mode = _load_bytes(path)
    plain = _parse(path, raw)
    kind = KINDS.get(plain["kind"]) if isinstance(plain.get("kind"), str) else None
    if kind is None:
        raise KeysError(f"{path} holds {plain.get('kind')!r}, expected one of: {', '.join(KINDS)}.")
    if kind.role != "public" and mode is not None and mode & _READABLE_BY_OTHERS:
        warnings.warn(
            f"{path} holds {with_article(kind.title)} and others than its owner may read it (mode {mode & 0o777:o}). "
            f"If anybody could have, make a new key; otherwise: chmod 600 {path}",
            KeyFileWarning,
            stacklevel=3,
        )
    sealed, share = "sealed" in plain, plain.get("share")
    if ("secret" in plain) + sealed != (kind.role != "public") or isinstance(share, int) != (kind.role == "share"):
        raise KeysError(f"{path} does not have the parts of {with_article(kind.title)}. Use a copy of the file.")
    try:
        public = kind.public_from_dict(plain.get("public"))  # type: ignore[arg-type]  # checked there
    except KeysError as error:
        raise KeysError(f"{path}: {error}") from error
    if public.fingerprint != plain.get("fingerprint"):
        raise KeysError(
            f"{path} claims the fingerprint {str(plain.get('fingerprint'))[:23]}…, and its key has "
            f"{public.fingerprint[:23]}… : the key was exchanged. Don't use it; get it anew from its owner."
        )
    if public.insecure and not insecure_key_size:
        raise KeysError(
            f"{path} holds a key of {length_of(public)} bits, expected at least 2048. Make a new one with `tacit keys "
            "new`; for an experiment say --insecure-key-size (insecure_key_size=True)."
        )
    return KeyFile(path=path, kind=kind, public=public, share=share, sealed=sealed, _plain=plain)


def wrong_role(file: KeyFile, expected: str) -> KeysError:
    """Return the error for a key of one kind where another is needed."""
    wanted = {
        "public": "a public key. Nobody but its owner needs this file: give the public.key that was made with it",
        "private": "a private key. Give the private.key that was made with it",
        "share": "a share of a threshold key. Give a share-N.key",
    }[expected]
    return KeysError(f"{file.path} holds {with_article(file.title)}, expected {wanted}.")


def to_bytes(plain: Mapping[str, Any]) -> bytes:
    """Return the text of a file, with its checksum."""
    return (json.dumps({**plain, "checksum": _checksum(plain)}, indent=2) + "\n").encode()


def _load_bytes(path: Path) -> tuple[bytes, int | None]:
    """Return a file's bytes, and its mode where that means something."""
    try:
        with foreign.open_plain(path) as stream:
            status = os.fstat(stream.fileno())
            raw = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise KeysError(f"There is no key file {path}. Make one with `tacit keys new`, or mend the path.") from None
    except OSError as error:
        raise KeysError(f"Can't read the key file {path}: {error.strerror or error}.") from error
    if len(raw) > _LARGEST:
        raise KeysError(f"{path} is longer than {_LARGEST} bytes, which no key file is.")
    return raw, status.st_mode if os.name == "posix" else None


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    """Return what a file says, where it is a key file, of this version, and whole."""
    try:
        plain = foreign.json_object(raw, largest=_LARGEST)
    except WireError:
        plain = {}
    if plain.get("format") != FORMAT:
        if f'"{FORMAT}"'.encode() in raw[:200]:
            raise KeysError(f"{path} is damaged: it starts as a key file and is cut off or changed. Use a copy of it.")
        raise KeysError(f"{path} is no key file of Tacit. Give a file that `tacit keys new` wrote.")
    if plain.get("version") != VERSION:
        raise KeysError(
            f"{path} has version {plain.get('version')!r} of key files, expected {VERSION}. Install the version of "
            "Tacit that wrote it."
        )
    if plain.get("checksum") != _checksum(plain):
        raise KeysError(f"{path} is damaged: its checksum does not fit its contents. Use a copy of it.")
    return plain


def _checksum(plain: Mapping[str, Any]) -> str:
    """Return the digest of everything but the checksum."""
    return hashlib.sha256(_canonical({name: plain[name] for name in plain if name != "checksum"})).hexdigest()


def _context(plain: Mapping[str, Any]) -> bytes:
    """Return what a passphrase authenticates beside the secret: everything in front of it."""
    names = ("format", "version", "kind", "fingerprint", "share", "public")
    return _canonical({name: plain[name] for name in names if name in plain})


def _canonical(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
