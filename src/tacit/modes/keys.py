"""The keys of an encrypted run and who holds them: made by one function, read by one function, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.config.sections import Paillier
from tacit.errors import ConfigError
from tacit.flow import ClientId
from tacit.protocols.protocol import KeyHolder, SumProtocol

if TYPE_CHECKING:
    from tacit.crypto.new_keys import KeyOptions
    from tacit.crypto.new_keys import Secret as SecretKey
    from tacit.protocols.paillier import Caution


@dataclass(frozen=True, kw_only=True)
class KeyParties:
    """Who holds the key, and the protocol as clients run it; the server has neither."""

    holders: Mapping[ClientId, KeyHolder]
    protocol: SumProtocol


def key_options(settings: Paillier) -> KeyOptions:
    """Return what keys the settings ask for, or refuse what does not go together; `tacit keys new` does so likewise."""
    from tacit.crypto.new_keys import KeyOptions, parse_shares

    return KeyOptions(
        bits=settings.bits,
        kind=settings.kind,
        exponents=settings.exponents,
        shares=parse_shares(settings.shares) if settings.keys == "threshold" else None,
        insecure_key_size=settings.insecure_key_size,
    )


def holder_numbers(settings: Paillier) -> tuple[tuple[ClientId, ...], int]:
    """Return the key holders' numbers, none where all clients hold the key, and how many of them it takes.

    >>> holder_numbers(Paillier(keys="threshold", shares="3/5"))
    ((-1, -2, -3, -4, -5), 3)
    """
    shares = key_options(settings).shares
    if shares is not None:
        needed, holders = shares
        return tuple(-number for number in range(1, holders + 1)), needed
    return ((-1,) if settings.keys == "authority" else ()), 1


def key_files(settings: Paillier) -> dict[ClientId, Path]:
    """Return the file of each key holder that the settings name; 0 stands for all clients where they share the key."""
    assert settings.key is not None
    numbers, _ = holder_numbers(settings)
    if settings.keys == "threshold":
        return {number: Path(settings.key) / f"share-{-number}.key" for number in numbers}
    return {number: Path(settings.key) for number in numbers or (0,)}


def key_parties(settings: Paillier, protocol: SumProtocol, *, clients: int) -> KeyParties:
    """Make the key holders of a run.

    In one process all parties live side by side; each is an object of its own, and they talk in frames.
    """
    from tacit.crypto import threshold
    from tacit.protocols.paillier import Caution, PaillierSum

    assert isinstance(protocol, PaillierSum)
    caution = Caution(rules=protocol.rules, layout=protocol.layout)
    holders: dict[ClientId, KeyHolder] = {}
    for key in secret_keys(settings):
        if settings.keys == "shared":
            holders = {client: holder_of(key, settings, caution) for client in range(clients)}
            assert not isinstance(key, threshold.KeyShare), "keys that are shared are no shares"
            return KeyParties(holders=holders, protocol=replace(protocol, own=key))
        number = -key.index if isinstance(key, threshold.KeyShare) else -1
        holders[number] = holder_of(key, settings, caution)
    return KeyParties(holders=holders, protocol=protocol)


def holder_of(key: SecretKey, settings: Paillier, caution: Caution) -> KeyHolder:
    """Return the party that answers for a key, or a share of one, as the settings say who holds it."""
    from tacit.crypto import threshold
    from tacit.protocols.paillier import Authority, KeyCopy, ShareHolder

    if isinstance(key, threshold.KeyShare):
        return ShareHolder(share=key, caution=caution, prove=settings.prove)
    return (KeyCopy if settings.keys == "shared" else Authority)(private=key, caution=caution)


def secret_keys(settings: Paillier) -> tuple[SecretKey, ...]:
    """Return the private key or the shares that the settings name, or new ones."""
    if settings.key is None:
        return key_options(settings).make()[1]
    return tuple(read_key(path, settings) for path in key_files(settings).values())


def read_key(path: Path, settings: Paillier) -> SecretKey:
    """Read a private key or a share, in this process or at a node; one of another kind than was asked for is refused.

    What the keys of a run rest on is told by its settings: they have to be true of the file.
    """
    from tacit.crypto import keyfile, paillier

    if settings.keys == "threshold":
        return keyfile.load_share(path, insecure_key_size=settings.insecure_key_size)
    private = keyfile.load_private(path, insecure_key_size=settings.insecure_key_size)
    if not isinstance(private, paillier.PrivateKey):
        raise ConfigError(f"The key file {path} holds no private Paillier key.")
    made = private.public
    if (made.kind, made.exponents) != (settings.kind, settings.exponents):
        raise ConfigError(
            f"The key file {path} is of kind {made.kind} with {made.exponents} exponents, and "
            f"paillier.kind={settings.kind} with paillier.exponents={settings.exponents} was asked for. Set these "
            "as the key was made: they say what its security rests on."
        )
    return private


def key_notes(settings: Paillier) -> tuple[str, ...]:
    """Return what people should know of the keys that the settings ask for."""
    notes = []
    if settings.keys == "shared":
        notes.append(
            "Legacy set-up: all clients share the private key, so the server and any one client together read every "
            "update. Use paillier.keys=authority or threshold."
        )
    if settings.insecure_key_size and settings.bits < 2048:
        notes.append(f"The key has {settings.bits} bits: it can be broken, and protects nothing but an experiment.")
    if settings.kind == "subgroup":
        notes.append("Subgroup keys rest on an assumption that is not standard (Ma, Han and Lei 2021).")
    if settings.exponents == "short":
        notes.append("Short exponents rest on a stronger assumption than usual.")
    return tuple(notes)


@dataclass(frozen=True, kw_only=True)
class KeyFiles:
    """Key files of the parties on one machine.

    Attributes:
        secret: each key holder's by its number; 0 stands for all clients where they share the key.
        public: what clients pin.
    """

    secret: Mapping[ClientId, Path]
    public: Path


def write_keys(settings: Paillier, folder: Path) -> KeyFiles:
    """Make the keys that the settings ask for, or check those they name, and leave what is new in ``folder``."""
    from tacit.crypto import keyfile

    keys = secret_keys(settings)
    if settings.key is None:
        settings = settings.model_copy(
            update={"key": folder if settings.keys == "threshold" else folder / "private.key"}
        )
        for path, key in zip(key_files(settings).values(), keys, strict=True):
            keyfile.save(path, key)
    files = KeyFiles(secret=key_files(settings), public=folder / "public.key")
    keyfile.save(files.public, keys[0].public)
    return files
