from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tacit_labs.harness import catalogue, files
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.learning import learned
from tacit_labs.harness.record import Outcome, recorded
from tacit_labs.signds_001 import measured
from tacit_labs.signds_001 import run as signds_lenet
from tacit_labs.signds_001.measured import at_their_size
from tests.labs.common_learning import stand_in

MNIST = replace(signds_lenet.MNIST, clients=10, rounds=2)
WRITERS = replace(signds_lenet.WRITERS, rounds=2, local_epochs=1, batch_size=8)


def reproduced(tmp_path: Path, *tasks: signds_lenet.Task, quick: bool = False) -> Reproduction:
    return signds_lenet.reproduce(tasks, Settings(quick=quick, out=tmp_path), silent)


def test_uploads_at_the_originals_size_are_those_of_the_plan() -> None:
    few, many = at_their_size()
    assert (many.chosen, many.sent, many.integers) == (176, 228, 704)
    assert few.chosen < 50
    assert few.sent < 100


def test_both_tasks_are_compared_with_the_original(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch)
    made = reproduced(tmp_path, MNIST, WRITERS)
    tasks = made.data["tasks"]
    assert list(tasks) == ["mnist", "femnist"]
    plain, signds = (tasks["mnist"]["ways"][way] for way in (measured.PLAIN, measured.DOCUMENTED))
    assert plain["parameters"] == 61_684
    assert plain["bytes_up_a_client_a_round"] > 4 * 61_684
    assert signds["bytes_up_a_client_a_round"] < 300
    assert plain["epsilon"] is None
    assert signds["epsilon"] == 2 * 105
    assert len(plain["curve"]) == 2
    assert list(tasks["femnist"]["ways"]) == [measured.PLAIN, measured.EARLIER, measured.DOCUMENTED]
    assert tasks["femnist"]["ways"][measured.EARLIER]["epsilon"] == 2 * 100  # no bit is asked for
    said = {found.what: found for found in made.findings}
    assert "266,084 to 656 bytes, 406x less" in said["upload per client and round"].original
    assert "66.50%" in said["accuracy, FEMNIST, 2 rounds"].original
    assert "epsilon 210 after 2 rounds" in said["privacy"].ours
    assert "5 clients" in made.settings
    assert len(said["upload per client and round"].why) < 220


def test_without_femnist_the_rest_is_run_and_the_page_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch, femnist=False)
    made = reproduced(tmp_path, MNIST, WRITERS)
    assert list(made.data["tasks"]) == ["mnist"]
    assert "TACIT_DATA" in made.settings
    assert any(found.ours == "not run" for found in made.findings)


def test_the_quick_form_names_what_is_smaller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, femnist=False)
    made = reproduced(tmp_path, MNIST, quick=True)
    assert "2 rounds instead of 200" in made.smaller
    assert signds_lenet.reproduce.__module__ == catalogue.MODULES["signds-001"]
    assert not any(found.ours == "not run" for found in made.findings)
    outcome = Outcome(
        experiment=signds_lenet.EXPERIMENT,
        reproduction=made,
        record=recorded(Settings(quick=True, out=tmp_path), 1.0),
    )
    paths = files.write(outcome, tmp_path / "page")
    html = (tmp_path / "page" / "signds-001.html").read_text()
    assert "Quick run" in html
    assert "Test accuracy" in html
    assert json.loads((tmp_path / "page" / "signds-001.json").read_text())["data"]["quoted"]["upload_signds"] == 656
    assert len(paths) == 3


def test_a_finished_run_is_read_and_another_setting_is_run_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch)
    settings = Settings(out=tmp_path)
    ways = {way: MNIST.settings(way, settings) for way in MNIST.ways}
    first = learned(ways, tmp_path, what="digits", progress=silent, workers=1)
    monkeypatch.setattr("tacit.runs.run.run", lambda *_args, **_options: pytest.fail("it was run again"))
    again = learned(ways, tmp_path, what="digits", progress=silent, workers=1)
    assert again == first
    monkeypatch.undo()
    stand_in(monkeypatch)
    longer = {way: replace(MNIST, rounds=3).settings(way, settings) for way in MNIST.ways}
    seen = []
    other = learned(
        longer, tmp_path, what="digits", progress=lambda what, **numbers: seen.append((what, numbers)), workers=1
    )
    assert [len(result.rounds) for result in other.values()] == [3, 3]
    assert seen[-1] == ("digits, rounds", {"done": 6, "total": 6})
