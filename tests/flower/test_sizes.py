"""DP-SGD over clients that bring their own data: each is accounted at the rate of its own number of examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from torch import nn

from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Ledger
from tacit.flower.envelope import client_app
from tacit.flower.node import Own
from tacit.flower.serve import Serving, configuration, serve
from tacit.modes.catalogue import resolve
from tacit.randomness import Randomness
from tacit.runs.remote_jobs import server_job
from tests.flower.grid import Respond, grid
from tests.runs.common import Watching

RUN: dict[str, Any] = {
    "mode": "dp-sgd",
    "dpsgd.noise": 1.0,
    "dpsgd.batch_size": 51,
    "dpsgd.steps": 2,
    "federate.clients": 3,
    "federate.rounds": 5,
    "federate.minimum_clients": 1,
    "flower.patience": 0.05,
}
SIZES = {0: 500, 1: 60, 2: 300}


def _data(count: int) -> tuple[Any, Any]:
    generator = np.random.Generator(np.random.PCG64(count))
    return generator.standard_normal((count, 4)).astype(np.float32), np.arange(count) % 2


def _client(number: int) -> Respond:
    app = client_app(Own(model=lambda: nn.Linear(4, 2), data=lambda _: _data(SIZES[number])))
    context = Context(5, 100 + number, {"partition-id": number}, RecordDict(), RUN)
    return lambda message: [_answered(app, message, context)]


def _answered(app: Any, message: Message, context: Context) -> Message:
    reply: Message = app(message, context)
    return reply


def _epsilon(size: int, steps: int) -> float:
    step = SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=51 / size)
    ledger = Ledger(unit="example").charged(RepeatedEvent(event=step, count=steps), round_number=1)
    return accountant.epsilon(ledger, 1e-5).epsilon


def test_a_client_is_accounted_at_its_own_rate_where_one_before_it_is_missing() -> None:
    """The review's case: with client 0 absent, client 1 (rate .85) was accounted as client 0 (rate .10)."""
    serving = Serving(model=lambda: nn.Linear(4, 2), test=lambda: _data(20))
    result = serve(grid({101: _client(1), 102: _client(2)}), RUN, serving=serving, observer=Watching())
    spent = (result.example_privacy or result.claimed).epsilon
    assert spent == pytest.approx(_epsilon(SIZES[1], 10), rel=1e-6)
    assert _epsilon(SIZES[1], 10) > 2 * _epsilon(SIZES[0], 10)


def test_sizes_go_by_number_and_who_is_missing_counts_as_the_largest() -> None:
    job = server_job(
        resolve(configuration(RUN)),
        Randomness.of(seed=None),
        build=lambda: nn.Linear(4, 2),
        test=_data(20),
        sizes={2: 300, 1: 60},
    )
    assert [len(rows) for rows in job.holdings.rows] == [300, 60, 300]
    assert job.examples is not None
    assert job.examples.rates == (51 / 300, 51 / 60, 51 / 300)
    job.close()
