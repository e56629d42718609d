"""The audit of every mode as it is: quiet, and close enough to the claim to see something."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger
from tacit.audit import cases, examples
from tacit.audit.audit import Effort, audit
from tacit.audit.event import chosen
from tacit.audit.subject import Pair, Subject
from tacit.errors import ConfigError, RunError
from tacit.flower.strategy import audited
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.modes.catalogue import MODES
from tacit.randomness import Randomness

FEW = Effort(explore=20, count=60)
SEED = Randomness.of(seed=1)


def honest() -> GaussianMechanism:
    """Return a mechanism as somebody's own module has one."""
    return GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=2.0)


def no_mechanism() -> object:
    return object()


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_quiet(mode: str) -> None:
    subjects = cases.of_mode(mode, randomness=SEED.within(mode))
    assert bool(subjects) == MODES[mode].adds_noise
    for subject in subjects:
        few = replace(subject, pairs=[*subject.pairs[:2], subject.pairs[-1]])
        found = audit(few, effort=FEW)
        assert not found.refuted
        assert found.bound <= found.epsilon
        assert found.to_dict()["tried"] == [pair.name for pair in few.pairs]


def test_flowers_strategy_is_quiet() -> None:
    subject = audited.subject(seed=1)
    found = audit(subject, effort=FEW)
    assert not found.refuted
    assert 0.0 < found.bound <= found.epsilon


def test_it_comes_close_where_the_noise_is_small() -> None:
    """A bound that is always zero would find everything in order."""
    (subject,) = cases.of_mode("dp", randomness=SEED, dp={"noise": 1.0}, federate={"clients": 3})
    found = audit(replace(subject, pairs=subject.pairs[:1]), effort=Effort(explore=20, count=300))
    assert 0.5 * found.epsilon < found.bound < found.epsilon
    assert found.any_shape < found.bound


@pytest.mark.parametrize("update", ["an update near the end of floats", "an update that is no number"])
def test_adversarial_updates_are_hidden_in_a_release_that_can_be_read(update: str) -> None:
    (subject,) = cases.of_mode("dp", randomness=SEED, dp={"noise": 1.0}, federate={"clients": 3})
    (pair,) = [pair for pair in subject.pairs if pair.name == update]
    assert np.isfinite(pair.worlds[0](20)).all()


def test_a_run_is_audited_by_its_own_settings(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config: dict[str, Any] = {"data": {"name": "digits"}, "federate": {"rounds": 1, "clients": 4}, "seed": 1}
    tacit.run(tacit.RunConfig(mode="dp-sgd", dpsgd={"noise": 1.3, "batch_size": 50}, out=folder, **config), quiet=True)
    (subject,) = cases.of_run(folder, randomness=SEED)
    (charge,) = {charge.event for charge in subject.pairs[0].claimed.ledger.charges}
    noise, rate = examples.charged(charge)
    assert noise == 1.3
    assert rate == pytest.approx(50 / 359, rel=0.15)  # a client holds 359 of 1,437 examples or so
    assert subject.pairs[0].claimed.ledger.unit == "example"


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("result.json", '"epsilon": [0-9.]+', '"epsilon": 0.9', "the claim is false, or a file was changed"),
        ("config.yaml", "noise: 1[.]3", "noise: 2.6", "the settings were changed since"),
    ],
)
def test_a_claim_that_is_not_what_was_charged_is_refused(
    name: str, before: str, after: str, said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    config: dict[str, Any] = {"data": {"name": "digits"}, "federate": {"rounds": 2, "clients": 4}, "seed": 1}
    tacit.run(tacit.RunConfig(mode="dp", dp={"noise": 1.3}, out=folder, **config), quiet=True)
    assert cases.of_run(folder, randomness=SEED)
    text = (folder / name).read_text()
    assert re.search(before, text)
    (folder / name).write_text(re.sub(before, after, text))
    with pytest.raises(RunError, match=said):
        cases.of_run(folder, randomness=SEED)


def test_a_mechanism_of_ones_own() -> None:
    subject = cases.of_mechanism(f"{__name__}:honest", claim=None, randomness=SEED)
    assert not audit(subject, effort=FEW).refuted
    false = audit(
        cases.of_mechanism(f"{__name__}:honest", claim=0.1, randomness=SEED), effort=Effort(explore=20, count=100)
    )
    assert false.refuted
    assert 0.1 < false.bound == false.any_shape


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "package.module:Name"),
        ("no.such.module:Name", "ModuleNotFoundError"),
        (f"{__name__}:no_mechanism", "has no on_client"),
    ],
)
def test_what_is_no_mechanism_is_told_in_a_sentence(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cases.of_mechanism(path, claim=1.0, randomness=SEED)


def test_an_alarm_by_chance_is_asked_again() -> None:
    """The first look at an honest mechanism may exceed its claim once in twenty; an alarm takes more than that."""
    generator = np.random.default_rng(1)
    calls = {"first": 0}

    def unlucky(trials: int) -> np.ndarray[Any, Any]:
        calls["first"] += 1
        return generator.normal(3.0 if calls["first"] == 1 else 0.5, 1.0, (trials, 1))

    pair = Pair(
        name="luck",
        claimed=Claimed(ledger=Ledger(), delta=1e-5, pair=1.0),
        worlds=(unlucky, lambda trials: generator.normal(0.0, 1.0, (trials, 1))),
    )
    found = audit(Subject(name="luck", pairs=[pair], against="nobody"), effort=Effort(explore=20, count=200))
    assert calls["first"] == 3
    assert not found.refuted
    assert found.bound <= 1.0


def test_noise_that_two_numbers_share_is_cancelled() -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(0.0, 10.0, (400, 1))
    first, second = (np.hstack([own, own]) for own in (noise[:200], noise[200:]))
    first[:, 0] += 0.1
    event = chosen(first, second, Claimed(ledger=Ledger(), delta=1e-5, pair=1.0), confidence=0.95)
    seen = event.rates(first, second, confidence=0.95)
    assert seen.likely > 0.9
    assert seen.unlikely < 0.1


def test_numbers_that_are_none_separate_worlds_and_break_nothing() -> None:
    first, second = np.full((50, 2), math.nan), np.zeros((50, 2))
    event = chosen(first, second, Claimed(ledger=Ledger(), delta=1e-5, pair=1.0), confidence=0.95)
    assert event.rates(first, second, confidence=0.95).likely > 0.9


def test_rounds_that_all_fail_are_no_quiet_audit() -> None:
    claimed = Claimed(ledger=Ledger(), delta=1e-5, pair=1.0)
    pair = Pair(name="none", claimed=claimed, worlds=(lambda n: np.ones((n, 2)), lambda n: np.ones((n, 2))))
    with pytest.raises(RunError, match="nothing that is seen varies"):
        audit(Subject(name="silent", pairs=[pair], against="nobody"), effort=FEW)


def test_what_is_charged_for_a_whole_run_is_refused() -> None:
    federate = {"clients": 20, "separation": 10, "rounds": 10}
    with pytest.raises(ConfigError, match="whole run at once"):
        cases.of_mode("dp", randomness=SEED, dp={"noise": 1.0, "correlation": "banded"}, federate=federate)


def test_what_claims_nothing_is_not_audited() -> None:
    with pytest.raises(ConfigError, match="nothing to audit"):
        audit(Subject(name="plain", pairs=[], against=""))
    with pytest.raises(ConfigError, match="20 trials"):
        Effort(explore=5)
