from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.crypto import paillier
from tacit_labs.bench import machine
from tacit_labs.bench.crypto import run as crypto
from tacit_labs.bench.crypto import tacit_jobs
from tacit_labs.bench.crypto.table import table
from tacit_labs.bench.crypto.targets import targets
from tests.labs.bench.common_crypto import results


def test_jobs_are_interleaved_and_the_best_counts() -> None:
    order: list[str] = []
    times = {"a": iter([3.0, 1.0, 2.0]), "b": iter([5.0, 6.0, 4.0])}

    def job(side: str) -> crypto.Job:
        def work() -> dict[str, Any]:
            order.append(side)
            return {"seconds": next(times[side]), "wall": 9.0}

        return side, "encrypt", 10.0, work

    figures = crypto._interleaved([job("a"), job("b")], 3, lambda _: None)
    assert order == ["a", "b"] * 3
    assert (figures["a", "encrypt"].seconds, figures["b", "encrypt"].seconds) == (10.0, 40.0)
    assert figures["a", "encrypt"].wall == 90.0


def test_targets_say_what_was_met() -> None:
    met = {target.name: target.met for target in targets(results())}
    assert met["encrypt, public key, times phe"]
    assert met["noise pool, online part per ciphertext"]
    assert not met["encrypt, key holder, times phe"]  # a thousand times, and 1,300 were wanted
    assert not met["two cores: encrypt 1,000,000 floats"]


def test_without_phe_there_are_no_ratios_and_the_rest_stands() -> None:
    whole = results()
    without = replace(whole, rows=[replace(row, times_phe=None) for row in whole.rows[1:]])
    assert all("times phe" not in target.name for target in targets(without))
    assert "public key" in table(without)


def test_the_table_tells_samples_absent_peers_and_misses() -> None:
    text = table(results())
    assert "phe *" in text
    assert "two independent processes get 1.97x done of what one does" in text
    assert "* timed on a sample of floats and scaled to all: 10 (phe and pypaillier)" in text
    assert "left out: lightphe (ModuleNotFoundError" in text
    assert "scaled from 50" in text
    assert sum(line.endswith("missed") for line in text.splitlines()) == 4


def test_the_machine_is_described_without_names() -> None:
    described = machine.describe(["numpy", "no-such-package"])
    assert described.processor
    assert described.packages.keys() == {"numpy"}
    text = repr(described)
    assert platform.node() not in text or not platform.node()
    assert str(Path.cwd()) not in text


def test_own_jobs_do_what_they_say_on_a_small_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    public, private = paillier.generate(bits=2048)
    monkeypatch.setattr(tacit_jobs, "keys", lambda kind="standard", bits=2048: (public, private))
    for by in ("public", "holder", "pool"):
        done = tacit_jobs.encrypt(kind="standard", by=by, length=100, workers=1)
        assert (done["ciphertexts"], done["floats"]) == (2, 100)
    assert tacit_jobs.decrypt(kind="standard", length=100, workers=1)["ciphertexts"] == 2
    assert tacit_jobs.add(count=3, length=100).keys() >= {"seconds", "wall"}
    assert tacit_jobs.parse(count=3, length=100)["seconds"] >= 0
    assert tacit_jobs.powers(kind="standard", length=100).keys() == {"secret", "plain"}
    assert tacit_jobs.labs(bits=10, repeats=2)["repeats"] == 2
    tacit_jobs.encrypted.cache_clear()
    tacit_jobs.clients.cache_clear()
