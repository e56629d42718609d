from __future__ import annotations

import pytest

from tacit.accounting.ledger import NEIGHBOURS
from tacit.report.words import RELATIONS, bytes_text, percent, relation_text, seconds_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1 kB"),
        (1_234, "1.23 kB"),
        (99_960, "100 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (12_345_678, "12.3 MB"),
        (5_000_000_000, "5 GB"),
        (7_000_000_000_000, "7000 GB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0004, "0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (60, "1 min 0 s"),
        (119.4, "1 min 59 s"),
        (119.7, "2 min 0 s"),
        (3_725, "62 min 5 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(None, "-"), (0.0, "0.00%"), (1.0, "100.00%"), (0.978649, "97.86%")])
def test_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_every_relation_is_explained() -> None:
    assert set(RELATIONS) == set(NEIGHBOURS)
    told = [relation_text(relation, "client") for relation in NEIGHBOURS]
    assert all(text.startswith(relation) for text, relation in zip(told, NEIGHBOURS, strict=True))
    assert relation_text(None, None) == "None"
