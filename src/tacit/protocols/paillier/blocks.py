r"""Vectors in blocks: how a long one is cut, how a client signs all blocks by one hash, and how holders are shown them.

Holders of shares are shown every client's ciphertexts. All at once they would fill the memory of whoever shows them and
of whoever looks, and no message takes them; so a sum is opened a block at a time, and a block has the same rows of
every client. Where the cuts are follows from the layout and the key alone, so that all parties know them::

    blocks = Blocks(layout=layout)
    blocks.count                          # how many there are
    blocks.rows(3), blocks.layout_of(3)   # which rows the fourth has, and the layout of the vector that they are

A block is a vector of its own, with a proof of its own that its maker knows what is in it
(:mod:`tacit.crypto.paillier.knowledge`), so that it can be checked, added and opened alone. What it must not be is
chosen alone: a server that could show some blocks of one list of clients and others of another, or of other vectors of
theirs, would open parts of several sums in one round. So a client signs the root of a hash tree over all of its blocks
(Merkle 1987), and a holder is told the roots of all clients on the list, with their signatures, before the first block
and with each: they are the sum, see :class:`Commitment`. A block is shown with the
hashes beside its way up to the root, and with a collision-free hash no other block has such a way from its place.

The tree is that of RFC 9162 with as many leaves as the next power of two, those that are not needed being zero: ways
are equally long for all blocks. How many leaves there are is not told, but follows from the layout, which is signed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.crypto.paillier import Layout, PublicKey
from tacit.crypto.paillier.knowledge import proof_bytes
from tacit.crypto.paillier.vector import LAYOUT_BYTES
from tacit.crypto.ring import Rows
from tacit.errors import StorageError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier.binding import pack_seals, unpack_seals
from tacit.protocols.signatures import SIGNATURE_BYTES

HASH_BYTES = 32
FRAME_BYTES = 1 << 24  # of all clients' ciphertexts in a block, where that leaves LEAST_ROWS to each
LEAST_ROWS = 128  # fewer would make proofs, one for each client and block, a large part of what is sent and checked

_ASKED_BYTES = 32
_NOTHING = bytes(HASH_BYTES)
_NUMBER = struct.Struct(">Q")
_IN_MEMORY = 1 << 24  # bytes of ciphertexts that are put aside without a file
_LARGE_FILES = "/var/tmp"  # where they belong, as /tmp may be memory (file-hierarchy(7)), unless TMPDIR names another


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Where the vectors of a layout are cut.

    >>> blocks = Blocks(layout=Layout.floats(length=1_000_000, clip=1.0, key_bits=3072, summands=20))
    >>> blocks.count, blocks.rows(8)
    (9, slice(8736, 9524, None))
    """

    layout: Layout

    @property
    def each(self) -> int:
        """How many rows a block has, but for the last."""
        width = (2 * self.layout.key_bits + 7) // 8
        return max(LEAST_ROWS, FRAME_BYTES // (width * self.layout.summands))

    @property
    def count(self) -> int:
        """How many blocks a vector has."""
        return -(-self.layout.rows // self.each)

    @property
    def depth(self) -> int:
        """How many hashes lead from a block to the root."""
        return (self.count - 1).bit_length()

    def rows(self, number: int) -> slice:
        """Return which rows are in a block."""
        return slice(number * self.each, min((number + 1) * self.each, self.layout.rows))

    def size(self, number: int) -> int:
        """Return how many rows are in a block."""
        return min(self.each, self.layout.rows - number * self.each)

    def layout_of(self, number: int) -> Layout:
        """Return the layout of the vector that a block is."""
        numbers = self.layout.numbers(self.rows(number))
        return replace(self.layout, length=numbers.stop - numbers.start)


def leaf(proof: bytes | memoryview, rows: bytes | memoryview) -> bytes:
    """Return the hash of a block: of its proof and its ciphertexts."""
    running = hashlib.sha256(b"\x00tacit paillier block 1\n" + len(proof).to_bytes(8, "big"))
    running.update(proof)
    running.update(rows)
    return running.digest()


class Tree:
    """The hashes over all blocks of a client.

    >>> tree = Tree([leaf(b"proof", bytes([number])) for number in range(5)])
    >>> all(root_of(tree.leaves[number], number, tree.way(number)) == tree.root for number in range(5))
    True

    Attributes:
        leaves: the hash of each block.
        root: what is signed.
    """

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.leaves = leaves
        self._levels = [[*leaves, *[_NOTHING] * ((1 << (len(leaves) - 1).bit_length()) - len(leaves))]]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([_joined(*below[at : at + 2]) for at in range(0, len(below), 2)])
        self.root = self._levels[-1][0]

    def way(self, number: int) -> bytes:
        """Return the hashes beside the way from a block to the root."""
        return b"".join(level[(number >> height) ^ 1] for height, level in enumerate(self._levels[:-1]))


def tree_of(layout: Layout, proofs: Sequence[bytes | memoryview], rows: Rows) -> Tree:
    """Return the hashes over a vector's ciphertexts and the proofs of its blocks."""
    blocks = Blocks(layout=layout)
    shown = [np.ascontiguousarray(rows[blocks.rows(number)]).data.cast("B") for number in range(blocks.count)]
    return Tree([leaf(proof, some) for proof, some in zip(proofs, shown, strict=True)])


def root_of(found: bytes, number: int, way: bytes | memoryview) -> bytes:
    """Return the root to which a way leads from the hash of a block in a place."""
    for height, at in enumerate(range(0, len(way), HASH_BYTES)):
        beside = bytes(way[at : at + HASH_BYTES])
        found = _joined(beside, found) if number >> height & 1 else _joined(found, beside)
    return found


def _joined(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, kw_only=True)
class Commitment:
    """The sum that holders of shares open, before any of it is shown: whose vectors, and which of theirs.

    It is the same in the requests for all blocks of a sum. A holder remembers it before it gives its part of the first,
    and gives none of another in the same round.

    Attributes:
        seals: the clients in the sum, each with its signature and the root of its blocks.
        asked: the hash of what the clients were asked, under which settings (:func:`tacit.wire.bound_to`).
        layout: of the vectors.
    """

    seals: Mapping[ClientId, bytes]
    asked: bytes
    layout: Layout

    def to_bytes(self) -> bytes:
        """Return the commitment as it stands before every block."""
        return b"".join([pack_seals(self.seals), self.asked, self.layout.to_bytes()])

    def signed_by(self, client: ClientId) -> tuple[bytes, bytes]:
        """Return a client's signature, and the root that it signed."""
        seal = self.seals[client]
        return seal[:SIGNATURE_BYTES], seal[SIGNATURE_BYTES:]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one client has in a block.

    Attributes:
        way: the hashes that lead from it to the client's root.
        proof: that the client knows what is in it.
        rows: its ciphertexts.
    """

    way: bytes | memoryview
    proof: bytes | memoryview
    rows: bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class BlockOpening:
    """A request to open one block of a sum, to holders of shares.

    Attributes:
        commitment: the sum.
        number: which block.
        parts: what each client has in it, in the order of the seals.
    """

    commitment: Commitment
    number: int
    parts: Sequence[Part]

    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """Return the body of an OPEN frame, in pieces."""
        shown = [piece for part in self.parts for piece in (part.way, part.proof, part.rows)]
        return self.commitment.to_bytes(), _NUMBER.pack(self.number), *shown

    @classmethod
    def from_bytes(cls, body: memoryview, key: PublicKey) -> BlockOpening:
        """Read what :meth:`pieces` wrote; what is shown of clients is not looked at yet."""
        seals, rest = unpack_seals(body, SIGNATURE_BYTES + HASH_BYTES, _ASKED_BYTES + LAYOUT_BYTES + _NUMBER.size)
        layout = Layout.from_bytes(bytes(rest[_ASKED_BYTES : _ASKED_BYTES + LAYOUT_BYTES]))
        if layout.key_bits != key.bits:
            raise WireError(f"Expected a layout for keys of {key.bits} bits, got one for {layout.key_bits}.")
        (number,) = _NUMBER.unpack_from(rest, _ASKED_BYTES + LAYOUT_BYTES)
        shown = rest[_ASKED_BYTES + LAYOUT_BYTES + _NUMBER.size :]
        blocks = Blocks(layout=layout)
        if number >= blocks.count:
            raise WireError(f"Expected a block from 0 to {blocks.count - 1}, got {number}.")
        way, proof, each = blocks.depth * HASH_BYTES, proof_bytes(key), part_bytes(blocks, number, key)
        if len(shown) != len(seals) * each:
            raise WireError(
                f"Expected what {len(seals)} clients have in block {number} in {each} bytes each, got {len(shown)} "
                "bytes in all."
            )
        starts = range(0, len(shown), each)
        parts = [
            Part(
                way=shown[at : at + way],
                proof=shown[at + way : at + way + proof],
                rows=shown[at + way + proof : at + each],
            )
            for at in starts
        ]
        asked = bytes(rest[:_ASKED_BYTES])
        return cls(commitment=Commitment(seals=seals, asked=asked, layout=layout), number=number, parts=parts)


def part_bytes(blocks: Blocks, number: int, key: PublicKey) -> int:
    """Return how long what one client has in a block is."""
    return blocks.depth * HASH_BYTES + proof_bytes(key) + blocks.size(number) * key.ring.width


def shown_bytes(layout: Layout, key: PublicKey, clients: int) -> int:
    """Return how long the bodies of all requests are with which a holder of a share is shown a sum."""
    blocks = Blocks(layout=layout)
    listed = len(pack_seals(dict.fromkeys(range(clients), bytes(SIGNATURE_BYTES + HASH_BYTES))))
    head = listed + _ASKED_BYTES + LAYOUT_BYTES + _NUMBER.size
    last = blocks.count - 1
    return blocks.count * head + clients * (last * part_bytes(blocks, 0, key) + part_bytes(blocks, last, key))


def largest_request(key: PublicKey, clients: int) -> int:
    """Return how many bytes the body of a request for a block has at most, of a sum of so many clients or fewer.

    Whatever the layout is, for which there have to be at least as many summands as clients.
    """
    rows = max(FRAME_BYTES, clients * LEAST_ROWS * key.ring.width)
    way = 8 * _NUMBER.size * HASH_BYTES  # a bit of the block's number for each
    each = len(pack_seals({0: bytes(SIGNATURE_BYTES + HASH_BYTES)})) + way + proof_bytes(key)
    return _ASKED_BYTES + LAYOUT_BYTES + _NUMBER.size + len(pack_seals({})) + clients * each + rows


class Aside:
    """Ciphertexts and proofs of clients, in a file without a name once they are many; what is wanted back is a block.

    Args:
        layout: of the vectors.
        key: that encrypted them.
    """

    def __init__(self, *, layout: Layout, key: PublicKey) -> None:
        self._blocks, self._proof, self._width = Blocks(layout=layout), proof_bytes(key), key.ring.width
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=_folder())  # noqa: SIM115  # see close
        self._places: dict[ClientId, int] = {}

    def put(self, client: ClientId, proofs: Sequence[bytes], rows: Rows) -> None:
        """Put a client's vector aside."""
        try:
            self._places[client] = self._file.seek(0, os.SEEK_END)
            for number, proof in enumerate(proofs):
                self._file.write(proof)
                self._file.write(rows[self._blocks.rows(number)].data)
        except OSError as error:
            raise _not_kept(error) from error

    def part(self, client: ClientId, number: int, way: bytes) -> Part:
        """Return what a client has in a block."""
        before = number * (self._proof + self._blocks.each * self._width)
        length = self._proof + self._blocks.size(number) * self._width
        try:
            self._file.seek(self._places[client] + before)
            data = memoryview(self._file.read(length))
        except OSError as error:
            raise _not_kept(error) from error
        return Part(way=way, proof=data[: self._proof], rows=data[self._proof :])

    def close(self) -> None:
        """Let go of everything."""
        self._file.close()


def _folder() -> str | None:
    """Return where large files belong, of folders that are there: an empty or wrong TMPDIR must not end in memory."""
    named = (os.environ.get("TMPDIR"), _LARGE_FILES)
    return next((one for one in named if one and os.access(one, os.W_OK | os.X_OK)), None)


def _not_kept(error: OSError) -> StorageError:
    return StorageError(
        f"Can't keep clients' ciphertexts until key holders are shown them, in {_folder() or tempfile.gettempdir()}: "
        f"{error.strerror or error}. Free some space there, or name another folder in TMPDIR."
    )
