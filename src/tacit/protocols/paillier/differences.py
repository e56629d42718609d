r"""What several opened sums tell together: which sets of clients may be opened after which, and what that proves.

A sum of enough clients hides each of them. Two sums may not: that of a hundred clients less that of ninety-nine of them
is one client's vector, where a server gave both rounds the same model. A key holder therefore remembers who was in
every sum it opened, over the life of its key, and goes by one of these rules, with k the fewest clients of a sum:

``pairs``
    A new set S has the same clients as an earlier set T, or differs from it by at least k:
    :math:`|S \mathbin{\triangle} T| \in \{0, k, k + 1, \ldots\}`. *Then no combination of two opened sums is of fewer
    than k clients.* In :math:`a \sum_S x + b \sum_T x` a client has the factor a, b or a + b, as it is in S only, in T
    only or in both. With b = 0 those are the clients of S, with a = 0 those of T, with a + b = 0 the difference, and
    otherwise all of both: none, or at least k. (Vectors that change between rounds only add unknowns.) *Three sums are
    not looked at together*: {1,2,3,4}, {1,2,5,6} and {3,4,5,6} differ by four each, and the first two less the third
    give twice the sum of clients 1 and 2.

``chains``
    Clients that were in the same sums so far are a group, and every group has at least k clients (those that were in no
    sum yet are none). *Then however many sums are opened, whatever is computed of them is of whole groups, and so of at
    least k clients*: every opened sum is :math:`\sum_{i \in S} x_i = \sum_{K \subseteq S} \sum_{i \in K} x_i` over the
    groups K in S, so all that is ever opened is a function of the groups' sums in each round. This also holds where
    vectors change from round to round. Cohorts that are drawn anew for each round break groups up soon; it is meant for
    runs in which all clients take part in every round, or fixed groups of them in turn.

``none``
    Sets are remembered and not compared. What two sums tell by their difference is then for noise to hide that clients
    add before they encrypt (``paillier --dp``): its epsilon is composed over all sums, whoever is in them.

A round in which a client drops out is refused under the first two where the others were opened with it before: the
server tries the round again, with the same clients or with a cohort that differs by k.

**Holders of shares** compare what they were asked themselves. Any two sums that t of l opened have a holder in common,
as 2t > l, and an honest one with fewer than 2t - l liars: it has compared them, so ``pairs`` holds. Of three sums there
may be none that saw all. With a key of 2 in 3, let {1, ..., 7} be opened by holders 1 and 2, {5, 6, 7} by 2 and 3 and
{1, 2, 3} by 1 and 3. Each holder has seen two sums, and groups of three at least; the first sum less the others is
client 4. So a share of a key that fewer than all holders open is not served under ``chains``.

Both proofs count clients, not vectors: who is in a sum is known by lasting identities that the holder's operator lists.
Sets are whole numbers here, a bit per client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from tacit.errors import CipherError

Rule = Literal["pairs", "chains", "none"]
RULES: tuple[Rule, ...] = get_args(Rule)


def check(new: int, past: Iterable[int], *, least: int, rule: Rule) -> None:
    """Refuse a set of clients that could expose fewer than ``least`` of them together with the ``past`` ones.

    >>> check(0b1111, [0b11110000], least=3, rule="pairs")
    >>> check(0b1111, [0b11111], least=3, rule="pairs")
    Traceback (most recent call last):
    ...
    tacit.errors.CipherError: the sum differs from one that was opened by 1 client, and was not opened: expected the \
same clients, or at least 3 others. Two sums that differ by a few show the few
    """
    sets = set(past)
    if rule == "none" or new in sets:
        return
    if rule == "pairs":
        apart = min(((new ^ other).bit_count() for other in sets), default=least)
        if apart < least:
            raise CipherError(
                f"the sum differs from one that was opened by {apart} client{'s' * (apart > 1)}, and was not opened: "
                f"expected the same clients, or at least {least} others. Two sums that differ by a few show the few"
            )
        return
    smallest = min(group.bit_count() for group in groups([new, *sets]))
    if smallest < least:
        raise CipherError(
            f"with this sum {smallest} client{'s' * (smallest > 1)} would have been in other sums than all others, and "
            f"it was not opened: expected groups of at least {least} that are always in the same sums"
        )


def groups(sets: Iterable[int]) -> list[int]:
    """Return the clients of some sets, parted by which of the sets they are in.

    >>> [f"{group:06b}" for group in groups([0b111100, 0b110011])]
    ['110000', '001100', '000011']
    """
    found: list[int] = []
    for each in sets:
        left = each
        for group in tuple(found):
            left &= ~group
            if 0 < (both := group & each) < group:
                found[found.index(group)] = both
                found.append(group & ~each)
        if left:
            found.append(left)
    return found
