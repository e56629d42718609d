"""The one place that makes Paillier keys from options, for runs in one process, on Flower, and for `tacit keys new`."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.crypto import paillier, threshold
from tacit.crypto.paillier.private import DEFAULT_BITS, check_bits
from tacit.crypto.paillier.public import Exponents, Kind, exponent_bits
from tacit.crypto.primes import Progress
from tacit.crypto.threshold.public import LARGEST_COUNT, check_counts
from tacit.errors import ConfigError, KeysError

Public = paillier.PublicKey | threshold.ThresholdPublic
Secret = paillier.PrivateKey | threshold.KeyShare


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """What keys are asked for; a combination that does not exist is refused before any work.

    Attributes:
        bits: the length of n.
        kind: standard, or subgroup keys.
        exponents: half the key's length, or short.
        shares: how many of how many holders decrypt together; None for one private key.
        insecure_key_size: allow keys of less than 2048 bits, for experiments.
    """

    bits: int = DEFAULT_BITS
    kind: Kind = "standard"
    exponents: Exponents = "half"
    shares: tuple[int, int] | None = None
    insecure_key_size: bool = False

    def __post_init__(self) -> None:
        if self.shares is not None:
            if (self.kind, self.exponents) != ("standard", "half"):
                raise ConfigError(
                    f"Threshold keys are of kind standard with half exponents, and kind {self.kind} with "
                    f"{self.exponents} exponents was asked for. Leave kind and exponents out, or use one private key."
                )
            needed, holders = self.shares
            try:
                check_counts(holders, needed)
            except KeysError as error:
                raise ConfigError(str(error)) from error
        check_bits(self.bits, insecure_key_size=self.insecure_key_size)
        exponent_bits(self.bits, self.kind, self.exponents)

    def make(self, *, progress: Progress | None = None) -> tuple[Public, tuple[Secret, ...]]:
        """Return a new public key, and the private one or all shares.

        Args:
            progress: told how the search for the primes of a threshold key goes on.
        """
        if self.shares is None:
            public, private = paillier.generate(
                bits=self.bits,
                kind=self.kind,
                exponents=self.exponents,
                insecure_key_size=self.insecure_key_size,
            )
            return public, (private,)
        needed, holders = self.shares
        return threshold.generate(
            shares=holders,
            threshold=needed,
            bits=self.bits,
            insecure_key_size=self.insecure_key_size,
            progress=progress,
        )


def parse_shares(text: str) -> tuple[int, int]:
    """Return T and L of ``T/L``; whether such keys can be is for :class:`KeyOptions` to say.

    >>> parse_shares("3/5")
    (3, 5)
    """
    needed, slash, holders = text.partition("/")
    if not (slash and all(part.isascii() and part.isdigit() and len(part) <= 4 for part in (needed, holders))):
        raise ConfigError(
            f"Expected shares T/L such as 3/5, got {text!r}: any T of the L holders decrypt together, T more than half "
            f"of L, and L at most {LARGEST_COUNT}."
        )
    return int(needed), int(holders)
