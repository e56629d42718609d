"""The private choice of coordinates: the documented numbers, the exact law, and the bound it promises."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit.errors import ConfigError
from tacit.mechanisms.selection import Selection, plan
from tacit.randomness import Randomness
from tests.mechanisms.laws import FALSE_ALARM

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors" / "dp.json"
SMALL = Selection(dimensions=8, largest=3, chosen=3, threshold=2, epsilon=1.2)
DOCUMENTED = [  # d, sign_k, eps -> h, nu, expected hits; ratio 0.6
    (66_404, 0.2, 100.0, 176, 118, 117.8742209),
    (66_104, 0.2, 100.0, 176, 118, 117.8738247),
    (800_000, 0.2, 100.0, 180, 120, 119.7585299),
    (21_840, 0.2, 100.0, 179, 119, 118.8392583),
    (66_404, 0.01, 100.0, 43, 26, 25.96291646),
    (10**8, 0.01, 100.0, 43, 26, 25.97978250),
    (21_840, 0.2, 10.0, 14, 9, 8.455971005),
    (21_840, 0.05, 4.0, 1, 1, 0.7418413372),
    (10**6, 0.1, 8.0, 4, 3, 2.808572891),
]


@pytest.mark.parametrize(("d", "share", "epsilon", "h", "nu", "hits"), DOCUMENTED)
def test_the_documented_plans(d: int, share: float, epsilon: float, h: int, nu: int, hits: float) -> None:
    found = plan(dimensions=d, share=share, epsilon=epsilon, ratio=0.6)
    assert (found.chosen, found.threshold) == (h, nu)
    assert found.expected_hits == pytest.approx(hits, rel=1e-9)


@pytest.mark.skipif(not VECTORS.exists(), reason="needs the vectors beside the checkout")
def test_the_vectors() -> None:
    vectors: dict[str, Any] = json.loads(VECTORS.read_text())["signds"]
    for case in vectors["dims"]:
        found = plan(dimensions=case["d"], share=case["sign_k"], epsilon=case["eps"], ratio=case["thr_ratio"])
        assert (found.largest, found.chosen, found.threshold) == (case["k"], case["h"], case["nu_th"])
        assert found.expected_hits == pytest.approx(case["E_v"], rel=1e-12)
        assert found.probabilities[found.threshold :].sum() == pytest.approx(case["P_ge_th"], rel=1e-12)
    for case in (vectors["pmf_small"], vectors["pmf_mid"]):
        made = Selection(
            dimensions=case["d"], largest=case["k"], chosen=case["h"], threshold=case["nu_th"], epsilon=case["eps"]
        )
        np.testing.assert_allclose(made.probabilities, case["pmf"], rtol=1e-11)


def test_a_hundred_million_coordinates_are_no_trouble() -> None:
    """Where comb() * exp() overflows, and lgamma has lost seven digits."""
    found = plan(dimensions=10**8, share=0.25, epsilon=100.0, ratio=0.5)
    assert found.expected_hits >= 0.5 * found.chosen > 0
    assert math.isfinite(found.any_set)


def test_the_plan_stops_at_a_limit() -> None:
    assert plan(dimensions=66_404, share=0.2, epsilon=100.0, most=40).chosen == 40
    assert plan(dimensions=66_404, share=0.2, epsilon=1.0, most=40).chosen == 1
    assert plan(dimensions=66_404, share=0.2, epsilon=100.0, chosen=50).chosen == 50


def _exact(selection: Selection, largest: set[int]) -> dict[tuple[int, ...], float]:
    """Return the probability of each set by the definition of the mechanism, with whole binomials."""
    sets = list(itertools.combinations(range(selection.dimensions), selection.chosen))
    weights = [math.exp(selection.epsilon * (len(largest & set(j)) >= selection.threshold)) for j in sets]
    return {j: weight / sum(weights) for j, weight in zip(sets, weights, strict=True)}


@pytest.mark.parametrize(("threshold", "epsilon"), [(2, 1.2), (1, 0.3), (3, 4.0)])
def test_the_bound_by_enumeration(threshold: int, epsilon: float) -> None:
    """Over all pairs of inputs and all outputs, the largest ratio of probabilities is e^eps, and it is attained."""
    selection = Selection(dimensions=8, largest=3, chosen=3, threshold=threshold, epsilon=epsilon)
    tops = [set(top) for top in itertools.combinations(range(8), 3)]
    laws = np.array([list(_split_law(selection, top).values()) for top in tops])
    np.testing.assert_allclose(laws.sum(axis=1), 1.0, rtol=1e-12)
    ratio = (laws[:, None, :] / laws[None, :, :]).max()
    assert ratio == pytest.approx(math.exp(epsilon), rel=1e-9)
    assert ratio <= math.exp(epsilon)
    for top, law in zip(tops, laws, strict=True):
        np.testing.assert_allclose(law, list(_exact(selection, top).values()), rtol=1e-9)


def _split_law(selection: Selection, largest: set[int]) -> dict[tuple[int, ...], float]:
    """Return the law of :meth:`Selection.draw` from the numbers it draws by: any set, or the tail and two choices."""
    q, tail = selection.any_set, np.diff(np.array(selection.sets, float) / selection.sets[-1], prepend=0.0)
    k, d, h = selection.largest, selection.dimensions, selection.chosen
    law = {}
    for named in itertools.combinations(range(d), h):
        hits = len(largest & set(named))
        law[named] = q / math.comb(d, h)
        if hits >= selection.threshold:
            ways = math.comb(k, hits) * math.comb(d - k, h - hits)
            law[named] += (1.0 - q) * tail[hits - selection.threshold] / ways
    return law


@pytest.mark.parametrize("randomness", [Randomness.of(seed=3), Randomness.of(seed=None)], ids=["seeded", "system"])
def test_the_sampler_against_the_exact_law_at_d_8(randomness: Randomness) -> None:
    largest, others = np.array([6, 1, 3]), np.array([0, 2, 4, 5, 7])
    draws = 20_000
    counts: Counter[tuple[int, ...]] = Counter()
    for number in range(draws):
        counts[tuple(SMALL.draw(largest, others, randomness.within(number)).tolist())] += 1
    for factor, accepted in ((1.0, True), (1.3, False)):
        changed = Selection(dimensions=8, largest=3, chosen=3, threshold=2, epsilon=1.2 * factor)
        law = _exact(changed, {1, 3, 6})
        test = stats.chisquare([counts[j] for j in law], [draws * p for p in law.values()])
        assert bool(test.pvalue > FALSE_ALARM) is accepted


def test_the_sampler_against_the_exact_law_at_d_200() -> None:
    """The hits by their law; given them, every coordinate inside equally often, and every one outside."""
    selection = plan(dimensions=200, share=0.2, epsilon=6.0)
    assert (selection.largest, selection.chosen) == (40, 6)
    update = np.random.default_rng(4).normal(size=200).astype(np.float32)
    top = set(np.argsort(update)[-40:].tolist())
    largest, others = selection.split(update, 1)
    assert set(largest.tolist()) == top
    assert sorted([*largest, *others]) == list(range(200))
    root, draws = Randomness.of(seed=11), 12_000
    hits: Counter[int] = Counter()
    named = np.zeros(200)
    for number in range(draws):
        drawn = selection.draw(largest, others, root.within(number))
        assert drawn.tolist() == sorted(set(drawn.tolist()))
        hits[len(top & set(drawn.tolist()))] += 1
        named[drawn] += 1
    seen = np.array([hits[v] for v in range(7)])
    for change, accepted in ((0, True), (1, False)):
        other = Selection(
            dimensions=200, largest=40, chosen=6, threshold=selection.threshold - change, epsilon=selection.epsilon
        )
        expected = draws * other.probabilities
        assert expected.min() > 1.0
        assert bool(stats.chisquare(seen, expected).pvalue > 1e-6) is accepted
    inside = np.isin(np.arange(200), list(top))
    for part in (named[inside], named[~inside]):
        assert stats.chisquare(part).pvalue > 1e-6


def test_the_least_likely_set_is_not_impossible() -> None:
    """At epsilon 100 a set without hits has a probability of 1e-42; a uniform double would never give it."""
    certain = Selection(dimensions=8, largest=2, chosen=1, threshold=1, epsilon=100.0)
    assert 0.0 < certain.any_set < 1e-40
    assert certain.any_set == pytest.approx(math.exp(-100.0) * 4.0, rel=1e-9)
    asked: list[float] = []

    class Watching(Randomness):
        def chance(self, probability: float, *purpose: str | int) -> bool:
            asked.append(probability)
            return True

    drawn = certain.draw(np.array([0, 1]), np.arange(2, 8), Watching(key=bytes(16), simulation=True))
    assert (len(drawn), asked) == (1, [certain.any_set])


class Drawing(Randomness):
    """A source whose hits are drawn from the very end of the law, where a sum of doubles is a rounding below one."""

    def chance(self, probability: float, *purpose: str | int) -> bool:
        return False

    def below(self, bound: int, *purpose: str | int) -> int:
        return bound - 1 - bound // 10**14

    def integers(self, below: int, count: int, *purpose: str | int) -> NDArray[np.int64]:
        if "hits" in purpose:
            return np.full(count, below - 1)
        return super().integers(below, count, *purpose)


def test_sets_of_nothing_but_hits_come_as_rarely_as_the_law_has_it() -> None:
    """By doubles they came with probability 8.5e-15 in place of 4e-86, which broke the bound 10^71 times over."""
    selection = plan(dimensions=21_840, share=0.2, epsilon=100.0)
    largest = np.arange(selection.largest)
    others = np.arange(selection.largest, selection.dimensions)
    drawn = selection.draw(largest, others, Drawing(key=bytes(16), simulation=True))
    hits = np.count_nonzero(drawn < selection.largest)
    assert selection.threshold < hits < selection.chosen - 20  # the last 1e-14 of the law is far from all hits
    all_hits = Fraction(selection.sets[-1] - selection.sets[-2], selection.sets[-1])
    assert 1e-87 < float(all_hits) < 1e-84


@pytest.mark.parametrize(("d", "share", "epsilon"), [case[:3] for case in DOCUMENTED])
def test_the_bound_in_whole_numbers(d: int, share: float, epsilon: float) -> None:
    """The odds of a set with enough hits against one without, from the numbers that are drawn by, at any size."""
    selection = plan(dimensions=d, share=share, epsilon=epsilon)
    mpmath.mp.dps = 60
    total, favoured = math.comb(d, selection.chosen), selection.sets[-1]
    q = mpmath.mpf(selection.any_set)
    odds = 1 + (1 - q) / q * mpmath.mpf(total) / favoured
    assert epsilon - 1e-9 < mpmath.log(odds) <= epsilon


def test_the_smallest_are_chosen_for_minus_one() -> None:
    update = np.array([5, -3, 2, -8, 0, 7, 1, -1], np.float32)
    largest, others = SMALL.split(update, -1)
    assert set(largest.tolist()) == {3, 1, 7}
    assert set(others.tolist()) == {0, 2, 4, 5, 6}
    assert set(SMALL.split(update, 1)[0].tolist()) == {5, 0, 2}


def test_all_coordinates_may_be_named() -> None:
    everything = Selection(dimensions=6, largest=2, chosen=6, threshold=2, epsilon=1.0)
    assert everything.draw(np.array([0, 1]), np.arange(2, 6), Randomness.of(seed=1)).tolist() == list(range(6))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": 0.0}, r"sign_k=0.0 .* expected a number in \(0, 0.25\]"),
        ({"share": 0.26}, r"sign_k=0.26 .* expected a number in \(0, 0.25\]"),
        ({"share": math.nan}, r"sign_k=nan .* expected a number in \(0, 0.25\]"),
        ({"epsilon": 0.0}, r"sign_eps=0.0 .* expected a number in \(0, 100\]"),
        ({"epsilon": 100.1}, r"sign_eps=100.1 .* expected a number in \(0, 100\]"),
        ({"ratio": 0.49}, r"sign_thr_ratio=0.49 .* expected a number in \[0.5, 1\]"),
        ({"ratio": 1.01}, r"sign_thr_ratio=1.01 .* expected a number in \[0.5, 1\]"),
        ({"chosen": 51}, r"sign_dim_out=51 .* expected a number in \[0, 50\]"),
        ({"chosen": -1}, r"sign_dim_out=-1 .* expected a number in \[0, 50\]"),
        ({"most": 0}, r"h_max=0 .* expected a number in \[1, ...\)"),
        ({"dimensions": 3, "share": 0.2}, "sign_k=0.2 of 3 coordinates is less than one"),
    ],
)
def test_domains(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(**{"dimensions": 1_000, "share": 0.1, "epsilon": 10.0} | change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chosen": 9}, "Expected 1 <= chosen <= 8"),
        ({"largest": 8}, "not all"),
        ({"threshold": 4}, "Expected 1 <= threshold <= 3"),
        ({"threshold": 0}, "Expected 1 <= threshold <= 3"),
    ],
)
def test_impossible_selections(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Selection(**{"dimensions": 8, "largest": 3, "chosen": 3, "threshold": 2, "epsilon": 1.0} | change)
