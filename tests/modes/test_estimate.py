from __future__ import annotations

from typing import Any

import pytest

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.modes.estimate import estimate
from tacit.runs.run import run

SMALL: dict[str, Any] = {"bits": 256, "insecure_key_size": True}


def _config(**settings: Any) -> RunConfig:
    return RunConfig(
        mode="paillier",
        seed=1,
        data={"name": "digits"},
        model={"name": "logistic"},
        federate={"clients": 4, "rounds": 1},
        evaluate={"train": False},
        **settings,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"paillier": SMALL},
        {"paillier": SMALL | {"keys": "shared"}},
        {"paillier": SMALL | {"dp": True}, "dp": {"epsilon": 3.0}},
    ],
    ids=["authority", "shared", "dp"],
)
def test_the_bytes_are_those_of_the_run(settings: dict[str, Any]) -> None:
    expected = estimate(_config(**settings), parameters=650, clients=4)
    (record,) = run(_config(**settings)).rounds
    opening = expected.upload_bytes if settings["paillier"].get("keys") == "shared" else 0
    assert record.bytes_down == pytest.approx(4 * expected.download_bytes + opening, abs=64)  # the key's own digits
    assert record.bytes_up - 4 * expected.upload_bytes in (0, 8 * 653 + 20)  # a client opens where the key is shared
    assert record.bytes_holders == pytest.approx(expected.holder_bytes, rel=0.02)


def test_threshold_bytes_are_those_of_the_run() -> None:
    settings = {"paillier": SMALL | {"keys": "threshold", "shares": "2/3"}}
    expected = estimate(_config(**settings), parameters=650, clients=4)
    (record,) = run(_config(**settings)).rounds
    assert record.bytes_holders == pytest.approx(expected.holder_bytes, rel=0.02)


def test_every_cost_is_there_and_grows_with_the_model() -> None:
    small, large = (estimate(_config(paillier=SMALL), parameters=n, clients=4) for n in (1_000, 100_000))
    for name, value in small.to_dict().items():
        if name.endswith(("seconds", "bytes")):
            assert value > 0, name
            assert large.to_dict()[name] > 10 * value, name
    assert large.ciphertexts == -(-100_003 // large.slots)
    assert small.round_seconds == small.protect_seconds + small.aggregate_seconds + small.recover_seconds


@pytest.mark.parametrize(("parameters", "clients"), [(0, 3), (10, 0), (-1, 3)])
def test_nothing_is_estimated_for_nobody(parameters: int, clients: int) -> None:
    with pytest.raises(ConfigError, match="at least one parameter and one client"):
        estimate(_config(paillier=SMALL), parameters=parameters, clients=clients)


def test_modes_without_encryption_have_nothing_to_estimate() -> None:
    with pytest.raises(ConfigError, match="Mode 'plain' encrypts nothing"):
        estimate(RunConfig(), parameters=10, clients=3)
