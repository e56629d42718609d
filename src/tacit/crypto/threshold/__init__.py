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

**Secrecy.** Fewer than t shares are independent of the secret, and partial decryptions can be simulated from the
message and the noise of the ciphertext (Shoup 2000). So the combiner learns both, and no more. The noise of a sum is
the product of its parts' noise: it tells about the parts exactly what the message does, their sum. Where a larger
protocol needs the noise of a decrypted ciphertext to stay secret, re-randomising hides it only from those who don't
know the new noise (compare Hazay et al. 2012). As ever with Paillier, never decrypt on request: each holder checks
that it is a sum of enough clients, once a round.

The dealer who generates the key knows it for that moment; choose whom you trust with that, and erase its machine.
"""

from tacit.crypto.threshold.combination import Combined
from tacit.crypto.threshold.generation import generate
from tacit.crypto.threshold.partial import PartialDecryption
from tacit.crypto.threshold.proof import Proof
from tacit.crypto.threshold.public import ThresholdPublic
from tacit.crypto.threshold.share import KeyShare

__all__ = ["Combined", "KeyShare", "PartialDecryption", "Proof", "ThresholdPublic", "generate"]
