"""New key pairs."""

from __future__ import annotations

from typing import get_args

from tacit.crypto import groups
from tacit.crypto.backend import backend
from tacit.crypto.elgamal.private import PrivateKey
from tacit.crypto.elgamal.public import Exponents, PublicKey, exponent_bits
from tacit.crypto.groups import Group
from tacit.crypto.rows import from_integers, to_integers
from tacit.errors import ConfigError
from tacit.randomness import system_below

DEFAULT_GROUP = "ffdhe3072"


def generate(
    group: str | Group = DEFAULT_GROUP, *, exponents: Exponents = "short", insecure_key_size: bool = False
) -> tuple[PublicKey, PrivateKey]:
    """Return a new key pair from the operating system's randomness.

    Args:
        group: the name of a group, ``ffdhe3072`` (128 bits of security) by default, or one from
            :mod:`tacit.crypto.groups`.
        exponents: ``full`` ones need one assumption less and take longer; see :class:`PublicKey`.
        insecure_key_size: allow groups of less than 2048 bits, for experiments.
    """
    chosen = groups.named(group) if isinstance(group, str) else group
    if chosen.insecure and not insecure_key_size:
        raise ConfigError(
            f"A group of {chosen.bits} bits is not secure: expected at least {groups.SAFE_BITS}, {DEFAULT_GROUP} by "
            "default. For an experiment say --insecure-key-size (insecure_key_size=True)."
        )
    if exponents not in get_args(Exponents):
        raise ConfigError(f"Unknown exponents={exponents!r}. Expected one of {', '.join(get_args(Exponents))}.")
    bits = exponent_bits(chosen, exponents)
    x = 2 + system_below(min(1 << bits, chosen.q) - 2)  # 0 and 1 would give y away
    ring = backend().ring(chosen.p)
    (y,) = to_integers(ring.power(from_integers([chosen.g], ring.width), x, secret=True, workers=1))
    public = PublicKey(group=chosen, y=y, exponents=exponents)
    return public, PrivateKey(public=public, x=x)
