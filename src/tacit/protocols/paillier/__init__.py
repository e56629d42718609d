"""The sum under Paillier encryption: the server adds what it cannot read, and key holders open the sum alone.

Three roles, each with its own state, which meet only in frames:

* the server (:class:`PaillierSum`) holds the public key;
* a client enrols once, with the key it pins, and encrypts its packed vector so that it is bound to run and round;
* key holders (:class:`Authority`, :class:`ShareHolder`) hold the private key, or a share of it. They open one sum
  per round, of the replies that clients made for it, and of at least as many clients as *they* were told.

Before the first round::

    server -> key holders   KEY      begin a run, by such rules
    server <- key holders   KEY      a challenge and the public key
    server -> clients       ENROL    the run (a digest of all challenges) and the key
    server <- clients       ENROL    what binds this client's replies: a secret for the authority, or a signature key
    server -> key holders   ADMIT    the challenges and the clients' enrolments
    server <- key holders   ADMIT    who was not admitted

and in every round::

    server -> clients       TASK     the model
    server <- clients       CIPHER   a nonce and the masked vector, or a signature, proofs and the vector, encrypted
    server -> key holders   OPEN     whose replies, with their nonces, and the sum; or with their signatures, and
                                     a block of each one's ciphertexts with its proof
    server <- key holders   OPENED   the sum, or a part of the decryption of the block

the last two once for each block (:mod:`tacit.protocols.paillier.blocks`), of which a model of a hundred thousand
parameters has one where twenty clients are summed.
"""

from tacit.protocols.paillier.binding import KeyUse, Rules
from tacit.protocols.paillier.holders import Authority, Caution, KeyCopy, ShareHolder
from tacit.protocols.paillier.sum import PaillierSum

__all__ = ["Authority", "Caution", "KeyCopy", "KeyUse", "PaillierSum", "Rules", "ShareHolder"]
