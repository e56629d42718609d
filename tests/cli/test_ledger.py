from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tacit.accounting.events import GaussianEvent
from tacit.cli.ledger import _list
from tacit.runs.ledger import Line


def test_a_release_whose_epsilon_was_never_told_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    event = GaussianEvent(noise_multiplier=1.0)
    told = Line(round_number=1, attempt=0, release="Gaussian noise 1", event=event, epsilon=4.88046)
    _list([told, replace(told, attempt=1, epsilon=None), replace(told, round_number=2, epsilon=math.inf)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines[1:]] == ["4.8805", "1", "infinite"]  # nothing follows the noise of the second
