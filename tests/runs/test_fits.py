"""One Federation, one ledger: every fit is charged on top of those before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import tacit
from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, RunError
from tacit.runs.history import read
from tacit.runs.ledger import ledger_of
from tacit.runs.result import RoundRecord
from tests.runs.common import Watching

GENERATOR = np.random.default_rng(1)
CLIENTS = [(GENERATOR.normal(size=(8, 3)), GENERATOR.integers(0, 2, 8)) for _ in range(4)]


def federation(**settings: Any) -> tacit.Federation:
    values: dict[str, Any] = {"mode": "dp", "dp": {"noise": 2.0}, "train": {"workers": 1}}
    return tacit.Federation(model=nn.Linear(3, 2), clients=CLIENTS, **values | settings)


def gaussian(rounds: int, noise: float = 2.0, neighbours: Any = "add-remove") -> float:
    sole = Ledger(neighbours=neighbours).charged(GaussianEvent(noise_multiplier=noise / rounds**0.5), round_number=1)
    return accountant.epsilon(sole, 1e-5).epsilon


def test_two_fits_cost_what_one_as_long_costs() -> None:
    ours = federation()
    first, second = ours.fit(rounds=3), ours.fit(rounds=2)
    assert first.claimed.epsilon == pytest.approx(gaussian(3))
    assert second.claimed.epsilon == pytest.approx(gaussian(5))
    assert [one.epsilon for one in second.rounds] == pytest.approx([gaussian(4), gaussian(5)])
    assert "all 2 fits together: 3 releases came before" in " ".join(second.notes)
    assert federation().fit(rounds=2).claimed.epsilon == pytest.approx(gaussian(2))  # another object, another ledger


def test_noise_that_was_calibrated_to_a_budget_is_spent_once() -> None:
    """2.00 and 2.00 were reported, where both together are 2.95."""
    ours = federation(dp={"epsilon": 2.0})
    first = ours.fit(rounds=5)
    assert first.claimed.epsilon == pytest.approx(2.0, rel=1e-3)
    before = [parameter.detach().clone() for parameter in ours._model.parameters()]
    with pytest.raises(BudgetError, match=r"over the budget of 2 .*1 fits before released 5 times.*dp.max_epsilon"):
        ours.fit(rounds=5)
    assert all(bool((a == b).all()) for a, b in zip(before, ours._model.parameters(), strict=True))


def test_a_budget_of_all_fits_stops_the_later_one() -> None:
    ours = federation(dp={"noise": 2.0, "max_epsilon": gaussian(4) * 1.001})
    ours.fit(rounds=3)
    second = ours.fit(rounds=5)
    assert len(second.rounds) == 1
    assert "over the budget" in second.notes[-1]
    with pytest.raises(BudgetError, match="2 fits before released 4 times"):
        ours.fit(rounds=1)


class _Impatient(Watching):
    def round_done(self, record: RoundRecord) -> None:
        if record.round == 2:
            raise KeyboardInterrupt


def test_a_fit_that_broke_off_counts_with_what_it_released() -> None:
    ours = federation()
    with pytest.raises(KeyboardInterrupt):
        ours.fit(rounds=6, observer=_Impatient())
    assert ours.fit(rounds=1).claimed.epsilon == pytest.approx(gaussian(3))


def test_the_later_folder_holds_the_whole_ledger(tmp_path: Path) -> None:
    ours = federation()
    ours.fit(rounds=2, out=tmp_path / "one")
    second = ours.fit(rounds=2, out=tmp_path / "two")
    told = ledger_of(tmp_path / "two")
    assert [line.round_number for line in told.lines] == [0, 0, 1, 2]
    assert told.lines[-1].epsilon == pytest.approx(second.claimed.epsilon)
    (level,) = read(tmp_path / "two").levels
    assert [release.epsilon for release in level.releases] == pytest.approx(
        [None, None, gaussian(3), gaussian(4)], nan_ok=True
    )
    third = ours.fit(rounds=1, out=tmp_path / "two", force=True)
    assert len(ledger_of(tmp_path / "two").lines) == 5
    assert third.claimed.epsilon == pytest.approx(gaussian(5))


def test_an_unfinished_later_fit_is_read_with_all_before_it(tmp_path: Path) -> None:
    ours = federation()
    ours.fit(rounds=2)
    with pytest.raises(KeyboardInterrupt):
        ours.fit(rounds=6, observer=_Impatient(), out=tmp_path / "cut")
    (level,) = read(tmp_path / "cut").levels
    assert level.privacy.epsilon == pytest.approx(gaussian(4))


@pytest.mark.parametrize("mode", ["local-dp", "nbafl", "signds"])
def test_local_modes_compose_as_well(mode: str) -> None:
    own: dict[str, dict[str, Any]] = {"nbafl": {"dp": {}}, "signds": {"dp": {}, "signds": {"sign_k": 0.25}}}
    ours = federation(mode=mode, **own.get(mode, {}))
    first, second = ours.fit(rounds=2), ours.fit(rounds=2)
    assert first.claimed.epsilon is not None
    assert second.claimed.epsilon is not None
    assert second.claimed.epsilon > 1.2 * first.claimed.epsilon


def test_examples_are_charged_for_the_steps_of_all_fits() -> None:
    ours = federation(mode="dp-sgd", dp={"noise": 3.0})
    first, second = ours.fit(rounds=2), ours.fit(rounds=3)
    whole = federation(mode="dp-sgd", dp={"noise": 3.0}).fit(rounds=5)
    assert (first.claimed.epsilon or 0.0) < (second.claimed.epsilon or 0.0)
    assert second.claimed.epsilon == pytest.approx(whole.claimed.epsilon)


@pytest.mark.parametrize("rounds", [1, 9])
def test_steps_with_another_noise_are_refused_and_not_miscounted(rounds: int) -> None:
    ours = federation(mode="dp-sgd", dp={"epsilon": 4.0})
    ours.fit(rounds=3)
    with pytest.raises(BudgetError, match="another noise or batch size"):
        ours.fit(rounds=rounds)
    with pytest.raises(BudgetError, match="Not one round fits"):
        ours.fit(rounds=3)


def test_with_a_seed_each_private_fit_has_noise_of_its_own() -> None:
    """The same noise twice could be taken away: the difference of two releases would be exact."""
    ours = federation(seed=1, dp={"noise": 1000.0})  # the data hardly matter
    states = []
    for _ in range(3):
        states.append(ours._model.weight.detach().numpy().copy())  # type: ignore[operator]
        ours.fit(rounds=1)
    assert not np.allclose(states[1] - states[0], states[2] - states[1], rtol=0.5, atol=1.0)


def test_plain_fits_charge_nothing_and_say_nothing() -> None:
    ours = federation(mode="plain", dp={})
    for _ in range(2):
        result = ours.fit(rounds=1)
        assert (result.privacy, result.notes) == (None, ())
        with pytest.raises(RunError, match="Mode plain claims no differential privacy"):
            print(result.claimed)
