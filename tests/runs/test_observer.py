from __future__ import annotations

import io
import threading

import pytest
import torch
from torch import nn

from tacit import Federation
from tacit.runs.observer import Computing, Lines
from tests.runs.common import Watching


def test_what_takes_long_is_told_of_and_no_moments_work() -> None:
    now, watching = [0.0], Watching()
    computing = Computing(watching, clock=lambda: now[0])
    for at, share in ((0.0, 0.1), (1.0, 0.2), (2.5, 0.5), (2.6, 0.6), (3.0, 0.7), (3.1, 1.0)):
        now[0] = at
        computing("encrypting", share)
    assert watching.computed == [("encrypting", 0.5), ("encrypting", 0.7), ("encrypting", 1.0)]
    for at, share in ((10.0, 0.5), (10.5, 1.0)):  # a new one, and short
        now[0] = at
        computing("encrypting", share)
    assert len(watching.computed) == 3


def test_clients_that_encrypt_side_by_side_have_one_bar() -> None:
    now, watching = [0.0], Watching()
    computing = Computing(watching, clock=lambda: now[0])
    computing("encrypting", 0.1)
    held, ready = threading.Event(), threading.Event()

    def other() -> None:
        computing("encrypting", 0.25)
        ready.set()
        held.wait()
        computing("encrypting", 1.0)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    now[0] = 5.0
    computing("encrypting", 0.75)
    assert watching.computed == [("encrypting", 0.5)]
    now[0] = 6.0
    held.set()
    thread.join()
    assert watching.computed[1:] == [("encrypting", 0.75)]  # one is done, and the other is not
    now[0] = 7.0
    computing("encrypting", 1.0)
    assert watching.computed[2:] == [("encrypting", 1.0)]


def test_lines_say_now_and_then_how_far_a_long_computation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tacit.runs.observer.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    lines = Lines(stream)
    lines.started(title="digits", rounds=3, done=())
    for at in (5.0, 11.0, 12.0, 30.0):
        now[0] = at
        lines.doing("encrypting", at / 100)
    lines.doing("training")
    lines.doing("encrypting", 1.0)
    assert stream.getvalue().splitlines()[1:] == ["round 1/3: encrypting, 11%", "round 1/3: encrypting, 30%"]


def test_a_run_tells_how_far_its_clients_and_its_key_holder_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.crypto.ring.BLOCK", 2)
    monkeypatch.setattr("tacit.runs.observer._LONG", 0.0)
    monkeypatch.setattr("tacit.runs.observer._PAUSE", 0.0)
    own = (torch.eye(8), torch.arange(8) % 2)
    federation = Federation(
        model=nn.Linear(8, 32),
        clients=[own, own],
        mode="paillier",
        paillier={"bits": 512, "insecure_key_size": True},
        seed=1,
        evaluate={"train": False},
    )
    watching = Watching()
    federation.fit(rounds=1, observer=watching)
    told = {what: [share for name, share in watching.computed if name == what] for what, _ in watching.computed}
    assert told.keys() == {"encrypting", "blinding the sum", "decrypting"}
    assert all(shares[-1] == 1.0 and len(shares) > 5 for shares in told.values())
    assert told["decrypting"] == sorted(told["decrypting"])
