"""Homomorphic encryption that is of use on its own: Paillier, threshold Paillier and ElGamal.

>>> from tacit.crypto import paillier
>>> public, private = paillier.generate(bits=512, insecure_key_size=True)  # 3072 bits is the default
>>> private.decrypt(public.encrypt(20) + public.encrypt(22))
42

The room imports no other but the base of errors, randomness and files; gmpy2 lives here only. From the bottom up:

* ``ring``: many large numbers as one array of big-endian bytes, the form in which they travel, and arithmetic modulo
  one number on such rows, behind one interface with two implementations (``native``, ``gmp``; ``backend`` chooses);
* ``primes``, ``groups``: where moduli come from;
* ``paillier``, ``threshold``, ``elgamal``: the schemes;
* ``keyfile``, ``sealing``, ``cipherfile``: keys and ciphertexts at rest; ``new_keys`` makes keys from options.
"""
