"""The key holders of an encrypted run in this process: they make the keys, or read them from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import ConfigError
from tacit.flow import ClientId
from tacit.protocols.protocol import KeyHolder, SumProtocol
from tacit.runs.sections import Paillier

if TYPE_CHECKING:
    from tacit.crypto.threshold import KeyShare


@dataclass(frozen=True, kw_only=True)
class KeyParties:
    """Who holds the key, and the protocol as clients run it; the server has neither."""

    holders: Mapping[ClientId, KeyHolder]
    protocol: SumProtocol


def holder_numbers(settings: Paillier) -> tuple[tuple[ClientId, ...], int]:
    """Return the key holders' numbers, none where all clients hold the key, and how many of them it takes.

    >>> holder_numbers(Paillier(keys="threshold", shares="3/5"))
    ((-1, -2, -3, -4, -5), 3)
    """
    if settings.keys == "threshold":
        needed, holders = map(int, settings.shares.split("/"))
        if not 1 <= needed <= holders:
            raise ConfigError(
                f"paillier.shares={settings.shares} says that {needed} of {holders} holders open a sum, expected at "
                "most as many as there are, such as 2/3."
            )
        return tuple(-number for number in range(1, holders + 1)), needed
    return ((-1,) if settings.keys == "authority" else ()), 1


def key_parties(settings: Paillier, protocol: SumProtocol, *, clients: int) -> KeyParties:
    """Make the key holders of a run.

    In one process all parties live side by side; each is an object of its own, and they talk in frames.
    """
    from tacit.protocols.paillier import Authority, PaillierSum, ShareHolder

    assert isinstance(protocol, PaillierSum)
    minimum_clients = protocol.minimum_clients
    if settings.keys == "threshold":
        shares = _shares(settings)
        return KeyParties(
            holders={
                -share.index: ShareHolder(share=share, minimum_clients=minimum_clients, prove=settings.prove)
                for share in shares
            },
            protocol=protocol,
        )
    from tacit.crypto import keyfile, paillier

    if settings.key is None:
        _, private = paillier.generate(
            bits=settings.bits,
            kind=settings.kind,
            exponents=settings.exponents,
            insecure_key_size=settings.insecure_key_size,
        )
    else:
        loaded = keyfile.load_private(settings.key, insecure_key_size=settings.insecure_key_size)
        if not isinstance(loaded, paillier.PrivateKey):
            raise ConfigError(f"paillier.key={settings.key} holds no private Paillier key.")
        private = loaded
    if settings.keys == "authority":
        authority = Authority(private=private, minimum_clients=minimum_clients)
        return KeyParties(holders={-1: authority}, protocol=protocol)
    holders = {client: Authority(private=private, minimum_clients=minimum_clients) for client in range(clients)}
    return KeyParties(holders=holders, protocol=replace(protocol, own=private))


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


def _shares(settings: Paillier) -> tuple[KeyShare, ...]:
    from tacit.crypto import keyfile, threshold

    numbers, needed = holder_numbers(settings)
    if settings.kind != "standard":
        raise ConfigError("Threshold keys are of the standard kind; leave paillier.kind out.")
    if settings.key is None:
        _, shares = threshold.generate(
            shares=len(numbers),
            threshold=needed,
            bits=settings.bits,
            insecure_key_size=settings.insecure_key_size,
        )
        return shares
    folder = Path(settings.key)
    return tuple(
        keyfile.load_share(folder / f"share-{-number}.key", insecure_key_size=settings.insecure_key_size)
        for number in numbers
    )
