from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tacit.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    RepeatedEvent,
    SampledEvent,
    from_dict,
    to_dict,
)
from tacit.accounting.ledger import Ledger, SampledReleases, Tally
from tacit.errors import ConfigError
from tests.accounting.common import gaussian, ledger, pure, sampled

_CLIPPED = SampledEvent(
    event=ComposedEvent(events=(GaussianEvent(noise_multiplier=1.1547), GaussianEvent(noise_multiplier=2.0))), rate=0.1
)
_EVENTS: list[Event] = [
    GaussianEvent(noise_multiplier=1.5),
    GaussianEvent(noise_multiplier=0.0),
    GaussianEvent(noise_multiplier=math.inf),
    PureEvent(epsilon=0.5),
    PureEvent(epsilon=math.inf),
    RepeatedEvent(event=_CLIPPED, count=7),
    ComposedEvent(events=(_CLIPPED, PureEvent(epsilon=1.0))),
    SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=0.01, sampling="shuffle"),
]


@pytest.mark.parametrize("event", _EVENTS, ids=str)
def test_an_event_survives_json(event: Event) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(event), allow_nan=False))) == event


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"kind": "laplace", "scale": 1.0}, "Unknown event 'laplace'"),
        ({"noise_multiplier": 1.0}, "Unknown event None"),
        ("gaussian", "Unknown event None"),
        ({"kind": "gaussian"}, "not a valid 'gaussian'"),
        ({"kind": "gaussian", "noise_multiplier": "much"}, "not a valid 'gaussian'"),
        ({"kind": "gaussian", "noise_multiplier": 1.0, "clip": 1.0}, "not a valid 'gaussian'"),
        ({"kind": "gaussian", "noise_multiplier": -1.0}, "noise multiplier of 0 or more"),
        ({"kind": "composed", "events": 3}, "a list of events"),
        ({"kind": "repeated", "count": 2, "event": {"kind": "wish"}}, "Unknown event 'wish'"),
    ],
)
def test_what_is_not_understood_is_refused(data: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_dict(data)


@pytest.mark.parametrize("noise", [-1.0, -1e-9, math.nan, -math.inf])
def test_noise_is_not_negative(noise: float) -> None:
    with pytest.raises(ConfigError, match="noise multiplier"):
        GaussianEvent(noise_multiplier=noise)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, math.inf])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ConfigError, match="sampling rate"):
        SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=rate)


def test_other_refusals() -> None:
    with pytest.raises(ConfigError, match="count of 1 or more"):
        gaussian(1.0, 0)
    with pytest.raises(ConfigError, match="epsilon of 0 or more"):
        pure(math.nan)
    with pytest.raises(ConfigError, match="Only Gaussian releases can be sampled"):
        SampledEvent(event=PureEvent(epsilon=1.0), rate=0.5)
    with pytest.raises(ConfigError, match="Unknown sampling 'bernoulli'"):
        sampled(1.0, 0.5, sampling="bernoulli")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Unknown neighbours 'swap'"):
        Ledger(neighbours="swap")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Unknown unit 'galaxy'"):
        Ledger(unit="galaxy")  # type: ignore[arg-type]


def test_a_ledger_survives_json() -> None:
    made = ledger(*_EVENTS, neighbours="replace-one").charged(PureEvent(epsilon=1.0), round_number=3, note="a bit")
    assert Ledger.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 1"),
        ({"neighbours": "any"}, "Unknown neighbours"),
        ({"charges": {}}, "are a list"),
        ({"charges": [3]}, "Not a charge"),
        ({"charges": [{"round": 1, "event": {"kind": "wish"}}]}, "Unknown event 'wish'"),
    ],
)
def test_a_damaged_ledger_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Ledger.from_dict(ledger(gaussian(1.0)).to_dict() | change)
    with pytest.raises(ConfigError, match="no 'unit'"):
        Ledger.from_dict({"version": 1})


def test_charging_makes_a_longer_ledger_and_leaves_the_old_one() -> None:
    first = ledger(gaussian(1.0))
    second = first.charged(gaussian(2.0), round_number=2)
    assert (len(first.charges), len(second.charges)) == (1, 2)
    assert second.charges[:1] == first.charges


def test_a_clip_bit_and_an_update_share_their_sample() -> None:
    noise = (1.0**-2 - 2.0**-2) ** -0.5  # the split of adaptive clipping at z = 1 and a cohort of 20
    event = SampledEvent(
        event=ComposedEvent(events=(GaussianEvent(noise_multiplier=noise), GaussianEvent(noise_multiplier=2.0))),
        rate=0.1,
    )
    (group,) = Tally.of(ledger(event, event)).poisson
    assert group == SampledReleases(noise_multiplier=pytest.approx(1.0, rel=1e-15), rate=0.1, count=2)  # type: ignore[arg-type]


def test_shuffled_passes_are_counted_up_and_charged_at_the_least_noise() -> None:
    assert Tally.of(ledger(sampled(1.0, 0.01, 100, "shuffle"))).shuffle == 1.0
    assert Tally.of(ledger(sampled(1.0, 0.01, 101, "shuffle"))).shuffle == 2.0
    # A unit may meet the quieter batch in every pass.
    alternating = [sampled(noise, 0.1, 1, "shuffle") for _ in range(10) for noise in (1.0, 2.0)]
    assert Tally.of(ledger(*alternating)).shuffle == 2.0


def test_a_set_of_fixed_size_swaps_under_both_relations() -> None:
    event = sampled(2.0, 0.5, 4, "fixed")
    assert Tally.of(ledger(event)).mu == Tally.of(ledger(event, neighbours="replace-one")).mu == 2.0


def test_what_has_infinite_noise_costs_nothing() -> None:
    nothing = Tally.of(ledger(gaussian(math.inf), sampled(math.inf, 0.1), pure(0.0)))
    assert nothing == Tally.of(ledger())
    assert nothing.sampling == "none"
