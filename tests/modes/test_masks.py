"""Runs whose sums are masked, against the same runs in the clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli.options import CLIENTS_NOISE, Asked, Flag
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, DropoutError
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.estimate import estimate_of
from tacit.modes.estimate_masks import MaskedEstimate
from tacit.protocols.masks import MaskedSum
from tacit.runs.run import run
from tests.modes.test_paillier import _model

CLIENTS = 5


def _config(mode: str = "masks", **settings: Any) -> RunConfig:
    return RunConfig(
        mode=mode,
        seed=3,
        data={"name": "digits", "split": "dirichlet:0.5"},
        model={"name": "logistic"},
        evaluate={"train": False},
        **{"federate": {"clients": CLIENTS, "rounds": 1} | settings.pop("federate", {})},
        **settings,
    )


def _plan(clients: int = 100, **settings: Any) -> tuple[MaskedSum, Any]:
    federate = {"clients": clients} | settings.pop("federate", {})
    plan = plan_of(resolve(_config(federate=federate, **settings)), clients)
    assert isinstance(plan.protocol, MaskedSum)
    return plan.protocol, plan


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray[Any, np.dtype[np.float32]]:
    path = tmp_path_factory.mktemp("plain")
    run(_config("plain", out=path, server={"lr": 1.0}), force=True)
    return _model(path)


@pytest.mark.parametrize("signed", [False, True])
def test_a_masked_run_comes_to_the_plain_model_within_its_rounding(
    signed: bool, plain: np.ndarray[Any, np.dtype[np.float32]], tmp_path: Path
) -> None:
    result = run(_config(out=tmp_path, masks={"signed": signed}, server={"lr": 1.0}), force=True)
    assert np.abs(_model(tmp_path) - plain).max() < 2e-6
    assert result.privacy is None
    assert f"one sum, of at least {3 + signed} of 5 clients" in result.sees["server"]  # more than half have to sign
    assert ("a server that lies too" in result.sees["server"]) == signed
    assert result.rounds[0].bytes_holders == 0


def test_a_run_survives_drop_outs_at_any_stage_and_stops_where_too_many_go(tmp_path: Path) -> None:
    result = run(_config(out=tmp_path / "some", federate={"clients": 12, "rounds": 3, "drop": 0.25}))
    assert len(result.rounds) == 3
    assert any((record.clients_replied or 0) < 12 for record in result.rounds)
    with pytest.raises(DropoutError):
        run(_config(out=tmp_path / "most", federate={"clients": 12, "drop": 0.9, "retries": 1}))


def test_noise_is_sized_for_the_honest_of_the_smallest_sum() -> None:
    protocol, plan = _plan(masks={"dp": True}, dp={"noise": 1.0})
    mechanism = plan.mechanism
    assert isinstance(mechanism, SkellamMechanism)
    assert (mechanism.smallest_cohort, mechanism.colluding) == (90, 5) == (protocol.minimum_clients, 5)
    for clients in (90, 99, 100, 101, 119, 150, 220):  # a server may ask more than it said, and have more of its own
        hood = protocol.hood(clients)
        assert hood.corrupted >= clients // 20
        assert hood.minimum - hood.corrupted >= mechanism.smallest_cohort - mechanism.colluding
    assert plan.claim.neighbours == "zero-out"
    assert "that lies" in plan.claim.notes[2]
    field = protocol.fields(650)
    assert field.bound == mechanism.fitted((650,)).bound
    assert 2 * field.bound * 100 < 2**field.bits  # every number that a client can send, noise and all, has room


def test_epsilon_is_that_of_the_budget_and_is_composed(tmp_path: Path) -> None:
    result = run(
        _config(
            out=tmp_path, masks={"dp": True}, dp={"epsilon": 8.0, "clip": 0.1}, federate={"clients": 10, "rounds": 2}
        )
    )
    assert result.privacy is not None
    assert 7.9 < result.privacy.epsilon <= 8.0
    assert result.rounds[0].epsilon is not None
    assert result.rounds[0].epsilon < result.privacy.epsilon


@pytest.mark.parametrize(("clients", "bits"), [(5, 27), (100, 31), (300, 32), (10_000, 32)])
def test_sums_fit_a_machine_word_unless_more_bits_are_asked_for(clients: int, bits: int) -> None:
    protocol, _ = _plan(clients)
    assert protocol.fields(10).bits == bits
    wide, _ = _plan(clients, masks={"value_bits": 40})
    assert wide.fields(10).bits > 32


def test_lists_are_signed_on_flower_unless_that_is_switched_off_and_need_more_than_half() -> None:
    usual, _ = _plan()
    flower, _ = _plan(engine="flower")
    off, _ = _plan(engine="flower", masks={"signed": False})
    assert (usual.signed, flower.signed, off.signed) == (False, True, False)
    assert (usual.minimum_clients, flower.minimum_clients) == (50, 53)


def test_what_is_printed_are_the_numbers_that_hold() -> None:
    protocol, plan = _plan(federate={"clients": 100, "minimum_clients": 70})
    hood = protocol.hood(100)
    said = plan.guarantee.server
    assert f"at least {hood.minimum} of 100 clients" in said
    assert f"{hood.neighbours} neighbours, any {hood.threshold} of which" in said
    assert "2^40" in said


def test_one_client_is_refused() -> None:
    with pytest.raises(ConfigError, match="no mask hides it"):
        plan_of(resolve(_config(federate={"clients": 1})), 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"masks": {"dp": True}, "dp": {"noise": 1.0, "clip": "adaptive"}}, "fixed clip bound"),
        ({"masks": {"dp": True}, "dp": {"noise": 1.0, "neighbours": "add-remove"}}, "add-remove does not hold"),
        ({"masks": {"dp": True}}, "needs dp.noise"),
        ({"dp": {"noise": 1.0}}, "add --dp"),
        ({"mode": "plain", "masks": {"clip": 2.0}}, "masks.clip has no effect in mode 'plain'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(resolve(_config(**settings)), CLIENTS)


@pytest.mark.parametrize("mode", ["masks", "paillier"])
def test_the_flag_dp_turns_on_the_noise_of_the_mode_that_was_named(mode: str) -> None:
    settings = Asked(flags={Flag(key="mode"): mode, CLIENTS_NOISE: True}).config()
    assert {"masks": settings.masks.dp, "paillier": settings.paillier.dp} == {
        "masks": mode == "masks",
        "paillier": mode == "paillier",
    }


def test_the_estimates_bytes_are_those_of_the_run(tmp_path: Path) -> None:
    for signed in (False, True):
        config = _config(out=tmp_path / str(signed), masks={"signed": signed})
        expected = estimate_of(config, parameters=650, clients=CLIENTS)
        assert isinstance(expected, MaskedEstimate)
        (record,) = run(config).rounds
        assert record.bytes_up == CLIENTS * expected.upload_bytes
        assert record.bytes_down == CLIENTS * expected.download_bytes


def test_there_is_nothing_to_estimate_where_nothing_is_hidden() -> None:
    with pytest.raises(ConfigError, match="Mode 'plain' hides no update"):
        estimate_of(_config("plain"), parameters=10, clients=5)
    with pytest.raises(ConfigError, match="at least one parameter"):
        estimate_of(_config(), parameters=0, clients=5)


def test_an_estimate_is_for_the_drop_outs_that_are_simulated() -> None:
    config = _config(federate={"clients": 40, "drop": 0.3})
    found = estimate_of(config, parameters=1_000_000, clients=40)
    assert isinstance(found, MaskedEstimate)
    assert (found.dropped, found.neighbours, found.threshold) == (12, 39, 19)
    assert found.round_seconds == 40 * found.client_seconds + found.server_seconds
    assert 4.0 < found.upload_bytes / 1_000_000 < 4.3
