from __future__ import annotations

from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.uniform_run import uniform_run
from tacit.errors import ConfigError
from tacit.federated.examples import ExampleLevel, noise_for


def level(**changes: Any) -> ExampleLevel:
    return ExampleLevel(**{"delta": 1e-5, "clip": 1.0, "epsilon": 2.0, "batch_size": 50, "rounds": 4} | changes)


def test_every_client_stays_within_the_budget_and_the_worst_uses_it_up() -> None:
    plan = level().fitted([100, 400, 1000, 990])
    assert plan.batches == (50, 50, 50, 50)
    assert plan.rates == (0.5, 0.125, 0.05, 50 / 990)
    assert plan.steps == (2, 8, 20, 20)
    whole = [4 * count for count in plan.steps]
    spent = [plan.spent(client, count).epsilon for client, count in enumerate(whole)]
    client, worst = plan.worst(plan.most(whole))
    assert worst.epsilon == max(spent)
    assert spent[client] == max(spent)
    assert 1.999 < max(spent) <= 2.0
    assert worst.unit == "example"
    direct = accountant.epsilon(uniform_run(noise_multiplier=plan.noise_multiplier, rounds=8, rate=0.5), 1e-5)
    assert spent[0] == pytest.approx(direct.epsilon, rel=1e-12)


def test_the_worst_is_found_among_unequal_participations() -> None:
    plan = level(noise=1.0, epsilon=None).fitted([100, 400, 1000, 1000])
    taken = [1, 90, 300, 299]
    each = [plan.spent(client, count).epsilon for client, count in enumerate(taken)]
    assert plan.worst(plan.most(taken))[1].epsilon == max(each)
    assert plan.worst(plan.most([0, 0, 0, 0]))[1].epsilon == 0.0


def test_a_small_holder_takes_all_its_examples_where_no_batch_was_asked_for() -> None:
    plan = level(batch_size=None).fitted([30, 2000])
    assert plan.batches == (30, 512)
    assert plan.rates[0] == 1.0


def test_steps_are_as_asked_or_as_the_epochs_need() -> None:
    assert level(epochs=3).fitted([101]).steps == (7,)
    assert level(steps=5).fitted([100, 200]).steps == (5, 5)


def test_a_batch_larger_than_a_clients_data() -> None:
    with pytest.raises(ConfigError, match="batch size of 50 is larger than the data: client 1 holds 49"):
        level().fitted([50, 49])


@pytest.mark.parametrize(("changes", "words"), [({"noise": 1.0}, "both was given"), ({"epsilon": None}, "neither")])
def test_noise_or_a_budget(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        level(**changes)


def test_the_labs_method_matches_its_known_answers(vectors: dict[str, Any]) -> None:
    checked = 0
    for known in vectors["advanced_composition"]:
        asked = {"epsilon": known["eps"], "delta": known["delta"], "steps": known["k"]}
        if known["eps_u_exact"] > 1.0:
            continue
        two = noise_for("advanced-composition", **asked)
        assert two == pytest.approx(known["sigma_two_step"], rel=1e-9)
        exact = noise_for("advanced-composition-exact", **asked)
        assert exact == pytest.approx(known["sigma_exact_adv"], rel=1e-6)
        assert noise_for("tight", **asked) == pytest.approx(known["sigma_gdp"], rel=1e-6)
        checked += 1
    assert checked >= 10


def test_the_labs_method_wastes_noise_elevenfold() -> None:
    asked = {"epsilon": 1.0, "delta": 1e-3, "steps": 1000}
    ratio = noise_for("advanced-composition", **asked) / noise_for("tight", **asked)  # type: ignore[arg-type]
    assert ratio == pytest.approx(11.2, abs=0.05)


def test_the_labs_method_is_refused_where_it_is_not_proved() -> None:
    with pytest.raises(ConfigError, match="proved up to 1"):
        noise_for("advanced-composition-exact", epsilon=10.0, delta=1e-3, steps=1)
    with pytest.raises(ConfigError, match="give --epsilon"):
        level(budget_by="advanced-composition", epsilon=None, noise=1.0)
