r"""Fresh shares of the same key: old ones are worth nothing together with new ones, and nobody sees the secret.

A thief who takes one holder's share this year and another's next year has two of one key. If holders make their shares
fresh in between, and erase the old ones, it has one of each of two polynomials, which is worth what one share is
(proactive secret sharing: Ostrovsky and Yung 1991, Herzberg et al. 1995; for RSA Rabin 1998).

>>> from tacit.crypto import threshold
>>> public, shares = threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)
>>> given = [contribute(share) for share in shares[:2]]       # by two of the holders, a part for each holder
>>> fresh = [refreshed(share, [parts[share.index - 1] for parts in given]) for share in shares]
>>> c = public.key.encrypt(42)
>>> fresh[0].public.combine(c, [fresh[0].partial(c), fresh[2].partial(c)]).value
42

**How.** A holder draws :math:`\delta(X) = \sum_{k=1}^{t-1} a_k X^k` with whole :math:`a_k \in [0, B)`, sends
:math:`\delta(i)` to holder i, and tells all :math:`v^{a_k} \bmod n`. Holder i checks
:math:`v^{\delta(i)} = \prod_k (v^{a_k})^{i^k}` (Feldman 1987) and adds what it received to its share; everybody
computes the new :math:`v_i` alike. :math:`\delta(0) = 0`, so the secret :math:`f(0) = 1/n` modulo the order m stays.
Nobody knows m, so nothing is reduced, and shares grow by a few hundred bits, once.

**Who contributes.** A holder signs its commitments with its share: a challenge :math:`c = H(\ldots, v^k)` and a
response :math:`k + c s_i`, which everybody checks against :math:`v_i` (Schnorr 1991; k is as long as in
:mod:`tacit.crypto.threshold.partial`, and the response tells nothing). So t contributions are of t holders: t - 1 who
side with each other make none in another's name, and one is honest.

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

from tacit.crypto.threshold.partial import CHALLENGE_BYTES, NONCE_BITS, response_bytes
from tacit.crypto.threshold.public import ThresholdPublic, coefficients_below
from tacit.crypto.threshold.share import KeyShare
from tacit.errors import KeysError
from tacit.randomness import system_below


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A holder's signature, by its share: the challenge and the response."""

    challenge: bytes
    response: int

    @classmethod
    def of(cls, share: KeyShare, digest: bytes) -> Signature:
        """Sign a digest."""
        public = share.public
        nonce = system_below(1 << (public.bits + public.spare_bits + NONCE_BITS))
        commitment = int(gmpy2.powmod_sec(public.verifier, nonce, public.key.n))
        challenge = _challenge(public, share.index, digest, commitment)
        return cls(challenge=challenge, response=nonce + int.from_bytes(challenge, "big") * share.secret)

    def holds(self, public: ThresholdPublic, index: int, digest: bytes) -> bool:
        """Return whether the holder of a share has signed a digest."""
        n, longest = public.key.n, 8 * response_bytes(public.key.residues.width, public.spare_bits)
        if len(self.challenge) != CHALLENGE_BYTES or not 0 <= self.response < 1 << longest:
            return False
        away = gmpy2.powmod(public.verifiers[index - 1], -int.from_bytes(self.challenge, "big"), n)
        commitment = int(gmpy2.powmod(public.verifier, self.response, n) * away % n)
        return self.challenge == _challenge(public, index, digest, commitment)


def _challenge(public: ThresholdPublic, index: int, digest: bytes, commitment: int) -> bytes:
    facts = index.to_bytes(8, "big") + digest + commitment.to_bytes(public.key.residues.width, "big")
    return hashlib.sha256(b"tacit threshold refresh 2: challenge\n" + public.identity + facts).digest()


def _digest(public: ThresholdPublic, sender: int, commitments: Sequence[int]) -> bytes:
    listed = f"{sender}\n" + "".join(f"{one:x}\n" for one in commitments)
    return hashlib.sha256(b"tacit threshold refresh 2\n" + public.identity + listed.encode()).digest()


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """One holder's part for another in making shares fresh.

    Attributes:
        public: the key whose shares are made fresh.
        sender: the number of the share of whoever made it.
        index: the number of the share that it is for.
        value: what is added to that share.
        commitments: v to the power of each coefficient, for all to check.
        signature: the sender's, of the commitments, by its share.
    """

    public: ThresholdPublic
    sender: int
    index: int
    value: int = field(repr=False)
    commitments: tuple[int, ...]
    signature: Signature

    def __post_init__(self) -> None:
        n, t, count = self.public.key.n, self.public.threshold, self.public.shares
        for number in (self.index, self.sender):
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= count:
                raise KeysError(f"Expected a contribution from and to a share from 1 to {count}, got {number!r}.")
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
        if not self.signature.holds(self.public, self.sender, self.digest):
            raise KeysError(
                f"The contribution is not signed by holder {self.sender}, whose it claims to be: somebody else made "
                "it, or it is damaged. Don't use it; ask that holder."
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
        return _digest(self.public, self.sender, self.commitments)

    def to_dict(self) -> dict[str, Any]:
        """Return the contribution as plain values, large numbers in hexadecimal: a secret of its receiver."""
        commitments = [f"{one:x}" for one in self.commitments]
        return {
            "key": self.public.fingerprint,
            "sender": self.sender,
            "index": self.index,
            "value": f"{self.value:x}",
            "commitments": commitments,
            "signature": [self.signature.challenge.hex(), f"{self.signature.response:x}"],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], public: ThresholdPublic) -> Contribution:
        """Read what :meth:`to_dict` returned, for the key of the share that it is for, and check it."""
        try:
            key, sender, index, value = plain["key"], plain["sender"], plain["index"], int(plain["value"], 16)
            commitments = tuple(int(one, 16) for one in plain["commitments"])
            challenge, response = plain["signature"]
            signature = Signature(challenge=bytes.fromhex(challenge), response=int(response, 16))
        except (KeyError, TypeError, ValueError):  # the value is not shown: it is a secret
            raise KeysError("Expected key, sender, index, value, commitments, signature of a contribution.") from None
        if key != public.fingerprint:
            raise KeysError(
                f"The contribution is to shares of the threshold key {str(key)[:23]}…, expected "
                f"{public.fingerprint[:23]}… : it is of another key, or of shares that were made fresh meanwhile."
            )
        return cls(public=public, sender=sender, index=index, value=value, commitments=commitments, signature=signature)


def contribute(share: KeyShare) -> tuple[Contribution, ...]:
    """Return a new contribution of a share's holder, a part for each holder; each part is its receiver's secret."""
    public = share.public
    n, t = public.key.n, public.threshold
    below = coefficients_below(n, public.shares, t)
    drawn = [system_below(below) for _ in range(t - 1)]
    commitments = tuple(int(gmpy2.powmod_sec(public.verifier, a, n)) for a in drawn)
    signature = Signature.of(share, _digest(public, share.index, commitments))
    return tuple(
        Contribution(
            public=public,
            sender=share.index,
            index=index,
            value=sum(a * index**power for power, a in enumerate(drawn, 1)),
            commitments=commitments,
            signature=signature,
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
    senders = {one.sender for one in contributions}
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
