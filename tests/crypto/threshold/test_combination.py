from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from tacit.crypto import paillier
from tacit.crypto.ring import Rows, from_integers, to_integers
from tacit.crypto.threshold import PartialDecryption, combination
from tacit.crypto.threshold.combination import weights
from tacit.errors import CipherError
from tests.crypto.threshold.common import OTHER, dealt

PUBLIC, SHARES = dealt(5, 3)
N = PUBLIC.key.n
VECTOR = PUBLIC.key.encrypt(np.arange(-20, 20))
PARTIALS = {share.index: share.partial(VECTOR, prove=True) for share in SHARES}


def shifted(rows: Rows, factor: int, place: int = 0) -> Rows:
    numbers = to_integers(rows)
    numbers[place] = numbers[place] * factor % N
    return from_integers(numbers, 32)


def wrong(index: int, *, place: int = 0) -> PartialDecryption:
    return replace(PARTIALS[index], rows=shifted(PARTIALS[index].rows, (5, 7, 11, 13, 17)[index - 1], place))


def given(*indices: int, wrong_ones: tuple[int, ...] = ()) -> list[PartialDecryption]:
    return [wrong(index) if index in wrong_ones else PARTIALS[index] for index in indices]


def bare(partials: Iterable[PartialDecryption]) -> list[PartialDecryption]:
    return [replace(partial, proof=None) for partial in partials]


def test_more_shares_than_needed_are_welcome() -> None:
    for verify in (False, True):
        result = PUBLIC.combine(VECTOR, PARTIALS.values(), verify=verify)
        assert (result.used, result.wrong) == ((1, 2, 3), ())
        assert result.value.tolist() == list(range(-20, 20))


def test_too_few_shares_are_counted_and_the_absent_named() -> None:
    with pytest.raises(CipherError, match=r"Got shares 1, 4, expected 3 of 5: 1 too few.*any of shares 2, 3, 5\."):
        PUBLIC.combine(VECTOR, given(4, 1))
    with pytest.raises(CipherError, match=r"Got no share, expected 3 of 5: 3 too few"):
        PUBLIC.combine(VECTOR, [])


def test_a_share_given_twice_is_named() -> None:
    with pytest.raises(CipherError, match=r"more than once: share 2\."):
        PUBLIC.combine(VECTOR, given(1, 2, 2, 3))


def test_shares_of_another_key_are_named() -> None:
    other, shares = dealt(5, 4)  # the same modulus, another polynomial
    total = other.key.encrypt(1)
    strangers = [share.partial(total) for share in shares[:2]]
    with pytest.raises(CipherError, match=r"another threshold key than .*: shares 1, 2\."):
        PUBLIC.combine(VECTOR, [*strangers, *given(3, 4, 5)])


def test_a_ciphertext_of_another_key_is_refused() -> None:
    other, _ = dealt(5, 3, OTHER)
    stranger = other.key.encrypt(np.arange(4))
    with pytest.raises(CipherError, match="this threshold key encrypts with"):
        PUBLIC.combine(stranger, PARTIALS.values())
    with pytest.raises(CipherError, match="share 1 is of a threshold key that encrypts with"):
        SHARES[0].partial(stranger)


def test_a_partial_for_another_ciphertext_is_named() -> None:
    again = PUBLIC.key.encrypt(np.arange(-20, 20))
    replayed = [SHARES[index - 1].partial(again, prove=True) for index in (2, 5)]
    for verify in (False, True):
        with pytest.raises(CipherError, match=r"another ciphertext than this one: shares 2, 5\."):
            PUBLIC.combine(VECTOR, [*replayed, *given(1, 3, 4)], verify=verify)


def test_a_partial_for_another_integer_is_named() -> None:
    one, two = PUBLIC.key.encrypt(1), PUBLIC.key.encrypt(1)
    partials = [SHARES[0].partial(one), SHARES[1].partial(one), SHARES[2].partial(two)]
    with pytest.raises(CipherError, match=r"another ciphertext than this one: share 3\."):
        PUBLIC.combine(one, partials)


def test_the_same_rows_read_in_another_way_are_another_ciphertext() -> None:
    for changed in (
        replace(VECTOR, summands=2),
        replace(VECTOR, layout=replace(VECTOR.layout, step=0.5)),
        replace(VECTOR, rows=VECTOR.rows[::-1].copy()),
    ):
        with pytest.raises(CipherError, match="another ciphertext"):
            PUBLIC.combine(changed, PARTIALS.values())
    single = PUBLIC.key.encrypt(np.array([5]))
    integer = paillier.Ciphertext(key=PUBLIC.key, row=single.rows)
    with pytest.raises(CipherError, match="another ciphertext"):
        PUBLIC.combine(integer, [share.partial(single) for share in SHARES])


def test_a_relabelled_replay_is_found_out() -> None:
    """A digest can be pasted; the numbers can't."""
    again = PUBLIC.key.encrypt(np.arange(-20, 20))
    pasted = replace(SHARES[1].partial(again, prove=True), ciphertext=PARTIALS[2].ciphertext)
    with pytest.raises(CipherError, match="One of shares 1, 2, 3 is wrong"):
        PUBLIC.combine(VECTOR, bare([pasted, *given(1, 3)]))
    result = PUBLIC.combine(VECTOR, [pasted, *given(1, 3, 4)], verify=True)
    assert (result.used, result.wrong) == ((1, 3, 4), (2,))


def test_a_share_under_another_number_is_found_out() -> None:
    pasted = replace(PARTIALS[5], index=2)
    with pytest.raises(CipherError, match="One of shares 1, 2, 3 is wrong"):
        PUBLIC.combine(VECTOR, bare([pasted, *given(1, 3)]))
    assert PUBLIC.combine(VECTOR, [pasted, *given(1, 3, 4)], verify=True).wrong == (2,)


@pytest.mark.parametrize("place", [0, 3, len(VECTOR.rows) - 1])
def test_a_wrong_share_among_just_enough_gives_no_result(place: int) -> None:
    with pytest.raises(CipherError, match=r"One of shares 1, 3, 5 is wrong.*Ask for proofs"):
        PUBLIC.combine(VECTOR, bare([PARTIALS[1], wrong(3, place=place), PARTIALS[5]]))
    with pytest.raises(CipherError, match=r"proofs of share 3 don't hold, and shares 1, 5 are fewer than the 3"):
        PUBLIC.combine(VECTOR, [PARTIALS[1], wrong(3, place=place), PARTIALS[5]])


@pytest.mark.parametrize("bad", range(1, 6))
def test_one_wrong_share_of_more_is_named_without_proofs(bad: int) -> None:
    result = PUBLIC.combine(VECTOR, bare(given(1, 2, 3, 4, 5, wrong_ones=(bad,))))
    assert result.value.tolist() == list(range(-20, 20))
    assert bad not in result.used
    if bad <= 3:  # otherwise nobody looked at it
        assert result.wrong == (bad,)


@pytest.mark.parametrize("bad", list(itertools.combinations(range(1, 6), 2)))
def test_two_wrong_shares_are_named(bad: tuple[int, int]) -> None:
    partials = given(1, 2, 3, 4, 5, wrong_ones=bad)
    result = PUBLIC.combine(VECTOR, partials, verify=True)
    good = tuple(index for index in range(1, 6) if index not in bad)
    assert (result.used, result.wrong) == (good, bad)
    assert result.value.tolist() == list(range(-20, 20))
    for unverified in (partials, bare(partials)):
        guessed = PUBLIC.combine(VECTOR, unverified)
        assert guessed.value.tolist() == list(range(-20, 20))
        assert guessed.wrong in ((), bad)


@pytest.mark.parametrize("bad", list(itertools.combinations(range(1, 6), 2)))
def test_proofs_of_some_help_to_find_the_others(bad: tuple[int, int]) -> None:
    """Shares 2 and 4 come with proofs, the others without."""
    some = [
        partial if partial.index in (2, 4) else replace(partial, proof=None)
        for partial in given(1, 2, 3, 4, 5, wrong_ones=bad)
    ]
    result = PUBLIC.combine(VECTOR, some)
    assert result.value.tolist() == list(range(-20, 20))
    assert result.wrong in ((), bad)


def test_a_key_holders_proof_is_looked_at_alone() -> None:
    partials = given(1, 2, 3, 4, 5, wrong_ones=(1, 3, 4, 5))
    partials[2] = replace(partials[2], proof=None)
    assert PUBLIC.disproved(VECTOR, partials) == (1, 4, 5)
    assert PUBLIC.disproved(VECTOR, given(1, 2)) == ()


def test_too_many_wrong_shares() -> None:
    partials = given(1, 2, 3, 4, 5, wrong_ones=(1, 2, 4))
    with pytest.raises(CipherError, match=r"proofs of shares 1, 2, 4 don't hold, and shares 3, 5 are fewer than the 3"):
        PUBLIC.combine(VECTOR, partials, verify=True)
    with pytest.raises(CipherError, match=r"Of shares 1, 2, 3, 4, 5 fewer than 3 are right: no selection"):
        PUBLIC.combine(VECTOR, bare(partials))


def test_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def watched(shares: Iterable[int]) -> tuple[int, dict[int, int]]:
        tried.append(tuple(shares))
        return weights(tried[-1])

    monkeypatch.setattr(combination, "_SELECTIONS", 4)
    monkeypatch.setattr(combination, "weights", watched)
    with pytest.raises(CipherError, match=r"none of 4 selections of 3 combines, of 10.*Ask for proofs"):
        PUBLIC.combine(VECTOR, bare(given(1, 2, 3, 4, 5, wrong_ones=(1, 2, 4))))
    assert len(tried) == 1 + 4  # the first three, then the search


def test_among_many_holders_two_liars_are_found_wherever_they_sit() -> None:
    """In the order of numbers the liars 1 and 2 would be in the first ten thousand selections."""
    public, shares = dealt(21, 11)
    total = public.key.encrypt(77)
    partials = [share.partial(total) for share in shares]
    for place in (0, 1):
        partials[place] = replace(partials[place], rows=from_integers([5 + place], 32))
    result = public.combine(total, partials)
    assert (result.value, result.wrong) == (77, (1, 2))


def test_a_lie_that_would_shift_the_message_of_the_direct_scheme_changes_nothing() -> None:
    """Two conspirators whose errors cancel give the right value: there is no other that passes."""
    _, factors = weights([1, 2, 3])
    shift = pow(11, 2, N)
    first = replace(PARTIALS[1], rows=shifted(PARTIALS[1].rows, pow(shift, factors[2], N)))
    second = replace(PARTIALS[2], rows=shifted(PARTIALS[2].rows, pow(shift, -factors[1], N)))
    result = PUBLIC.combine(VECTOR, [first, second, *given(3, 4)])
    assert (result.value.tolist(), result.used) == (list(range(-20, 20)), (1, 2, 3))
    assert PUBLIC.combine(VECTOR, [first, second, *given(3, 4, 5)], verify=True).wrong == (1, 2)


def test_missing_proofs_are_named() -> None:
    some = bare(given(1, 4))
    with pytest.raises(CipherError, match=r"Without a proof: shares 1, 4\..*prove=True"):
        PUBLIC.combine(VECTOR, [*some, *given(2, 3)], verify=True)
    assert PUBLIC.combine(VECTOR, [*some, *given(2)]).used == (1, 2, 4)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (np.zeros((6, 32), np.uint8), "Number 0 of 6 of share 1 is 0"),
        (np.full((6, 32), 255, np.uint8), "Number 0 of 6 of share 1 is not below n"),
        (np.ones((6, 31), np.uint8), "numbers of 32 bytes"),
        (np.ones((0, 32), np.uint8), "numbers of 32 bytes"),
        (np.ones(32, np.uint8), "numbers of 32 bytes"),
        (np.ones((1, 32), np.uint8), "another ciphertext than this one: share 1"),
    ],
)
def test_rows_that_no_holder_makes(rows: Rows, problem: str) -> None:
    with pytest.raises(CipherError, match=problem):
        PUBLIC.combine(VECTOR, [replace(PARTIALS[1], rows=rows), *given(2, 3)])


def test_divisors_of_n_are_refused() -> None:
    p = 0xFBD70A27EFA7341D0E85896D7D5B8B2B
    rows = from_integers([p, *to_integers(PARTIALS[1].rows)[1:]], 32)
    with pytest.raises(CipherError, match="share 1 has a divisor in common with n"):
        PUBLIC.combine(VECTOR, [replace(PARTIALS[1], rows=rows), *given(2, 3)])
    width = VECTOR.rows.shape[1]
    forged = replace(VECTOR, rows=from_integers([p, *to_integers(VECTOR.rows)[1:]], width))
    with pytest.raises(CipherError, match="divisor in common"):
        SHARES[0].partial(forged)


def test_numbers_of_no_share_are_refused() -> None:
    for index in (0, 6, -1):
        with pytest.raises(CipherError, match=f"no share {index}: this key has shares 1 to 5"):
            PUBLIC.combine(VECTOR, [replace(PARTIALS[1], index=index), *given(2, 3)])


def test_what_is_no_ciphertext_is_refused() -> None:
    with pytest.raises(CipherError, match="Expected an encrypted integer or vector, got int"):
        SHARES[0].partial(5)  # type: ignore[arg-type]
    with pytest.raises(CipherError, match="Expected an encrypted integer or vector, got bytes"):
        PUBLIC.combine(b"", PARTIALS.values())  # type: ignore[call-overload]


def test_a_sum_that_no_honest_clients_made_is_refused() -> None:
    """The layout's checks run on combined sums as they do for one key holder."""
    row = PUBLIC.key.encrypt(N // 2 - 1).row
    single = PUBLIC.key.encrypt(np.array([1]))
    forged = replace(single, rows=row)
    with pytest.raises(CipherError, match="can't be one"):
        PUBLIC.combine(forged, [share.partial(forged) for share in SHARES])
