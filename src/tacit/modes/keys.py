"""The key holders of an encrypted run in this process: they make the keys, or read them from files."""

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
    from tacit.crypto.paillier import PrivateKey
    from tacit.crypto.threshold import KeyShare


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
    from tacit.protocols.paillier import Authority, Caution, KeyCopy, PaillierSum, ShareHolder

    assert isinstance(protocol, PaillierSum)
    caution = Caution(rules=protocol.rules, layout=protocol.layout)
    keys = secret_keys(settings)
    holders: dict[ClientId, KeyHolder] = {}
    for key in keys:
        if isinstance(key, threshold.KeyShare):
            holders[-key.index] = ShareHolder(share=key, caution=caution, prove=settings.prove)
        elif settings.keys == "authority":
            holders[-1] = Authority(private=key, caution=caution)
        else:
            holders |= {client: KeyCopy(private=key, caution=caution) for client in range(clients)}
            return KeyParties(holders=holders, protocol=replace(protocol, own=key))
    return KeyParties(holders=holders, protocol=protocol)


def secret_keys(settings: Paillier) -> tuple[PrivateKey | KeyShare, ...]:
    """Return the private key or the shares that the settings name, or new ones."""
    from tacit.crypto import keyfile, paillier

    options = key_options(settings)
    if settings.key is None:
        return options.make()[1]
    found: list[PrivateKey | KeyShare] = []
    for path in key_files(settings).values():
        if options.shares is not None:
            found.append(keyfile.load_share(path, insecure_key_size=settings.insecure_key_size))
            continue
        private = keyfile.load_private(path, insecure_key_size=settings.insecure_key_size)
        if not isinstance(private, paillier.PrivateKey):
            raise ConfigError(f"paillier.key={settings.key} holds no private Paillier key.")
        made = private.public
        if (made.kind, made.exponents) != (settings.kind, settings.exponents):
            raise ConfigError(
                f"paillier.key={settings.key} is of kind {made.kind} with {made.exponents} exponents, and "
                f"paillier.kind={settings.kind} with paillier.exponents={settings.exponents} was asked for. Set these "
                "as the key was made: they say what its security rests on."
            )
        found.append(private)
    return tuple(found)


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


def write_keys(settings: Paillier, folder: Path) -> dict[ClientId, str]:
    """Make the keys that the settings ask for, or check those they name, and return each holder's file."""
    from tacit.crypto import keyfile

    keys = secret_keys(settings)
    if settings.key is None:
        settings = settings.model_copy(
            update={"key": folder if settings.keys == "threshold" else folder / "private.key"}
        )
        for path, key in zip(key_files(settings).values(), keys, strict=True):
            keyfile.save(path, key)
    return {number: str(path) for number, path in key_files(settings).items()}
