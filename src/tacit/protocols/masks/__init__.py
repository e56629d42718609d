"""The sum under masks: every client hides its vector by masks that cancel in the sum, and nobody holds a key.

There are two roles, the server (:class:`MaskedSum`) and the clients, which meet only in frames. Before the first round,
once for all rounds (Ma et al. 2023)::

    server -> clients   ENROL    the run
    server <- clients   ENROL    an X25519 key for this run, and the Ed25519 key that signs it

and in every round (Bonawitz et al. 2017, on the sparse graph of Bell et al. 2020)::

    server -> clients   SHARE    who is in the cohort, and the keys of a client's neighbours
    server <- clients   SHARE    Shamir shares of two secrets of this round, one sealed pair for each neighbour
    server -> clients   TASK     the model, and who has shared
    server <- clients   MASKED   the vector plus the client's own mask and one mask for each neighbour
    server -> clients   LIST     whose vectors arrived                          only where lists are signed
    server <- clients   LIST     a signature of the list
    server -> clients   REVEAL   the list, its signatures, and the shares that were sealed for this client
    server <- clients   REVEAL   of each neighbour one share: of its own mask if it is on the list, else of its others

What is revealed is of one round: of a client that is in the sum its own mask, of one that dropped out the masks it had
with neighbours, and never both. A client answers for one list per round and try.
"""

from tacit.protocols.masks.field import Field
from tacit.protocols.masks.graph import Neighbourhood
from tacit.protocols.masks.sum import MaskedSum

__all__ = ["Field", "MaskedSum", "Neighbourhood"]
