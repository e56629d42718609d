"""Runs whose sums are encrypted, against the same runs in the clear."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tacit.config.run_config import RunConfig
from tacit.crypto import keyfile, paillier
from tacit.crypto.paillier import Layout
from tacit.errors import ConfigError, DropoutError, KeysError, SpoiledError
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes.keys import KeyParties
from tacit.runs.folder import JOURNAL, MODEL, RESULT
from tacit.runs.observer import Silent
from tacit.runs.result import Result, RoundRecord
from tacit.runs.run import resume, run

CLIENTS = 5
SMALL: dict[str, Any] = {"bits": 256, "insecure_key_size": True}
KEYS = {
    "authority": {"keys": "authority"},
    "subgroup": {"keys": "authority", "bits": 1024, "kind": "subgroup"},
    "threshold": {"keys": "threshold", "shares": "2/3"},
    "proved": {"keys": "threshold", "shares": "2/2", "prove": True},
    "shared": {"keys": "shared"},
}


def _config(mode: str = "paillier", rounds: int = 1, **settings: Any) -> RunConfig:
    return RunConfig(
        mode=mode,
        seed=3,
        data={"name": "digits", "split": "dirichlet:0.5"},
        model={"name": "logistic"},
        evaluate={"train": False},
        **{"federate": {"clients": CLIENTS, "rounds": rounds} | settings.pop("federate", {})},
        **settings,
    )


def _model(path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.concatenate([tensor.ravel() for _, tensor in sorted(load_file(path / MODEL).items())])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray[Any, np.dtype[np.float32]]:
    path = tmp_path_factory.mktemp("plain")
    run(_config("plain", out=path, server={"lr": 1.0}), force=True)
    return _model(path)


@pytest.mark.parametrize("keys", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("bits", [16, 24])
def test_the_model_is_the_plain_one_within_the_bound_of_the_rounding(
    keys: dict[str, Any], bits: int, plain: np.ndarray[Any, np.dtype[np.float32]], tmp_path: Path
) -> None:
    settings = SMALL | keys | {"value_bits": bits}
    result = run(_config(paillier=settings, out=tmp_path, server={"lr": 1.0}), force=True)
    layout = Layout.floats(length=1, clip=1.0, bits=bits, summands=CLIENTS, key_bits=256)
    # The mean is S / W with both sums rounded: |S'/W' - S/W| <= (error + |S/W| error) / (W - error). W is at least 1,
    # the weight of the largest client, and no coordinate is beyond the clip of 1. Four float32 steps come on top.
    error = layout.error(CLIENTS)
    bound = 2.0 * error / (1.0 - error) + 4 * 2.0**-24
    worst = np.abs(_model(tmp_path) - plain).max()
    assert worst <= bound
    assert worst > 0  # it did go through fixed point
    assert result.rounds[0].clipped == 0


def test_the_record_says_where_the_time_and_the_bytes_went(tmp_path: Path) -> None:
    result = run(_config(paillier=SMALL))
    record = result.rounds[0]
    assert all(record.seconds[stage] > 0 for stage in ("train", "protect", "aggregate", "recover"))
    assert record.bytes_holders > 650 * 8  # the sum goes to the authority, and its content comes back
    assert record.clients_replied == CLIENTS
    assert "cannot read" in result.sees["server"]
    assert result.privacy is None


def test_clipped_coordinates_are_counted() -> None:
    result = run(_config(paillier=SMALL | {"clip": 1e-3}))
    assert result.rounds[0].clipped is not None
    assert 100 < result.rounds[0].clipped <= CLIENTS * 650


def test_a_seeded_run_ends_in_the_same_bits_though_the_keys_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(_config(rounds=2, paillier=SMALL, out=tmp_path / name))
    assert _model(tmp_path / "a").tobytes() == _model(tmp_path / "b").tobytes()


def test_drop_outs_change_the_sum_as_they_do_in_the_clear(tmp_path: Path) -> None:
    dropping = {"drop": 0.4, "minimum_clients": 2, "retries": 20}
    private = run(_config(rounds=2, paillier=SMALL, out=tmp_path / "a", server={"lr": 1.0}, federate=dropping))
    public = run(_config("plain", rounds=2, out=tmp_path / "b", server={"lr": 1.0}, federate=dropping))
    replied = [[r.clients_replied for r in result.rounds] for result in (private, public)]
    assert replied[0] == replied[1] != [CLIENTS, CLIENTS]
    np.testing.assert_allclose(_model(tmp_path / "a"), _model(tmp_path / "b"), atol=1e-5)


def test_too_few_clients_fail_closed() -> None:
    config = _config(paillier=SMALL, federate={"drop": 0.97, "minimum_clients": 5, "retries": 0})
    with pytest.raises(DropoutError, match="5 needed"):
        run(config)


class _StopAfter(Silent):
    def round_done(self, record: RoundRecord) -> None:
        if record.round == 1:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_with_new_keys_to_the_same_model(tmp_path: Path) -> None:
    whole = _config(rounds=3, paillier=SMALL, out=tmp_path / "whole")
    run(whole)
    with pytest.raises(KeyboardInterrupt):
        run(_config(rounds=3, paillier=SMALL, out=tmp_path / "cut"), observer=_StopAfter())
    assert len(resume(tmp_path / "cut").rounds) == 3
    assert _model(tmp_path / "cut").tobytes() == _model(tmp_path / "whole").tobytes()


# Differential privacy under encryption


def _private(**settings: Any) -> Result:
    dp = {"epsilon": 8.0, "clip": 0.3} | settings.pop("dp", {})
    return run(_config(rounds=2, paillier=SMALL | {"dp": True} | settings, dp=dp))


def test_differential_privacy_under_encryption_keeps_its_budget_and_says_against_whom() -> None:
    result = _private()
    assert result.claimed.epsilon is not None
    assert 7.9 < result.claimed.epsilon <= 8.0
    assert result.claimed.against is not None
    assert "the server, the key holders" in result.claimed.against
    assert result.rounds[0].train_loss is None  # nothing but the noised update leaves a client
    assert "noise" in result.sees["server"]
    assert any("meet a client's own share of the noise only, epsilon" in note for note in result.claimed.notes)


def test_its_noise_is_the_calibrated_one(tmp_path: Path) -> None:
    """Two runs that differ in their noise only: the difference of the models has its variance, not 0.8 or 1.2 of it."""
    from tacit.mechanisms.skellam import SkellamMechanism
    from tacit.modes.catalogue import plan_of, resolve

    noisy = _config(out=tmp_path / "noisy", paillier=SMALL | {"dp": True}, dp={"noise": 2.0, "clip": 0.3})
    quiet = _config(out=tmp_path / "quiet", paillier=SMALL | {"dp": True}, dp={"noise": 1e-6, "clip": 0.3})
    mechanism = plan_of(resolve(noisy), CLIENTS).mechanism
    assert isinstance(mechanism, SkellamMechanism)
    run(noisy)
    run(quiet)
    drawn = (_model(tmp_path / "noisy") - _model(tmp_path / "quiet")).astype(np.float64)
    # Five clients add shares sized for the smallest allowed cohort.
    expected = (2.0 * 0.3) ** 2 * (CLIENTS / mechanism.smallest_cohort) / CLIENTS**2
    assert len(drawn) == 650
    assert 0.8 < drawn.var() / expected < 1.2


def test_the_encrypted_sum_is_bit_equal_to_the_same_integers_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.modes import paillier as encrypted
    from tacit.protocols.clear import ClearSum

    settings: dict[str, Any] = {"paillier": SMALL | {"dp": True}, "dp": {"epsilon": 8.0, "clip": 0.3}}
    run(_config(rounds=2, out=tmp_path / "encrypted", **settings))
    clear = ClearSum(minimum_clients=4)
    monkeypatch.setattr(encrypted, "_protocol_of", lambda *_: clear)
    monkeypatch.setattr("tacit.runs.connection.key_parties", lambda *_, **__: KeyParties(holders={}, protocol=clear))
    run(_config(rounds=2, out=tmp_path / "clear", **settings))
    assert _model(tmp_path / "encrypted").tobytes() == _model(tmp_path / "clear").tobytes()


def test_the_variance_of_a_sum_tells_that_a_client_is_absent_but_not_what_it_sent() -> None:
    """The attack on add-remove: 4,000 coordinates, noise of 50, one client more or less, and only the sum is seen."""
    from tacit.accounting import accountant
    from tacit.accounting.ledger import Ledger
    from tacit.mechanisms.mechanism import Work
    from tacit.mechanisms.skellam import SkellamMechanism
    from tacit.modes.catalogue import plan_of, resolve
    from tacit.randomness import Randomness

    federate: dict[str, Any] = {"clients": 10, "minimum_clients": 9}
    asked = _config(paillier=SMALL | {"dp": True}, dp={"noise": 50.0, "clip": 1.0}, federate=federate)
    plan = plan_of(resolve(asked), 10)
    mechanism = plan.mechanism.fitted((4_000,))
    assert isinstance(mechanism, SkellamMechanism)
    nothing = np.zeros(4_000, np.float32)
    largest = np.full(4_000, 4_000**-0.5, np.float32)

    def variance(trial: int, *updates: Any) -> float:
        randomness = Randomness.of(seed=5).within("trial", trial)
        works = [Work(update=update, examples=1, loss=0.0) for update in updates]
        total = sum(mechanism.on_client(work, randomness.within("c", c)) for c, work in enumerate(works))
        return float(np.var(np.asarray(total, np.float64)))

    trials = range(8)
    present = [variance(trial, *[nothing] * 9, largest) for trial in trials]
    zeroed = [variance(trial, *[nothing] * 10) for trial in trials]
    absent = [variance(trial + 100, *[nothing] * 9) for trial in trials]
    middle = 2.0 * mechanism.rate * 9.5
    assert min(present) > middle > max(absent)  # told apart every time, whatever epsilon says
    assert min(zeroed) > middle

    assert plan.claim is not None
    assert plan.claim.neighbours == "zero-out"
    spent = accountant.epsilon(Ledger(neighbours="zero-out").charged(mechanism.event, round_number=1), 1e-5)
    assert spent.epsilon < 0.1  # what add-remove would have claimed to hide
    for mode in ({"noise": 50.0}, {"epsilon": 1.0}):
        refused = _config(paillier=SMALL | {"dp": True}, dp=mode | {"neighbours": "add-remove"}, federate=federate)
        with pytest.raises(ConfigError, match="absent takes its share of the noise with it"):
            plan_of(resolve(refused), 10)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_relation_is_named_in_the_result_and_in_the_ledger(relation: str, tmp_path: Path) -> None:
    dp = {"epsilon": 8.0, "clip": 0.3} | ({} if relation == "zero-out" else {"neighbours": relation})
    config = _config(out=tmp_path, paillier=SMALL | {"dp": True}, dp=dp)
    assert run(config, force=True).claimed.neighbours == relation
    assert any("takes its share of the noise" in note for note in resume(tmp_path).claimed.notes)


def test_colluding_clients_are_made_up_for() -> None:
    from tacit.modes.catalogue import plan_of, resolve

    settings: dict[str, Any] = {"dp": {"noise": 1.0}, "federate": {"minimum_clients": 4}}
    alone = plan_of(resolve(_config(paillier=SMALL | {"dp": True}, **settings)), CLIENTS).mechanism
    settings = {"dp": {"noise": 1.0}, "federate": {"minimum_clients": 4}}
    guarded = plan_of(resolve(_config(paillier=SMALL | {"dp": True, "colluding": 2}, **settings)), CLIENTS).mechanism
    assert guarded.rate == pytest.approx(2 * alone.rate)  # type: ignore[attr-defined]


# What key holders refuse


def test_a_sum_of_one_is_not_opened_even_if_the_settings_allow_it() -> None:
    config = _config(paillier=SMALL, federate={"drop": 0.85, "minimum_clients": 1, "retries": 0})
    with pytest.raises(DropoutError, match="a sum of 1 vectors was not opened, expected at least 2"):
        run(config)


def test_a_federation_of_one_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match="the sum of one is that client's update"):
        run(_config(paillier=SMALL, federate={"clients": 1}))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("authority", "a server and the key authority together can break that rule"),
        ("threshold", "a server and 1 of 3 key holders together can break that rule"),
        ("shared", "a server that lies to any one client, as all have the key, can break that rule"),
    ],
)
def test_the_report_says_who_could_break_the_rule(keys: str, words: str) -> None:
    from tacit.modes.catalogue import plan_of, resolve

    config = _config(paillier=SMALL | {"dp": True, "keys": keys}, dp={"epsilon": 8.0, "clip": 0.3})
    claim = plan_of(resolve(config), CLIENTS).claim
    assert claim is not None
    assert any(words in note for note in claim.notes)


# Keys from files


def test_a_key_file_is_used_and_its_fingerprint_checked(tmp_path: Path) -> None:
    public, private = paillier.generate(bits=256, insecure_key_size=True)
    path = tmp_path / "private.key"
    keyfile.save(path, private)
    run(_config(paillier=SMALL | {"key": path, "fingerprint": public.fingerprint}))
    with pytest.raises(KeysError, match="expected 00:00"):
        run(_config(paillier=SMALL | {"key": path, "fingerprint": "00:00"}))


# Settings that make no sense


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"paillier": {"bits": 1024}}, "1024 bits is not secure"),
        ({"paillier": SMALL | {"keys": "threshold", "shares": "4/3"}}, "threshold=4 of shares=3"),
        ({"paillier": SMALL | {"keys": "threshold", "kind": "subgroup"}}, "Threshold keys are of kind standard"),
        (
            {"paillier": SMALL, "dp": {"epsilon": 3.0}},
            r"dp.epsilon has no effect in mode 'paillier'. By itself it adds no noise",
        ),
        ({"paillier": SMALL | {"dp": True}, "dp": {"epsilon": 1.0, "noise": 1.0}}, "both was given"),
        ({"paillier": SMALL | {"dp": True}, "dp": {"epsilon": 1.0, "clip": "adaptive"}}, "fixed clip bound"),
        ({"paillier": SMALL | {"dp": True}, "dp": {"epsilon": 1.0, "denoise": "james-stein"}}, r"dp.denoise"),
        (
            {"paillier": SMALL | {"dp": True}, "dp": {"epsilon": 1.0}, "federate": {"weighting": "examples"}},
            "reveals how many examples",
        ),
        ({"paillier": SMALL | {"dp": True, "colluding": 5}, "dp": {"epsilon": 1.0}}, "colluding=5"),
        ({"paillier": SMALL | {"shares": "0/3"}}, "shares"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(_config(**settings))


def test_a_key_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match=r"none\.key"):
        run(_config(paillier=SMALL | {"key": tmp_path / "none.key"}))


def _lying(monkeypatch: pytest.MonkeyPatch, mechanism: type[Any], lie: Callable[[Any, Any], Any]) -> None:
    """Let the third vector of each round, whoever's it is, be a lie."""
    honest, made = mechanism.on_client, []

    def on_client(self: Any, *arguments: Any) -> Any:
        vector = honest(self, *arguments)
        made.append(1)
        return lie(self, vector) if len(made) % CLIENTS == 3 else vector

    monkeypatch.setattr(mechanism, "on_client", on_client)


def _takes_weight_away(mechanism: BoundedMean, vector: Any) -> Any:
    """Every number is within the clip; the mean of a coordinate would be beyond it."""
    lie = np.full_like(vector, mechanism.clip)
    lie[-3:] = np.array([-1.0, 0.0, 0.0]) * mechanism.clip
    return lie


def _fills_its_slots(mechanism: SkellamMechanism, vector: Any) -> Any:
    return np.full_like(vector, mechanism.bound)


@pytest.mark.parametrize("keys", ["authority", "threshold"])
@pytest.mark.parametrize(
    ("mechanism", "lie", "settings", "words"),
    [
        (BoundedMean, _takes_weight_away, {}, "expected 1 at most|a weight of"),
        (SkellamMechanism, _fills_its_slots, {"dp": {"noise": 0.3, "clip": 0.3}}, "a norm of"),
    ],
    ids=["mean", "skellam"],
)
def test_a_sum_that_no_honest_cohort_gives_is_not_released(
    mechanism: type[Any],
    lie: Callable[[Any, Any], Any],
    settings: dict[str, Any],
    words: str,
    keys: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _lying(monkeypatch, mechanism, lie)
    chosen = SMALL | {"keys": keys, "dp": mechanism is SkellamMechanism}
    with pytest.raises(
        SpoiledError, match=rf"The opened sum of 5 clients has .*({words}).* lied.*Nothing was released"
    ):
        run(_config(out=tmp_path, paillier=chosen, **settings))
    journal = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert [record["type"] for record in journal] == ["start", "attempt", "failed", "stopped"]  # and not tried again
    assert not (tmp_path / RESULT).exists()
