r"""Threshold Paillier: t of l holders decrypt together, and fewer learn nothing.

>>> from tacit.crypto import threshold
>>> public, shares = threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)
>>> total = public.key.encrypt(20) + public.key.encrypt(22)
>>> partials = [share.partial(total) for share in (shares[0], shares[2])]
>>> public.combine(total, partials).value
42

A ciphertext is :math:`c = (1 + Mn)\, r^n \bmod n^2`. Whoever knows its noise r knows its message, and r is the n-th
root of :math:`x = c \bmod n` (as in Paillier's trapdoor permutation, 1999): an RSA decryption with the public exponent
n. So the holders run Shoup's threshold RSA (2000): all they compute is modulo n, with exponents as long as n, and what
they send is half as long as the ciphertexts. The direct way (Fouque, Poupard and Stern 2000; Damgård and Jurik 2001)
shares an exponent that removes the noise modulo n squared. Its exponents and numbers are twice as long, which makes a
holder's work seven times as much; in return its combination is nearly free, where here it takes one power with the
public exponent n modulo n squared.

**Correctness.** An n-th root modulo n is unique, so a combination whose n-th power is x is right, whoever sent what.
A wrong share never gives a wrong message; proofs serve to learn whose share it was. (The direct way has no such test:
a share times :math:`1 + kn` shifts the message and passes.)

**Secrecy of the shares** (Shoup 2000). Fewer than t shares are independent of the secret. Let C be t - 1 corrupted
holders and i an honest one. With the whole Lagrange weights :math:`\lambda_{i,j}` at i, multiplied by
:math:`\Delta = l!`,

.. math:: \Delta f(i) = \lambda_{i,0} f(0) + \sum_{j \in C} \lambda_{i,j} s_j \bmod m, \qquad
    y_i = x^{2 \Delta f(i)} = r^{2 \lambda_{i,0}} \prod_{j \in C} x^{2 \lambda_{i,j} s_j} \bmod n,

since :math:`x = r^n` and n f(0) = 1 modulo the order m of the squares. So whoever has the noise r of a ciphertext can
write down all honest parts of its decryption: they tell r, with it the message, and nothing else. The verification
keys are simulated likewise, from :math:`v = z^{\Delta n}` with a random square z, and proofs by their response. All of
it hangs on weights that are whole: with shares :math:`\Delta f(j) \bmod m` the same equations have
:math:`\lambda_{i,j} / \Delta` in them, and a corrupted holder and an honest part yield roots of x that it chose.

**Secrecy of what was summed.** The combiner learns the message M of a sum and its noise r, where a decryption with the
whole key gives M alone. r tells nothing of the summands that M does not. Let honest summands be
:math:`c_k = (1 + m_k n) r_k^n` with independent noise uniform in a group G. Their joint law, with
:math:`r = \prod_k r_k`, is this: draw r and all :math:`r_k` but the first from G, and let
:math:`c_1 = (1 + Mn) r^n / \prod_{k > 1} c_k`. There r is independent of :math:`c_2, c_3, \ldots`, so that these stay
encryptions nobody has opened, and :math:`c_1` follows from them, M and r: under the assumption that makes one
ciphertext secret, two sets of messages with the same sum can't be told apart. The key's noise is
:math:`r_k = g^{s_k}` with :math:`g = -x_0^2`, :math:`h = g^n` and short :math:`s_k`; the assumption on short exponents
is then needed in the form that g is known, not :math:`h` only (for squares and half-length exponents it follows from
factoring, Goldreich and Rosen 2003). Noise that the combiner adds itself, to re-randomise, changes r by a factor of
that kind.

**What is not claimed.** This is about sums of honest ciphertexts. Who may choose what is opened gets n-th roots modulo
n of numbers of its choice, which is more than decryptions: nothing is shown of ciphertexts that were not opened then.
So, as ever with Paillier, never decrypt on request: each holder checks that it is a sum of enough clients, and
opens one per round. More than half of the holders are needed (2t > l), so that no two groups of them open two sums of a
round. Parts of different sums can be multiplied too: where at most two thirds are needed (3t <= 2l, such as 2 of 3), a
combination of the sums may come of it, and where more are, nothing (docs/mathematics.md, Blocks).

Shares can be made fresh, so that old ones are worth nothing together with new ones:
:mod:`tacit.crypto.threshold.refresh`.

The dealer who generates the key knows it for that moment; choose whom you trust with that, and erase its machine.
"""

from tacit.crypto.threshold.combination import Combined
from tacit.crypto.threshold.partial import PartialDecryption, Proof
from tacit.crypto.threshold.public import ThresholdPublic
from tacit.crypto.threshold.share import KeyShare, generate

__all__ = ["Combined", "KeyShare", "PartialDecryption", "Proof", "ThresholdPublic", "generate"]
