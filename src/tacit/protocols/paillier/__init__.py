"""The sum under Paillier encryption: the server adds what it cannot read, and key holders open the sum alone.

Three roles, each with its own state, which meet only in frames:

* the server (:class:`PaillierSum`) holds the public key;
* a client encrypts its packed vector with the key that travels with the task, and pins that key on first use;
* key holders (:class:`Authority`, :class:`ShareHolder`) hold the private key, or a share of it. They open one sum a
  round, of at least as many clients as *they* were told.
"""

from tacit.protocols.paillier.holders import Authority, ShareHolder
from tacit.protocols.paillier.sum import KeyUse, PaillierSum

__all__ = ["Authority", "KeyUse", "PaillierSum", "ShareHolder"]
