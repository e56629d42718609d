from __future__ import annotations

import math

import pytest

from tacit.accounting import accountant, profile
from tacit.accounting.events import GaussianEvent, PureEvent
from tacit.accounting.ledger import Ledger, RunningLedger
from tacit.runs.remarks import no_guarantee, on_charges, on_composition, on_nominal, true_delta


@pytest.mark.parametrize(("epsilon", "said"), [(8.0, False), (20.0, False), (20.1, True), (105.0, True), (6.3e4, True)])
def test_beyond_twenty_it_is_no_guarantee(epsilon: float, said: bool) -> None:
    assert (no_guarantee(epsilon) is not None) is said


def test_infinity_is_explained() -> None:
    assert "infinite" in str(no_guarantee(math.inf))


def test_gaussian_ledgers_have_no_composition_to_speak_of() -> None:
    ledger = Ledger().charged(GaussianEvent(noise_multiplier=1.0), round_number=1)
    assert on_composition(ledger, accountant.epsilon(ledger, 1e-5)) is None
    running = RunningLedger()
    running.add(GaussianEvent(noise_multiplier=1.0))
    assert on_charges(running) is None


def test_the_true_delta_is_that_of_the_most_charged_client() -> None:
    ledger = Ledger(neighbours="replace-one")
    for clients in ((0, 1), (0,), (0, 2)):
        ledger = ledger.charged(GaussianEvent(noise_multiplier=2.0), round_number=1, clients=clients)
    assert true_delta(ledger, 1.0) == pytest.approx(profile.delta_at(1.0, 3**0.5))
    assert true_delta(ledger.charged(PureEvent(epsilon=1.0), round_number=2), 1.0) is None
    assert true_delta(Ledger(), 1.0) == 0.0
    assert true_delta(ledger.charged(GaussianEvent(noise_multiplier=0.0), round_number=2), 1.0) == 1.0


def test_nominal_and_certified_stand_side_by_side() -> None:
    ledger = Ledger(neighbours="replace-one").charged(GaussianEvent(noise_multiplier=0.0), round_number=1)
    text = on_nominal((10.0, 0.0139), 1.0, accountant.epsilon(ledger, 1e-5))
    assert text == (
        "Nominal claim: epsilon 10 at delta 0.0139. Certified: no epsilon at delta 1e-05. "
        "At epsilon 10 the true delta is 1."
    )
