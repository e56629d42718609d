from __future__ import annotations

from typing import Any

import pytest

from tacit.config.agreement import agreed, agreement
from tacit.config.run_config import RunConfig


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"lr": 0.5}},
        {"train": {"local_epochs": 7}},
        {"model": {"name": "mlp"}},
        {"federate": {"rounds": 3}},
        {"mode": "masks"},
    ],
)
def test_what_shapes_an_update_changes_the_agreement(changes: dict[str, Any]) -> None:
    assert agreement(RunConfig(**changes), 5) != agreement(RunConfig(), 5)


@pytest.mark.parametrize("changes", [{"gpu": 0}, {"engine": "flower"}, {"flower": {"deadline": 5.0}}])
def test_what_a_party_may_set_for_itself_does_not(changes: dict[str, Any]) -> None:
    assert agreement(RunConfig(**changes), 5) == agreement(RunConfig(), 5)
    assert agreed(RunConfig(**changes)) == agreed(RunConfig())


def test_the_number_of_clients_is_the_federations_whoever_knows_it_first() -> None:
    told = RunConfig(federate={"clients": 5})
    assert agreement(told, 5) == agreement(RunConfig(), 5) != agreement(RunConfig(), 6)
