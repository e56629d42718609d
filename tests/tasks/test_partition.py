from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.tasks.partition import Dirichlet, Iid, Natural, Power, Shards, Split, parse

SPLITS: list[Split] = [
    Iid(),
    Dirichlet(alpha=0.05),
    Dirichlet(alpha=0.3),
    Dirichlet(alpha=1e6),
    Dirichlet(alpha=1e-300),
    Shards(per_client=1),
    Shards(per_client=3),
    Power(exponent=0),
    Power(exponent=1.2),
    Power(exponent=400),
]


def _assign(
    split: Split,
    labels: NDArray[np.int64],
    clients: int,
    seed: int = 0,
    groups: NDArray[np.int64] | None = None,
) -> list[NDArray[np.int64]]:
    return list(split.assign(labels, clients=clients, groups=groups, generator=np.random.default_rng(seed)))


@given(
    split=st.sampled_from(SPLITS),
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    clients=st.integers(1, 30),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_every_split_is_disjoint_covers_and_leaves_nobody_empty(
    split: Split, labels: list[int], clients: int, seed: int
) -> None:
    needed = clients * split.per_client if isinstance(split, Shards) else clients
    array = np.array(labels, dtype=np.int64)
    if needed > len(labels):
        with pytest.raises(ConfigError):
            _assign(split, array, clients, seed)
        return
    shares = _assign(split, array, clients, seed)
    assert len(shares) == clients
    assert all(len(rows) >= 1 for rows in shares)
    assert all(np.all(np.diff(rows) > 0) for rows in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))
    sizes = sorted(len(rows) for rows in shares)
    if isinstance(split, Iid):
        assert sizes[-1] - sizes[0] <= 1
    if isinstance(split, Shards):
        assert sizes[-1] - sizes[0] <= split.per_client


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_the_generator_decides_and_nothing_else(split: Split) -> None:
    labels = np.arange(600, dtype=np.int64) % 7
    first, again, other = (_assign(split, labels, 9, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def _skew(shares: list[NDArray[np.int64]], labels: NDArray[np.int64]) -> float:
    counts = np.array([np.bincount(labels[rows], minlength=10) for rows in shares])
    own = counts / counts.sum(axis=1, keepdims=True)
    return float(np.abs(own - 0.1).sum(axis=1).mean() / 2)


def test_alpha_sets_the_skew_of_classes() -> None:
    labels = np.arange(20_000, dtype=np.int64) % 10
    skews = [_skew(_assign(Dirichlet(alpha=alpha), labels, 20), labels) for alpha in (0.05, 0.5, 5, 1e6)]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.6
    assert skews[-1] < 0.01
    assert _skew(_assign(Iid(), labels, 20), labels) < 0.06


def test_dirichlet_shares_have_the_mean_and_spread_of_the_law() -> None:
    # With one class, a client's part is a Dirichlet share: mean 1/k, variance (k-1)/(k^2 (k a + 1)).
    labels = np.zeros(10_000, dtype=np.int64)
    shares = np.array([[len(rows) for rows in _assign(Dirichlet(alpha=0.7), labels, 5, seed)] for seed in range(400)])
    fractions = shares / len(labels)
    assert np.allclose(fractions.mean(axis=0), 0.2, atol=0.03)
    expected = 4 / (25 * (5 * 0.7 + 1))
    assert 0.9 * expected < fractions.var() < 1.1 * expected


def test_many_clients_of_an_even_dirichlet_are_about_even() -> None:
    # 0.6 rows a class and client: rounding must not starve the same clients in every class.
    labels = np.arange(6_000, dtype=np.int64) % 10
    sizes = np.array([len(rows) for rows in _assign(Dirichlet(alpha=1e6), labels, 1_000)])
    assert np.count_nonzero(sizes == 1) < 20
    assert sizes.std() < 2


def test_shards_limit_the_classes_of_a_client() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
    shares = _assign(Shards(per_client=2), labels, 50)
    seen = [len(np.unique(labels[rows])) for rows in shares]
    assert max(seen) == 2  # a shard of 10 rows lies within one class of 100
    assert {len(rows) for rows in shares} == {20}


def test_power_sizes_follow_the_law() -> None:
    sizes = Power(exponent=1.2).sizes(60_000, clients=100)
    assert sizes.sum() == 60_000
    ranks = np.arange(1, 101)
    expected = 60_000 * ranks**-1.2 / (ranks**-1.2).sum()
    assert np.abs(sizes - expected).max() <= 1
    steep = Power(exponent=3).sizes(1_000, clients=100)
    assert steep.sum() == 1_000
    assert steep.min() == 1
    assert np.all(np.diff(steep) <= 0)
    # Those above the minimum keep their proportions.
    assert steep[0] / steep[1] == pytest.approx(8, rel=0.02)


def test_natural_keeps_holders_whole_and_in_order() -> None:
    groups = np.array([2, 0, 1, 0, 2, 2, 3])
    labels = np.zeros(7, dtype=np.int64)
    everybody = _assign(Natural(), labels, 4, groups=groups)
    assert [rows.tolist() for rows in everybody] == [[1, 3], [2], [0, 4, 5], [6]]
    drawn = {tuple(tuple(rows) for rows in _assign(Natural(), labels, 2, seed, groups)) for seed in range(40)}
    whole = [tuple(rows.tolist()) for rows in everybody]
    assert drawn == {(whole[i], whole[j]) for i in range(4) for j in range(i + 1, 4)}


def test_natural_refuses_more_clients_than_holders_and_unknown_holders() -> None:
    labels = np.zeros(6, dtype=np.int64)
    with pytest.raises(ConfigError, match="5 clients were asked for, and the data has 3"):
        _assign(Natural(), labels, 5, groups=np.array([0, 0, 1, 1, 2, 2]))
    with pytest.raises(ConfigError, match="tacit data get mnist"):
        _assign(Natural(), labels, 2)


@pytest.mark.parametrize("split", [*SPLITS, Natural()], ids=str)
def test_too_many_or_too_few_clients(split: Split) -> None:
    groups = np.arange(5)
    for clients in (6, 0, -1):
        with pytest.raises(ConfigError, match=str(clients)):
            _assign(split, np.zeros(5, dtype=np.int64), clients, groups=groups)


def test_ten_thousand_clients() -> None:
    labels = np.arange(60_000, dtype=np.int64) % 10
    for split in (*SPLITS[:5], Shards(per_client=2), Power(exponent=1.2)):
        shares = _assign(split, labels, 10_000)
        assert len(shares) == 10_000
        assert sum(map(len, shares)) == 60_000
        assert min(map(len, shares)) >= 1


@pytest.mark.parametrize("text", ["iid", "natural", "dirichlet:0.3", "shards:2", "power:1.2", "power:0"])
def test_a_split_is_its_text(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(f" {text.upper()} ") == parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichlet", "dirichlet:0.3"),
        ("dirichlet:", "dirichlet:0.3"),
        ("dirichlet:much", "Expected a number"),
        ("dirichlet:0", "0 < alpha=0.0"),
        ("dirichlet:-1", "alpha=-1.0"),
        ("dirichlet:nan", "alpha=nan"),
        ("dirichlet:inf", "use iid"),
        ("shards", "shards:2"),
        ("shards:0", "at least 1"),
        ("shards:-2", "at least 1"),
        ("shards:2.5", "shards:2"),
        ("power:-1", ">= 0"),
        ("power:nan", "finite"),
        ("power:inf", "finite"),
        ("iid:3", "takes no number"),
        ("natural:", "takes no number"),
        ("dirichlett:0.3", "Did you mean 'dirichlet'"),
        ("shard:2", "Did you mean 'shards'"),
        ("", "Known: iid, natural"),
        ("bogus", "Known: iid, natural"),
    ],
)
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)
