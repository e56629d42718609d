"""Runs with correlated noise: a crash forgets past noise and no charge, and a repeated round is paid for twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config.run_config import RunConfig
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.mechanisms.mechanism import Release
from tacit.runs.folder import JOURNAL
from tacit.runs.ledger import ledger_of
from tacit.runs.run import resume, run
from tests.runs.common import digits, lines

SECTIONS: dict[str, Any] = {
    "mode": "dp",
    "federate": {"clients": 6, "rounds": 6, "separation": 3},
    "dp": {"noise": 3.0, "correlation": "banded"},
    "evaluate": {"every": 6, "train": False},
}


class Watched:
    """Takes down what each release remembered, and stops a run in a chosen round, after its noise was drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.remembered: list[tuple[int, int]] = []
        self.stop_in: int | None = None
        release = CorrelatedMechanism.on_server

        def watched(mechanism: CorrelatedMechanism, *arguments: Any, **more: Any) -> Release:
            made = release(mechanism, *arguments, **more)
            self.remembered.append((mechanism.released + 1, len(mechanism.memory)))
            if mechanism.released + 1 == self.stop_in:
                raise KeyboardInterrupt
            return made

        monkeypatch.setattr(CorrelatedMechanism, "on_server", watched)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def _stopped(watched: Watched, config: RunConfig) -> None:
    watched.stop_in = 5
    with pytest.raises(KeyboardInterrupt):
        run(config, quiet=True)
    watched.stop_in = None
    watched.remembered.clear()


def test_after_a_crash_a_real_run_has_forgotten_its_noise_and_no_charge(tmp_path: Path, watched: Watched) -> None:
    out = tmp_path / "run"
    _stopped(watched, digits(**SECTIONS, seed=None, out=out))
    result = resume(out, quiet=True)
    assert watched.remembered == [(5, 0), (6, 1)]  # it begins anew, and remembers from there
    charged = [record for record in lines(out / JOURNAL) if record["type"] == "attempt"]
    assert [record["round"] for record in charged] == [1, 2, 3, 4, 5, 5, 6]
    assert [record["charge"]["clients"] for record in charged[3:6]] == [[0, 3], [1, 4], [1, 4]]
    # Clients 1 and 4 were in rounds 2 and 5, and pay for both tries of round 5.
    once, again = (run(digits(**SECTIONS | {"federate": federate}), quiet=True) for federate in (_twice(2), _twice(3)))
    assert result.privacy is not None
    assert once.privacy is not None
    assert again.privacy is not None
    assert result.privacy.epsilon == pytest.approx(again.privacy.epsilon)
    assert result.privacy.epsilon > once.privacy.epsilon
    assert ledger_of(out).lines[-1].epsilon == pytest.approx(result.privacy.epsilon)


def _twice(participations: int) -> dict[str, Any]:
    return {"clients": 6, "rounds": 3 * participations, "separation": 3}


def test_after_a_crash_a_seeded_run_has_its_noise_again(tmp_path: Path, watched: Watched) -> None:
    whole = run(digits(**SECTIONS), quiet=True)
    watched.remembered.clear()
    out = tmp_path / "run"
    _stopped(watched, digits(**SECTIONS, out=out))
    result = resume(out, quiet=True)
    assert watched.remembered == [(5, 2), (6, 2)]
    assert result.test_loss == whole.test_loss


def test_nothing_on_disk_holds_past_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw is marked by a number that no file of the run may hold, in any width."""
    from tacit.randomness import Randomness

    mark = 1.2345678901234567
    monkeypatch.setattr(Randomness, "normal", lambda _, count, *__: np.full(count, mark))
    out = tmp_path / "run"
    run(digits(**SECTIONS, seed=None, out=out), quiet=True)
    for path in out.iterdir():
        data = path.read_bytes()
        assert np.float64(mark).tobytes() not in data, path.name
        assert np.float32(mark).tobytes() not in data, path.name


def test_a_budget_is_kept_whatever_is_repeated(tmp_path: Path, watched: Watched) -> None:
    out = tmp_path / "run"
    sections = SECTIONS | {"dp": {"epsilon": 4.0, "correlation": "blt"}}
    _stopped(watched, digits(**sections, seed=None, out=out))
    result = resume(out, quiet=True)
    assert result.privacy is not None
    assert result.privacy.epsilon <= 4.0
    assert len(result.rounds) == 4  # the client that was asked twice can't be asked once more
    assert "over the budget of 4" in result.notes[-1]


def test_drop_outs_change_neither_noise_nor_charge(watched: Watched) -> None:
    federate = SECTIONS["federate"] | {"drop": 0.5}
    whole, fewer = (run(digits(**SECTIONS | more), quiet=True) for more in ({}, {"federate": federate}))
    assert whole.privacy is not None
    assert fewer.privacy is not None
    assert whole.privacy.epsilon == fewer.privacy.epsilon
    assert watched.remembered[:6] == watched.remembered[6:]
