"""Ledgers that say whose data were in a release: the answer is that of the client that lost most."""

from __future__ import annotations

import pytest

from tacit.accounting import accountant
from tacit.accounting.composition import savings
from tacit.accounting.events import Event, GaussianEvent, PureEvent
from tacit.accounting.ledger import Charge, Ledger, Tally
from tacit.errors import ConfigError
from tests.accounting.common import running_ledger

ONE, TWO = PureEvent(epsilon=1.0), PureEvent(epsilon=2.0)


def ledger(*charges: tuple[Event, tuple[int, ...] | None]) -> Ledger:
    made = Ledger(neighbours="replace-one")
    for number, (event, clients) in enumerate(charges, start=1):
        made = made.charged(event, round_number=number, clients=clients)
    return made


def test_the_worst_client_decides() -> None:
    made = ledger((ONE, (0, 1)), (ONE, (1, 2)), (TWO, (2, 3)))
    assert accountant.epsilon(made, 1e-9, accountant="basic").epsilon == 3.0  # client 2
    assert running_ledger(made).most_charges == 2


def test_histories_that_another_exceeds_are_left_out() -> None:
    made = ledger((ONE, (0, 1)), (ONE, (1, 2)), (TWO, (3,)))
    totals = {sum(Tally.of(own).pure[i][0] * Tally.of(own).pure[i][1] for i in range(1)) for own in made.of_clients()}
    assert len(made.of_clients()) == 2
    assert totals == {2.0}


def test_what_everyone_is_charged_for_comes_on_top() -> None:
    made = ledger((TWO, None), (ONE, (5,)), (ONE, (6,)))
    assert accountant.epsilon(made, 1e-9, accountant="basic").epsilon == 3.0
    assert len(made.of_clients()) == 1
    assert running_ledger(made).most_charges == 2


def test_a_cohort_of_nobody_costs_nobody() -> None:
    made = ledger((ONE, ()))
    assert accountant.epsilon(made, 1e-5).epsilon == 0.0
    assert running_ledger(made).most_charges == 0


def test_without_names_everyone_is_charged() -> None:
    made = ledger((GaussianEvent(noise_multiplier=2.0), None), (GaussianEvent(noise_multiplier=2.0), None))
    assert made.of_clients() == (made,)
    assert running_ledger(made).most_charges == 2


def test_names_travel_and_old_charges_stay_readable() -> None:
    charge = Charge(round_number=3, event=ONE, clients=(4, 7))
    assert Charge.from_dict(charge.to_dict()) == charge
    assert "clients" not in Charge(round_number=3, event=ONE).to_dict()
    made = ledger((ONE, (0,)), (ONE, None))
    assert Ledger.from_dict(made.to_dict()) == made
    assert len(running_ledger(made).short().charges) == 2
    with pytest.raises(ConfigError, match="Not a charge"):
        Charge.from_dict(charge.to_dict() | {"clients": ["x"]})


@pytest.mark.parametrize(("epsilon", "count", "name"), [(105.0, 600, "basic"), (5.0, 600, "basic"), (0.1, 100, "pld")])
def test_a_distribution_is_computed_where_it_can_save_something(epsilon: float, count: int, name: str) -> None:
    made = ledger(*[(PureEvent(epsilon=epsilon), None)] * count)
    answer = accountant.epsilon(made, 1e-5)
    assert answer.accountant == name
    basic, advanced, pld = (
        accountant.epsilon(made, 1e-5, accountant=each).epsilon for each in ("basic", "advanced", "pld")
    )
    assert answer.epsilon <= min(basic, advanced) * (1 + 1e-12)
    assert basic - pld <= basic * min(1.0, savings(Tally.of(made), 1e-5)) * (1 + 1e-6) + 1e-9


def test_pure_releases_beyond_all_bounds_do_not_overflow() -> None:
    assert accountant.epsilon(ledger(*[(PureEvent(epsilon=100.0), None)] * 600), 1e-5, accountant="pld").epsilon == 6e4
