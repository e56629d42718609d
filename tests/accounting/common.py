"""Ledgers for the tests, and the vectors where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting.events import (
    Event,
    GaussianEvent,
    PureEvent,
    RepeatedEvent,
    SampledEvent,
    Sampling,
    SkellamEvent,
)
from tacit.accounting.ledger import Ledger, Neighbours, RunningLedger

_VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "dp.json"


def vectors(key: str) -> Any:
    if not _VECTORS.exists():
        pytest.skip("the vectors dp.json are not beside the checkout")
    return json.loads(_VECTORS.read_text())[key]


def ledger(*events: Event, neighbours: Neighbours = "add-remove") -> Ledger:
    made = Ledger(neighbours=neighbours)
    for number, event in enumerate(events, start=1):
        made = made.charged(event, round_number=number)
    return made


def running_ledger(made: Ledger) -> RunningLedger:
    running = RunningLedger(unit=made.unit, neighbours=made.neighbours)
    for charge in made.charges:
        running.add(charge.event, clients=charge.clients)
    return running


def gaussian(noise: float, rounds: int = 1) -> Event:
    return RepeatedEvent(event=GaussianEvent(noise_multiplier=noise), count=rounds)


def sampled(noise: float, rate: float, rounds: int = 1, sampling: Sampling = "poisson") -> Event:
    release = SampledEvent(event=GaussianEvent(noise_multiplier=noise), rate=rate, sampling=sampling)
    return RepeatedEvent(event=release, count=rounds)


def pure(epsilon: float, times: int = 1) -> Event:
    return RepeatedEvent(event=PureEvent(epsilon=epsilon), count=times)


def skellam(noise: float, rounds: int = 1, sensitivity: float = 2.0**14) -> Event:
    return RepeatedEvent(event=SkellamEvent(noise_multiplier=noise, sensitivity=sensitivity), count=rounds)
