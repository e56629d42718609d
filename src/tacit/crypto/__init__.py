"""Homomorphic encryption that is of use on its own: Paillier, threshold Paillier and ElGamal.

>>> from tacit.crypto import paillier
>>> public, private = paillier.generate(bits=512, insecure_key_size=True)  # 3072 bits is the default
>>> private.decrypt(public.encrypt(20) + public.encrypt(22))
42

The room imports no other but the base of errors, randomness and files; gmpy2 lives here only. From the bottom up:

* ``rows``: many large numbers as one array of big-endian bytes, the form in which they travel;
* ``ring``: arithmetic modulo one number on such rows, behind one interface with two implementations;
* ``primes``, ``safe_primes``, ``groups``: where moduli come from;
* ``layout``, ``packing``: many small numbers in the slots of a few large ones;
* ``paillier``, ``threshold``, ``elgamal``: the schemes;
* ``keyfile``: keys at rest.
"""
