from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.audit import audit as audits
from tacit.audit.audit import Effort
from tacit.cli.audit import sentence
from tacit.cli.main import app
from tacit.mechanisms.gaussian import GaussianMechanism

OWN = f"{__name__}:mine"


def mine() -> GaussianMechanism:
    return GaussianMechanism(clip_bound=1.0, noise_multiplier=0.5, expected_clients=2.0)


def _told(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, Any]:
    monkeypatch.setattr(audits, "QUICK", Effort(explore=20, count=60))
    done = CliRunner().invoke(app, ["audit", *words, "--quick", "--seed", "1"])
    return done.exit_code, done


def test_a_false_claim_is_an_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    status, done = _told(monkeypatch, OWN, "--claim", "0.05")
    assert status == 1
    assert "The claim is false." in done.output
    assert "(add-remove) against whoever sees what is released" in done.output


def test_a_claim_that_holds_up_is_told_as_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    status, done = _told(monkeypatch, OWN, "--json")
    assert status == 0
    (found,) = json.loads(done.output)["findings"]
    assert 0.0 < found["bound"] <= found["epsilon"]
    assert (found["unit"], found["neighbours"], found["refuted"]) == ("client", "add-remove", False)
    made = audits.Finding(**{**found, "tried": tuple(found["tried"]), "notes": ()})
    assert "which is no proof of it" in sentence(made)
    assert "FALSE" not in sentence(replace(made, refuted=True))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of them"),
        (("--all", "dp"), "one of them"),
        (("dp", "--claim", "1"), "--claim is for a mechanism of your own"),
        (("no/such/run",), "not the folder of a run"),
        ((OWN, "--neighbours", "friends"), "Unknown neighbours"),
    ],
)
def test_what_can_not_be_audited_is_refused(words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, done = _told(monkeypatch, *words)
    assert said in str(done.exception)
