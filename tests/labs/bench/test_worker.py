from __future__ import annotations

import importlib.util
import io
import json
import sys

import pytest

from tacit_labs.bench.worker import Worker, WorkerError, clocked, serve


def test_a_side_answers_and_goes_on_after_a_job_that_failed() -> None:
    with Worker("tacit_labs.bench.crypto.tacit_jobs", settings={"TACIT_CRYPTO_BACKEND": "gmpy2"}) as worker:
        with pytest.raises(WorkerError, match="KeyError: 'no such job'"):
            worker.ask("no such job")
        assert worker.ask("which") == {"backend": "gmpy2", "reason": "TACIT_CRYPTO_BACKEND asks for it"}


def test_a_side_that_ends_is_an_error_and_no_endless_wait() -> None:
    with Worker("tacit_labs.bench") as worker, pytest.raises((WorkerError, BrokenPipeError)):
        worker.ask("anything")


@pytest.mark.skipif(importlib.util.find_spec("lightphe") is not None, reason="the peer is installed here")
def test_an_absent_peer_is_named() -> None:
    with (
        Worker("tacit_labs.bench.crypto.peers") as worker,
        pytest.raises(WorkerError, match=r"ModuleNotFoundError.*lightphe"),
    ):
        worker.ask("prepare", peer="lightphe")


def test_what_a_job_prints_does_not_disturb_the_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def noisy(*, number: int) -> dict[str, int]:
        print("a peer's greeting")
        return {"twice": 2 * number}

    answers = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"job": "noisy", "arguments": {"number": 4}}) + "\n"))
    monkeypatch.setattr(sys, "stdout", answers)
    serve({"noisy": noisy})
    assert json.loads(answers.getvalue()) == {"twice": 8}
    assert "greeting" in capsys.readouterr().err


def test_the_clock_sees_work() -> None:
    took = clocked(lambda: sum(range(10**5)))
    assert took["seconds"] >= 0
    assert took["wall"] > 0
