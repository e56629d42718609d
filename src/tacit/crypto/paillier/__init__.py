"""Paillier encryption of integers and of whole vectors, packed (Paillier 1999; Damgård, Jurik and Nielsen 2010).

>>> import numpy as np
>>> from tacit.crypto import paillier
>>> public, private = paillier.generate(bits=512, insecure_key_size=True)  # 3072 bits is the default
>>> total = public.encrypt(np.array([0.25, -1.0])) + public.encrypt(np.array([0.5, 0.125]))
>>> private.decrypt(total).round(6).tolist()
[0.75, -0.875]
>>> private.decrypt((public.encrypt(7) + 3) * -2)
-20
"""

from tacit.crypto.paillier.private import PrivateKey, generate
from tacit.crypto.paillier.public import Ciphertext, NoisePool, PublicKey
from tacit.crypto.paillier.vector import CiphertextVector, Layout, total

__all__ = ["Ciphertext", "CiphertextVector", "Layout", "NoisePool", "PrivateKey", "PublicKey", "generate", "total"]
