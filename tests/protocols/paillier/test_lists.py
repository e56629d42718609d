"""A server that shows each holder of a share another list of clients: what it computes of parts of different products.

With `x_i` the product that holder i was shown, its part is `x_i^(2 Delta f(i))` for a polynomial f of degree t - 1, and
the server can multiply parts to powers `c_i` of its choice. It comes to a power of f(0), and so to a number, where
`sum_i c_i i^k` over the holders that were shown a client is zero for k = 1, ..., t - 1 and every client. What it opens
then gives each client the weight `sum_i c_i`, over the same holders (docs/mathematics.md, Blocks).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from tacit import wire
from tacit.crypto.ring import to_integers
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tests.protocols.paillier.run import LENGTH, Run
from tests.protocols.test_conformance import layout

TURN = wire.Turn(round_number=1)
Shown = frozenset[int]  # the holders that were shown a client
Weights = Mapping[Shown, Fraction]


def test_parts_of_three_lists_tell_one_combination_that_is_none_of_their_sums() -> None:
    """Of 2 in 3, and nobody lies but the server: two lists to one holder each, and to the third both in one.

    It is four times the sum of the first list and the second: what t holders open is one sum, and what each of them
    gives is not worthless without the others.
    """
    run = Run("threshold", clients=6)
    public, replies, lists = run.session.public, run.replies(), {1: range(3), 2: range(3, 6), 3: range(6)}
    assert isinstance(public, ThresholdPublic)
    n, form = public.key.n, layout(LENGTH, public.key.bits)
    parts = {}
    for holder, clients in lists.items():
        request = wire.pack(wire.Kind.OPEN, TURN, run.opening({c: replies[c] for c in clients}).to_bytes())
        given = wire.unpack(run.holders[-holder].answer(wire.unpack(request)))
        parts[holder] = to_integers(PartialDecryption.from_bytes(given.body, public).rows)
    shown = {holder: to_integers(run.added([replies[c][1] for c in lists[holder]]).rows) for holder in (1, 2)}
    scale, found = 4 * public.delta, []
    for row in range(form.rows):
        joined = gmpy2.mpz(1)
        for holder, power in {1: 12, 2: 6, 3: -4}.items():
            joined = joined * gmpy2.powmod(parts[holder][row], power, n) % n
        product = pow(shown[1][row], 4 * scale, n * n) * pow(shown[2][row], scale, n * n)
        left = product * gmpy2.powmod(joined, -n, n * n) % (n * n)
        assert left % n == 1
        found.append(int(left // n * gmpy2.invert(scale, n) % n))
    packed = [to_integers(form.encode(vector)[0]) for vector in run.vectors]
    sums = [np.sum([packed[client] for client in lists[holder]], axis=0) for holder in (1, 2)]
    assert found == (4 * sums[0] + sums[1]).tolist()


def _solutions(rows: Sequence[Sequence[int]], columns: int) -> list[list[Fraction]]:
    """Return a basis of what the rows send to zero."""
    left, leading = [[Fraction(value) for value in row] for row in rows], list[int]()
    for column in range(columns):
        at = next((i for i in range(len(leading), len(left)) if left[i][column]), None)
        if at is None:
            continue
        place = len(leading)
        left[place], left[at] = left[at], left[place]
        left[place] = [value / left[place][column] for value in left[place]]
        for i, row in enumerate(left):
            if i != place and row[column]:
                left[i] = [a - row[column] * b for a, b in zip(row, left[place], strict=True)]
        leading.append(column)
    found = []
    for free in (column for column in range(columns) if column not in leading):
        one = [Fraction(column == free) for column in range(columns)]
        for place, column in enumerate(leading):
            one[column] = -left[place][free]
        found.append(one)
    return found


def _vanishes(powers: Mapping[int, Fraction], shown: Shown, needed: int) -> bool:
    return not any(sum(powers[i] * i**k for i in shown) for k in range(1, needed))


def _mixtures(holders: Sequence[int], needed: int) -> Iterator[Weights]:
    """Return the weights of clients, by who was shown them, in all that is computed of more than one list."""
    enough = [frozenset(some) for size in range(needed, len(holders) + 1) for some in _of(holders, size)]
    known = set()
    for first, second in itertools.combinations(enough, 2):
        if len(first ^ second) < needed:  # too few for powers of their own to vanish
            continue
        rows = [[i**k * (i in shown) for i in holders] for shown in (first, second) for k in range(1, needed)]
        basis = _solutions(rows, len(holders))
        assert len(basis) <= 1  # one combination in all, whatever the powers are multiplied with
        for found in basis:
            lead = next(filter(None, found))
            powers = {holder: power / lead for holder, power in zip(holders, found, strict=True) if power}
            if (key := tuple(powers.items())) not in known:
                known.add(key)
                yield {
                    shown: sum((powers[i] for i in shown), Fraction())
                    for shown in enough
                    if shown <= powers.keys() and _vanishes(powers, shown, needed)
                }


def _of(holders: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(holders, size)


def _honest(holders: int, needed: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Return the honest holders and how many of their shares are missing, for all who may lie without opening two."""
    for liars in range(min(2 * needed - holders, needed - 1)):
        for honest in _of(range(1, holders + 1), holders - liars):
            yield honest, needed - liars


@pytest.mark.parametrize("holders", range(2, 7))
def test_whatever_is_computed_of_different_lists_has_a_whole_list_at_its_largest_weight(holders: int) -> None:
    """So it is of enough clients, and the noise in it, by the weight of any client, is that of enough clients."""
    for needed in range(holders // 2 + 1, holders + 1):
        for honest, missing in _honest(holders, needed):
            for weights in _mixtures(honest, missing):
                for count in range(1, len(weights) + 1):
                    for used in map(dict, itertools.combinations(weights.items(), count)):
                        largest = max(map(abs, used.values()))
                        asked = frozenset[int]().union(*used)
                        lists = [[abs(used[shown]) for shown in used if holder in shown] for holder in asked]
                        assert not largest or any(set(one) == {largest} for one in lists)


@pytest.mark.parametrize(("needed", "holders"), [(2, 2), (3, 3), (3, 4), (4, 5), (5, 6), (5, 7)])
def test_nothing_is_computed_of_different_lists_where_more_than_two_thirds_are_needed(
    needed: int, holders: int
) -> None:
    """With fewer than 3t - 2l liars; so for no list but those of 3t <= 2l, as 2 of 3 is."""
    for liars in range(3 * needed - 2 * holders):
        for honest in _of(range(1, holders + 1), holders - liars):
            if needed - liars > 1:
                assert not any(_mixtures(honest, needed - liars))
    assert any(_mixtures((1, 2, 3), 2))
