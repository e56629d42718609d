"""What every accountant has to do, whatever its method, and the known values of each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import pytest

from tacit.accounting import accountant
from tacit.accounting.accountant import Name
from tacit.accounting.events import Event
from tacit.accounting.ledger import Charge, Ledger, Neighbours
from tacit.errors import ConfigError
from tests.accounting.common import gaussian, ledger, pure, running_ledger, sampled, skellam, vectors


class Conformance(ABC):
    """The suite: a subclass names its accountant and gives a release that gets cheaper as ``noise`` grows."""

    name: ClassVar[Name]
    refused: ClassVar[Event | None] = None
    advice: ClassVar[str] = "Use pld"

    @abstractmethod
    def release(self, noise: float, rounds: int) -> Event: ...

    def epsilon(self, made: Ledger, delta: float = 1e-5) -> float:
        return accountant.epsilon(made, delta, accountant=self.name).epsilon

    def test_nothing_costs_nothing(self) -> None:
        assert self.epsilon(ledger()) == 0.0

    def test_no_noise_costs_everything(self) -> None:
        assert self.epsilon(ledger(self.release(2.0, 1), gaussian(0.0))) == math.inf
        assert self.epsilon(ledger(self.release(2.0, 1), pure(math.inf))) == math.inf

    def test_an_unknown_event_is_refused(self) -> None:
        strange = Ledger(charges=(Charge(round_number=1, event="a wish"),))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="Unknown event str"):
            self.epsilon(strange)

    def test_what_it_does_not_cover_is_refused(self) -> None:
        if self.refused is not None:
            with pytest.raises(ConfigError, match=self.advice):
                self.epsilon(ledger(self.refused))

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
    def test_delta_lies_between_zero_and_one(self, delta: float) -> None:
        with pytest.raises(ConfigError, match="delta strictly between 0 and 1"):
            self.epsilon(ledger(self.release(1.0, 1)), delta)

    def test_more_noise_costs_less(self) -> None:
        costs = [self.epsilon(ledger(self.release(noise, 20))) for noise in (1.0, 1.5, 4.0)]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < costs[0]

    def test_more_rounds_cost_more(self) -> None:
        costs = [self.epsilon(ledger(self.release(2.0, rounds))) for rounds in (1, 10, 40)]
        assert costs == sorted(costs)
        assert 0.0 < costs[0] < costs[-1]

    def test_a_larger_delta_never_costs_more(self) -> None:
        costs = [self.epsilon(ledger(self.release(2.0, 20)), delta) for delta in (1e-9, 1e-5, 1e-2)]
        assert costs == sorted(costs, reverse=True)

    def test_the_split_into_charges_does_not_matter(self) -> None:
        many = ledger(*[self.release(2.0, 1) for _ in range(6)])
        assert self.epsilon(many) == pytest.approx(self.epsilon(ledger(self.release(2.0, 6))), rel=1e-9)
        assert self.epsilon(running_ledger(many).short()) == self.epsilon(many)


class TestExactGaussian(Conformance):
    name = "exact-gaussian"
    refused = sampled(1.0, 0.1)

    def release(self, noise: float, rounds: int) -> Event:
        return gaussian(noise, rounds)

    def test_rounds_of_different_noise_compose_exactly(self) -> None:
        mixed = self.epsilon(ledger(gaussian(2.0), gaussian(4.0, 3)))
        assert mixed == pytest.approx(self.epsilon(ledger(gaussian((1 / 4 + 3 / 16) ** -0.5))), rel=1e-12)

    def test_known_values(self) -> None:
        assert self.epsilon(ledger(gaussian(10.0, 100))) == pytest.approx(4.377178096, abs=1e-9)
        assert self.epsilon(ledger(gaussian(1.0), neighbours="replace-one")) == pytest.approx(9.99725615, abs=1e-7)


class TestPld(Conformance):
    name = "pld"

    def release(self, noise: float, rounds: int) -> Event:
        return sampled(noise, 0.1, rounds)


class TestGooglesPld(Conformance):
    name = "pld-google"

    def release(self, noise: float, rounds: int) -> Event:
        return sampled(noise, 0.1, rounds)


class TestRdp(Conformance):
    name = "rdp"

    def release(self, noise: float, rounds: int) -> Event:
        return sampled(noise, 0.1, rounds)

    def test_poisson_needs_add_remove(self) -> None:
        with pytest.raises(ConfigError, match="Use pld for replace-one"):
            self.epsilon(ledger(sampled(1.0, 0.1), neighbours="replace-one"))


class TestRenyi(Conformance):
    name = "renyi"
    refused = skellam(1.0)
    advice = "Use rdp-skellam"

    def release(self, noise: float, rounds: int) -> Event:
        return sampled(noise, 0.1, rounds)


class TestSkellam(Conformance):
    name = "rdp-skellam"
    refused = sampled(1.0, 0.1)
    advice = "rdp-skellam knows no amplification by sampling"

    def release(self, noise: float, rounds: int) -> Event:
        return skellam(noise, rounds)

    def test_it_costs_hardly_more_than_gaussian_noise(self) -> None:
        exact = accountant.epsilon(ledger(gaussian(4.0, 20)), 1e-5).epsilon
        assert exact < self.epsilon(ledger(skellam(4.0, 20))) < 1.1 * exact


class TestBasic(Conformance):
    name = "basic"
    refused = gaussian(1.0)

    def release(self, noise: float, rounds: int) -> Event:
        return pure(1.0 / noise, rounds)

    def test_epsilons_add_up(self) -> None:
        assert self.epsilon(ledger(pure(0.5, 4), pure(1.0))) == 3.0


class TestAdvanced(Conformance):
    name = "advanced"
    refused = sampled(1.0, 0.1)

    def release(self, noise: float, rounds: int) -> Event:
        return pure(1.0 / noise, rounds)

    def test_it_wins_over_many_releases_only(self) -> None:
        assert self.epsilon(ledger(pure(0.01, 10_000))) < 10.0
        assert self.epsilon(ledger(pure(1.0, 3))) == 3.0


# rate, noise, rounds, delta, by PLD, by RDP: section 5 of the specification.
KNOWN = [
    (0.01, 1.0, 1_000, 1e-5, 1.828244, 2.101367),
    (0.01, 0.8, 10_000, 1e-5, 10.053659, 10.935373),
    (0.1, 1.0, 100, 1e-5, 7.046603, 7.903850),
    (0.05, 2.0, 500, 1e-6, 2.872629, 3.101868),
    (1.0, 10.0, 100, 1e-5, 4.377178, 4.728507),
    (0.1, 0.5, 6, 1e-3, 6.181144, 8.096478),
]


@pytest.mark.parametrize(("rate", "noise", "rounds", "delta", "by_pld", "by_rdp"), KNOWN)
def test_known_values(rate: float, noise: float, rounds: int, delta: float, by_pld: float, by_rdp: float) -> None:
    made = ledger(sampled(noise, rate, rounds))
    assert accountant.epsilon(made, delta, accountant="pld").epsilon == pytest.approx(by_pld, abs=2e-6)
    assert accountant.epsilon(made, delta).epsilon == pytest.approx(by_pld, abs=2e-6)
    assert accountant.epsilon(made, delta, accountant="rdp").epsilon == pytest.approx(by_rdp, abs=2e-6)


def test_the_vectors() -> None:
    for row in vectors("accounting"):
        made = ledger(sampled(row["sigma"], row["q"], row["T"]))
        found = accountant.epsilon(made, row["delta"]).epsilon
        assert row["google_pld"] - 1e-6 <= found <= row["google_pld"] + 1e-4
        by_rdp = accountant.epsilon(made, row["delta"], accountant="rdp").epsilon
        assert by_rdp == pytest.approx(row["google_rdp"], rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "rounds", "add_remove", "replace_one"), [(1.0, 1, 4.377, 9.997), (0.01, 1_000, 1.828, 2.843)]
)
def test_replacing_costs_more_than_adding(rate: float, rounds: int, add_remove: float, replace_one: float) -> None:
    def cost(neighbours: Neighbours) -> float:
        answer = accountant.epsilon(ledger(sampled(1.0, rate, rounds), neighbours=neighbours), 1e-5)
        assert answer.neighbours == neighbours
        return answer.epsilon

    assert cost("add-remove") == pytest.approx(add_remove, abs=1e-3)
    assert cost("replace-one") == pytest.approx(replace_one, abs=1e-3)


def test_a_shuffled_pass_is_not_a_poisson_sample() -> None:
    answer = accountant.epsilon(ledger(sampled(1.0, 0.01, 100, "shuffle"), neighbours="zero-out"), 1e-5)
    assert 4.063 < answer.epsilon < 4.3772
    assert (answer.accountant, answer.sampling) == ("exact-gaussian", "shuffle")
    assert accountant.epsilon(ledger(sampled(1.0, 0.01, 100)), 1e-5).epsilon == pytest.approx(0.718, abs=1e-3)


def test_a_set_of_fixed_size_never_gets_the_poisson_value() -> None:
    def cost(neighbours: Neighbours, fixed: bool) -> accountant.PrivacyCost:
        event = sampled(1.0, 0.01, 50, "fixed" if fixed else "poisson")
        return accountant.epsilon(ledger(event, neighbours=neighbours), 1e-5)

    replace = cost("replace-one", True)
    assert (replace.accountant, replace.sampling) == ("rdp", "fixed")
    assert cost("replace-one", False).epsilon < replace.epsilon
    full = accountant.epsilon(ledger(gaussian(1.0, 50), neighbours="replace-one"), 1e-5).epsilon
    assert replace.epsilon < full
    assert cost("add-remove", True).epsilon == full  # one more member pushes another out


def test_mixed_ledgers_agree_with_the_reference() -> None:
    mixed = ledger(sampled(1.2, 0.1, 5), gaussian(4.0), pure(0.1, 5), sampled(2.0, 0.05, 20))
    ours = accountant.epsilon(mixed, 1e-5)
    reference = accountant.epsilon(mixed, 1e-5, accountant="pld-google").epsilon
    assert (ours.accountant, ours.sampling) == ("pld", "full+poisson")
    assert reference - 1e-6 <= ours.epsilon <= reference + 1e-3
    assert ours.epsilon < accountant.epsilon(mixed, 1e-5, accountant="rdp").epsilon


def test_pure_releases_get_the_best_of_what_is_proved() -> None:
    few, many = ledger(pure(1.0, 2)), ledger(pure(0.1, 100))
    assert accountant.epsilon(few, 1e-9).epsilon <= 2.0
    answer = accountant.epsilon(many, 1e-5)
    assert answer.accountant == "pld"
    assert answer.epsilon < accountant.epsilon(many, 1e-5, accountant="advanced").epsilon
    assert answer.epsilon == pytest.approx(4.306791, abs=1e-3)  # dp-accounting's PLD


def test_an_answer_says_what_it_means() -> None:
    plain = accountant.epsilon(ledger(sampled(1.0, 0.1)), 1e-5).to_dict()
    assert {"epsilon", "delta", "accountant", "neighbours", "sampling", "unit"} == plain.keys()
    assert (plain["accountant"], plain["neighbours"], plain["sampling"]) == ("pld", "add-remove", "poisson")
    infinite = accountant.epsilon(ledger(gaussian(0.0)), 1e-5).to_dict()
    assert infinite["epsilon"] == "infinite"


def test_every_accountant_is_in_the_suite() -> None:
    assert {suite.name for suite in Conformance.__subclasses__()} == set(accountant.NAMES)


def test_an_unknown_accountant_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unknown accountant 'gdp'"):
        accountant.epsilon(ledger(), 1e-5, accountant="gdp")  # type: ignore[arg-type]
