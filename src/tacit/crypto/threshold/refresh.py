r"""Fresh shares of the same key: old ones are worth nothing together with new ones, and nobody sees the secret.

A thief who takes one holder's share this year and another's next year has two of one key. If holders make their shares
fresh in between, and erase the old ones, it has one of each of two polynomials, which is worth what one share is
(proactive secret sharing: Ostrovsky and Yung 1991, Herzberg et al. 1995; for RSA Rabin 1998).

>>> from tacit.crypto import threshold
>>> public, shares = threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)
>>> given = [contribute(public) for _ in range(2)]            # by two of the holders, a part for each holder
>>> fresh = [refreshed(share, [parts[share.index - 1] for parts in given]) for share in shares]
>>> c = public.key.encrypt(42)
>>> fresh[0].public.combine(c, [fresh[0].partial(c), fresh[2].partial(c)]).value
42

**How.** A holder draws :math:`\delta(X) = \sum_{k=1}^{t-1} a_k X^k` with whole :math:`a_k \in [0, B)`, sends
:math:`\delta(i)` to holder i, and tells all :math:`v^{a_k} \bmod n`. Holder i checks
:math:`v^{\delta(i)} = \prod_k (v^{a_k})^{i^k}` (Feldman 1987) and adds what it received to its share; everybody
computes the new :math:`v_i` alike. :math:`\delta(0) = 0`, so the secret :math:`f(0) = 1/n` modulo the order m stays.
Nobody knows m, so nothing is reduced, and shares grow by a few hundred bits, once.

**What it hides.** Let one contribution be honest, and its parts seen by their receivers only. Whoever has the shares of
t - 1 holders C before and of t - 1 holders C' after learns nothing of f(0) beyond what is public, up to
:math:`t \, 2^{-125}`. Modulo m the new polynomial is uniform among those with this constant, as
:math:`B \ge 2^{128} m`. That is not all, as shares are whole numbers: :math:`\delta(i)` is divisible by i, so that a
new share tells a remainder of the old one. Compare f with the polynomial of another secret that agrees with it on C,
and let e be the differences of their shares. If the :math:`e_i`, i in C', are the values of a whole polynomial P with
P(0) = 0, the honest contribution may as well be less by P: then the new shares on C' are equal, and as the coefficients
of P are below :math:`t (l + 1)! \, m U`, which is :math:`2^{-128} B` at most, the laws are that close. Interpolation at
points among 0, ..., l has denominators that divide :math:`\Delta = l!`, so it is enough that e is divisible by
:math:`\Delta`. It can be: the dealer added :math:`u_i m` to each share with :math:`u_i` uniform below
:math:`U = 2^{128} \Delta`, and m and :math:`\Delta` have no divisor in common, so the remainder of a share modulo
:math:`\Delta` is uniform up to :math:`2^{-128}` whatever :math:`f(i)` is. Later refreshes are alike: what differs is
then e less a whole polynomial. (Keys that were made without :math:`u_i` are refused.)

**What it does not do.** t old shares that nobody erased open as ever. Contributions are secrets between two holders:
send each over a channel that hides it. All holders have to take the same contributions; the new fingerprint tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gmpy2

from tacit.crypto.threshold.public import ThresholdPublic, coefficients_below
from tacit.crypto.threshold.share import KeyShare
from tacit.errors import KeysError
from tacit.randomness import system_below


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """One holder's part for another in making shares fresh.

    Attributes:
        public: the key whose shares are made fresh.
        index: the number of the share that it is for.
        value: what is added to that share.
        commitments: v to the power of each coefficient, for all to check.
    """

    public: ThresholdPublic
    index: int
    value: int = field(repr=False)
    commitments: tuple[int, ...]

    def __post_init__(self) -> None:
        n, t, count = self.public.key.n, self.public.threshold, self.public.shares
        if not isinstance(self.index, int) or isinstance(self.index, bool) or not 1 <= self.index <= count:
            raise KeysError(f"Expected a contribution to a share from 1 to {count}, got {self.index!r}.")
        if len(self.commitments) != t - 1:
            raise KeysError(f"Expected {t - 1} commitments of a contribution, got {len(self.commitments)}.")
        if any(not 1 <= one < n or gmpy2.jacobi(one, n) != 1 for one in self.commitments):
            raise KeysError("A commitment of the contribution is no square modulo n. Ask its sender for a new one.")
        largest = coefficients_below(n, count, t) * t * count ** (t - 1)
        right = 0 < self.value < largest
        if not right or gmpy2.powmod_sec(self.public.verifier, self.value, n) != self.moved(self.index):
            raise KeysError(
                f"The contribution to share {self.index} is not what its sender committed to: it is damaged, or "
                "somebody lies. Don't use it; ask its sender for a new one, and tell the other holders."
            )

    def moved(self, index: int) -> int:
        """Return by what the verification key of a share is multiplied."""
        n, product = self.public.key.n, gmpy2.mpz(1)
        for power, commitment in enumerate(self.commitments, 1):
            product = product * gmpy2.powmod(commitment, index**power, n) % n
        return int(product)

    @property
    def digest(self) -> bytes:
        """What tells a sender's contribution from another's; the same at all receivers."""
        listed = "".join(f"{one:x}\n" for one in self.commitments)
        return hashlib.sha256(b"tacit threshold refresh 1\n" + self.public.identity + listed.encode()).digest()

    def to_dict(self) -> dict[str, Any]:
        """Return the contribution as plain values, large numbers in hexadecimal: a secret of its receiver."""
        commitments = [f"{one:x}" for one in self.commitments]
        return {
            "key": self.public.fingerprint,
            "index": self.index,
            "value": f"{self.value:x}",
            "commitments": commitments,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], public: ThresholdPublic) -> Contribution:
        """Read what :meth:`to_dict` returned, for the key of the share that it is for, and check it."""
        try:
            key, index, value = plain["key"], plain["index"], int(plain["value"], 16)
            commitments = tuple(int(one, 16) for one in plain["commitments"])
        except (KeyError, TypeError, ValueError):  # the value is not shown: it is a secret
            raise KeysError("Expected key, index, value and commitments of a contribution.") from None
        if key != public.fingerprint:
            raise KeysError(
                f"The contribution is to shares of the threshold key {str(key)[:23]}…, expected "
                f"{public.fingerprint[:23]}… : it is of another key, or of shares that were made fresh meanwhile."
            )
        return cls(public=public, index=index, value=value, commitments=commitments)


def contribute(public: ThresholdPublic) -> tuple[Contribution, ...]:
    """Return a new contribution, a part for each holder; each part is its receiver's secret."""
    n, t = public.key.n, public.threshold
    below = coefficients_below(n, public.shares, t)
    drawn = [system_below(below) for _ in range(t - 1)]
    commitments = tuple(int(gmpy2.powmod_sec(public.verifier, a, n)) for a in drawn)
    return tuple(
        Contribution(
            public=public,
            index=index,
            value=sum(a * index**power for power, a in enumerate(drawn, 1)),
            commitments=commitments,
        )
        for index in range(1, public.shares + 1)
    )


def refreshed(share: KeyShare, contributions: Sequence[Contribution]) -> KeyShare:
    """Return the fresh share, with the new public part; all holders have to take the contributions of the same senders.

    Args:
        share: the old one; erase it when all holders have compared the new fingerprint.
        contributions: from at least ``threshold`` holders, so that one of them is honest.
    """
    public = share.public
    if public.threshold == 1:
        raise KeysError("With one share needed, every share is the whole secret: nothing can be made fresh.")
    if share.secret.bit_length() <= public.bits:
        raise KeysError(
            f"Share {share.index} was made before shares could be made fresh: whole numbers would tell parts of it. "
            "Make new keys with `tacit keys new paillier --shares T/L`."
        )
    for one in contributions:
        if one.public != public or one.index != share.index:
            raise KeysError(
                f"A contribution is to share {one.index} of a key, expected share {share.index} of this one."
            )
    senders = {one.digest for one in contributions}
    if len(senders) < len(contributions) or len(senders) < public.threshold:
        raise KeysError(
            f"Expected contributions of at least {public.threshold} different holders, so that one of them is honest; "
            f"got {len(contributions)} of {len(senders)}."
        )
    n, verifiers = public.key.n, list(public.verifiers)
    for one in contributions:
        verifiers = [int(old * one.moved(index) % n) for index, old in enumerate(verifiers, 1)]
    secret = share.secret + sum(one.value for one in contributions)
    return KeyShare(public=replace(public, verifiers=tuple(verifiers)), index=share.index, secret=secret)
