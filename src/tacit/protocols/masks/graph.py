r"""Who masks with whom, and how many have to be there: computed from how many may drop out and how many may lie.

**The graph** (Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", 2020): the clients of a
cohort sit on a circle in an order that a hash of run, round and cohort gives, and each is a neighbour of the k/2 before
and the k/2 behind it. Small cohorts are complete graphs.

**The numbers.** Of n clients up to :math:`n - m` may drop out, where m is the fewest that a sum needs, and up to c may
be the server's own. Each client's secrets are shared among its k neighbours, and t of them open one.

* No coalition opens a secret: a client has t corrupted neighbours with a probability of at most :math:`2^{-42}/n`.
* No drop-out spoils a round: fewer than t of its neighbours are left likewise.
* The sum is one sum: every stretch of k/2 seats has an honest client in it that is left, so that those hold together
  and no part of them can be summed alone. There are at most w - 1 corrupted clients in a stretch, and at least w that
  are left, each but with probability :math:`2^{-42}/n`. Clients count the latter on every list, and refuse one with a
  thin stretch: so it does not help a server to choose, by the graph, who is said to have dropped out.

Together a round fails one of them with probability at most :math:`2^{-40}`, whoever drops out or lies, where that was
settled before the order was drawn. k is the least, by bisection, for which such t and w exist; tails are
hypergeometric and counted exactly, in whole numbers. Where no k below n - 1 will do, all are neighbours: then t = m - 1
and nothing is left to chance.

**Against a server that lies** all are neighbours, always. The order follows from numbers that the server chooses, and
it can try as many as it likes. And it could tell one client alone of other sharers S', and all others of a list L: the
masks that this client has with neighbours outside of L are opened, as those dropped out, and so is its own, as it is on
L. What is left are its masks with who is in S' and L. Signers of L are at least q, and not this client, and S' has m of
the cohort in it, m being at least q: together more than n + c, so one of them is honest, and has a mask with this
client that nobody opens. Among a few neighbours no such one has to be.
"""

from __future__ import annotations

import functools
import hashlib
import math
import struct
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.errors import ConfigError, WireError
from tacit.flow import ClientId
from tacit.wire import Turn

Places = NDArray[np.intp]
Members = NDArray[np.bool_]

SECURITY = 40  # a round fails with probability 2^-40
_EVENTS = 4
_SMALL = 32  # clients that are all neighbours, whatever would do: it costs next to nothing
_FACTS = struct.Struct(">32sIHI32s")  # run, round, attempt, clients, keys
_LIST = struct.Struct(">IB")  # clients, bytes of a difference


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """How many neighbours a client has, and how many of them it takes.

    >>> Neighbourhood.of(clients=10, minimum=5, corrupted=1)
    Neighbourhood(clients=10, minimum=5, corrupted=1, neighbours=9, threshold=4, stretch=0, least=0)

    Attributes:
        clients: of the cohort, n.
        minimum: the fewest that a sum needs, m.
        corrupted: how many may be the server's, c.
        neighbours: of each client, k.
        threshold: how many of them open a secret, t.
        stretch: k/2, where not all are neighbours.
        least: the fewest members of a list in a stretch, w.
    """

    clients: int
    minimum: int
    corrupted: int
    neighbours: int
    threshold: int
    stretch: int = 0
    least: int = 0

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, *, clients: int, minimum: int, corrupted: int, everyone: bool = False) -> Neighbourhood:
        """Return the smallest neighbourhood that keeps all three promises, or that of ``everyone``."""
        if not 2 <= minimum <= clients:
            raise ConfigError(f"Expected a sum of at least 2 and at most {clients} clients, got minimum={minimum}.")
        if not 0 <= corrupted <= minimum - 2:
            raise ConfigError(
                f"Expected corrupted={corrupted} at most {minimum - 2}: of {minimum} clients two must be honest, or "
                "the sum is one client's."
            )
        most = (clients - 1) // 2 if clients > _SMALL and not everyone else 0  # of seats in a stretch
        few, enough = 0, min(8, most)
        while enough < most and cls._sparse(enough, clients, minimum, corrupted) is None:  # numbers grow with it
            few, enough = enough, min(2 * enough, most)
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if cls._sparse(middle, clients, minimum, corrupted) else (middle, enough)
        found = cls._sparse(enough, clients, minimum, corrupted)
        if found is not None and found.neighbours < clients - 1:
            return found
        return cls(clients=clients, minimum=minimum, corrupted=corrupted, neighbours=clients - 1, threshold=minimum - 1)

    @classmethod
    def _sparse(cls, stretch: int, clients: int, minimum: int, corrupted: int) -> Neighbourhood | None:
        """Return the neighbourhood of two such stretches, if it keeps the promises."""
        k, gone = 2 * stretch, clients - minimum
        if k < 2:
            return None
        lies = _most(clients - 1, corrupted, k, clients)
        left = k - _most(clients - 1, gone, k, clients)
        liars = _most(clients, corrupted, stretch, clients)
        alive = stretch - _most(clients, gone, stretch, clients)
        if left <= lies or alive <= liars:
            return None
        return cls(
            clients=clients,
            minimum=minimum,
            corrupted=corrupted,
            neighbours=k,
            threshold=left,
            stretch=stretch,
            least=liars + 1,
        )

    @property
    def quorum(self) -> int:
        """How many have to sign a list: two lists can't both have so many where an honest client signs one."""
        return quorum_of(self.clients, self.corrupted)


def quorum_of(clients: int, corrupted: int) -> int:
    """Return the least number of which two sets have more clients in common than may be corrupted."""
    return (clients + corrupted) // 2 + 1


def _most(population: int, marked: int, drawn: int, clients: int) -> int:
    """Return how many marked ones a draw has at most, but with a probability that n clients can bear."""
    ways = math.comb(population, drawn)
    tail, most = 0, min(marked, drawn)
    while most > 0:
        tail += math.comb(marked, most) * math.comb(population - marked, drawn - most)
        if (tail * _EVENTS * clients) << SECURITY > ways:
            return most
        most -= 1
    return most


@dataclass(frozen=True, kw_only=True, eq=False)
class Circle:
    """A cohort in its order: who is whose neighbour. A client is known here by its place in the list of numbers.

    Attributes:
        digest: what binds every secret of the round: run, round, try, cohort and its keys.
        hood: how many neighbours there are.
        order: the clients as they sit.
        seats: where each of them sits.
    """

    digest: bytes
    hood: Neighbourhood
    order: Places
    seats: Places

    @classmethod
    def of(cls, run: bytes, turn: Turn, clients: bytes, keys: bytes, hood: Neighbourhood) -> Circle:
        """Return the circle of a list of clients (:func:`pack_clients`) and the digest of their signature keys."""
        facts = _FACTS.pack(run, turn.round_number, turn.attempt, hood.clients, keys)
        return cls.drawn(hashlib.sha256(b"tacit masks circle 1\n" + facts + clients).digest(), hood)

    @classmethod
    @functools.lru_cache(maxsize=8)
    def drawn(cls, digest: bytes, hood: Neighbourhood) -> Circle:
        """Return the circle that a digest gives."""
        stream = Cipher(algorithms.AES(digest), modes.CTR(bytes(16))).encryptor().update(bytes(8 * hood.clients))
        order = np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
        seats = np.empty_like(order)
        seats[order] = np.arange(hood.clients)
        return cls(digest=digest, hood=hood, order=order, seats=seats)

    def neighbours(self, place: int) -> Places:
        """Return a client's neighbours, by the points of their shares of its secrets.

        Whoever is at point a (from 0) of a client's list has it at point k - 1 - a of its own.
        """
        found: Places = self.order[(self.seats[place] + self._steps) % self.hood.clients]
        return found

    def thin(self, members: Members) -> bool:
        """Return whether a list leaves a stretch of seats with too few members."""
        stretch = self.hood.stretch
        if not stretch:
            return False
        seated = members[self.order].astype(np.int64)
        sums = np.cumsum(np.concatenate([[0], seated, seated[: stretch - 1]]))
        return bool((sums[stretch:] - sums[:-stretch]).min() < self.hood.least)

    @functools.cached_property
    def _steps(self) -> Places:
        k = self.hood.neighbours
        if not self.hood.stretch:
            return np.arange(1, k + 1)
        return np.concatenate([np.arange(-(k // 2), 0), np.arange(1, k // 2 + 1)])


def pack_clients(clients: NDArray[np.uint64]) -> bytes:
    """Return ascending numbers as they travel: differences, in as many bytes as the largest needs.

    >>> len(pack_clients(np.arange(1000, dtype=np.uint64)))
    1005
    """
    steps = np.diff(clients, prepend=np.uint64(0)).astype("<u8")
    width = max(1, (int(steps.max(initial=0)).bit_length() + 7) // 8)
    return _LIST.pack(len(clients), width) + steps.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()


def unpack_clients(data: bytes) -> tuple[NDArray[np.uint64], bytes, bytes]:
    """Return the numbers, the bytes they were written in, and the bytes behind them; each number is there once."""
    if len(data) < _LIST.size:
        raise WireError(f"Expected a list of clients, got {len(data)} bytes.")
    count, width = _LIST.unpack_from(data)
    end = _LIST.size + count * width
    if not 1 <= width <= 8 or end > len(data):
        raise WireError(f"Expected {count} clients in {width} bytes each, got {len(data)} bytes.")
    steps = np.zeros((count, 8), np.uint8)
    steps[:, :width] = np.frombuffer(data, np.uint8, count * width, _LIST.size).reshape(count, width)
    differences = steps.view("<u8").reshape(count)
    clients = np.cumsum(differences, dtype=np.uint64)
    if (differences[1:] == 0).any() or (clients[1:] <= clients[:-1]).any():
        raise WireError("Expected a list of different clients in ascending order.")
    return clients, data[:end], data[end:]


def pack_members(members: Members) -> bytes:
    """Return a list as one bit per client."""
    return np.packbits(members).tobytes()


def unpack_members(data: bytes, clients: int) -> Members:
    """Read what :func:`pack_members` wrote."""
    if len(data) != (clients + 7) // 8:
        raise WireError(f"Expected a list of {clients} clients in {(clients + 7) // 8} bytes, got {len(data)}.")
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    if bits[clients:].any():
        raise WireError("Expected zeros behind the last client of a list.")
    return bits[:clients].astype(np.bool_)


def place_of(clients: NDArray[np.uint64], client: ClientId) -> int:
    """Return where a client stands in a list, or -1."""
    place = int(np.searchsorted(clients, np.uint64(client)))
    return place if place < len(clients) and int(clients[place]) == client else -1
