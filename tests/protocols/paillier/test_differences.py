"""What several opened sums tell together: the rules are compared with every combination, by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from tacit.errors import CipherError
from tacit.protocols.paillier.differences import RULES, Rule, check, groups

CLIENTS, LEAST = 8, 3


def _exposed(sets: Sequence[int], most: int = 2) -> int:
    """Return the fewest clients of any combination of sums with small whole factors, of one that is not empty."""
    found = CLIENTS
    for factors in itertools.product(range(-most, most + 1), repeat=len(sets)):
        weights = [sum(a for a, each in zip(factors, sets, strict=True) if each >> i & 1) for i in range(CLIENTS)]
        found = min(found, sum(map(bool, weights)) or CLIENTS)
    return found


def _opened(rule: Rule, seed: int, tries: int) -> list[int]:
    """Return the sets that a holder opens of a server that asks for whatever it likes."""
    draw = random.Random(seed)
    opened: list[int] = []
    for _ in range(tries):
        new = draw.getrandbits(CLIENTS) if rule == "pairs" or not opened else _of_groups(draw, opened)
        if new.bit_count() < LEAST:
            continue
        try:
            check(new, opened, least=LEAST, rule=rule)
        except CipherError:
            continue
        opened.append(new)
    return opened


def _of_groups(draw: random.Random, opened: Sequence[int]) -> int:
    """Return a set that is sometimes made of groups, so that some pass, and sometimes a client off."""
    chosen = sum(group for group in groups(opened) if draw.random() < 0.5)
    return chosen ^ (draw.getrandbits(CLIENTS) if draw.random() < 0.5 else 0)


@pytest.mark.parametrize("seed", range(20))
def test_no_two_sums_tell_of_fewer_than_the_least(seed: int) -> None:
    opened = _opened("pairs", seed, 12)
    assert len(opened) > 2
    assert min(_exposed(pair, 4) for pair in itertools.combinations(opened, 2)) >= LEAST


@pytest.mark.parametrize("seed", range(20))
def test_no_chain_of_sums_tells_of_fewer_than_the_least(seed: int) -> None:
    opened = list(dict.fromkeys(_opened("chains", seed, 30)))
    assert opened
    assert _exposed(opened[:4], 3) >= LEAST


def test_three_sums_that_differ_by_four_each_expose_two_clients_where_pairs_are_looked_at() -> None:
    """What does not hold, and is stated; the rule of chains refuses it."""
    sets = [0b1111, 0b110011, 0b111100]
    for number in range(3):
        check(sets[number], sets[:number], least=4, rule="pairs")
    assert _exposed(sets) == 2
    with pytest.raises(CipherError, match="2 clients would have been in other sums than all others"):
        check(sets[1], sets[:1], least=4, rule="chains")


def test_the_whole_less_two_parts_is_seen_as_a_chain() -> None:
    parts, whole = [0b00001111, 0b01110000], 0b11111111
    check(whole, parts, least=3, rule="pairs")
    with pytest.raises(CipherError, match="1 client would have been"):
        check(whole, parts, least=3, rule="chains")


@pytest.mark.parametrize("rule", ["pairs", "chains"])
def test_one_drop_out_is_refused_and_the_same_clients_again_are_not(rule: Rule) -> None:
    everybody = 0b111111
    check(everybody, [everybody], least=3, rule=rule)
    with pytest.raises(CipherError, match="not opened"):
        check(everybody ^ 1, [everybody], least=3, rule=rule)
    check(everybody ^ 0b111, [everybody], least=3, rule=rule)
    check(everybody ^ 1, [everybody], least=3, rule="none")


def test_groups_part_the_clients_by_the_sums_they_are_in() -> None:
    draw = random.Random(5)
    for _ in range(50):
        sets = [draw.getrandbits(CLIENTS) for _ in range(4)]
        found = groups(sets)
        members = {i: tuple(each >> i & 1 for each in sets) for i in range(CLIENTS)}
        histories = {history for history in members.values() if any(history)}
        assert sorted(found) == sorted(sum(1 << i for i in members if members[i] == one) for one in histories)


def test_of_three_sums_no_holder_of_two_in_three_may_have_seen_all() -> None:
    """Why `chains` is not served with such a share: each holder sees groups of three, and client 4 is left alone."""
    sums = [0b1111111, 0b1110000, 0b0000111]
    for seen in itertools.combinations(sums, 2):
        for rule in RULES:
            check(seen[1], seen[:1], least=LEAST, rule=rule)
    assert _exposed(sums) == 1
    with pytest.raises(CipherError, match="1 client would have been in other sums"):
        check(sums[2], sums[:2], least=LEAST, rule="chains")
