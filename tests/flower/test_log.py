from __future__ import annotations

import pytest

from tacit.errors import RunError
from tacit.flower.log import ERROR, LINE, NOTE, LoggingObserver
from tacit.runs.run import run
from tests.runs.common import digits


def test_every_line_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    observer = LoggingObserver()
    observer.note("in two\nlines")
    observer.failed(RunError("Node 5 refused."))
    result = run(digits(mode="dp", dp={"noise": 1.0}), observer=observer)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{NOTE}in two lines", f"{ERROR}Node 5 refused."]
    told = [line.removeprefix(LINE) for line in lines if line.startswith(LINE)]
    assert told[0] == "Digits (8x8), logistic, 5 clients (iid): 2 rounds"
    assert [line.partition(",")[0] for line in told[1:3]] == [f"round {n}: 5 clients" for n in (1, 2)]
    assert told[3].startswith(f"epsilon {result.claimed.epsilon:.4g} at delta 1e-05")
    assert told[-1].startswith("done: accuracy")
